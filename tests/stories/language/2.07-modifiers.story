-- Ontology modifiers

=== 2.7.1 | an attribute that is left out: null with a warning, null, its default, or an error
.define node N { plain: Int, optional: Int?, defaulted: Int = 7, needed: Int [required] }
> SPAWN a: N { needed = 1 }
created 1
warning: 'plain'
> MATCH n: N RETURN n.plain, n.optional, n.defaulted, n.needed
null | null | 7 | 1
> SPAWN b: N { plain = 1, needed = 1 }
no warnings
> SPAWN c: N { plain = 1 }
! E3002 constraint violation
! required

=== 2.7.1 | a default satisfies required; null never does
.define node N { a: Int = 1 [required], b: Int [required] = 2 }
> SPAWN x: N
created 1
> MATCH n: N RETURN n.a, n.b
1 | 2
> SPAWN y: N { a = null }
! E3002 required
> SET #x.b = null
! E3002 required

=== 2.7.1 | optional and required exclude each other
.define node N { a: Int? [required] }
! E2010 required

=== 2.7.1 | explicit null for a defaulted attribute that is not optional
.define node N { a: Int = 1, b: Int? = 2 }
> SPAWN x: N { a = null }
! E3013 null
> SPAWN x: N { b = null }
> MATCH n: N RETURN n.a, n.b
1 | null

=== 2.7.2 | unique holds across the declaring type and all its subtypes; null is exempt
.define
    node User { email: String? [unique] }
    node Admin: User
    node Other { email: String? }
>> SPAWN a: User { email = "x" } SPAWN b: User SPAWN c: User SPAWN o: Other { email = "x" }
> SPAWN d: Admin { email = "x" }
! E3003 constraint violation
! unique
> SPAWN d: Admin { email = "y" }
> SET #d.email = "x"
! E3003 unique
> SET #a.email = "x"
modified 1
> KILL #a
> SET #d.email = "x"
modified 1

=== 2.7.2 | a unique edge exists once between the same targets
.define
    node N
    edge e(a: N, b: N) [unique]
>> SPAWN a: N SPAWN b: N LINK e(#a, #b)
> LINK e(#a, #b)
! E3003 unique
> LINK e(#b, #a)
linked 1
> LINK IF NOT EXISTS e(#a, #b)
linked 0
> UNLINK e(#a, #b)
> LINK e(#a, #b)
linked 1

=== 2.7.2 | a unique attribute of an edge
.define
    node N
    edge e(a: N) { code: Int? [unique] }
>> SPAWN a: N LINK e(#a) { code = 1 } LINK e(#a)
> LINK e(#a) { code = 1 }
! E3003 unique

=== 2.7.3 | readonly can be given when the element is created, never set
.define
    node N { code: Int [readonly], other: Int? }
    edge e(a: N) { at: Int? [readonly] }
> SPAWN n: N { code = 1 }
> SET #n.code = 2
! E3004 constraint violation
! readonly
> MATCH n: N SET n { other = 1, code = 2 }
! E3004 readonly
> LINK k: e(#n) { at = 5 }
> SET #k.at = 6
! E3004 readonly
> MATCH n: N RETURN n.code, n.other
1 | null

=== 2.7.3 | indexed is a hint; unique implies it
.define node N { a: Int? [indexed], b: Int? [indexed: desc], c: Int? [unique] }
>> SPAWN x: N { a = 1, b = 2, c = 3 } SPAWN y: N { a = 1, b = 2, c = 4 }
> MATCH n: N WHERE n.a = 1 AND n.b = 2 AND n.c = 3 RETURN n.id
#x
> EXPLAIN MATCH n: N WHERE n.c = 3 RETURN n
"index" | "n: N.c = ?1" | 1.0

=== 2.7.4 | ranges
.define node N { a: Int? [>= 1, <= 5], b: Float? [> 0, < 1], c: Int? [10..20], d: Duration? [>= 0] }
> SPAWN ok: N { a = 1, b = 0.5, c = 20 }
> SPAWN x: N { a = 0 }
! E3005 constraint violation
> SPAWN x: N { a = 6 }
! E3005
> SPAWN x: N { b = 0.0 }
! E3005
> SPAWN x: N { b = 1 }
! E3005
> SPAWN x: N { c = 9 }
! E3005
> SPAWN x: N { c = 21 }
! E3005
> SET #ok.a = 9
! E3005

=== 2.7.4 | a list of allowed values
.define node N { s: String? [in: ["a", "b"]], n: Int? [in: [1, 2]] }
> SPAWN ok: N { s = "a", n = 2 }
> SPAWN x: N { s = "c" }
! E3006 constraint violation
> SET #ok.n = 3
! E3006

=== 2.7.4 | length counts code points
.define node N { s: String? [length: 2..3] }
> SPAWN ok: N { s = "🙂🙂🙂" }
> SPAWN x: N { s = "a" }
! E3007 constraint violation
! length
> SPAWN x: N { s = "abcd" }
! E3007

=== 2.7.4 | match is anchored unless the pattern says otherwise
.define node N { a: String? [match: "[A-Z]{2}-[0-9]+"], b: String? [match: "^x"] }
> SPAWN ok: N { a = "AB-12", b = "xyz" }
> SPAWN x: N { a = "AB-12 " }
! E3008 constraint violation
> SPAWN x: N { b = "yx" }
! E3008

=== 2.7.4 | no look-around and no backreferences
.define node N { a: String [match: "(?=a)b"] }
! E2010
.define node N { a: String [match: "(a)\\1"] }
! E2010

=== 2.7.4 | formats
.define
    node N {
      mail: String? [format: email], url: String? [format: url], id1: String? [format: uuid], slug: String? [format: slug],
      phone: String? [format: phone], day: String? [format: iso_date], at: String? [format: iso_datetime],
      v4: String? [format: ipv4], v6: String? [format: ipv6]
    }
> SPAWN ok: N { mail = "a@b.org", url = "http://b.org", id1 = "123e4567-e89b-12d3-a456-426614174000", slug = "a-b", phone = "+49301234567", day = "2024-01-31", at = "2024-01-31T10:00:00Z", v4 = "10.0.0.1", v6 = "::1" }
created 1
> SPAWN x: N { mail = "a" }
! E3009 format
> SPAWN x: N { url = "ftp://b.org" }
! E3009 format
> SPAWN x: N { id1 = "123" }
! E3009 format
> SPAWN x: N { slug = "A b" }
! E3009 format
> SPAWN x: N { phone = "12" }
! E3009 format
> SPAWN x: N { day = "2024-02-31" }
! E3009 format
> SPAWN x: N { at = "2024-01-31" }
! E3009 format
> SPAWN x: N { v4 = "10.0.0" }
! E3009 format
> SPAWN x: N { v6 = "10.0.0.1.2" }
! E3009 format

=== 2.7.4 | modifiers are checked for edges, and when a rule or MATCH sets
.define
    node N { a: Int = 0 [<= 2] }
    edge e(n: N) { w: Int? [>= 1] }
> SPAWN n: N
> LINK e(#n) { w = 0 }
! E3005
> MATCH n: N SET n.a = n.a + 3
! E3005
> MATCH n: N RETURN n.a
0

=== 2.7.5 | aliases expand, modifiers accumulate, the use site wins
.define
    type Priority = Int [>= 0, <= 10]
    type Low = Priority [<= 5]
    node N { a: Priority, b: Priority [<= 20] = 1, c: Low = 1, d: Priority? }
> SPAWN ok: N { a = 10, b = 20, c = 5 }
> SPAWN x: N { a = 11 }
! E3005
> SPAWN x: N { a = -1 }
! E3005
> SPAWN x: N { a = 1, b = 21 }
! E3005
> SPAWN x: N { a = 1, b = -1 }
! E3005
> SPAWN x: N { a = 1, c = 6 }
! E3005
> SPAWN x: N { a = 1, d = 11 }
! E3005

=== 2.7.5 | aliases may not be recursive, nor shadow, nor modify a union
.define type A = A
! E2010
.define
    type A = B
    type B = A
! E2010
.define type String = Int
! E2005
.define type U = Int | String [>= 1]
! E1001 modifiers

=== 2.7.6 | defaults are constant expressions, evaluated when the element is made
.define node N { a: Int = 2 * 3 + 1, t: Timestamp = now() + 1h, d: Duration = 5.minutes, l: Int = logical_time() }
> SPAWN x: N
.advance 60s
> SPAWN y: N
> MATCH n: N RETURN n.a, n.t, n.d, n.l
7 | @2024-01-01T01:00:00.000Z | 5m | 0
7 | @2024-01-01T01:01:00.000Z | 5m | 1

=== 2.7.6 | a default may not look at attributes
.define node N { a: Int = 1, b: Int = a }
! E2010

=== 2.7.7 | attributes, constraints and patterns inherit
.define
    node Base { name: String, n: Int = 1 }
    node Sub: Base { extra: Int? }
    constraint positive: b: Base => b.n > 0
> SPAWN s: Sub { name = "s", extra = 1 }
> MATCH b: Base RETURN b.name, b.n
"s" | 1
> SET #s.n = 0
! E3001 positive

=== 2.7.7 | the attribute of a diamond appears once
.define
    node Top { k: Int }
    node Left: Top { l: Int? }
    node Right: Top { r: Int? }
    node Bottom: Left, Right
> SPAWN b: Bottom { k = 1, l = 2, r = 3 }
> MATCH b: Bottom RETURN b
Bottom #b {k: 1, l: 2, r: 3}
> MATCH t: Top, l: Left, r: Right RETURN t.k, l.l, r.r
1 | 2 | 3

=== 2.7.7 | the same name with incompatible types is refused
.define
    node A { x: Int }
    node B { x: String }
    node C: A, B
! E2010

=== 2.7.7, 2.12.E2013 | abstract types have no elements of their own
.define
    abstract node Shape { n: Int? }
    node Circle: Shape
> SPAWN s: Shape
! E2013 Cannot instantiate abstract type 'Shape'
> SPAWN c: Circle
> MATCH s: Shape RETURN s._type
"Circle"

=== 2.7.7 | sealed types cannot be inherited by users
.define
    node Closed [sealed] { n: Int? }
    node Sub: Closed
! E2010 sealed
.define
    node Both [abstract, sealed]
! E2010

=== 2.7.8 | edge types have no inheritance: edge<T> wants exactly T
.define
    node N
    edge likes(a: N, b: N)
    edge loves(a: N, b: N)
    edge why(e: edge<likes>)
>> SPAWN n: N LINK a: likes(#n, #n) LINK b: loves(#n, #n)
> LINK why(#a)
linked 1
> LINK why(#b)
! E3501 type mismatch

=== 2.7.9, 2.12.E3010 | maximum cardinality is checked at LINK
.define
    node Task
    node Person
    edge assigned(t: Task, p: Person) [t -> 0..1, p -> 2]
>> SPAWN t: Task SPAWN u: Task SPAWN v: Task SPAWN p: Person SPAWN q: Person LINK assigned(#t, #p)
> LINK assigned(#t, #q)
! E3010 constraint violation
! cardinality exceeded
> LINK assigned(#u, #p)
linked 1
> LINK assigned(#v, #p)
! E3010 cardinality
> UNLINK assigned(#t, #p)
> LINK assigned(#t, #q)
linked 1

=== 2.7.9, 5.C4 | minimum cardinality is checked at COMMIT, not at auto-commit
.define
    node Order
    node Item
    edge has(o: Order, i: Item) [o -> 1..*]
> SPAWN o: Order
created 1
> BEGIN
> SPAWN p: Order
> COMMIT
! E3010 constraint violation
! cardinality
> MATCH o: Order RETURN COUNT(*)
1
> BEGIN
> LINK has(SPAWN Order AS q, SPAWN Item AS i)
> COMMIT
> BEGIN
> UNLINK has(#q, #i)
> COMMIT
! E3010 cardinality
> BEGIN
> KILL #i
> COMMIT
! E3010 cardinality
> BEGIN
> KILL #q
> COMMIT
> MATCH o: Order RETURN COUNT(*)
1

=== 2.7.9, 5.C4 | strict_cardinality checks the minimum at every commit
.settings strict_cardinality = true
.define
    node Order
    node Item
    edge has(o: Order, i: Item) [o -> 1..*]
> SPAWN o: Order
! E3010 cardinality
> LINK has(SPAWN Order AS o, SPAWN Item AS i)
linked 1, created 2
> UNLINK has(#o, #i)
! E3010 cardinality

=== 2.7.9 | on a symmetric edge the cardinality holds for both ends
.define
    node P
    edge married(a: P, b: P) [symmetric, a -> 0..1]
>> SPAWN a: P SPAWN b: P SPAWN c: P LINK married(#a, #b)
> LINK married(#c, #a)
! E3010 cardinality
> LINK married(#b, #c)
! E3010 cardinality

=== 2.7.9 | edges that must be the target of another edge
.define
    node P
    edge claim(a: P, b: P)
    edge proof(c: edge<claim>, by: P) [c -> 1..*]
> SPAWN p: P
> BEGIN
> LINK k: claim(#p, #p)
> COMMIT
! E3010 cardinality
> BEGIN
> LINK k: claim(#p, #p)
> LINK proof(#k, #p)
> COMMIT

=== 2.7.10, 2.12.E3012 | no_self: no two equal targets
.define
    node P
    edge knows(a: P, b: P) [no_self]
    edge tri(a: P, b: P, c: P) [no_self]
>> SPAWN a: P SPAWN b: P
> LINK knows(#a, #a)
! E3012 self
> LINK tri(#a, #b, #a)
! E3012 self
> LINK knows(#a, #b)
linked 1

=== 2.7.10, 2.12.E3011 | acyclic is checked at LINK and implies no_self
.define
    node P
    edge parent(a: P, b: P) [acyclic]
>> SPAWN a: P SPAWN b: P SPAWN c: P LINK parent(#a, #b) LINK parent(#b, #c)
> LINK parent(#c, #a)
! E3011 constraint violation
! acyclic
> LINK parent(#a, #a)
! E3012 self
> LINK parent(#a, #c)
linked 1

=== 2.7.10 | linking a symmetric pair again gives the edge that is there
.define
    node P
    edge friend(a: P, b: P) [symmetric] { since: Int? }
>> SPAWN a: P SPAWN b: P
> LINK x: friend(#a, #b) { since = 1 }
linked 1
> LINK y: friend(#b, #a) { since = 2 }
linked 0
> MATCH friend(#b, #a) AS e RETURN e.id = #x, e.id = #y, e.since
true | true | 1

=== 2.7.10 | symmetric needs two targets of one type
.define
    node A
    node B
    edge e(a: A, b: B) [symmetric]
! E2010 symmetric
