-- Permissions of consumers.

.ontology desk
    node User { name: String, role: String = "worker" }
    node Job { name: String, team: String = "all", secret: String? }
    node Note { text: String }
    edge about(note: Note, job: Job)
    policy watching: ON META SPAWN(_Watch) ALLOW IF true
    policy jobs: ON MATCH(j: Job) ALLOW IF j.team = "all"
    policy notes: ON MATCH(n: Note) ALLOW IF true
    policy about: ON MATCH(about) ALLOW IF true

=== queue.policy, E8001 | consuming needs permission to see and to delete
.use desk
> SPAWN ann: User { name = "Ann" }
.session ann as #ann
ann> w = WATCH j: Job RETURN j.name
ann> c = WATCH j: Job [mode: consume] RETURN j.name
! E8001 Watch pattern denied
!not KILL
.define policy kills: ON KILL(j: Job) ALLOW IF j.team = "all"
ann> c = WATCH j: Job [mode: consume] RETURN j.name
.events c
initial (nothing)
> SPAWN x: Job { name = "x" }
.events c
consumed "x" (delivery d1)
ann> ACK #d1
deleted 1

=== queue.policy, E8001 | permission to delete alone is not enough
.define
    node User { name: String }
    node Job { name: String }
    policy watching: ON META SPAWN(_Watch) ALLOW IF true
    policy kills: ON KILL(j: Job) ALLOW IF true
> SPAWN ann: User { name = "Ann" }
.session ann as #ann
ann> c = WATCH j: Job [mode: consume] RETURN j.name
! E8001 Watch pattern denied

=== queue.policy, E8001 | delete permission is needed for the first element only
.use desk
.define policy kills: ON KILL(n: Note) ALLOW IF true
> SPAWN ann: User { name = "Ann" }
.session ann as #ann
ann> c = WATCH n: Note, about(n, j), j: Job [mode: consume] RETURN n.text
ann> d = WATCH j: Job, about(n, j), n: Note [mode: consume] RETURN n.text
! E8001
.events c
initial (nothing)

=== queue.policy, E8001, queue.ack-deletes | consuming an edge needs permission to unlink
.use desk
>> SPAWN ann: User { name = "Ann" }
   SPAWN n: Note { text = "n" }
   SPAWN x: Job { name = "x" }
   LINK about(#n, #x)
.session ann as #ann
ann> c = WATCH about(n, j) AS a [mode: consume] RETURN n.text
! E8001
.define policy unlinks: ON UNLINK(about) ALLOW IF true
ann> c = WATCH about(n, j) AS a [mode: consume] RETURN n.text
.events c
initial (nothing)
consumed "n" (delivery d1)
ann> ACK #d1
unlinked 1

=== queue.policy, E8001 | consuming needs permission to watch
.define
    node User { name: String }
    node Job { name: String }
    policy all: ON * ALLOW IF operation() != "META SPAWN"
> SPAWN ann: User { name = "Ann" }
.session ann as #ann
ann> c = WATCH j: Job [mode: consume] RETURN j.name
! E8001

=== queue.policy | hidden elements are not delivered, and elements that become hidden are withdrawn
.use desk
.define policy kills: ON KILL(j: Job) ALLOW IF true
> SPAWN ann: User { name = "Ann" }
.session ann as #ann
ann> c = WATCH j: Job [mode: consume] RETURN j.name
>> SPAWN x: Job { name = "hidden", team = "board" }
   SPAWN y: Job { name = "open" }
.events c
initial (nothing)
consumed "open" (delivery d1)
> SET #x.team = "all"
.events c
consumed "hidden" (delivery d2)
> SET #y.team = "board"
.errors c
WITHDRAWN {d1}
ann> NACK #d1
.events c
(nothing)
> boss = WATCH j: Job [mode: consume] RETURN j.name
.events boss
initial (nothing)
consumed "open" (attempt 1)

=== queue.policy, queue.ack-in-transaction | an ACK denied by a policy leaves the delivery open
.use desk
.define policy kills: ON KILL(j: Job) ALLOW IF j.name != "precious"
>> SPAWN ann: User { name = "Ann" }
   SPAWN x: Job { name = "precious" }
.session ann as #ann
ann> c = WATCH j: Job [mode: consume] RETURN j.name
.events c
initial (nothing)
consumed "precious" (delivery d1)
ann> ACK #d1
! E7001
.events c
(nothing)
> ACK #d1
deleted 1

=== queue.policy | hidden attributes are null in deliveries
.use desk
.define
    policy kills: ON KILL(j: Job) ALLOW IF true
    policy secrets: ON MATCH(j: Job).secret DENY IF true
>> SPAWN ann: User { name = "Ann" }
   SPAWN x: Job { name = "x", secret = "s" }
.session ann as #ann
ann> c = WATCH j: Job [mode: consume] RETURN j
.events c
initial (nothing)
consumed Job #x {name: "x", team: "all"}

=== queue.policy, queue.redrive | dead letters belong to the actor of their watch
.use desk
.define policy kills: ON KILL(j: Job) ALLOW IF true
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
   SPAWN x: Job { name = "x" }
.session ann as #ann
.session bob as #bob
ann> c = WATCH j: Job [mode: consume] RETURN j.name
.events c
initial (nothing)
consumed "x" (delivery d1)
ann> NACK #d1 [no_retry]
ann> MATCH l: _DeadLetter RETURN l.id
.name letter
bob> MATCH l: _DeadLetter RETURN COUNT(*)
0
bob> REDRIVE #letter
! E3601 not found
ann> REDRIVE #letter
created 1
.events c
consumed "x"

=== queue.policy, E8007, queue.dead-letters | a destination hidden from the actor is treated as missing
.use desk
.define policy kills: ON KILL(j: Job) ALLOW IF true
>> SPAWN ann: User { name = "Ann" }
   SPAWN hidden: Job { name = "hidden", team = "board" }
   SPAWN shown: Note { text = "shown" }
   SPAWN x: Job { name = "x" }
   SPAWN y: Job { name = "y" }
.session ann as #ann
.params {"box": "#hidden"}
ann> c = WATCH j: Job WHERE j.name = "x" [mode: consume, dead_letter: #$box] RETURN j.name
.params {"box": "#shown"}
ann> d = WATCH j: Job WHERE j.name = "y" [mode: consume, dead_letter: #$box] RETURN j.name
.events c
initial (nothing)
consumed "x" (delivery d1)
.events d
initial (nothing)
consumed "y" (delivery d2)
ann> NACK #d1 [no_retry]
warning: the destination does not exist
.errors c
E8007 the destination does not exist
ann> NACK #d2 [no_retry]
no warnings
> MATCH _dead_letter_in(n, l) RETURN n.text
"shown"

=== queue.policy, E8007 | E8007 does not name elements hidden from the actor
.define
    node User { name: String }
    node Job { name: String }
    node Secret { name: String }
    edge keeps(secret: Secret, job: Job) [on_kill_target: prevent]
    policy watching: ON META SPAWN(_Watch) ALLOW IF true
    policy jobs: ON MATCH(j: Job) | KILL(j: Job) ALLOW IF true
>> SPAWN ann: User { name = "Ann" }
   SPAWN x: Job { name = "x" }
   SPAWN s: Secret { name = "s" }
   LINK keeps(#s, #x)
.session ann as #ann
ann> c = WATCH j: Job [mode: consume] RETURN j.name
.events c
initial (nothing)
consumed "x" (delivery d1)
ann> ACK #d1
! E3302 Deletion restricted
!not keeps
ann> NACK #d1 [no_retry]
warning: could not move delivery '{d1}' to 'the dead letters' - it cannot be deleted
.errors c
E8007 could not move delivery '{d1}' to 'the dead letters' - it cannot be deleted
