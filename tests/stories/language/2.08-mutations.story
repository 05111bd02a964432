-- Mutations

.ontology tasks
    abstract node Thing { key: Int? }
    node Task: Thing { title: String = "?", n: Int = 0, m: Int = 0 }
    node Note: Thing
    node Person: Thing { name: String? }
    edge assigned(t: Task, p: Person) { role: String? }
    edge likes(p: Person, x: Thing)
    edge about(e: edge<likes>, p: Person)
    edge remark(e: edge<about>) { text: String? }

=== 2.8.1 | SPAWN needs a concrete type that exists, and known attributes of the right types
.use tasks
> SPAWN x: Nothing
! E2001 Unknown type 'Nothing'
> SPAWN x: Thing
! E2013 abstract
> SPAWN x: Task { color = 1 }
! E2002 Unknown attribute 'color' on type 'Task'
> SPAWN x: Task { title = 1 }
! E2003 type mismatch
> SPAWN x: assigned
! E2001 Unknown type 'assigned'
> SPAWN x: Task { n = 1, n = 2 }
! E2005 twice
> MATCH t: any RETURN COUNT(*)
0

=== 2.8.1 | several SPAWNs with commas are one statement: all or nothing
.use tasks
> SPAWN a: Task { title = "a" }, SPAWN b: Note, SPAWN c: Person { name = "c" }
created 3
> SPAWN d: Task, SPAWN e: Task { n = 1 / 0 }
! E2101
> MATCH t: Task RETURN t.title
"a"
> KILL #d
! E3601 not found

=== 2.8.1 | a later item of the chain may look at an earlier one
.use tasks
> SPAWN a: Task { n = 5 }, SPAWN b: Task { n = a.n + 1 }
> MATCH t: Task RETURN t.n
5
6

=== 2.8.2 | the targets of LINK: references, variables, subqueries and inline SPAWN
.use tasks
>> SPAWN t: Task { title = "a" } SPAWN p: Person { name = "P" }
> LINK assigned(#t, p) { role = "x" }
linked 1
> LINK assigned({ MATCH t: Task WHERE t.title = "a" RETURN t }, #p)
linked 1
> LINK assigned(SPAWN Task { title = "b" } AS u, SPAWN q: Person { name = "Q" })
created 2, linked 1
> MATCH assigned(t, p) RETURN t.title, p.name
"a" | "P"
"a" | "P"
"b" | "Q"
> MATCH t: Task, p: Person WHERE t.title = "b" AND p.name = "P" LINK assigned(t, p)
linked 1

=== 2.8.2, 2.12.E3602 | a subquery must yield exactly one row
.use tasks
>> SPAWN p: Person
> LINK assigned({ MATCH t: Task RETURN t }, #p)
! E3602 exactly one
>> SPAWN t: Task SPAWN u: Task
> LINK assigned({ MATCH t: Task RETURN t }, #p)
! E3602 exactly one
> LINK assigned({ MATCH t: Task RETURN t.title }, #p)
! E2009 element

=== 2.8.2 | a failing LINK undoes its inline SPAWN
.use tasks
> LINK assigned(SPAWN Task AS t, #missing)
! E3601 not found
> LINK assigned(SPAWN Task AS t, SPAWN Note AS n)
! E2003 type mismatch
> MATCH x: any RETURN COUNT(*)
0

=== 2.8.2 | what LINK checks
.use tasks
>> SPAWN t: Task SPAWN p: Person SPAWN n: Note
> LINK nothing(#t, #p)
! E2001 Unknown edge type 'nothing'
> LINK assigned(#t)
! E2007 expects 2 targets, got 1
> LINK assigned(#p, #t)
! E2003 type mismatch
> LINK assigned(#t, #missing)
! E3601 not found
> LINK assigned(#t, #p) { role = 5 }
! E2003 type mismatch
> LINK assigned(#t, #p) { colour = "x" }
! E2002 colour
> LINK likes(#p, #n)
linked 1

=== 2.8.2 | plain LINK makes parallel edges, IF NOT EXISTS does not and leaves attributes alone
.use tasks
>> SPAWN t: Task SPAWN p: Person
> LINK assigned(#t, #p) { role = "one" }
linked 1
> LINK assigned(#t, #p) { role = "two" }
linked 1
> LINK IF NOT EXISTS assigned(#t, #p) { role = "three" } RETURNING created
columns: created
false
linked 0
> LINK IF NOT EXISTS likes(#p, #t) RETURNING created
true
> MATCH assigned(t, p) AS e RETURN e.role
"one"
"two"

=== 2.8.3 | UNLINK by reference, by endpoints, by subquery
.use tasks
>> SPAWN t: Task SPAWN u: Task SPAWN p: Person SPAWN q: Person
   LINK a: assigned(#t, #p) LINK b: assigned(#t, #q) LINK c: assigned(#u, #p) LINK d: assigned(#u, #q)
> UNLINK #a
unlinked 1
> UNLINK assigned(#t, _)
unlinked 1
> UNLINK assigned(#t, _)
! E3601 not found
> UNLINK { MATCH assigned(x, y) AS e WHERE y = #p RETURN e }
unlinked 1
> UNLINK { MATCH assigned(x, y) AS e WHERE y = #p RETURN e }
unlinked 0
> UNLINK assigned(*, #q)
unlinked 1
> UNLINK #a
! E3601 not found

=== 2.8.3 | UNLINK of a symmetric edge in either order
.define
    node P
    edge friend(a: P, b: P) [symmetric]
>> SPAWN a: P SPAWN b: P LINK friend(#a, #b)
> UNLINK friend(#b, #a)
unlinked 1

=== 2.8.3 | edges about an edge go with it, and edges about those
.use tasks
>> SPAWN p: Person SPAWN n: Note LINK l: likes(#p, #n) LINK a: about(#l, #p) LINK remark(#a) { text = "x" }
> UNLINK #l
unlinked 3
> MATCH e: edge<any>(_) RETURN COUNT(*)
0

=== 2.8.4 | KILL unlinks every edge of the node by default
.use tasks
>> SPAWN t: Task SPAWN p: Person LINK assigned(#t, #p) LINK l: likes(#p, #t) LINK about(#l, #p)
> KILL #t
deleted 1, unlinked 3
> MATCH p: Person RETURN COUNT(*)
1
> KILL #t
! E3601 not found

=== 2.8.4 | KILL by subquery, with zero rows too
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 2 } SPAWN c: Task { n = 3 }
> KILL { MATCH t: Task WHERE t.n > 1 RETURN t }
deleted 2
> KILL { MATCH t: Task WHERE t.n > 1 RETURN t }
deleted 0
> MATCH t: Task RETURN t.n
1

=== 2.8.4, 2.8.2, 2.8.5 | a subquery in the place of a target means its order and its limit
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 2 } SPAWN c: Task { n = 3 } SPAWN p: Person SPAWN q: Person { name = "Q" }
> LINK assigned({ MATCH t: Task RETURN t ORDER BY t.n DESC LIMIT 1 }, #p)
linked 1
> MATCH assigned(t, p) RETURN t.n
3
> SET { MATCH t: Task RETURN t ORDER BY t.n LIMIT 1 OFFSET 1 }.m = 7
modified 1
> KILL { MATCH t: Task RETURN t ORDER BY t.n LIMIT 1 }
deleted 1
> MATCH t: Task RETURN t.n, t.m
2 | 7
3 | 0
>> LINK assigned(#b, #p) LINK assigned(#b, #q)
> KILL { MATCH t: Task, assigned(t, x) RETURN t ORDER BY COUNT(*) DESC LIMIT 1 } RETURNING n
2

=== 2.8.4 | cascade kills the other end, recursively
.define
    node Folder { name: String }
    node File { name: String }
    edge inside(child: Folder | File, of: Folder) [on_kill_target: cascade]
>> SPAWN a: Folder { name = "a" } SPAWN b: Folder { name = "b" } SPAWN f: File { name = "f" } SPAWN g: File { name = "g" }
   LINK inside(#b, #a) LINK inside(#f, #b) LINK inside(#g, #a)
> KILL #f
deleted 1, unlinked 1
> KILL #a
deleted 3, unlinked 2
> MATCH x: any RETURN COUNT(*)
0

=== 2.8.4 | on_kill_source acts when position 0 dies, on_kill_target when position 1 does
.define
    node A
    node B
    edge e(a: A, b: B) [on_kill_source: cascade, on_kill_target: unlink]
>> SPAWN a: A SPAWN b: B LINK e(#a, #b)
> KILL #b
deleted 1, unlinked 1
>> SPAWN b: B LINK e(#a, #b)
> KILL #a
deleted 2, unlinked 1

=== 2.8.4, 2.12.E3302 | prevent is checked first, over everything that would die; nothing happens
.define
    node A
    node B
    node C
    edge e(a: A, b: B) [on_kill_source: cascade]
    edge keeps(b: B, c: C) [on_kill_source: prevent]
>> SPAWN a: A SPAWN b: B SPAWN c: C LINK e(#a, #b) LINK keeps(#b, #c)
> KILL #b
! E3302 mutation error
! Deletion restricted by edge type 'keeps'
> KILL #a
! E3302 restricted
> KILL #a NO CASCADE
deleted 1, unlinked 1
> KILL #b NO CASCADE
! E3302 restricted
> KILL #b CASCADE
! E3302 restricted
> KILL #c
deleted 1, unlinked 1
> KILL #b
deleted 1

=== 2.8.4 | CASCADE forces it, NO CASCADE only unlinks
.define
    node A
    edge e(a: A, b: A)
    edge f(a: A, b: A) [on_kill_source: cascade]
>> SPAWN a: A SPAWN b: A SPAWN c: A LINK e(#a, #b) LINK e(#b, #c)
> KILL #a CASCADE
deleted 3, unlinked 2
>> SPAWN a: A SPAWN b: A LINK f(#a, #b)
> KILL #a NO CASCADE
deleted 1, unlinked 1
> MATCH x: A RETURN COUNT(*)
1

=== 2.8.4, 2.12.E3301 | referential actions need a binary edge
.define
    node A
    edge e(a: A, b: A, c: A) [on_kill_source: cascade]
! E3301 binary

=== 2.8.4 | a node that a cascade killed already is skipped inside MATCH … KILL
.define
    node A { n: Int }
    edge e(a: A, b: A) [on_kill_source: cascade]
>> SPAWN a: A { n = 1 } SPAWN b: A { n = 2 } LINK e(#a, #b)
> MATCH x: A KILL x
deleted 2, unlinked 1

=== 2.8.4 | KILL takes nodes, UNLINK edges
.use tasks
>> SPAWN p: Person SPAWN n: Note LINK l: likes(#p, #n)
> KILL #l
! E3603 UNLINK
> UNLINK #p
! E3603 KILL
> MATCH likes(p, n) AS e KILL e
! E2003 UNLINK
> MATCH p: Person UNLINK p
! E2003 KILL

=== 2.8.5 | SET one attribute or a block, of a node or an edge
.use tasks
>> SPAWN t: Task { n = 1, m = 2 } SPAWN p: Person LINK a: assigned(#t, #p)
> SET #t.n = 5
modified 1
> SET #t { n = t.m, m = t.n }
modified 1
> MATCH t: Task RETURN t.n, t.m
2 | 5
> SET #a.role = "boss"
modified 1
> SET #a { role = null }
modified 1
> SET #t.title = null
! E3013 null
> SET #t { n = 9, m = 1 / 0 }
! E2101
> MATCH t: Task RETURN t.n, t.m, t.title
2 | 5 | "?"
> SET #t.nothing = 1
! E2002 nothing
> SET #t.n = "x"
! E2003

=== 2.8.5 | SET by subquery
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 2 }
> SET { MATCH t: Task WHERE t.n > 1 RETURN t }.m = 7
modified 1
> MATCH t: Task RETURN t.n, t.m
1 | 0
2 | 7

=== 2.8.6 | bindings are found first, then the actions run row by row
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 2 }
> MATCH t: Task SPAWN c: Task { n = t.n + 10 }
created 2
> MATCH t: Task RETURN t.n ORDER BY t.n
1
2
11
12
> MATCH t: Task WHERE t.n > 10 SET t.m = t.n SET t.n = t.m + 1
modified 4
> MATCH t: Task WHERE t.n > 10 RETURN t.n, t.m
12 | 11
13 | 12

=== 2.8.6 | later actions of a row see elements spawned by earlier actions
.use tasks
>> SPAWN p: Person { name = "P" } SPAWN q: Person { name = "Q" }
> MATCH p: Person SPAWN t: Task { title = p.name } LINK assigned(t, p) SET t.n = 3
created 2, linked 2, modified 2
> MATCH assigned(t, p) RETURN t.title, p.name, t.n
"P" | "P" | 3
"Q" | "Q" | 3

=== 2.8.6 | two variables that mean one node see each other's changes
.use tasks
> SPAWN t: Task { n = 1 }
> MATCH a: Task, b: Task SET a.n = 5 SET b.m = b.n
> MATCH t: Task RETURN t.n, t.m
5 | 5

=== 2.8.6 | later rows see the writes of earlier rows
.use tasks
>> SPAWN t: Task SPAWN p: Person SPAWN q: Person LINK assigned(#t, #p) LINK assigned(#t, #q)
> MATCH assigned(t, _) SET t.n = t.n + 1
> MATCH t: Task RETURN t.n
2

=== 2.8.6 | OPTIONAL MATCH before actions: a null target is passed over
.use tasks
>> SPAWN a: Task SPAWN b: Task SPAWN p: Person LINK assigned(#a, #p)
> MATCH t: Task OPTIONAL MATCH assigned(t, p) SET p.name = "x"
modified 1

=== 2.8.6 | RETURN after actions is rejected
.use tasks
> MATCH t: Task SET t.n = 1 RETURN t
! E1001

=== 2.8.6 | an error in any row undoes all rows
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 0 }
> MATCH t: Task SET t.m = 10 / t.n
! E2101
> MATCH t: Task RETURN t.m
0
0

=== 2.8.7 | counts: nodes, edges, and what KILL unlinks; what rules do is not counted
.define
    node A { n: Int = 0 }
    node Log
    edge e(a: A, b: A)
    rule log: a: A WHERE a.n = 1 => SPAWN l: Log
>> SPAWN a: A SPAWN b: A
> LINK e(#a, #b)
linked 1
> SET #a.n = 1
modified 1
> MATCH l: Log RETURN COUNT(*)
1
> MATCH e(a, b) AS x UNLINK x KILL a KILL b
unlinked 1, deleted 2

=== 2.8.8 | RETURNING returns rows about the written elements
.use tasks
> SPAWN t: Task { title = "x" } RETURNING id
columns: id
#t
> SPAWN u: Task { title = "y", n = 2 } RETURNING title, n AS number, _type
columns: title | number | _type
"y" | 2 | "Task"
> SPAWN v: Task RETURNING *
rows: 1
> SET #t.n = 4 RETURNING n, created
4 | false
> MATCH t: Task SET t.m = t.n RETURNING t.title, m
columns: t.title | m
"x" | 4
"y" | 2
"?" | 0
> MATCH t: Task WHERE t.n = 100 SET t.m = 1 RETURNING id
(nothing)
> KILL { MATCH t: Task RETURN t } RETURNING title
"x"
"y"
"?"
> SPAWN t: Task RETURNING nothing
! E2002 nothing
> MATCH t: Task RETURN COUNT(*)
0

=== 2.8.8 | RETURNING count(*), and of the links
.use tasks
>> SPAWN t: Task SPAWN p: Person SPAWN q: Person
> LINK assigned(#t, #p) AS k RETURNING id, created
#k | true
> MATCH p: Person LINK assigned(#t, p) { role = "r" } RETURNING count(*)
2
> UNLINK assigned(#t, _) RETURNING role
null
"r"
"r"

=== 2.8.8 | RETURNING speaks about the action that carries it
.use tasks
> SPAWN p: Person { name = "P" }
> MATCH p: Person SET p.key = 1 SPAWN t: Task { title = p.name } RETURNING title
"P"

=== 2.8.9, 2.12.E2008 | parameters are bound at execution; a missing one is an error
.use tasks
.params {"title": "x", "n": 3}
> SPAWN t: Task { title = $title, n = $n }
.params {"n": 3}
> MATCH t: Task WHERE t.n = $n RETURN t.title
"x"
> MATCH t: Task WHERE t.n = $n RETURN t
! E2008 missing_parameter
> MATCH t: Task WHERE t.n = $n? RETURN t
(nothing)
.params {"t": "Task"}
> SPAWN x: $t
! E1001
.params {"n": "text"}
> MATCH t: Task WHERE t.n = $n RETURN t
! E2003 Invalid operator '='
