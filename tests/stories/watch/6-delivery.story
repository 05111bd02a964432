-- How events reach their reader: pausing, buffers, order, reliable delivery, visibility.

.ontology tasks
    node Task { title: String, n: Int = 0 }

=== seed.management, M2, M3, B15 | pause, and catch up afterwards, with nothing missing
.scope node
.use tasks
> w = WATCH t: Task RETURN t.title
.events w
initial (nothing)
> PAUSE WATCH #w
> SPAWN a: Task { title = "a" }
> SET #a.title = "b"
.events w
(nothing)
> MATCH s: _Watch RETURN s.status, s.events_pending
"paused" | 2
> PAUSE WATCH #w
> RESUME WATCH #w
> KILL #a
.events w ordered
added "a"
changed "a" -> "b"
removed "b"
> RESUME WATCH #w
> MATCH s: _Watch RETURN s.status, s.events_pending
"active" | 0

=== seed.buffer, surface.position, B16 | a slow reader loses the oldest events, and is told how many
.scope node
.use tasks
> slow = WATCH t: Task [buffer: 2, initial: none] RETURN t.title
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
   SPAWN d: Task { title = "d" }
   SPAWN e: Task { title = "e" }
.events slow
added "d" (position 4, dropped 3)
added "e" (position 5)
> SPAWN f: Task { title = "f" }
.events slow
added "f" (position 6)

=== seed.buffer, M2 | paused for too long, it drops as well; the snapshot is never dropped
.scope node
.use tasks
> SPAWN z: Task { title = "z" }
> slow = WATCH t: Task [buffer: 3, on_full: drop] RETURN t.title
> PAUSE WATCH #slow
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
   SPAWN d: Task { title = "d" }
> RESUME WATCH #slow
.events slow
initial (position 1)
  "z"
added "c" (position 4, dropped 2)
added "d" (position 5)

=== E8005, B16, seed.buffer | a reader that must not lose anything is cut off instead
.scope node
.use tasks
> strict = WATCH t: Task [buffer: 2, on_full: error, initial: none] RETURN t.title
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
.events strict
added "a"
added "b"
>> SPAWN c: Task { title = "c" }
   SPAWN d: Task { title = "d" }
   SPAWN e: Task { title = "e" }
   SPAWN f: Task { title = "f" }
.events strict
(nothing)
.errors strict
E8005 Buffer full
> MATCH s: _Watch RETURN s.status, s.events_pending
"cancelled" | 0
> RESUME WATCH #strict
! E8002

=== B16, seed.buffer | with block the writer waits, and is refused when nobody reads
.scope node
.settings block_timeout_seconds = 0.01
.use tasks
reader> slow = WATCH t: Task [buffer: 2, on_full: block, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
> SPAWN c: Task { title = "c" }
! E8005 on_full: block
.events slow
added "a"
added "b"
> SPAWN d: Task { title = "d" }
.events slow
added "d"
> MATCH t: Task RETURN COUNT(*)
3

=== B16 | who waits for itself is told so at once
.scope node
.use tasks
> slow = WATCH t: Task [buffer: 1, on_full: block, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
! E8005
.events slow
added "a"

=== seed.causal, B21 | causes before effects, across commits
.scope node
.use tasks
> log = WATCH t: Task [ordering: causal, initial: none] RETURN t.title, t.n
> SPAWN a: Task { title = "a" }
> SET #a.n = 1
> SPAWN b: Task { title = "b" }
> KILL #a
.events log ordered
added "a" | 0 (tick 0)
changed "a" | 0 -> "a" | 1 (tick 1)
added "b" | 0 (tick 2)
removed "a" | 1 (tick 3)

=== B22, seed.delivery | a best-effort watch ends with its session
.scope node
.use tasks
bob> w = WATCH t: Task RETURN t.title
.events w
initial (nothing)
.close bob
> SPAWN a: Task { title = "a" }
> MATCH s: _Watch WHERE s.status = "active" RETURN COUNT(*)
0
.attach w
! E8002

=== B22, surface.reliable, surface.attach | a reliable watch waits for its reader to come back
.scope node
.use tasks
bob> w = WATCH t: Task [delivery: reliable] RETURN t.title
.events w
initial (nothing)
.close bob
> SPAWN a: Task { title = "a" }
> SET #a.title = "b"
.attach w by eve
.events w redelivered
initial (nothing)
added "a" (position 2)
changed "a" -> "b" (position 3)
> KILL #a
.events w
removed "b" (position 4)

=== surface.reliable, B29 | what was confirmed is not told again, what was not is
.scope node
.use tasks
bob> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
.events w
added "a" (position 1)
.confirm w
.close bob
.attach #w by eve
.events w
(nothing)
> SPAWN b: Task { title = "b" }
.events w
added "b" (position 2)
.close eve
.attach w by fay
.events w redelivered
added "b" (position 2)

=== surface.reliable, surface.restart | a reliable watch goes on after a restart, without a hole
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable] RETURN t.title
.events w
initial (nothing)
> SPAWN a: Task { title = "a" }
.events w
added "a" (position 2)
.confirm w
> SPAWN b: Task { title = "b" }
.restart
> SPAWN c: Task { title = "c" }
.attach w
.events w
added "b" (position 3)
added "c" (position 4)
> MATCH t: Task SET t.n = 1 KILL t
.events w
removed "a"
removed "b"
removed "c"
.confirm w
.restart
.attach #w
.events w
(nothing)

=== surface.reliable, surface.restart | not confirmed is told again after a restart
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable] RETURN t.title
> SPAWN a: Task { title = "a" }
.events w
initial (nothing)
added "a" (position 2)
.restart
.attach w
.events w redelivered
initial (nothing)
added "a" (position 2)

=== surface.reliable | memory is bounded, the log is not: a far-behind reader gets everything
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, buffer: 2, initial: none] RETURN t.n
>> SPAWN a: Task { title = "x", n = 1 }
   SPAWN b: Task { title = "x", n = 2 }
   SPAWN c: Task { title = "x", n = 3 }
   SPAWN d: Task { title = "x", n = 4 }
   SPAWN e: Task { title = "x", n = 5 }
.events w limit 2 ordered
added 1
added 2
.events w limit 2 ordered
added 3
added 4
.events w ordered
added 5 (position 5)

=== E8009, surface.reliable | reliable and drop exclude each other
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, on_full: drop] RETURN t.title
! E8009 on_full
! block, error
> w = WATCH t: Task [delivery: reliable, on_full: error] RETURN t.title

=== E8010, surface.attach | only the same actor, or the system, takes a watch up again
.scope node
.define
    node User { name: String }
    policy all: ON * ALLOW IF operation() != "META SET"
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
.session ann as #ann
ann> w = WATCH u: User [delivery: reliable, initial: none] RETURN u.name
.close ann
.session bob as #bob
.attach #w by bob
! E8010
.session ann as #ann
.attach #w by ann
> SPAWN u: User { name = "new" }
.events w
added "new"

=== seed.visibility | immediate: drafts are seen while they are written, and taken back when they are
.scope node
.use tasks
> w = WATCH t: Task [visibility: immediate] RETURN t.title
> c = WATCH t: Task RETURN t.title
.events w, c
initial (nothing)
> BEGIN
> SPAWN a: Task { title = "draft" }
.events w
added "draft"
> SET #a.title = "final"
.events w
changed "draft" -> "final"
> COMMIT
.events w
(nothing)
.events c
added "final"
> BEGIN
> SET #a.title = "oops"
> SPAWN b: Task { title = "more" }
.events w
changed "final" -> "oops"
added "more"
> ROLLBACK
.events w
changed "oops" -> "final"
removed "more"
.events c
(nothing)

=== seed.visibility, 4.4 | immediate: a savepoint, and a statement of its own
.scope node
.use tasks
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
.events w
added "a"
> BEGIN
> SPAWN b: Task { title = "b" }
> SAVEPOINT s
> KILL #a
.events w
added "b"
removed "a"
> ROLLBACK TO s
.events w
added "a"
> COMMIT
.events w
(nothing)

=== seed.visibility, seed.rules | immediate sees what rules add, at the commit
.scope node
.use tasks
.define rule number: t: Task WHERE t.n = 0 => SET t.n = 7
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title, t.n
> BEGIN
> SPAWN a: Task { title = "a" }
.events w
added "a" | 0
> COMMIT
.events w
changed "a" | 0 -> "a" | 7

=== B24 | a watch that is made inside a transaction sees committed state, and outlives a rollback
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> BEGIN
> SPAWN b: Task { title = "b" }
> w = WATCH t: Task RETURN t.title
.events w
initial
  "a"
> ROLLBACK
> SPAWN c: Task { title = "c" }
.events w
added "c"

=== surface.poll | a reader takes as much as it likes at a time
.scope node
.use tasks
> w = WATCH t: Task RETURN t.title
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
.events w limit 2
initial (nothing)
added "a"
.events w limit 1
added "b"
.events w
added "c"

=== E8005, B16 | one commit with too much is one error
.scope node
.use tasks
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
> strict = WATCH t: Task [buffer: 1, on_full: error, initial: none] RETURN t.title
> MATCH t: Task SET t.title = "x"
.events strict
(nothing)
.errors strict
E8005 watch cancelled

=== seed.visibility, surface.aggregates | immediate counts follow a rollback
.scope node
.use tasks
> n = WATCH t: Task [visibility: immediate] RETURN COUNT(*)
.events n
initial
  0
> BEGIN
>> SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" }
.events n
changed 0 -> 1
changed 1 -> 2
> ROLLBACK
.events n
changed 2 -> 0

=== B24, seed.visibility | a reader sees nothing of another's open transaction
.scope node
.use tasks
bob> w = WATCH t: Task RETURN t.title
> BEGIN
> SPAWN a: Task { title = "a" }
bob> MATCH t: Task RETURN COUNT(*)
0
.events w
initial (nothing)
> COMMIT
.events w
added "a"

=== surface.since, seed.visibility | looking back, then drafts
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
> w = WATCH t: Task [initial: since(0), visibility: immediate] RETURN t.title
.events w
added "b"
> BEGIN
> SPAWN c: Task { title = "c" }
.events w
added "c"
> COMMIT
.events w
(nothing)
> CANCEL WATCH #w

=== surface.position, M4 | of two equal watches one is cancelled, the other goes on
.scope node
.use tasks
> a = WATCH t: Task [initial: none] RETURN t.title
> b = WATCH t: Task [initial: none] RETURN t.title
> CANCEL WATCH #a
> SPAWN x: Task { title = "x" }
.events a
(nothing)
.events b
added "x"

=== E8010, surface.attach | a best-effort watch belongs to its session and is not taken up by another
.scope node
.use tasks
bob> w = WATCH t: Task [initial: none] RETURN t.title
.attach #w by ann
! E8010 ends with it
> SPAWN x: Task { title = "x" }
.events w
added "x"

=== seed.visibility, B24 | immediate: two drafts of one task, and the later one is taken back
.scope node
.use tasks
> SPAWN a: Task { title = "plan" }
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title
ann> BEGIN
ann> MATCH t: Task SET t.title = "Ann's plan"
bob> BEGIN
bob> MATCH t: Task SET t.title = "Bob's plan"
.events w
changed "plan" -> "Ann's plan"
changed "Ann's plan" -> "Bob's plan"
bob> ROLLBACK
.events w
changed "Bob's plan" -> "Ann's plan"
ann> COMMIT
.events w
(nothing)

=== seed.visibility, 4.4 | immediate: what a savepoint took back may be written by others
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title
> BEGIN
> SAVEPOINT here
> SET #a.title = "draft"
> ROLLBACK TO here
.events w
changed "a" -> "draft"
changed "draft" -> "a"
bob> MATCH t: Task SET t.title = "b"
.events w
changed "a" -> "b"
> COMMIT
.events w
(nothing)

=== seed.visibility, B3 | immediate: the snapshot has what is being written
.scope node
.use tasks
bob> BEGIN
bob> SPAWN a: Task { title = "draft" }
> w = WATCH t: Task [visibility: immediate] RETURN t.title
> c = WATCH t: Task RETURN t.title
.events w
initial
  "draft"
.events c
initial (nothing)
bob> ROLLBACK
.events w
removed "draft"
