-- Windows, ticks, and since().

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

=== watch.windows, watch.event-windows, watch.window-events | a tumbling window collects events
.scope node
.use tasks
> w = WATCH t: Task [window: tumbling(10s)] RETURN t.title
.events w
initial (nothing)
.advance 2s
> SPAWN a: Task { title = "a" }
> SET #a.title = "b"
.events w
(nothing)
.advance 8s
.events w
window 0s..10s (position 2)
  added "a"
  changed "a" -> "b"
.advance 10s
.events w
(nothing)
.advance 5s
> KILL #a
.advance 5s
.events w
window 20s..30s (position 3)
  removed "b"

=== watch.event-windows, watch.window-events, watch.windows | sliding windows overlap
.scope node
.use tasks
> w = WATCH t: Task [window: sliding(10s, 5s), initial: none] RETURN t.title
.advance 1s
> SPAWN a: Task { title = "a" }
.advance 4s
.events w
window -5s..5s
  added "a"
.advance 1s
> SPAWN b: Task { title = "b" }
.advance 4s
.events w
window 0s..10s
  added "a"
  added "b"
.advance 5s
.events w
window 5s..15s
  added "b"
.advance 10s
.events w
(nothing)

=== watch.window-statistics, watch.aggregate-windows, watch.window-events | a tumbling window sends aggregates of the current matches
.scope pattern
.use tasks
.define
    node Project { name: String }
    edge belongs_to(task: Task, project: Project)
>> SPAWN project_1: Project { name = "p" }
   SPAWN a: Task { title = "a", n = 4 }
   LINK belongs_to(#a, #project_1)
> stats = WATCH t: Task, belongs_to(t, #project_1)
    [window: tumbling(10s)]
  RETURN COUNT(t) AS total,
         COUNT(t WHERE t.status = "done") AS done,
         AVG(t.n) AS avg_priority
.events stats
(nothing)
> SET #a.status = "done"
> LINK belongs_to(SPAWN Task { title = "b", n = 2 } AS b, #project_1)
.events stats
(nothing)
.advance 10s
.events stats
initial (window 0s..10s)
  2 | 1 | 3.0
.advance 10s
.events stats
changed 2 | 1 | 3.0 -> 2 | 1 | 3.0 (window 10s..20s)
> KILL #b
.advance 10s
.events stats
changed 2 | 1 | 3.0 -> 1 | 1 | 4.0 (window 20s..30s)

=== watch.aggregate-windows, watch.window-events | a sliding window counts recent additions and changes
.scope node
.use tasks
> SPAWN old: Task { title = "old" }
> rate = WATCH t: Task [window: sliding(1m, 30s)] RETURN COUNT(*) AS recent, SUM(t.n) AS n
.advance 10s
> SPAWN a: Task { title = "a", n = 1 }
> SPAWN b: Task { title = "b", n = 1 }
.advance 20s
.events rate
initial (window -30s..30s)
  2 | 2
.advance 10s
> SET #old.n = 5
> KILL #b
> SET #a.title = "not counted"
.advance 20s
.events rate
changed 2 | 2 -> 2 | 6 (window 0s..1m)
.advance 30s
.events rate
changed 2 | 6 -> 1 | 5 (window 30s..90s)
.advance 30s
.events rate
changed 1 | 5 -> 0 | null (window 1m..2m)

=== watch.window-events | groups in windows are added and removed
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> by = WATCH t: Task [window: tumbling(1s)] RETURN t.status, COUNT(*)
.advance 1s
.events by
initial (window 0s..1s)
  "todo" | 1
> SPAWN b: Task { title = "b", status = "done" }
.advance 1s
.events by
changed "todo" | 1 -> "todo" | 1 (window 1s..2s)
added "done" | 1 (window 1s..2s)
> KILL #a
.advance 1s
.events by
changed "done" | 1 -> "done" | 1 (window 2s..3s)
removed "todo" | 1 (window 2s..3s)

=== watch.deliver-on, watch.clock | deliver_on: tick delivers at the tick
.scope node
.settings tick = "manual"
.use tasks
> w = WATCH t: Task [deliver_on: tick] RETURN t.title
> c = WATCH t: Task [deliver_on: commit] RETURN t.title
> TICK
.events w, c
initial (nothing)
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.events w
(nothing)
.events c
added "a"
added "b"
> TICK
.events w
added "a"
added "b"

=== watch.deliver-on, watch.tick-interval | ticks by the clock
.scope node
.settings tick = "manual"
.settings tick_interval_seconds = 0.016
.use tasks
> w = WATCH t: Task [deliver_on: tick, initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
.events w
(nothing)
.advance 16ms
.events w
added "a"

=== watch.snapshot, watch.since, watch.initial | since() delivers the events after a tick
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
> SET #a.title = "c"
> KILL #b
> all = WATCH t: Task [initial: since(0)] RETURN t.title
.events all ordered
added "b" (tick 1, position 1)
changed "a" -> "c" (tick 2, position 2)
removed "b" (tick 3, position 3)
> late = WATCH t: Task [initial: since(2)] RETURN t.title
.events late
removed "b" (tick 3, position 1)
> SPAWN d: Task { title = "d" }
.events all, late
added "d"

=== watch.snapshot, watch.since | since() with a future tick starts now
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> w = WATCH t: Task [initial: since(1000)] RETURN t.title
.events w
(nothing)
> SPAWN b: Task { title = "b" }
.events w
added "b"

=== watch.since | since() with aggregates
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
> SPAWN c: Task { title = "c" }
> n = WATCH t: Task [initial: since(0)] RETURN COUNT(*)
.events n ordered
changed 1 -> 2
changed 2 -> 3

=== watch.since, watch.restart | since() across a restart
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.restart
> SPAWN c: Task { title = "c" }
> w = WATCH t: Task [initial: since(0)] RETURN t.title
.events w ordered
added "b"
added "c"

=== watch.since, E8009 | since() before the start of the log is rejected
.scope node
.settings retained_commits = 2
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
> SPAWN c: Task { title = "c" }
> SPAWN d: Task { title = "d" }
> w = WATCH t: Task [initial: since(2)] RETURN t.title
.events w
added "d"

=== watch.time-conditions, watch.windows | windows evaluate time conditions
.scope node
.define node Bill { name: String, due: Timestamp }
> SPAWN b: Bill { name = "rent", due = @2024-01-01T00:00:05Z }
> late = WATCH b: Bill WHERE b.due < now() [window: tumbling(10s)] RETURN COUNT(*)
.advance 10s
.events late
initial (window 0s..10s)
  1

=== watch.windows, watch.cancel | a cancelled watch sends no more windows
.scope node
.use tasks
> w = WATCH t: Task [window: tumbling(1s), initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
> CANCEL WATCH #w
.advance 5s
.events w
(nothing)

=== watch.windows, watch.pause | a paused watch delivers its windows after RESUME
.scope node
.use tasks
> w = WATCH t: Task [window: tumbling(1s), initial: none] RETURN t.title
> PAUSE WATCH #w
> SPAWN a: Task { title = "a" }
.advance 1s
.events w
(nothing)
> RESUME WATCH #w
.events w
window 0s..1s
  added "a"

=== watch.deliver-on, watch.buffer | deliver_on: tick with a full buffer
.scope node
.settings tick = "manual"
.use tasks
> w = WATCH t: Task [deliver_on: tick, initial: none, buffer: 2] RETURN t.title
>> SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" } SPAWN c: Task { title = "c" }
.events w
(nothing)
> TICK
.events w
added "b" (dropped 1)
added "c"
> SPAWN d: Task { title = "d" }
.events w
(nothing)
> TICK
.events w
added "d"

=== watch.since, 3.2.7, E8009 | since() before a policy definition is rejected for actors
.scope node
.define
    node User { name: String }
    node Task { title: String }
    policy watching: ON META SPAWN(_Watch) ALLOW IF true
    policy mine: ON MATCH(t: Task) ALLOW IF t.title = "a"
>> SPAWN ann: User { name = "Ann" }
   SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
.session ann as #ann
ann> before = WATCH t: Task [initial: since(0)] RETURN t.title
.events before
added "a"
.define policy all: ON MATCH(t: Task) ALLOW IF true
.events before
added "b"
ann> WATCH t: Task [initial: since(0)] RETURN t.title
! E8009 since(0)
! policy
> system = WATCH t: Task [initial: since(0)] RETURN t.title
.events system
added "a"
added "b"
