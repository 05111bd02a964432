-- Values and types. `MATCH ()` matches once, so that RETURN can compute a value.

.ontology things
    node Thing {
      text: String?, whole: Int?, real: Float?, yes: Bool?, at: Timestamp?, span: Duration?, ref: ID?
    }

=== 2.1.1 | every scalar can be stored and read back
.use things
> SPAWN x: Thing { text = "Grüße 🙂", whole = 42, real = 1.5, yes = true, at = @2024-02-29T12:30:00Z, span = 90s }
created 1
> MATCH t: Thing RETURN t.text, t.whole, t.real, t.yes, t.at, t.span
columns: t.text | t.whole | t.real | t.yes | t.at | t.span
"Grüße 🙂" | 42 | 1.5 | true | @2024-02-29T12:30:00.000Z | 90s

=== 2.1.1 | Int has 64 bits
.use things
> SPAWN big: Thing { whole = 9223372036854775807 }
> SPAWN small: Thing { whole = -9223372036854775807 - 1 }
> MATCH t: Thing RETURN t.whole ORDER BY t.whole
-9223372036854775808
9223372036854775807

=== 2.1.1 | a literal that does not fit into 64 bits is refused
> MATCH () RETURN 9223372036854775808
! E1002

=== 2.1.1 | timestamps and durations are whole milliseconds, UTC, durations signed
> MATCH () RETURN @2024-01-01T00:00:00.123456Z, @2024-01-01T02:00:00+02:00, @2024-01-01, -1500ms
@2024-01-01T00:00:00.123Z | @2024-01-01T00:00:00.000Z | @2024-01-01T00:00:00.000Z | -1500ms

=== 2.1.1 | an ID is opaque: it can be compared for equality only
.use things
> SPAWN a: Thing
> SPAWN b: Thing { ref = #a }
> MATCH b: Thing, a: Thing WHERE b.ref = a.id RETURN b.id, a.id
#b | #a
> MATCH t: Thing WHERE t.id < t.id RETURN t
! E2003 Invalid operator '<'

=== 2.1.1 | references and lists are values too
.use things
> SPAWN a: Thing { whole = 1 }
> MATCH t: Thing RETURN t, [t.whole, 2], COLLECT(t.whole)
Thing #a {whole: 1} | [1, 2] | [1]

=== 2.1.2 | Int becomes Float where Float is declared, and in mixed arithmetic
.use things
> SPAWN x: Thing { real = 3 }
> MATCH t: Thing RETURN t.real, t.real + 1, 1 + 0.5
3.0 | 4.0 | 1.5

=== 2.1.2 | Float becomes Int only by floor, ceil and round
.use things
> SPAWN x: Thing { whole = 1.5 }
! E2003 analysis error
! type mismatch
> SPAWN x: Thing { whole = floor(1.5) }
> SPAWN y: Thing { whole = ceil(1.5) }
> SPAWN z: Thing { whole = round(1.5) }
> MATCH t: Thing RETURN t.whole ORDER BY t.whole
1
2
2

=== 2.1.2 | a Float parameter is no Int either
.use things
.params {"v": 2.5}
> SPAWN x: Thing { whole = $v }
! E2003 Int

=== 2.1.2 | Int is accepted where a Timestamp or a Duration is declared: milliseconds
.use things
> SPAWN x: Thing { at = 12345, span = 1500 }
> MATCH t: Thing RETURN t.at, t.span
@1970-01-01T00:00:12.345Z | 1500ms
> SET #x { at = 1000, span = -1 }
> MATCH t: Thing RETURN t.at, t.span
@1970-01-01T00:00:01.000Z | -1ms

=== 2.1.3 | Int division truncates toward zero and the remainder follows
> MATCH () RETURN 7 / 2, -7 / 2, 7 / -2, 7 % 3, -7 % 3, 7 % -3
3 | -3 | -3 | 1 | -1 | 1

=== 2.1.3 | Int division by zero is an error of the run
> MATCH () RETURN 1 / 0
! E2101 query error
! Division by zero
> MATCH () RETURN 1 % 0
! E2101 Division by zero

=== 2.1.3 | Int overflow wraps
> MATCH () RETURN 9223372036854775807 + 1, -9223372036854775807 - 2, 9223372036854775807 * 2
-9223372036854775808 | 9223372036854775807 | -2

=== 2.1.3 | Float division by zero is infinite or NaN, and NaN differs from itself
> MATCH () RETURN 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0, 0.0 / 0.0 = 0.0 / 0.0, 1 / 0.0
Infinity | -Infinity | NaN | false | Infinity

=== 2.1.3 | NaN and infinity survive being stored
.use things
> SPAWN a: Thing { real = 0.0 / 0.0 }
> SPAWN b: Thing { real = -1.0 / 0.0 }
> MATCH t: Thing RETURN t.id, t.real
#a | NaN
#b | -Infinity
> MATCH t: Thing, u: Thing WHERE t.real = u.real RETURN t.id, u.id
#b | #b

=== 2.1.4 | timestamps and durations: every sum and difference
> MATCH () RETURN @2024-01-01 + 1h, @2024-01-01 - 1s, @2024-01-01 + 5, @2024-01-01 - 5, 1h + @2024-01-01
@2024-01-01T01:00:00.000Z | @2023-12-31T23:59:59.000Z | @2024-01-01T00:00:00.005Z | @2023-12-31T23:59:59.995Z | @2024-01-01T01:00:00.000Z
> MATCH () RETURN @2024-01-02 - @2024-01-01, 1m + 30s, 1m - 30s, 10s * 3, 3 * 10s, 10s / 4
1d | 90s | 30s | 30s | 30s | 2500ms

=== 2.1.4 | a duration divided by a duration is a whole ratio
> MATCH () RETURN 90s / 1m, 1h / 1m
1 | 60
> MATCH () RETURN 1h / 0s
! E2101 Division by zero
> MATCH () RETURN 1h / 0
! E2101 Division by zero

=== 2.1.4 | other combinations do not exist
> MATCH () RETURN @2024-01-01 + @2024-01-01
! E2003 Invalid operator '+' for types Timestamp and Timestamp
> MATCH () RETURN 1s * 1s
! E2003 Invalid operator '*' for types Duration and Duration
> MATCH () RETURN 1s - @2024-01-01
! E2003 Invalid operator '-'

=== 2.1.4 | an impossible date is refused before anything runs
> MATCH () RETURN @2023-02-29
! E1002
> MATCH () RETURN @2024-13-01
! E1002
> MATCH () RETURN @2016-12-31T23:59:60Z
! E1002

=== 2.1.4 | both ways to write a duration mean the same
> MATCH () RETURN 30.seconds = 30s, 1.minute = 1m, 2.hours = 2h, 7.days = 7d, 1.week = 7d, 16.ms = 16ms, 5.min = 5m
true | true | true | true | true | true | true

=== 2.1.5 | a subtype is accepted where its supertype is declared
.define
    node Animal { name: String }
    node Dog: Animal
    node Puppy: Dog
    node Home
    edge lives_in(who: Animal, where: Home)
>> SPAWN a: Puppy { name = "Rex" }
   SPAWN h: Home
   LINK lives_in(#a, #h)
> MATCH x: Animal, lives_in(x, h) RETURN x.name, x._type
"Rex" | "Puppy"
> LINK lives_in(#h, #h)
! E2003 type mismatch

=== 2.1.5 | a union takes each of its members, flat, in any order, once
.define
    node A { v: Int | String }
    node B
    type Either = B | A
    edge e(x: (A | B) | A)
>> SPAWN a: A { v = 1 }
   SPAWN b: B
   LINK e(#a) LINK e(#b)
> SET #a.v = "text"
modified 1
> SET #a.v = 1.5
! E2003
> MATCH x: B | A, e(x) RETURN x._type
"A"
"B"
> MATCH x: Either RETURN COUNT(*)
2

=== 2.1.5 | null belongs to T? and not to T
.define node N { a: Int?, b: Int = 1 }
> SPAWN n: N { a = null }
> SET #n.a = null
> SET #n.b = null
! E3013 cannot be null

=== 2.1.5 | every node type is an `any`, an edge is none
.define
    node A
    node B
    edge e(x: any)
    edge f(x: edge<any>)
>> SPAWN a: A SPAWN b: B LINK k: e(#a) LINK e(#b)
> LINK e(#k)
! E2003 type mismatch
> LINK f(#k)
linked 1
> LINK f(#a)
! E3501 type mismatch
> MATCH e(x) AS r, e(r) RETURN x
! E2003 'r' is edge<e>
> MATCH x: any, e(x) RETURN x._type
"A"
"B"

=== 2.1.5, 2.12.E3501 | an edge<T> is an edge of that type and no other
.define
    node A { held: edge<e>? }
    edge e(x: A)
    edge other(x: A)
    edge on(x: edge<e>)
>> SPAWN a: A LINK k: e(#a) LINK o: other(#a)
> SET #a.held = #k
modified 1
> LINK on(#k)
linked 1
> LINK on(#o)
! E3501 'on' joins edge<e>
> SET #a.held = #o
! E3501 refers to edge<e>
> SPAWN b: A { held = #a }
! E3501 refers to edge<e>
> MATCH other(x) AS r LINK on(r)
! E2003 type mismatch

=== 2.1.6 | an attribute may hold a reference to a node of a type or below
.define
    node Actor { name: String }
    node Robot: Actor
    node Cup
    node Inbox { owner: Actor }
>> SPAWN r: Robot { name = "R2" }
   SPAWN c: Cup
   SPAWN i: Inbox { owner = #r }
> MATCH i: Inbox RETURN i.owner.name, i.owner = #r, i.owner:Robot, i.owner
"R2" | true | true | #r
> MATCH i: Inbox, a: Actor WHERE i.owner = a RETURN a.name
"R2"
> SPAWN j: Inbox { owner = #c }
! E2003 type mismatch
> SPAWN j: Inbox { owner = #missing }
! E3601 not found

=== 2.1.7 | values of different types cannot be compared: an error, not false
.use things
> MATCH t: Thing WHERE t.text = 1 RETURN t
! E2003 analysis error
! Invalid operator '=' for types String and Int
> MATCH t: Thing WHERE t.yes != 1 RETURN t
! E2003 Invalid operator '!=' for types Bool and Int
> MATCH t: Thing WHERE t.text IN [1, 2] RETURN t
! E2003 Invalid operator 'IN'

=== 2.1.7 | same types, Int with Float, references and null can be compared
.use things
> SPAWN x: Thing { whole = 1, real = 1.0 }
> MATCH t: Thing RETURN t.whole = t.real, t = t, t = #x, t.text = null, null = t.text, t = null
true | true | true | true | true | false
