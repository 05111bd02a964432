-- RETURN, aggregation, ordering

.ontology tasks
    node Task { title: String, n: Int?, x: Float?, team: String?, done: Bool?, at: Timestamp? }
    node Person { name: String }
    edge assigned_to(t: Task, p: Person)

=== 2.6.1 | columns are named by alias, variable, attribute, function, else expr
.use tasks
> SPAWN t: Task { title = "a", n = 1 }
> MATCH t: Task RETURN t, t.title, t.n AS number, upper(t.title), COUNT(*), t.n + 1, 5
columns: t | t.title | number | upper | COUNT | expr | expr
rows: 1
> MATCH t: Task RETURN count(t), Count(*) AS c
columns: count | c
1 | 1
> MATCH t: Task RETURN t.title, t.title
columns: t.title | t.title
"a" | "a"
> MATCH t: Task RETURN t.title AS order, t.n AS limit
columns: order | limit
"a" | 1

=== 2.6.1 | * is all declared variables
.use tasks
>> SPAWN t: Task { title = "a" } SPAWN p: Person { name = "Ann" } LINK k: assigned_to(#t, #p)
> MATCH t: Task, p: Person, assigned_to(t, p) AS e RETURN *
columns: t | p | e
Task #t {title: "a"} | Person #p {name: "Ann"} | assigned_to #k {}

=== 2.6.2 | beside an aggregate the other projections are the group key
.use tasks
>> SPAWN a: Task { title = "a", team = "x", n = 1 } SPAWN b: Task { title = "b", team = "x", n = 2 }
   SPAWN c: Task { title = "c", team = "y", n = 3 } SPAWN d: Task { title = "d", n = 4 }
> MATCH t: Task RETURN t.team, COUNT(*), SUM(t.n)
"x" | 2 | 3
"y" | 1 | 3
null | 1 | 4
> MATCH t: Task RETURN t.team, t.done, COUNT(*)
"x" | null | 2
"y" | null | 1
null | null | 1
> MATCH t: Task RETURN t.n + COUNT(*)
! E2009 group key

=== 2.6.2 | without a group key there is one row, also over nothing
.use tasks
> MATCH t: Task RETURN COUNT(*), COUNT(t), SUM(t.n), AVG(t.n), MIN(t.n), MAX(t.n), COLLECT(t.n)
0 | 0 | null | null | null | null | []
> MATCH t: Task RETURN t.team, COUNT(*)
(nothing)

=== 2.6.3 | COUNT, SUM, AVG, MIN and MAX skip nulls; AVG is a Float
.use tasks
>> SPAWN a: Task { title = "a", n = 1, x = 0.5, at = @2024-01-02 } SPAWN b: Task { title = "b", n = 2 }
   SPAWN c: Task { title = "c", n = 2, at = @2024-01-01 } SPAWN d: Task { title = "d" }
> MATCH t: Task RETURN COUNT(*), COUNT(t.n), COUNT(DISTINCT t.n), SUM(t.n), AVG(t.n), SUM(t.x)
4 | 3 | 2 | 5 | 1.6666666666666667 | 0.5
> MATCH t: Task RETURN MIN(t.n), MAX(t.n), MIN(t.title), MAX(t.title), MIN(t.at)
1 | 2 | "a" | "d" | @2024-01-01T00:00:00.000Z
> MATCH t: Task WHERE t.n = 2 RETURN AVG(t.n), SUM(DISTINCT t.n)
2.0 | 2
> MATCH t: Task RETURN SUM(t.title)
! E2003 SUM

=== 2.6.3 | COLLECT keeps nulls; a written limit cuts silently
.use tasks
>> SPAWN a: Task { title = "a", n = 1 } SPAWN b: Task { title = "b" } SPAWN c: Task { title = "c", n = 1 }
> MATCH t: Task WHERE t.title != "c" RETURN COLLECT(t.n)
[1, null]
> MATCH t: Task RETURN COLLECT(DISTINCT t.n)
[1, null]
> MATCH t: Task RETURN COLLECT(t.title)[limit: 2]
["a", "b"]
no warnings
> MATCH t: Task RETURN COLLECT(t)[limit: none]
[Task #a {title: "a", n: 1}, Task #b {title: "b"}, Task #c {title: "c", n: 1}]

=== 2.6.3, 2.12.E5003 | COLLECT of more than 10,000 values is refused unless a limit is written
.define
    node N { a: Int }
>> SPAWN a0: N { a = 0 } SPAWN a1: N { a = 1 } SPAWN a2: N { a = 2 } SPAWN a3: N { a = 3 } SPAWN a4: N { a = 4 }
   SPAWN a5: N { a = 5 } SPAWN a6: N { a = 6 } SPAWN a7: N { a = 7 } SPAWN a8: N { a = 8 } SPAWN a9: N { a = 9 }
> MATCH a: N, b: N, c: N, d: N RETURN length(COLLECT(a.a))
10000
> MATCH a: N, b: N, c: N, d: N, e: N WHERE e.a < 2 RETURN COLLECT(a.a)
! E5003 query error
! limit
> MATCH a: N, b: N, c: N, d: N, e: N WHERE e.a < 2 RETURN length(COLLECT(a.a)[limit: none]), length(COLLECT(a.a)[limit: 3])
20000 | 3

=== 2.6.4 | a filtered aggregate takes the rows of the group where the condition is true
.use tasks
>> SPAWN a: Task { title = "a", team = "x", done = true, n = 1 } SPAWN b: Task { title = "b", team = "x", done = false, n = 2 }
   SPAWN c: Task { title = "c", team = "y", n = 4 }
> MATCH t: Task RETURN t.team, COUNT(t WHERE t.done = true), SUM(t.n WHERE t.done = false), COUNT(*)
"x" | 1 | 2 | 2
"y" | 0 | null | 1
> MATCH t: Task RETURN COUNT(t WHERE t.n > 1) AS many
2

=== 2.6.5 | a pattern aggregate counts per row
.use tasks
>> SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" } SPAWN p: Person { name = "P" } SPAWN q: Person { name = "Q" }
   LINK assigned_to(#a, #p) LINK assigned_to(#a, #q)
> MATCH t: Task RETURN t.title, COUNT(p: Person, assigned_to(t, p))
"a" | 2
"b" | 0
> MATCH t: Task WHERE COUNT(p: Person, assigned_to(t, p)) > 1 RETURN t.title
"a"
> MATCH t: Task RETURN t.title, COUNT(p: Person, assigned_to(t, p) WHERE p.name = "Q") AS n
"a" | 1
"b" | 0
> MATCH t: Task WHERE t.title = "a" RETURN COLLECT(p: Person, assigned_to(t, p))
[Person #p {name: "P"}, Person #q {name: "Q"}]

=== 2.6.6 | aggregates may be operands, and may stand in ORDER BY
.use tasks
>> SPAWN a: Task { title = "a", team = "x", n = 1 } SPAWN b: Task { title = "b", team = "x", n = 5 }
   SPAWN c: Task { title = "c", team = "y", n = 3 }
> MATCH t: Task RETURN MAX(t.n) - MIN(t.n), SUM(t.n) / COUNT(*)
4 | 3
> MATCH t: Task RETURN t.team, COUNT(*) AS c ORDER BY c DESC
"x" | 2
"y" | 1
> MATCH t: Task RETURN t.team, COUNT(*) ORDER BY COUNT(*)
"y" | 1
"x" | 2
> MATCH t: Task RETURN t.team ORDER BY MAX(t.n)
"y"
"x"
> MATCH t: Task WHERE COUNT(t) > 1 RETURN t
! E2009 COUNT

=== 2.6.7 | DISTINCT, then ORDER BY, then OFFSET, then LIMIT
.use tasks
>> SPAWN a: Task { title = "a", n = 3 } SPAWN b: Task { title = "b", n = 1 } SPAWN c: Task { title = "c", n = 3 }
   SPAWN d: Task { title = "d" } SPAWN e: Task { title = "e" } SPAWN f: Task { title = "f", n = 2 }
> MATCH t: Task RETURN DISTINCT t.n ORDER BY t.n
1
2
3
null
> MATCH t: Task RETURN DISTINCT t.n ORDER BY t.n LIMIT 2 OFFSET 1
2
3
> MATCH t: Task RETURN t.title ORDER BY t.title OFFSET 4
"e"
"f"
> MATCH t: Task RETURN t.title ORDER BY t.title LIMIT 0
(nothing)
> MATCH t: Task RETURN t.title ORDER BY t.title LIMIT 2
"a"
"b"
.params {"n": 1}
> MATCH t: Task RETURN t.title ORDER BY t.title LIMIT $n
"a"
.params {"n": -1}
> MATCH t: Task RETURN t.title LIMIT $n
! E2102 LIMIT

=== 2.6.8 | nulls come last in ascending, first in descending order; false before true; ties stay
.use tasks
>> SPAWN a: Task { title = "a", n = 2, done = true } SPAWN b: Task { title = "b" } SPAWN c: Task { title = "c", n = 1, done = false }
   SPAWN d: Task { title = "d", n = 2 }
> MATCH t: Task RETURN t.title, t.n ORDER BY t.n, t.title
"c" | 1
"a" | 2
"d" | 2
"b" | null
> MATCH t: Task RETURN t.title, t.n ORDER BY t.n DESC, t.title DESC
"b" | null
"d" | 2
"a" | 2
"c" | 1
> MATCH t: Task WHERE t.done IS NOT NULL RETURN t.done ORDER BY t.done ASC
false
true
> MATCH t: Task RETURN t.title ORDER BY length(t.title), t.title DESC LIMIT 1
"d"
> MATCH t: Task RETURN t ORDER BY t
! E2003 ordered

=== 2.6.8 | values without a common order cannot be ordered
.define node V { v: Int | String }
>> SPAWN a: V { v = 1 } SPAWN b: V { v = "x" }
> MATCH v: V RETURN v.v ORDER BY v.v
! E2102 order
> MATCH v: V RETURN MIN(v.v)
! E2003 MIN

=== 2.6.9 | a node in a row is its id, type and attributes
.use tasks
> SPAWN t: Task { title = "a", n = 1 }
> MATCH t: Task RETURN t
columns: t
Task #t {title: "a", n: 1}
> MATCH t: Task RETURN COLLECT(t)
[Task #t {title: "a", n: 1}]
