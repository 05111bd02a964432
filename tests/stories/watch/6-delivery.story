-- How events reach their reader: pausing, buffers, order, reliable delivery, visibility.

.ontology tasks
    node Task { title: String, n: Int = 0 }

=== seed.management, M2, M3, B15 | pause, and catch up afterwards, with nothing missing
.watches one element
.given tasks
> w = WATCH t: Task RETURN t.title
.told w
initial (nothing)
> PAUSE WATCH #w
> SPAWN a: Task { title = "a" }
> SET #a.title = "b"
.told w
(nothing)
> MATCH s: _Watch RETURN s.status, s.events_pending
"paused" | 2
> PAUSE WATCH #w
> RESUME WATCH #w
> KILL #a
.told w in order
added "a"
changed "a" -> "b"
removed "b"
> RESUME WATCH #w
> MATCH s: _Watch RETURN s.status, s.events_pending
"active" | 0

=== seed.buffer, surface.position, B16 | a slow reader loses the oldest events, and is told how many
.watches one element
.given tasks
> slow = WATCH t: Task [buffer: 2, initial: none] RETURN t.title
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
   SPAWN d: Task { title = "d" }
   SPAWN e: Task { title = "e" }
.told slow
added "d" (position 4, dropped 3)
added "e" (position 5)
> SPAWN f: Task { title = "f" }
.told slow
added "f" (position 6)

=== seed.buffer, M2 | paused for too long, it drops as well; the snapshot is never dropped
.watches one element
.given tasks
> SPAWN z: Task { title = "z" }
> slow = WATCH t: Task [buffer: 3, on_full: drop] RETURN t.title
> PAUSE WATCH #slow
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
   SPAWN d: Task { title = "d" }
> RESUME WATCH #slow
.told slow
initial (position 1)
  "z"
added "c" (position 4, dropped 2)
added "d" (position 5)

=== E8005, B16, seed.buffer | a reader that must not lose anything is cut off instead
.watches one element
.given tasks
> strict = WATCH t: Task [buffer: 2, on_full: error, initial: none] RETURN t.title
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
.told strict
added "a"
added "b"
>> SPAWN c: Task { title = "c" }
   SPAWN d: Task { title = "d" }
   SPAWN e: Task { title = "e" }
   SPAWN f: Task { title = "f" }
.told strict
(nothing)
.errors strict
E8005 Buffer full
> MATCH s: _Watch RETURN s.status, s.events_pending
"cancelled" | 0
> RESUME WATCH #strict
! E8002

=== B16, seed.buffer | with block the writer waits, and is refused when nobody reads
.watches one element
.settings block_timeout_seconds = 0.01
.given tasks
reader> slow = WATCH t: Task [buffer: 2, on_full: block, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
> SPAWN c: Task { title = "c" }
! E8005 on_full: block
.told slow
added "a"
added "b"
> SPAWN d: Task { title = "d" }
.told slow
added "d"
> MATCH t: Task RETURN COUNT(*)
3

=== B16 | who waits for itself is told so at once
.watches one element
.given tasks
> slow = WATCH t: Task [buffer: 1, on_full: block, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
! E8005
.told slow
added "a"

=== seed.causal, B21 | causes before effects, across commits
.watches one element
.given tasks
> log = WATCH t: Task [ordering: causal, initial: none] RETURN t.title, t.n
> SPAWN a: Task { title = "a" }
> SET #a.n = 1
> SPAWN b: Task { title = "b" }
> KILL #a
.told log in order
added "a" | 0 (tick 0)
changed "a" | 0 -> "a" | 1 (tick 1)
added "b" | 0 (tick 2)
removed "a" | 1 (tick 3)

=== B22, seed.delivery | a best-effort watch ends with its session
.watches one element
.given tasks
bob> w = WATCH t: Task RETURN t.title
.told w
initial (nothing)
.close bob
> SPAWN a: Task { title = "a" }
> MATCH s: _Watch WHERE s.status = "active" RETURN COUNT(*)
0
.attach w
! E8002

=== B22, surface.reliable, surface.attach | a reliable watch waits for its reader to come back
.watches one element
.given tasks
bob> w = WATCH t: Task [delivery: reliable] RETURN t.title
.told w
initial (nothing)
.close bob
> SPAWN a: Task { title = "a" }
> SET #a.title = "b"
.attach w by eve
.told w again
initial (nothing)
added "a" (position 2)
changed "a" -> "b" (position 3)
> KILL #a
.told w
removed "b" (position 4)

=== surface.reliable, B29 | what was confirmed is not told again, what was not is
.watches one element
.given tasks
bob> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
.told w
added "a" (position 1)
.confirm w
.close bob
.attach #w by eve
.told w
(nothing)
> SPAWN b: Task { title = "b" }
.told w
added "b" (position 2)
.close eve
.attach w by fay
.told w again
added "b" (position 2)

=== surface.reliable, surface.restart | a reliable watch goes on after a restart, without a hole
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable] RETURN t.title
.told w
initial (nothing)
> SPAWN a: Task { title = "a" }
.told w
added "a" (position 2)
.confirm w
> SPAWN b: Task { title = "b" }
.reopen
> SPAWN c: Task { title = "c" }
.attach w
.told w
added "b" (position 3)
added "c" (position 4)
> MATCH t: Task SET t.n = 1 KILL t
.told w
removed "a"
removed "b"
removed "c"
.confirm w
.reopen
.attach #w
.told w
(nothing)

=== surface.reliable, surface.restart | not confirmed is told again after a restart
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable] RETURN t.title
> SPAWN a: Task { title = "a" }
.told w
initial (nothing)
added "a" (position 2)
.reopen
.attach w
.told w again
initial (nothing)
added "a" (position 2)

=== surface.reliable | memory is bounded, the log is not: a far-behind reader gets everything
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable, buffer: 2, initial: none] RETURN t.n
>> SPAWN a: Task { title = "x", n = 1 }
   SPAWN b: Task { title = "x", n = 2 }
   SPAWN c: Task { title = "x", n = 3 }
   SPAWN d: Task { title = "x", n = 4 }
   SPAWN e: Task { title = "x", n = 5 }
.told w first 2 in order
added 1
added 2
.told w first 2 in order
added 3
added 4
.told w in order
added 5 (position 5)

=== E8009, surface.reliable | reliable and drop exclude each other
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable, on_full: drop] RETURN t.title
! E8009 on_full
! block, error
> w = WATCH t: Task [delivery: reliable, on_full: error] RETURN t.title

=== E8010, surface.attach | only the same actor, or the system, takes a watch up again
.watches one element
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
.told w
added "new"

=== seed.visibility | immediate: drafts are seen while they are written, and taken back when they are
.watches one element
.given tasks
> w = WATCH t: Task [visibility: immediate] RETURN t.title
> c = WATCH t: Task RETURN t.title
.told w, c
initial (nothing)
> BEGIN
> SPAWN a: Task { title = "draft" }
.told w
added "draft"
> SET #a.title = "final"
.told w
changed "draft" -> "final"
> COMMIT
.told w
(nothing)
.told c
added "final"
> BEGIN
> SET #a.title = "oops"
> SPAWN b: Task { title = "more" }
.told w
changed "final" -> "oops"
added "more"
> ROLLBACK
.told w
changed "oops" -> "final"
removed "more"
.told c
(nothing)

=== seed.visibility, 4.4 | immediate: a savepoint, and a statement of its own
.watches one element
.given tasks
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
.told w
added "a"
> BEGIN
> SPAWN b: Task { title = "b" }
> SAVEPOINT s
> KILL #a
.told w
added "b"
removed "a"
> ROLLBACK TO s
.told w
added "a"
> COMMIT
.told w
(nothing)

=== seed.visibility, seed.rules | immediate sees what rules add, at the commit
.watches one element
.given tasks
.define rule number: t: Task WHERE t.n = 0 => SET t.n = 7
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title, t.n
> BEGIN
> SPAWN a: Task { title = "a" }
.told w
added "a" | 0
> COMMIT
.told w
changed "a" | 0 -> "a" | 7

=== B24 | a watch that is made inside a transaction sees committed state, and outlives a rollback
.watches one element
.given tasks
> SPAWN a: Task { title = "a" }
> BEGIN
> SPAWN b: Task { title = "b" }
> w = WATCH t: Task RETURN t.title
.told w
initial
  "a"
> ROLLBACK
> SPAWN c: Task { title = "c" }
.told w
added "c"

=== surface.poll | a reader takes as much as it likes at a time
.watches one element
.given tasks
> w = WATCH t: Task RETURN t.title
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
.told w first 2
initial (nothing)
added "a"
.told w first 1
added "b"
.told w
added "c"

=== E8005, B16 | one commit with too much is one error
.watches one element
.given tasks
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
   SPAWN c: Task { title = "c" }
> strict = WATCH t: Task [buffer: 1, on_full: error, initial: none] RETURN t.title
> MATCH t: Task SET t.title = "x"
.told strict
(nothing)
.errors strict
E8005 watch cancelled

=== seed.visibility, surface.aggregates | immediate counts follow a rollback
.watches one element
.given tasks
> n = WATCH t: Task [visibility: immediate] RETURN COUNT(*)
.told n
initial
  0
> BEGIN
>> SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" }
.told n
changed 0 -> 1
changed 1 -> 2
> ROLLBACK
.told n
changed 2 -> 0

=== B24, seed.visibility | a reader sees nothing of another's open transaction
.watches one element
.given tasks
bob> w = WATCH t: Task RETURN t.title
> BEGIN
> SPAWN a: Task { title = "a" }
bob> MATCH t: Task RETURN COUNT(*)
0
.told w
initial (nothing)
> COMMIT
.told w
added "a"

=== surface.since, seed.visibility | looking back, then drafts
.watches one element
.given tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
> w = WATCH t: Task [initial: since(0), visibility: immediate] RETURN t.title
.told w
added "b"
> BEGIN
> SPAWN c: Task { title = "c" }
.told w
added "c"
> COMMIT
.told w
(nothing)
> CANCEL WATCH #w

=== surface.position, M4 | of two equal watches one is cancelled, the other goes on
.watches one element
.given tasks
> a = WATCH t: Task [initial: none] RETURN t.title
> b = WATCH t: Task [initial: none] RETURN t.title
> CANCEL WATCH #a
> SPAWN x: Task { title = "x" }
.told a
(nothing)
.told b
added "x"

=== E8010, surface.attach | a best-effort watch belongs to its session and is not taken up by another
.watches one element
.given tasks
bob> w = WATCH t: Task [initial: none] RETURN t.title
.attach #w by ann
! E8010 ends with it
> SPAWN x: Task { title = "x" }
.told w
added "x"

=== seed.visibility, B24 | immediate: two drafts of one task, and the later one is taken back
.watches one element
.given tasks
> SPAWN a: Task { title = "plan" }
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title
ann> BEGIN
ann> MATCH t: Task SET t.title = "Ann's plan"
bob> BEGIN
bob> MATCH t: Task SET t.title = "Bob's plan"
.told w
changed "plan" -> "Ann's plan"
changed "Ann's plan" -> "Bob's plan"
bob> ROLLBACK
.told w
changed "Bob's plan" -> "Ann's plan"
ann> COMMIT
.told w
(nothing)

=== seed.visibility, 4.4 | immediate: what a savepoint took back may be written by others
.watches one element
.given tasks
> SPAWN a: Task { title = "a" }
> w = WATCH t: Task [visibility: immediate, initial: none] RETURN t.title
> BEGIN
> SAVEPOINT here
> SET #a.title = "draft"
> ROLLBACK TO here
.told w
changed "a" -> "draft"
changed "draft" -> "a"
bob> MATCH t: Task SET t.title = "b"
.told w
changed "a" -> "b"
> COMMIT
.told w
(nothing)

=== seed.visibility, B3 | immediate: the snapshot has what is being written
.watches one element
.given tasks
bob> BEGIN
bob> SPAWN a: Task { title = "draft" }
> w = WATCH t: Task [visibility: immediate] RETURN t.title
> c = WATCH t: Task RETURN t.title
.told w
initial
  "draft"
.told c
initial (nothing)
bob> ROLLBACK
.told w
removed "draft"
