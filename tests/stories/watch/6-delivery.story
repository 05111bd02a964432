-- Delivery of events: pause, buffers, order, reliable delivery, visibility.

.ontology tasks
    node Task { title: String, n: Int = 0 }

=== watch.management, watch.pause, watch.resume, watch.paused | a resumed watch delivers the events of the pause
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

=== watch.buffer, watch.position, watch.on-full | drop discards the oldest events and reports their number
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

=== watch.buffer, watch.pause | a paused watch drops events but never the snapshot
.reader pull
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

=== E8005, watch.on-full, watch.buffer | on_full: error ends the watch instead of dropping
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

=== watch.on-full, watch.buffer | on_full: block makes the writer wait until it times out
.reader pull
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

=== watch.on-full | a writer that would wait for its own watch fails at once
.reader pull
.scope node
.use tasks
> slow = WATCH t: Task [buffer: 1, on_full: block, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
! E8005
.events slow
added "a"

=== watch.causal-order | causes are delivered before effects across commits
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

=== watch.disconnect, watch.best-effort | a best-effort watch ends with its session
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

=== watch.disconnect, watch.reliable, watch.attach | a reliable watch keeps events until its reader attaches again
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

=== watch.reliable, watch.at-least-once | only unconfirmed events are delivered again
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

=== watch.reliable, watch.restart | a reliable watch continues after a restart without a gap
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

=== watch.reliable, watch.restart | unconfirmed events are delivered again after a restart
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

=== watch.reliable | a reliable watch with a full buffer delivers all events from the log
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

=== E8009, watch.reliable | reliable and drop exclude each other
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, on_full: drop] RETURN t.title
! E8009 on_full
! block, error
> w = WATCH t: Task [delivery: reliable, on_full: error] RETURN t.title

=== E8010, watch.attach | only the same actor or the system may attach to a watch
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

=== watch.visibility | immediate: uncommitted writes are visible until they are rolled back
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

=== watch.visibility, 4.4 | immediate: savepoints and single statements
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

=== watch.visibility, watch.rules | immediate: effects of rules are visible at the commit
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

=== watch.in-transaction | a watch created inside a transaction sees committed state and survives a rollback
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

=== watch.poll | poll returns at most the requested number of events
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

=== E8005, watch.on-full | a commit that overflows the buffer gives one error
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

=== watch.visibility, watch.aggregates | immediate: counts follow a rollback
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

=== watch.in-transaction, watch.visibility | uncommitted writes of other sessions are not visible
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

=== watch.since, watch.visibility | immediate: since() followed by uncommitted writes
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

=== watch.position, watch.cancel | cancelling one of two equal watches leaves the other active
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

=== E8010, watch.attach | another session cannot attach to a best-effort watch
.scope node
.use tasks
bob> w = WATCH t: Task [initial: none] RETURN t.title
.attach #w by ann
! E8010 ends with it
> SPAWN x: Task { title = "x" }
.events w
added "x"

=== watch.visibility, watch.in-transaction | immediate: the later of two uncommitted writes is rolled back
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

=== watch.visibility, 4.4 | immediate: other sessions may write elements after ROLLBACK TO
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

=== watch.visibility, watch.snapshot | immediate: the snapshot includes uncommitted writes
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
