-- Constraints that users declare

.ontology tasks
    node Task { title: String = "?", n: Int = 0, status: String = "todo", due: Timestamp? }
    node Person { name: String? }
    edge assigned(t: Task, p: Person)

=== 2.9.hard, 2.12.E3001 | a hard constraint rejects the transaction, with its name and message
.use tasks
.define constraint positive [hard, message: "n must not be negative"]: t: Task => t.n >= 0
> SPAWN a: Task { n = 1 }
> SET #a.n = -1
! E3001 constraint violation: E3001 CONSTRAINT_VIOLATED: Constraint 'positive' violated: n must not be negative
> SPAWN b: Task { n = -1 }
! E3001 positive
> MATCH t: Task RETURN t.n
1

=== 2.9.hard | a constraint is checked at COMMIT, not within the transaction
.use tasks
.define constraint positive: t: Task => t.n >= 0
> BEGIN
> SPAWN a: Task { n = -1 }
> SET #a.n = 1
> COMMIT
> BEGIN
> SET #a.n = -2
> COMMIT
! E3001 positive
> MATCH t: Task RETURN t.n
1
> ROLLBACK
! E5004

=== 2.9.soft | a soft constraint warns and lets the commit pass
.use tasks
.define constraint named [soft, message: "give it a title"]: t: Task => t.title != "?"
> SPAWN a: Task
created 1
warning: Constraint 'named' violated: give it a title
> BEGIN
> SPAWN b: Task
no warnings
> COMMIT
warning: give it a title
> SET #a.title = "x"
no warnings

=== 2.9.match | every match of pattern and WHERE must satisfy the condition
.use tasks
.define constraint two: t: Task, assigned(t, p) WHERE t.status = "open" => p.name != null
>> SPAWN t: Task SPAWN p: Person LINK assigned(#t, #p)
> SET #t.status = "open"
! E3001 two
> SET #p.name = "P"
> SET #t.status = "open"
> SET #p.name = null
! E3001 two
> LINK assigned(#t, SPAWN Person)
! E3001 two

=== 2.9.match | a constraint about missing elements is also checked at deletion
.use tasks
.define
    constraint staffed: t: Task WHERE t.status = "open" => EXISTS(assigned(t, p) WHERE p.name = "boss")
    constraint few: t: Task => COUNT(p: Person, assigned(t, p)) <= 2
>> SPAWN t: Task SPAWN p: Person { name = "boss" } SPAWN q: Person SPAWN r: Person LINK assigned(#t, #p)
> SET #t.status = "open"
> UNLINK assigned(#t, #p)
! E3001 staffed
> KILL #p
! E3001 staffed
> SET #p.name = "none"
! E3001 staffed
> LINK assigned(#t, #q)
> LINK assigned(#t, #r)
! E3001 few
> KILL #t
deleted 1, unlinked 2

=== 2.9.match | a condition that follows a reference
.define
    node Owner { level: Int = 1 }
    node Doc { owner: Owner, secret: Int = 0 }
    constraint cleared: d: Doc => d.owner.level >= d.secret
>> SPAWN o: Owner { level = 3 } SPAWN d: Doc { owner = #o, secret = 2 }
> SET #o.level = 1
! E3001 cleared
> SET #d.secret = 4
! E3001 cleared

=== 2.9.name | a constraint must have a name, and one of its own
.use tasks
.define constraint : t: Task => t.n > 0
! E1001
.define
    constraint c: t: Task => t.n > 0
    constraint c: t: Task => t.n > 1
! E2005 constraint 'c'
.define constraint c: t: Task => t.n >= 0
.define constraint c: t: Task => t.n >= 1
! E2011 constraint 'c'

=== 2.9.now, 2.12.E9034, 5.C5 | now() is rejected in the condition of a constraint and accepted in its WHERE
.use tasks
.define constraint late: t: Task => t.due > now()
! E9034 now()
.define constraint late: t: Task => t.due > wall_time()
! E9034 wall_time()
.define constraint late: t: Task WHERE t.due < now() => t.status = "done"
> SPAWN a: Task { due = @2023-12-01 }
! E3001 late
> SPAWN a: Task { due = @2024-06-01 }
created 1

=== 2.9.actor | current_actor() is rejected in a constraint
.use tasks
.define constraint mine: t: Task => current_actor() != null
! E2009 current_actor()

=== 2.9.data | a constraint defined later must hold for existing data
.use tasks
> SPAWN a: Task { n = -1 }
.define constraint positive: t: Task => t.n >= 0
! E3001 positive
.define constraint positive [soft]: t: Task => t.n >= 0
> SET #a.title = "x"
warning: positive

=== 2.9.singleton | [singleton] allows one element
.define node Config [singleton] { n: Int = 0 }
> SPAWN a: Config
> SPAWN b: Config
! E3001 there can be only one Config
> KILL #a
> SPAWN b: Config
created 1
