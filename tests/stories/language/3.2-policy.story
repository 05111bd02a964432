-- Policy

.ontology work
    node User { name: String, admin: Bool = false }
    node Task { title: String, secret: Int?, n: Int = 0, open: Bool = true }
    node Note { text: String = "" }
    edge assigned(t: Task, u: User) { since: Int? }
    edge about(n: Note, t: Task)
    edge tags(x: any) { word: String? }

.ontology own
    policy users: ON MATCH(u: User) ALLOW IF true
    policy tasks: ON MATCH(t: Task) ALLOW IF EXISTS(assigned(t, u) WHERE u = current_actor())

=== 3.2.1 | each operation is decided before it happens; a denial leaves the graph and the transaction's data alone
.use work
.define
    policy look: ON MATCH(_) ALLOW IF true
    policy make: ON SPAWN(t: Task) ALLOW IF t.n < 5
>> SPAWN ann: User { name = "Ann" }
> BEGIN SESSION AS #ann
> SPAWN t: Task { title = "a", n = 1 }
created 1
> SPAWN t: Task { title = "b", n = 9 }
! E7001 policy error: E7001 PERMISSION_DENIED: Permission denied
> SPAWN t: Task { title = "c" }, SPAWN u: Task { title = "d", n = 9 }
! E7001
> MATCH t: Task RETURN t.title
"a"

=== 3.2.1 | policies are checked before other errors
.use work
.define
    policy look: ON MATCH(_) ALLOW IF true
    constraint c: t: Task => t.n >= 0
>> SPAWN ann: User { name = "Ann" }
> BEGIN SESSION AS #ann
> SPAWN t: Task { title = "a", n = -1 }
! E7001

=== 3.2.2 | only sessions with an actor are bound
.use work
.define policy none: ON * DENY IF true
> SPAWN ann: User { name = "Ann" }
> SET #ann.name = "Anna"
modified 1
> BEGIN SESSION AS #ann
> SET #ann.name = "x"
! E7001
> END SESSION
> SET #ann.name = "Anne"
modified 1

=== 3.2.3 | the highest priority wins, DENY wins ties, and without a vote access is denied
.use work
.define
    policy look: ON MATCH(_) ALLOW IF true
    policy a [priority: 1]: ON SET(t: Task, _) ALLOW IF true
    policy b [priority: 2]: ON SET(t: Task, _) DENY IF t.n = 1 MESSAGE "n is one"
    policy c [priority: 3]: ON SET(t: Task, _) ALLOW IF t.title = "free"
    policy d [priority: 3]: ON SET(t: Task, _) DENY IF t.title = "free" AND t.n = 2
>> SPAWN ann: User { name = "Ann" } SPAWN x: Task { title = "x" } SPAWN y: Task { title = "y", n = 1 }
   SPAWN z: Task { title = "free", n = 1 } SPAWN w: Task { title = "free", n = 2 }
> BEGIN SESSION AS #ann
> SET #x.open = false
modified 1
> SET #y.open = false
! E7001 n is one
!not Permission denied
> SET #z.open = false
modified 1
> SET #w.open = false
! E7001 Permission denied
> KILL #x
! E7001 Permission denied

=== 3.2.3 | a condition that raises an error denies without details
.use work
.define
    policy look: ON MATCH(_) ALLOW IF true
    policy kill: ON KILL(t: Task) ALLOW IF 10 / t.secret > 1
>> SPAWN ann: User { name = "Ann" } SPAWN t: Task { title = "t", secret = 0 }
> BEGIN SESSION AS #ann
> KILL #t
! E7004 Permission denied
!not zero
!not kill
> MATCH t: Task RETURN COUNT(*)
1

=== 3.2.3 | a condition that raises an error hides the element, also in a DENY policy
.use work
.define
    policy look: ON MATCH(t: Task) ALLOW IF true
    policy hide: ON MATCH(t: Task) DENY IF 10 / t.n > 100
>> SPAWN ann: User { name = "Ann" } SPAWN t: Task { title = "zero", n = 0 } SPAWN u: Task { title = "one", n = 1 }
> BEGIN SESSION AS #ann
> MATCH t: Task RETURN t.title
"one"

=== 3.2.4 | operation patterns: any, a type with its subtypes, an attribute, an edge type, an edge touching a type
.use work
.define
    node Epic: Task
    policy look: ON MATCH(_) ALLOW IF true
    policy spawn_any: ON SPAWN(_) ALLOW IF true
    policy status: ON SET(t: Task, "open") ALLOW IF true
    policy link_assigned: ON LINK(e: assigned) ALLOW IF e.since > 2000
    policy link_task: ON LINK(_, t: Task) ALLOW IF t.title = "hot"
    policy drop: ON UNLINK(e: assigned) | KILL(n: Note) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN e: Epic { title = "e" } SPAWN h: Task { title = "hot" }
> BEGIN SESSION AS #ann
> SPAWN n: Note
> SET #e.open = false
modified 1
> SET #e.title = "x"
! E7001
> SET #e { open = true, title = "x" }
! E7001
> LINK assigned(#e, #ann) { since = 2024 }
linked 1
> LINK assigned(#e, #ann) { since = 1999 }
! E7001
> LINK assigned(#h, #ann)
linked 1
> LINK about(#n, #h)
linked 1
> LINK about(#n, #e)
! E7001
> UNLINK assigned(#h, #ann)
unlinked 1
> UNLINK about(#n, #h)
! E7001
> KILL #n
deleted 1, unlinked 1
> KILL #e
! E7001

=== 3.2.4 | SET with any attribute, and * for everything
.use work
.define
    policy look: ON MATCH(_) ALLOW IF true
    policy own: ON SET(t: Task, _) ALLOW IF true
    policy boss: ON * ALLOW IF current_actor().admin = true
>> SPAWN ann: User { name = "Ann" } SPAWN root: User { name = "Root", admin = true } SPAWN t: Task { title = "t" }
.session ann as #ann
.session root as #root
.params {"t": "#t"}
ann> SET #$t { title = "x", n = 5 }
modified 1
.params {"t": "#t"}
ann> KILL #$t
! E7001
root> SPAWN u: Task { title = "u" }
created 1
.params {"t": "#t"}
root> KILL #$t
deleted 1

=== 3.2.5 | reads are filtered, element by element: ALLOWs are joined by OR, any DENY excludes
.use work
.define
    policy mine: ON MATCH(t: Task) ALLOW IF EXISTS(assigned(t, u) WHERE u = current_actor())
    policy public: ON MATCH(t: Task) ALLOW IF t.open = true
    policy secret [priority: -5]: ON MATCH(t: Task) DENY IF t.secret = 7
    policy people: ON MATCH(u: User) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN bob: User { name = "Bob" }
   SPAWN a: Task { title = "a", open = false } SPAWN b: Task { title = "b" } SPAWN c: Task { title = "c", secret = 7 }
   SPAWN d: Task { title = "d", open = false }
   LINK assigned(#a, #ann)
.session ann as #ann
.session bob as #bob
ann> MATCH t: Task RETURN t.title
"a"
"b"
bob> MATCH t: Task RETURN t.title
"b"
ann> MATCH n: Note RETURN n
(nothing)

=== 3.2.5 | every way to read is filtered the same
.use work
.use own
>> SPAWN ann: User { name = "Ann" } SPAWN a: Task { title = "a", n = 1 } SPAWN b: Task { title = "b", n = 2 }
   LINK assigned(#a, #ann) LINK tags(#a) { word = "x" } LINK tags(#b) { word = "y" } LINK assigned(#b, SPAWN User { name = "Bob" } AS bob)
.session ann as #ann
ann> MATCH t: Task RETURN COUNT(*), SUM(t.n), MAX(t.title), COLLECT(t.title)
1 | 1 | "a" | ["a"]
ann> MATCH u: User WHERE EXISTS(assigned(t, u)) RETURN u.name
"Ann"
ann> MATCH u: User WHERE NOT EXISTS(assigned(t, u)) RETURN u.name
"Bob"
ann> MATCH u: User RETURN u.name, COUNT(t: Task, assigned(t, u))
"Ann" | 1
"Bob" | 0
ann> MATCH tags(x) AS e RETURN e.word
"x"
ann> MATCH u: User OPTIONAL MATCH assigned(t, u) RETURN u.name, t.title
"Ann" | "a"
"Bob" | null
ann> MATCH x: any WHERE x:Task RETURN COUNT(*)
1
ann> MATCH assigned+(t, u) RETURN t.title
"a"
.params {"b": "#b"}
ann> MATCH t: Task WHERE t = #$b RETURN t
(nothing)
.params {"b": "#b"}
ann> MATCH () RETURN #$b.title
null
.params {"b": "#b"}
ann> INSPECT #$b
false
.params {"a": "#a"}
ann> INSPECT #$a RETURN title
"a"

=== 3.2.5 | reading a hidden type returns no rows
.use work
.define policy users: ON MATCH(u: User) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN t: Task { title = "t" }
> BEGIN SESSION AS #ann
> MATCH t: Task RETURN COUNT(*)
0
> MATCH t: Task RETURN t
(nothing)

=== 3.2.5 | a hidden attribute is null wherever it is read
.use work
.define
    policy look: ON MATCH(_) ALLOW IF true
    policy hide: ON MATCH(t: Task).secret DENY IF current_actor().admin = false
    policy write: ON SET(_) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN root: User { name = "Root", admin = true }
   SPAWN a: Task { title = "a", secret = 3 } SPAWN b: Task { title = "b", secret = 1 } SPAWN c: Task { title = "c", secret = 2 }
.session ann as #ann
.session root as #root
root> MATCH t: Task RETURN t.title, t.secret ORDER BY t.secret
"b" | 1
"c" | 2
"a" | 3
ann> MATCH t: Task RETURN t.title, t.secret ORDER BY t.secret, t.title
"a" | null
"b" | null
"c" | null
ann> MATCH t: Task WHERE t.secret = 3 RETURN t.title
(nothing)
ann> MATCH t: Task WHERE t.secret IS NULL RETURN COUNT(*)
3
ann> MATCH t: Task RETURN SUM(t.secret), MIN(t.secret), COLLECT(t.secret)
null | null | [null, null, null]
ann> MATCH t: Task WHERE t.title = "a" RETURN t
Task #a {title: "a", n: 0, open: true}
.params {"a": "#a"}
ann> INSPECT #$a RETURN title, secret
"a" | null
.params {"a": "#a"}
ann> SET #$a.n = 5 RETURNING n, secret
5 | null
ann> MATCH t: Task WHERE t.title = "b" SET t.n = t.secret ?? 77 RETURNING n
77
ann> MATCH t: Task WHERE t.title = "c" SET t.open = false SET t.n = t.secret ?? 78 RETURNING n
78
root> MATCH t: Task WHERE t.title = "a" RETURN t.secret, t.n
3 | 5

=== 3.2.5 | an index does not betray a hidden attribute
.define
    node User
    node Card { number: Int? [unique], kind: String? [indexed] }
    policy look: ON MATCH(_) ALLOW IF true
    policy hide: ON MATCH(c: Card).number DENY IF true
    policy hide_too: ON MATCH(c: Card).kind ALLOW IF false
>> SPAWN u: User SPAWN c: Card { number = 42, kind = "gold" }
> MATCH c: Card WHERE c.number = 42 AND c.kind = "gold" RETURN c.number
42
> BEGIN SESSION AS #u
> MATCH c: Card WHERE c.number = 42 RETURN c
(nothing)
> MATCH c: Card WHERE c.kind = "gold" RETURN c
(nothing)
> MATCH c: Card, d: Card WHERE c.number = d.number RETURN COUNT(*)
1

=== 3.2.5 | aggregates and EXPLAIN use visible elements only
.use work
.define policy users: ON MATCH(u: User) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN t: Task { title = "t" } SPAWN u: Task { title = "u" }
> BEGIN SESSION AS #ann
> EXPLAIN MATCH t: Task RETURN t
"scan" | "t: Task" | null
> PROFILE MATCH t: Task RETURN t
"scan" | "t: Task" | null | 1 | null
"result" | "0 rows" | null | null | 0

=== 3.2.6 | an edge is seen when all its targets are
.use work
.define
    policy tasks: ON MATCH(t: Task) ALLOW IF t.open = true
    policy users: ON MATCH(u: User) ALLOW IF u.name != "Ghost"
>> SPAWN ann: User { name = "Ann" } SPAWN ghost: User { name = "Ghost" } SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b", open = false }
   LINK assigned(#a, #ann) LINK assigned(#a, #ghost) LINK assigned(#b, #ann)
> BEGIN SESSION AS #ann
> MATCH assigned(t, u) RETURN t.title, u.name
"a" | "Ann"
> MATCH assigned(_, _) RETURN COUNT(*)
1
> MATCH e: assigned RETURN COUNT(*)
1

=== 3.2.6 | a policy on the edge type overrides the visibility of targets
.use work
.define
    policy users: ON MATCH(u: User) ALLOW IF true
    policy seen: ON MATCH(e: assigned) ALLOW IF e.since > 2000
    policy notes: ON MATCH(n: Note) ALLOW IF true
    policy no_about: ON MATCH(e: about) DENY IF true
    policy open: ON MATCH(t: Task) ALLOW IF t.title = "open"
>> SPAWN ann: User { name = "Ann" } SPAWN a: Task { title = "a" } SPAWN o: Task { title = "open" } SPAWN n: Note
   LINK assigned(#a, #ann) { since = 2024 } LINK assigned(#a, #ann) { since = 1999 } LINK about(#n, #o)
   LINK assigned(#o, #ann) { since = 1999 }
> BEGIN SESSION AS #ann
> MATCH assigned(_, u) AS e RETURN e.since
2024
> MATCH assigned(t, u) AS e RETURN e.since
(nothing)
> MATCH about(_, _) RETURN COUNT(*)
0

=== 3.2.7 | META operations can be declared
.use work
.define
    policy watch: ON META SPAWN(_Watch) ALLOW IF true
    policy schema: ON META SET(_) DENY IF true
> MATCH p: _PolicyRule RETURN p.name
"watch"
"schema"

=== 3.2.8, 5.C16 | without any policy an actor may do everything
.use work
> SPAWN ann: User { name = "Ann" }
> BEGIN SESSION AS #ann
> SPAWN t: Task { title = "t" }
> MATCH t: Task RETURN t.title
"t"
> KILL #t
deleted 1

=== 3.2.disclosure | errors may name elements that the session created or bound
.use work
.define policy write: ON SPAWN(t: Task) | LINK(e: assigned) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN old: Task { title = "old" }
> BEGIN SESSION AS #ann
> MATCH t: Task RETURN t
(nothing)
> LINK assigned(SPAWN Task { title = "a" }, #self)
created 1, linked 1
> SPAWN t: Task { title = "b" }
> LINK assigned(#t, #ann)
linked 1
> KILL #t
! E7001 Permission denied
> SET #old.title = "x"
! E7001 Permission denied
.session other as #ann
.params {"old": "#old"}
other> SET #$old.title = "x"
! E3601 not found

=== 3.2.disclosure | a hidden element gives the same error as a missing one
.use work
.use own
>> SPAWN ann: User { name = "Ann" } SPAWN b: Task { title = "b", n = 2 } SPAWN mine: Task { title = "m" } LINK assigned(#mine, #ann)
.session ann as #ann
.params {"x": "#b"}
ann> KILL #$x
! E3601 not found
!not Task
!not ermission
.params {"x": "#b"}
ann> SET #$x.title = "x"
! E3601 not found
.params {"x": "none"}
ann> SET #$x.title = "x"
! E3601 not found
.params {"x": "#mine"}
ann> SET #$x.title = "x"
! E7001 Permission denied
ann> KILL { MATCH t: Task WHERE t.title = "b" RETURN t }
deleted 0

=== 3.2.disclosure | LINK to a hidden element of any type
.use work
.define
    policy users: ON MATCH(u: User) ALLOW IF true
    policy notes: ON * ALLOW IF target_type() = "Note"
>> SPAWN ann: User { name = "Ann" } SPAWN t: Task { title = "secret task" } SPAWN v: User { name = "V" }
.session ann as #ann
ann> SPAWN n: Note
.params {"x": "#t"}
ann> LINK about(#n, #$x)
! E3601 not found
!not Task
.params {"x": "none"}
ann> LINK about(#n, #$x)
! E3601 not found
.params {"x": "#t"}
ann> LINK about(#missing, #$x)
! E3601 #missing was not found
.params {"x": "#t"}
ann> LINK about(#$x, #$x)
! E3601 not found
!not Task
.params {"x": "#v"}
ann> LINK assigned(#$x, #$x)
! E2003
.params {"x": "#v"}
ann> LINK tags(#$x)
! E7001 Permission denied

=== 3.2.disclosure | a reference to a hidden element
.define
    node User
    node Secret
    node Box { holds: any, owner: User? }
    policy box: ON * ALLOW IF target_type() = "Box" OR target_type() = "User"
>> SPAWN u: User SPAWN s: Secret
.session u as #u
.params {"x": "#s"}
u> SPAWN b: Box { holds = #$x }
! E3601 not found
!not Secret
.params {"x": "#s"}
u> SPAWN b: Box { owner = #$x }
! E3601 not found
!not Secret
.params {"x": "#u"}
u> SPAWN b: Box { holds = #$x, owner = #$x }
created 1
.params {"x": "#s"}
u> SET #b.holds = #$x
! E3601 not found
.params {"x": "#s"}
u> SET #b.owner = #$x
! E3601 not found
!not Secret
u> SET #b.owner = null
modified 1

=== 3.2.disclosure | a deletion that a hidden edge prevents does not say which
.define
    node User
    node File
    node Lock { code: Int }
    edge locks(l: Lock, f: File) [on_kill_target: prevent]
    policy files: ON * ALLOW IF target_type() = "File"
>> SPAWN u: User SPAWN f: File SPAWN l: Lock { code = 1 } LINK k: locks(#l, #f)
.session u as #u
.params {"f": "#f"}
u> KILL #$f
! E3302 restricted
!not locks
!not e1_
> KILL #f
! E3302 'locks'

=== 3.2.disclosure | a violated constraint does not name elements to an actor who cannot see them
.define
    node User
    node Config [singleton]
    policy make: ON SPAWN(c: Config) ALLOW IF true
>> SPAWN u: User SPAWN c: Config
> SPAWN d: Config
! E3001 n1_
.session u as #u
u> SPAWN d: Config
! E3001 only one
!not n1_

=== 3.2.disclosure | a violated cardinality does not name hidden elements
.define
    node User
    node Order
    node Item
    edge has(o: Order, i: Item) [o -> 1..*]
    policy items: ON * ALLOW IF target_type() = "Item"
> BEGIN
>> SPAWN u: User LINK has(SPAWN Order AS o, SPAWN Item AS i)
> COMMIT
.session u as #u
u> BEGIN
.params {"i": "#i"}
u> KILL #$i
u> COMMIT
! E3010 an element needs at least 1
!not n1_

=== 3.2.disclosure | UNLINK by endpoints removes visible edges only
.use work
.use own
.define policy drop: ON UNLINK(e: assigned) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" } LINK assigned(#a, #ann)
   LINK tags(#a) LINK assigned(#b, SPAWN User { name = "Bob" } AS bob)
.session ann as #ann
.params {"b": "#b"}
ann> UNLINK assigned(#$b, _)
! E3601 not found
ann> UNLINK assigned(_, _)
unlinked 1
> MATCH assigned(t, u) RETURN t.title
"b"

=== 3.2.disclosure | RETURNING shows the visible pre-image
.use work
.use own
.define policy drop: ON KILL(t: Task) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN a: Task { title = "a" } LINK assigned(#a, #ann)
> BEGIN SESSION AS #ann
> KILL #a RETURNING title
"a"

=== 3.2.disclosure | LINK IF NOT EXISTS does not show an existing hidden edge
.use work
.define
    policy users: ON MATCH(u: User) ALLOW IF true
    policy link: ON LINK(e: assigned) ALLOW IF true
    policy hide: ON MATCH(e: assigned).since DENY IF true
    policy set: ON SET(u: User, _) ALLOW IF true
    policy tasks: ON MATCH(t: Task) ALLOW IF true
>> SPAWN ann: User { name = "Ann" } SPAWN t: Task { title = "t" } LINK assigned(#t, #ann) { since = 1234 }
> BEGIN SESSION AS #ann
> MATCH u: User, t: Task LINK IF NOT EXISTS assigned(t, u) AS e SET u.name = u.name ++ (upper("x") ?? "") RETURNING name
"AnnX"
> LINK IF NOT EXISTS assigned(#t, #ann) RETURNING created, since
false | null
