-- Rules

.ontology tasks
    node Task { title: String = "?", status: String = "todo", n: Int = 0, completed_at: Timestamp? }
    node Log { text: String, n: Int = 0 }
    edge of(l: Log, t: Task)

=== 3.1.1 | a rule runs inside the transaction of the statement, before constraints
.use tasks
.define
    rule stamp [priority: 100]: t: Task WHERE t.status = "done" AND t.completed_at = null => SET t.completed_at = now()
> SPAWN t: Task { title = "a" }
> SET #t.status = "done"
modified 1
> MATCH t: Task RETURN t.completed_at
@2024-01-01T00:00:00.000Z

=== 3.1.1, 5.C7 | in BEGIN … COMMIT rules run at COMMIT, and roll back with it
.use tasks
.define rule log: t: Task WHERE t.status = "done" => SPAWN l: Log { text = t.title }
> BEGIN
> SPAWN t: Task { title = "a", status = "done" }
> MATCH l: Log RETURN COUNT(*)
0
> COMMIT
> MATCH l: Log RETURN l.text
"a"
> BEGIN
> SPAWN t: Task { title = "b", status = "done" }
> ROLLBACK
> MATCH l: Log RETURN COUNT(*)
1

=== 3.1.1, 5.C6 | constraints check the effects of rules, and a violation rolls back both
.use tasks
.define
    rule count: t: Task WHERE t.status = "done" => SPAWN l: Log { text = t.title, n = t.n }
    constraint small: l: Log => l.n < 5
> SPAWN t: Task { status = "done", n = 9 }
! E3001 small
> MATCH t: Task RETURN COUNT(*)
0

=== 3.1.2 | the highest priority fires first, ties in the order of declaration
.define
    node A { trace: String = "" }
    rule third: a: A WHERE NOT contains(a.trace, "3") => SET a.trace = a.trace ++ "3"
    rule fourth: a: A WHERE NOT contains(a.trace, "4") => SET a.trace = a.trace ++ "4"
    rule first [priority: 10]: a: A WHERE NOT contains(a.trace, "1") => SET a.trace = a.trace ++ "1"
    rule second [priority: 5]: a: A WHERE NOT contains(a.trace, "2") => SET a.trace = a.trace ++ "2"
    rule fifth [priority: -1]: a: A WHERE NOT contains(a.trace, "5") => SET a.trace = a.trace ++ "5"
> SPAWN a: A
> MATCH a: A RETURN a.trace
"12345"

=== 3.1.2 | after each firing the matches are looked at again
.define
    node A { on: Bool = true, n: Int = 0 }
    rule off [priority: 5]: a: A WHERE a.on = true => SET a.on = false
    rule count: a: A WHERE a.on = true => SET a.n = a.n + 1
> SPAWN a: A
> MATCH a: A RETURN a.on, a.n
false | 0

=== 3.1.2 | a match that disappears and reappears still fires
.define
    node T { n: Int = 0 }
    node X
    edge has(t: T, x: X)
    rule make [priority: 9]: t: T WHERE t.n = 0 => SPAWN x: X, LINK has(t, x), SET t.n = 1
    rule drop [priority: 8]: x: X => KILL x
    rule bare [priority: 1]: t: T WHERE NOT EXISTS(has(t, _)) => SET t.n = t.n + 10
> SPAWN t: T
> MATCH t: T RETURN t.n
11

=== 3.1.3 | once per rule and binding in a transaction
.define
    node A { n: Int = 0, m: Int = 0 }
    rule bump: a: A => SET a.n = a.n + 1
> SPAWN a: A
> MATCH a: A RETURN a.n
1
> SET #a.m = 1
> MATCH a: A RETURN a.n
2
> BEGIN
> SET #a.m = 2
> SET #a.m = 3
> COMMIT
> MATCH a: A RETURN a.n
3

=== 3.1.3 | a binding is one of all the variables of the pattern
.define
    node A { n: Int = 0 }
    node B
    edge e(a: A, b: B)
    rule r: a: A, e(a, b) => SET a.n = a.n + 1
> BEGIN
>> SPAWN a: A SPAWN b: B SPAWN c: B LINK e(#a, #b) LINK e(#a, #b) LINK e(#a, #c)
> COMMIT
> MATCH a: A RETURN a.n
2

=== 3.1.4 | variables flow forward and do not leak into the session
.use tasks
.define
    rule log: t: Task WHERE t.status = "done" => SPAWN l: Log { text = t.title }, LINK of(l, t), SET l.n = t.n + 1
> SPAWN t: Task { title = "a", status = "done", n = 4 }
> MATCH of(l, t) RETURN l.text, l.n, t.title
"a" | 5 | "a"
> KILL #l
! E3601 not found

=== 3.1.4 | every action: SPAWN, LINK, SET, UNLINK, KILL
.use tasks
.define
    rule tidy: l: Log, t: Task, of(l, t) AS e WHERE t.status = "gone" => UNLINK e, KILL t, SET l.text = "orphan"
>> SPAWN t: Task SPAWN l: Log { text = "x" } LINK of(#l, #t)
> SET #t.status = "gone"
> MATCH x: any RETURN x._type
"Log"
> MATCH l: Log RETURN l.text
"orphan"

=== 3.1.5 | rules run with system authority
.use tasks
.define
    node User
    policy look: ON MATCH(t: Task) ALLOW IF true
    policy write: ON SET(t: Task, _) ALLOW IF true
    rule log: t: Task WHERE t.status = "done" => SPAWN l: Log { text = t.title }
>> SPAWN u: User SPAWN t: Task { title = "a" }
> BEGIN SESSION AS #u
> SPAWN l: Log { text = "x" }
! E7001
> SET #t.status = "done"
modified 1
> MATCH l: Log RETURN COUNT(*)
0
> END SESSION
> MATCH l: Log RETURN l.text
"a"

=== 3.1.5 | a rule may inherit the authority of the acting session
.use tasks
.define
    node User
    policy look: ON MATCH(t: Task) ALLOW IF true
    policy write: ON SET(t: Task, _) ALLOW IF true
    rule log [inherit_authority]: t: Task WHERE t.status = "done" => SPAWN l: Log { text = t.title }
>> SPAWN u: User SPAWN t: Task { title = "a" }
> BEGIN SESSION AS #u
> SET #t.status = "done"
! E7001 Permission denied
> MATCH t: Task RETURN t.status
"todo"
> END SESSION
> SET #t.status = "done"
> MATCH l: Log RETURN l.text
"a"

=== 3.1.6 | manual rules fire only by TRIGGER
.use tasks
.define
    rule reset [manual]: t: Task WHERE t.n > 0 => SET t.n = 0
    rule log: t: Task WHERE t.status = "done" => SPAWN l: Log { text = t.title }
>> SPAWN a: Task { n = 1 } SPAWN b: Task { n = 2 } SPAWN c: Task
> TRIGGER reset WHERE t.n > 1
columns: fired
1
> MATCH t: Task RETURN t.n
1
0
0
> TRIGGER reset
1
> TRIGGER reset
0
> TRIGGER nothing
! E3601 not found
> SET #a.status = "done"
> TRIGGER log
1
> MATCH l: Log RETURN COUNT(*)
2

=== 3.1.6 | TRIGGER inside a transaction rolls back with it
.use tasks
.define rule reset [manual]: t: Task WHERE t.n > 0 => SET t.n = 0
> SPAWN a: Task { n = 1 }
> BEGIN
> TRIGGER reset
1
> MATCH t: Task RETURN t.n
0
> ROLLBACK
> MATCH t: Task RETURN t.n
1
.params {"n": 1}
> TRIGGER reset WHERE t.n = $n
1

=== 3.1.7 | a rule may repair a constraint violation
.use tasks
.define
    constraint titled: t: Task => t.title != ""
    rule name: t: Task WHERE t.title = "" => SET t.title = "untitled"
> SPAWN t: Task { title = "" }
created 1
> MATCH t: Task RETURN t.title
"untitled"

=== 3.1.8 | referential actions run before rules
.define
    node A { n: Int = 0 }
    node B
    edge owns(a: A, b: B) [on_kill_source: cascade]
    edge uses(c: A, b: B)
    rule lonely: a: A WHERE NOT EXISTS(uses(a, _)) AND a.n = 1 => SET a.n = 2
>> SPAWN a: A SPAWN b: B SPAWN c: A { n = 1 } LINK owns(#a, #b)
> MATCH a: A RETURN a.n
0
2
>> SET #c.n = 0 LINK uses(#c, #b) SET #c.n = 1
> KILL #a
deleted 2, unlinked 2
> MATCH a: A RETURN a.n
2
