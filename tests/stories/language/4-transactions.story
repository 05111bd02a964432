-- Transactions, time and ticks; aborted transactions, conflicts and isolation

.ontology tasks
    node Task { title: String = "?", n: Int = 0, u: Int? [unique] }
    node Person { name: String? }
    edge assigned(t: Task, p: Person) [t -> 0..1]
    edge before(a: Task, b: Task) [acyclic]
    edge pair(a: Task, b: Task) [unique]

=== 4.1 | each statement outside BEGIN is a transaction of its own
.use tasks
> SPAWN a: Task { n = 1 }
> SPAWN b: Task { n = 1 / 0 }
! E2101
b> MATCH t: Task RETURN t.n
1

=== 4.1 | a transaction reads its own writes; others see them after COMMIT
.use tasks
> SPAWN a: Task { n = 1 }
> BEGIN
> SET #a.n = 2
> SPAWN b: Task { n = 3 }
> LINK before(#a, #b)
> MATCH before(x, y) RETURN x.n, y.n
2 | 3
b> MATCH t: Task RETURN t.n
1
b> MATCH before(x, y) RETURN COUNT(*)
0
> COMMIT
b> MATCH before(x, y) RETURN x.n, y.n
2 | 3

=== 4.1 | ROLLBACK undoes everything: SPAWN, SET, LINK, UNLINK, KILL
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 2 } LINK before(#a, #b)
> BEGIN
>> SET #a.n = 9 UNLINK before(#a, #b) KILL #b SPAWN c: Task { n = 5 } LINK before(#c, #a)
> MATCH t: Task RETURN t.n
9
5
> ROLLBACK
> MATCH before(x, y) RETURN x.n, y.n
1 | 2
> MATCH t: Task RETURN COUNT(*)
2

=== 4.1 | BEGIN inside BEGIN, COMMIT and ROLLBACK outside
> BEGIN
> BEGIN
! E5001 transaction already active
> ROLLBACK
> COMMIT
! E5004 no transaction is active
> ROLLBACK
! E5004 no transaction is active

=== 4.1 | an error aborts the transaction: only ROLLBACK is accepted, COMMIT rolls back and says so
.use tasks
> BEGIN
> SPAWN a: Task { n = 1 }
> SPAWN b: Task { n = "x" }
! E2003
> MATCH t: Task RETURN t
! E5005 aborted
> SAVEPOINT s
! E5005 aborted
> SPAWN c: Task
! E5005 aborted
> ROLLBACK
> MATCH t: Task RETURN COUNT(*)
0
> BEGIN
> SPAWN a: Task { n = 1 }
> KILL #missing
! E3601
> COMMIT
! E5005 rolled back
> MATCH t: Task RETURN COUNT(*)
0
> ROLLBACK
! E5004

=== 4.1 | an aborted transaction cannot go back to a savepoint
.use tasks
> BEGIN
> SAVEPOINT s
> KILL #missing
! E3601
> ROLLBACK TO s
! E5005 aborted
> ROLLBACK

=== 4.1 | savepoints: back to the one named, which stays usable, later ones are forgotten
.use tasks
> BEGIN
> SPAWN a: Task { n = 1 }
> SAVEPOINT one
> SET #a.n = 2
> SAVEPOINT two
> SET #a.n = 3
> ROLLBACK TO two
> MATCH t: Task RETURN t.n
2
> SET #a.n = 4
> ROLLBACK TO one
> MATCH t: Task RETURN t.n
1
> SET #a.n = 5
> ROLLBACK TO one
> MATCH t: Task RETURN t.n
1
> KILL #a
> ROLLBACK TO one
> SET #a.n = 6
> COMMIT
> MATCH t: Task RETURN t.n
6

=== 4.1 | a savepoint that is unknown or forgotten
.use tasks
> BEGIN
> SAVEPOINT one
> SAVEPOINT two
> ROLLBACK TO one
> ROLLBACK TO two
! E5006 Savepoint 'two' does not exist
> ROLLBACK
> BEGIN
> ROLLBACK TO one
! E5006 Savepoint 'one' does not exist
> ROLLBACK

=== 4.1 | reusing a savepoint name moves the savepoint
.use tasks
> BEGIN
> SAVEPOINT s
> SPAWN a: Task { n = 1 }
> SAVEPOINT s
> SPAWN b: Task { n = 2 }
> ROLLBACK TO s
> COMMIT
> MATCH t: Task RETURN t.n
1

=== 4.1 | write-write: the first to commit wins
.use tasks
> SPAWN a: Task { n = 0 }
> BEGIN
> SET #a.n = 1
b> BEGIN
.params {"a": "#a"}
b> SET #$a.n = 2
b> COMMIT
> COMMIT
! E5002 Another transaction changed
> MATCH t: Task RETURN t.n
2
> ROLLBACK
! E5004

=== 4.1 | auto-commit against an open transaction
.use tasks
> SPAWN a: Task { n = 0 }
> BEGIN
> SET #a.n = 1
.params {"a": "#a"}
b> SET #$a.n = 2
> COMMIT
! E5002
> MATCH t: Task RETURN t.n
2

=== 4.1 | update against delete, either way round
.use tasks
>> SPAWN a: Task SPAWN b: Task
> BEGIN
> SET #a.n = 1
.params {"a": "#a"}
b> KILL #$a
> COMMIT
! E5002
> BEGIN
> KILL #b
.params {"b": "#b"}
b> SET #$b.n = 2
> COMMIT
! E5002
> MATCH t: Task RETURN t.n
2

=== 4.1 | two transactions delete the same element
.use tasks
> SPAWN a: Task
> BEGIN
> KILL #a
.params {"a": "#a"}
b> KILL #$a
> COMMIT
! E5002

=== 4.1 | a link to a concurrently deleted element
.use tasks
>> SPAWN a: Task SPAWN p: Person
> BEGIN
> LINK assigned(#a, #p)
.params {"p": "#p"}
b> KILL #$p
> COMMIT
! E5002
> MATCH assigned(t, p) RETURN COUNT(*)
0

=== 4.1 | deleting a concurrently linked element
.use tasks
>> SPAWN a: Task SPAWN p: Person
> BEGIN
> KILL #p
.params {"a": "#a", "p": "#p"}
b> LINK assigned(#$a, #$p)
> COMMIT
! E5002
> MATCH assigned(t, p) RETURN COUNT(*)
1

=== 4.1 | two transactions take the same unique value
.use tasks
> BEGIN
> SPAWN a: Task { u = 1 }
b> SPAWN b: Task { u = 1 }
> COMMIT
! E3003 unique
> MATCH t: Task RETURN COUNT(*)
1

=== 4.1 | a unique value that was free at BEGIN and is again at COMMIT
.use tasks
> SPAWN a: Task { u = 1 }
> BEGIN
> SET #a.u = 2
.params {"a": "#a"}
b> SPAWN c: Task { u = 1 }
! E3003 unique
> COMMIT
b> SPAWN c: Task { u = 1 }
created 1

=== 4.1 | a race for the last place of a cardinality, a unique edge, and a cycle
.use tasks
>> SPAWN a: Task SPAWN b: Task SPAWN p: Person SPAWN q: Person
> BEGIN
> LINK assigned(#a, #p)
.params {"a": "#a", "q": "#q"}
b> LINK assigned(#$a, #$q)
> COMMIT
! E3010 cardinality
> BEGIN
> LINK pair(#a, #b)
.params {"a": "#a", "b": "#b"}
b> LINK pair(#$a, #$b)
> COMMIT
! E3003 unique
> BEGIN
> LINK before(#a, #b)
.params {"a": "#a", "b": "#b"}
b> LINK before(#$b, #$a)
> COMMIT
! E3011 acyclic

=== 4.1 | two transactions remove the last edges of a minimum cardinality
.define
    node Order
    node Item
    edge has(o: Order, i: Item) [o -> 1..*]
> BEGIN
>> SPAWN o: Order SPAWN i: Item SPAWN j: Item LINK x: has(#o, #i) LINK y: has(#o, #j)
> COMMIT
> BEGIN
> UNLINK #x
b> BEGIN
.params {"y": "#y"}
b> UNLINK #$y
b> COMMIT
> COMMIT
! E3010 cardinality
> MATCH has(o, i) RETURN COUNT(*)
1

=== 4.1 | a constraint between two transactions
.use tasks
.define constraint one: t: Task, v: Task WHERE t != v => t.n + v.n < 10
>> SPAWN a: Task { n = 4 } SPAWN b: Task { n = 4 }
> BEGIN
> SET #a.n = 5
.params {"b": "#b"}
b> SET #$b.n = 5
> COMMIT
! E3001 one

=== 4.1 | READ COMMITTED reads concurrent commits
.use tasks
> SPAWN a: Task { n = 1 }
> BEGIN READ COMMITTED
> MATCH t: Task RETURN t.n
1
b> SPAWN b: Task { n = 2 }
> MATCH t: Task RETURN t.n
1
2
> SPAWN c: Task { n = 3 }
> COMMIT
> MATCH t: Task RETURN COUNT(*)
3

=== 4.1 | SERIALIZABLE reads the state at BEGIN
.use tasks
> SPAWN a: Task { n = 1 }
> BEGIN SERIALIZABLE
.params {"a": "#a"}
b> SET #$a.n = 5
b> SPAWN b: Task { n = 2 }
> MATCH t: Task RETURN t.n
1
> ROLLBACK
> MATCH t: Task RETURN t.n
5
2

=== 4.1 | SERIALIZABLE: a concurrent change of a read element is a conflict at COMMIT
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 1 }
> BEGIN SERIALIZABLE
> MATCH t: Task WHERE t = #a RETURN t.n
1
> SET #b.n = 7
.params {"a": "#a"}
b> SET #$a.n = 5
> COMMIT
! E5002 read
> MATCH t: Task RETURN t.n
5
1

=== 4.1 | SERIALIZABLE: a phantom is a conflict too
.use tasks
> SPAWN p: Person
> BEGIN SERIALIZABLE
> MATCH t: Task RETURN COUNT(*)
0
> SPAWN q: Person
b> SPAWN t: Task
> COMMIT
! E5002
> BEGIN SERIALIZABLE
> MATCH t: Task WHERE t.u = 5 RETURN COUNT(*)
0
> SPAWN q: Person
b> SPAWN t: Task { u = 6 }
> COMMIT
> BEGIN SERIALIZABLE
> MATCH t: Task WHERE t.u = 5 RETURN COUNT(*)
0
> SPAWN q: Person
b> SPAWN t: Task { u = 5 }
> COMMIT
! E5002

=== 4.1 | SERIALIZABLE: an edge that was looked for and came meanwhile
.use tasks
>> SPAWN a: Task SPAWN b: Task SPAWN p: Person
> BEGIN SERIALIZABLE
> MATCH assigned(#a, x) RETURN COUNT(*)
0
> SET #b.n = 1
.params {"a": "#a", "p": "#p"}
b> LINK assigned(#$a, #$p)
> COMMIT
! E5002
> BEGIN SERIALIZABLE
> MATCH before(#a, x) RETURN COUNT(*)
0
> SET #p.name = "x"
.params {"a": "#a", "b": "#b"}
b> LINK pair(#$a, #$b)
> COMMIT

=== 4.1 | SERIALIZABLE: no write skew
.use tasks
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 1 }
> BEGIN SERIALIZABLE
> MATCH t: Task WHERE t = #b AND t.n = 1 SET #a.n = 0
b> BEGIN SERIALIZABLE
.params {"a": "#a", "b": "#b"}
b> MATCH t: Task WHERE t = #$a AND t.n = 1 SET #$b.n = 0
> COMMIT
b> COMMIT
! E5002
> MATCH t: Task RETURN SUM(t.n)
1

=== 4.1 | SERIALIZABLE: rules run at COMMIT on the then committed state
.use tasks
.define
    node Order { ok: Bool = false }
    rule approve: o: Order WHERE NOT EXISTS(t: Task WHERE t.n = 1) => SET o.ok = true
> BEGIN SERIALIZABLE
> SPAWN o: Order
b> SPAWN t: Task { n = 1 }
> COMMIT
> MATCH o: Order RETURN o.ok
false

=== 4.1 | READ COMMITTED: rules see the state committed when they run
.use tasks
.define
    node Order { ok: Bool = false }
    rule approve: o: Order WHERE NOT EXISTS(t: Task WHERE t.n = 1) => SET o.ok = true
> BEGIN
> SPAWN o: Order
b> SPAWN t: Task { n = 1 }
> COMMIT
> MATCH o: Order RETURN o.ok
false

=== 4.1 | a new ontology aborts the transactions that are open
.use tasks
> BEGIN
> SPAWN a: Task
.define node Other
> SPAWN b: Task
! E5005 ontology
> ROLLBACK

=== 4.1 | writes undone within the transaction cause no conflict
.use tasks
> SPAWN a: Task { n = 1 }
> BEGIN
> SAVEPOINT s
> SET #a.n = 2
> ROLLBACK TO s
.params {"a": "#a"}
b> SET #$a.n = 3
> COMMIT
> MATCH t: Task RETURN t.n
3

=== 4.2 | checked at the operation: types, required, value modifiers, unique, no_self, acyclic, highest cardinality
.define
    node N { r: Int [required], v: Int = 0 [<= 9], u: Int? [unique] }
    edge e(a: N, b: N) [no_self, a -> 0..1]
    edge f(a: N, b: N) [acyclic]
>> SPAWN a: N { r = 1, u = 1 } SPAWN b: N { r = 1 } LINK e(#a, #b) LINK f(#a, #b)
> BEGIN
> SPAWN x: N
! E3002
> ROLLBACK
> BEGIN
> SET #a.v = 10
! E3005
> ROLLBACK
> BEGIN
> SET #b.u = 1
! E3003
> ROLLBACK
> BEGIN
> LINK e(#b, #b)
! E3012
> ROLLBACK
> BEGIN
> LINK f(#b, #a)
! E3011
> ROLLBACK
> BEGIN
> LINK e(#a, #b)
! E3010
> ROLLBACK

=== 4.2 | checked at COMMIT: rules, user constraints, lowest cardinality
.define
    node N { n: Int = 0 }
    edge e(a: N, b: N) [a -> 1..2]
    constraint c: x: N => x.n < 5
    rule r: x: N WHERE x.n = 3 => SET x.n = 4
> BEGIN
> SPAWN a: N { n = 9 }
> LINK e(#a, #a)
> SET #a.n = 3
> MATCH x: N RETURN x.n
3
> COMMIT
> MATCH x: N RETURN x.n
4

=== 4.3 | mutations, then rules to rest, then constraints, then COMMIT
.define
    node N { n: Int = 0 }
    rule down: x: N WHERE x.n > 10 => SET x.n = 10
    rule note: x: N WHERE x.n = 10 => SPAWN y: Seen
    node Seen
    constraint most: x: N => x.n <= 10
> SPAWN a: N { n = 99 }
created 1
> MATCH x: N, s: Seen RETURN x.n
10

=== 4.4 | the journal keeps the net effect of a transaction
.use tasks
> BEGIN
> SPAWN a: Task { n = 1 }
> SET #a.n = 2
> SPAWN b: Task
> KILL #b
> COMMIT
> MATCH t: Task RETURN t.n
2
> MATCH t: _TickState RETURN t.global_tick
1
> BEGIN
> SPAWN c: Task
> KILL #c
> COMMIT
> MATCH t: _TickState RETURN t.global_tick
1

=== 4.5 | wall time flows, logical time counts ticks, now() is wall time
.use tasks
> MATCH () RETURN wall_time(), logical_time(), now()
@2024-01-01T00:00:00.000Z | 0 | @2024-01-01T00:00:00.000Z
.advance 90s
> SPAWN a: Task
> MATCH () RETURN wall_time(), logical_time(), now()
@2024-01-01T00:01:30.000Z | 1 | @2024-01-01T00:01:30.000Z

=== 4.5 | now() may be configured to be logical time
.settings now = "logical"
.define
    node E { at: Timestamp = now() }
    rule r [manual]: e: E => SET e.at = now()
> SPAWN a: E
> SPAWN b: E
> MATCH e: E RETURN e.at, wall_time()
@1970-01-01T00:00:00.000Z | @2024-01-01T00:00:00.000Z
@1970-01-01T00:00:00.001Z | @2024-01-01T00:00:00.000Z
> TRIGGER r
2
> MATCH e: E RETURN DISTINCT e.at
@1970-01-01T00:00:00.002Z

=== 4.5 | logical time is constant within a transaction
.use tasks
> BEGIN
> MATCH () RETURN logical_time()
0
b> SPAWN x: Task
> SPAWN a: Task
> COMMIT
> MATCH () RETURN logical_time()
2

=== 4.6 | TICK advances logical time; n must be positive
> TICK
(nothing)
> MATCH () RETURN logical_time()
1
> TICK 10
> MATCH () RETURN logical_time()
11
> TICK 0
! E9001
> BEGIN
> TICK
! E5001 transaction already active

=== 4.6 | ticks survive a restart
.use tasks
> SPAWN a: Task
> TICK 5
.restart
> MATCH () RETURN logical_time()
6

=== 4.7 | every commit that writes is one tick: it sees N, afterwards it is N+1
.define node E { t: Int = logical_time() }
> SPAWN a: E
> MATCH e: E RETURN COUNT(*)
1
> SPAWN b: E, SPAWN c: E
> BEGIN
> SPAWN d: E
> SPAWN e: E
> COMMIT
> MATCH e: E RETURN e.t ORDER BY e.t
0
1
1
2
2
> MATCH () RETURN logical_time()
3
> SPAWN x: E { t = 1 / 0 }
! E2101
> MATCH () RETURN logical_time()
3

=== 4.7 | with manual ticks only TICK advances
.settings tick = "manual"
.use tasks
> SPAWN a: Task
> MATCH () RETURN logical_time()
0
> TICK
> MATCH () RETURN logical_time()
1

=== 4.8 | scoped ticks are out of scope
> MATCH () RETURN logical_time(1)
! E2007

=== 4.9 | engine configuration is no statement
> SET time.tick_interval = 16ms
! E3601
