-- Built-in functions; null in, null out unless noted; names in any case

=== 2.4.length | length counts code points, of the empty text none
> MATCH () RETURN length("naïve 🙂"), length(""), len("abc"), LENGTH("ab"), length(null), length([1, 2])
7 | 0 | 3 | 2 | null | 2
> MATCH () RETURN length(5)
! E2003 length() must be String

=== 2.4.case | lower, upper and trim know Unicode
> MATCH () RETURN lower("ÄÖ Straße"), upper("éa"), trim("\t  a b \n"), lower(null), upper(null), trim(null)
"äö straße" | "ÉA" | "a b" | null | null | null

=== 2.4.contains | contains, starts_with and ends_with are exact; the empty text is everywhere
> MATCH () RETURN contains("abc", "b"), contains("abc", "B"), contains("abc", ""), contains("", ""), contains(null, "a")
true | false | true | true | null
> MATCH () RETURN starts_with("abc", "ab"), starts_with("abc", "b"), ends_with("abc", "bc"), ends_with("abc", ""), starts_with("a", null)
true | false | true | true | null
> MATCH () RETURN "abc" STARTS WITH "a", "abc" ENDS WITH "c", "abc" CONTAINS "z", "a" IN ["a", "b"]
true | true | false | true

=== 2.4.substring | substring counts from 0 and ignores positions outside the text
> MATCH () RETURN substring("hello", 1, 3), substring("hello", 2), substring("hello", -5, 2), substring("hello", 9), substring("hello", 1, -1), substring("hello", 5)
"ell" | "llo" | "he" | "" | "" | ""
> MATCH () RETURN substring(null, 1), substring("a", null), substring("a🙂b", 1, 1)
null | null | "🙂"
> MATCH () RETURN substring("a")
! E2007 arity

=== 2.4.replace | replace takes all occurrences, and refuses to look for nothing
> MATCH () RETURN replace("a-b-c", "-", "+"), replace("abc", "x", "y"), replace("aaa", "a", ""), replace(null, "a", "b")
"a+b+c" | "abc" | "" | null
> MATCH () RETURN replace("abc", "", "x")
! E2102 query error
! empty

=== 2.4.split | split gives a list; an empty delimiter the characters
> MATCH () RETURN split("a,b,,c", ","), split("ab", ""), split("", ","), split(null, ",")
["a", "b", "", "c"] | ["a", "b"] | [""] | null

=== 2.4.abs | abs, min and max keep the type; mixed numbers are Float; NaN contaminates
> MATCH () RETURN abs(-3), abs(-2.5), min(2, 3), max(2, 3), min(1, 2.5), max(1, 2.5), abs(null), min(1, null)
3 | 2.5 | 2 | 3 | 1.0 | 2.5 | null | null
> MATCH () RETURN min(0.0 / 0.0, 1.0), max(1.0, 0.0 / 0.0), min("b", "a"), max(@2024-01-01, @2024-06-01)
NaN | NaN | "a" | @2024-06-01T00:00:00.000Z
> MATCH () RETURN min("a", 1)
! E2003 one type

=== 2.4.floor | floor, ceil and round give Int; half is rounded up
> MATCH () RETURN floor(-1.5), ceil(-1.5), round(-1.5), round(2.5), round(2.4), round(-0.5), floor(3), round(null)
-2 | -1 | -1 | 3 | 2 | 0 | 3 | null
> MATCH () RETURN floor("x")
! E2003 Int or Float

=== 2.4.is_nan | is_nan
> MATCH () RETURN is_nan(0.0 / 0.0), is_nan(1.0), is_nan(null)
true | false | null

=== 2.4.is_email | is_email, is_url, is_uuid, is_slug
> MATCH () RETURN is_email("a.b@example.org"), is_email("a@b"), is_email("nobody"), is_email(null)
true | false | false | null
> MATCH () RETURN is_url("https://example.org/x?y=1"), is_url("ftp://example.org"), is_url("example.org"), is_url(null)
true | false | false | null
> MATCH () RETURN is_uuid("123e4567-e89b-12d3-a456-426614174000"), is_uuid("123e4567"), is_uuid(null)
true | false | null
> MATCH () RETURN is_slug("a-b-1"), is_slug("A-b"), is_slug("a--b"), is_slug("-a"), is_slug(null)
true | false | false | false | null

=== 2.4.is_phone | is_phone, is_iso_date, is_iso_datetime, is_ipv4, is_ipv6
> MATCH () RETURN is_phone("+4930123456"), is_phone("030 123"), is_phone(null)
true | false | null
> MATCH () RETURN is_iso_date("2024-02-29"), is_iso_date("2023-02-29"), is_iso_date("2024-1-1"), is_iso_date(null)
true | false | false | null
> MATCH () RETURN is_iso_datetime("2024-01-01T10:00:00Z"), is_iso_datetime("2024-01-01"), is_iso_datetime(null)
true | false | null
> MATCH () RETURN is_ipv4("192.168.0.1"), is_ipv4("256.1.1.1"), is_ipv4("1.2.3"), is_ipv4(null)
true | false | false | null
> MATCH () RETURN is_ipv6("::1"), is_ipv6("2001:db8::8a2e:370:7334"), is_ipv6("12345::"), is_ipv6(null)
true | true | false | null

=== 2.4.is_null | is_null, is_not_null and coalesce look at null
> MATCH () RETURN is_null(null), is_null(1), is_not_null(null), is_not_null("x"), coalesce(null, 2), coalesce(null, null)
true | false | false | true | 2 | null

=== 2.4.now | now() is constant within a transaction, wall_time() is the current time
.define node E { at: Timestamp? = now() }
> MATCH () RETURN now(), wall_time()
@2024-01-01T00:00:00.000Z | @2024-01-01T00:00:00.000Z
> BEGIN
> SPAWN a: E
.advance 10s
> SPAWN b: E
> MATCH e: E RETURN e.at, now(), wall_time()
@2024-01-01T00:00:00.000Z | @2024-01-01T00:00:00.000Z | @2024-01-01T00:00:10.000Z
@2024-01-01T00:00:00.000Z | @2024-01-01T00:00:00.000Z | @2024-01-01T00:00:10.000Z
> COMMIT
> MATCH () RETURN now()
@2024-01-01T00:00:10.000Z

=== 2.4.logical_time | logical_time() is the tick
.define node E
> MATCH () RETURN logical_time()
0
> SPAWN e: E
> MATCH () RETURN logical_time()
1

=== 2.4.parts | the parts of a timestamp, in UTC; Sunday is day 0
> MATCH () RETURN year(@2024-02-29T23:05:07.089Z), month(@2024-02-29T23:05:07.089Z), day(@2024-02-29T23:05:07.089Z)
2024 | 2 | 29
> MATCH () RETURN hour(@2024-02-29T23:05:07.089Z), minute(@2024-02-29T23:05:07.089Z), second(@2024-02-29T23:05:07.089Z), millisecond(@2024-02-29T23:05:07.089Z)
23 | 5 | 7 | 89
> MATCH () RETURN day_of_week(@2024-03-03), day_of_week(@2024-03-04), day_of_week(@2024-03-09), hour(@2024-01-01T00:30:00+02:00), year(null)
0 | 1 | 6 | 22 | null

=== 2.4.timestamp | timestamp() reads ISO-8601 and refuses the rest
> MATCH () RETURN timestamp("2024-05-01T10:00:00Z"), timestamp("2024-05-01T10:00:00+02:00"), timestamp("2024-05-01"), timestamp(null)
@2024-05-01T10:00:00.000Z | @2024-05-01T08:00:00.000Z | @2024-05-01T00:00:00.000Z | null
> MATCH () RETURN timestamp("yesterday")
! E2102 query error
> MATCH () RETURN timestamp("1969-12-31T23:59:59Z")
! E2102 1970

=== 2.4.to_units | durations in whole units, truncated
> MATCH () RETURN to_milliseconds(1500ms), to_seconds(1999ms), to_minutes(119s), to_hours(119m), to_days(47h), to_seconds(-1999ms), to_days(null)
1500 | 1 | 1 | 1 | 1 | -1 | null

=== 2.4.type_of | type_of names the type of any value
.define
    node Animal
    node Dog: Animal
    edge bites(a: Dog, b: Animal)
>> SPAWN d: Dog LINK bites(#d, #d)
> MATCH a: Animal, bites(a, _) AS e RETURN type_of(a), type_of(e), type_of(#d)
"Dog" | "bites" | "Dog"
> MATCH () RETURN type_of("x"), type_of(1), type_of(1.5), type_of(true), type_of(@2024-01-01), type_of(1s), type_of([1]), type_of(null)
"String" | "Int" | "Float" | "Bool" | "Timestamp" | "Duration" | "List" | null

=== 2.4.context | current_actor() and current_session() are available in queries, the other context functions in policies
.define node User { name: String }
> SPAWN u: User { name = "Ann" }
> MATCH () RETURN current_actor(), current_session() = null
null | false
> BEGIN SESSION AS #u
> MATCH () RETURN current_actor(), current_actor().name
#u | "Ann"
> MATCH () RETURN operation()
! E2009 policy
> MATCH () RETURN target()
! E2009 policy
> MATCH () RETURN target_type()
! E2009 policy
> MATCH () RETURN target_attr()
! E2009 policy

=== 2.4.names | names of functions are written in any case; an unknown one is an error
> MATCH () RETURN Upper("a"), COALESCE(null, 1), Is_Null(null)
columns: Upper | COALESCE | Is_Null
"A" | 1 | true
> MATCH () RETURN nonsense(1)
! E2006 Unknown function 'nonsense'
> MATCH () RETURN upper("a", "b")
! E2007 arity
