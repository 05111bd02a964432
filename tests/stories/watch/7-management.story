-- Handles, status, options that may change, limits, and watches as nodes of the graph.

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

.ontology team
    node User { name: String }
    policy all: ON * ALLOW IF operation() != "META SET" AND operation() != "META MATCH"

=== watch.handle, watch.handle-node, watch.counters | the handle of a watch is a node
.reader pull
.scope node
.use tasks
> w = WATCH t: Task WHERE t.status = "done" [mode: watch] RETURN t
> MATCH s: _Watch WHERE s.id = #w RETURN s.mode, s.status, s.created_at, s.name
"watch" | "active" | @2024-01-01T00:00:00.000Z | "w"
> MATCH s: _Watch WHERE s.id = #w RETURN s.pattern
"w = WATCH t: Task WHERE t.status = \"done\" [mode: watch] RETURN t"
> MATCH s: _Watch RETURN s.ordering, s.delivery, s.visibility, s.buffer_size, s.on_full, s.group
"arrival" | "best_effort" | "committed" | 1000 | "drop" | null
> MATCH s: _Watch RETURN s.events_delivered, s.events_pending, s.last_event_at
0 | 1 | @2024-01-01T00:00:00.000Z
.events w
initial (nothing)
.advance 3s
> SPAWN a: Task { title = "a", status = "done" }
> MATCH s: _Watch RETURN s.events_delivered, s.events_pending, s.last_event_at
1 | 1 | @2024-01-01T00:00:03.000Z
.events w
added Task #a {title: "a", status: "done", n: 0}
> MATCH s: _Watch RETURN s.events_delivered, s.events_pending
2 | 0

=== watch.listing, 5.C9 | a session lists its own watches
.scope node
.use tasks
> a = WATCH t: Task RETURN t
> b = WATCH t: Task RETURN t.n
bob> c = WATCH t: Task RETURN t
> MATCH s: _Watch WHERE s.session = current_session() RETURN s.name
"a"
"b"
> MATCH s: _Watch, _session_has_watch(current_session(), s) RETURN s.name
"a"
"b"
bob> MATCH s: _Watch, _session_has_watch(current_session(), s) RETURN s.name
"c"
> MATCH s: _Watch RETURN COUNT(*)
3

=== watch.management, watch.cancel, E8002 | a cancelled watch stays cancelled and remains readable
.reader pull
.scope node
.use tasks
> w = WATCH t: Task RETURN t.title
> SPAWN a: Task { title = "a" }
> CANCEL WATCH #w
.events w
(nothing)
> MATCH s: _Watch RETURN s.name, s.status, s.events_pending
"w" | "cancelled" | 0
> CANCEL WATCH #w
> RESUME WATCH #w
! E8002 watch error: E8002 WATCH_NOT_FOUND: Handle references non-existent or cancelled watch
> PAUSE WATCH #w
! E8002
> ALTER WATCH #w SET [buffer: 5]
! E8002
> SPAWN b: Task { title = "b" }
.events w
(nothing)

=== E8002 | unknown handles are rejected
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> PAUSE WATCH #nothing
! E8002
> RESUME WATCH #a
! E8002
> CANCEL WATCH #w9_99
! E8002
> ALTER WATCH #nothing SET [buffer: 5]
! E8002

=== watch.match-do, 5.A8 | MATCH … DO manages many watches
.scope node
.use tasks
> a = WATCH t: Task RETURN t.title
> b = WATCH t: Task RETURN t.n
bob> c = WATCH t: Task RETURN t.title
> PAUSE WATCH #a
.params {"c": "#c"}
> PAUSE WATCH #$c
> MATCH s: _Watch, _session_has_watch(current_session(), s) WHERE s.status = "paused" DO CANCEL WATCH s.id
> MATCH s: _Watch RETURN s.name, s.status
"a" | "cancelled"
"b" | "active"
"c" | "paused"
> MATCH s: _Watch WHERE s.status != "cancelled" DO ALTER WATCH s.id SET [buffer: 7]
> MATCH s: _Watch RETURN s.name, s.buffer_size
"a" | 1000
"b" | 7
"c" | 7
> MATCH s: _Watch WHERE s.name = "c" DO RESUME WATCH s
> MATCH s: _Watch WHERE s.name = "c" RETURN s.status
"active"

=== watch.alter, 5.A7, E8008 | ALTER changes four options and rejects the others
.scope node
.use tasks
> w = WATCH t: Task RETURN t
> ALTER WATCH #w SET [buffer: 2000, on_full: error]
> ALTER WATCH #w SET [delivery: reliable]
> MATCH s: _Watch RETURN s.buffer_size, s.on_full, s.delivery
2000 | "error" | "reliable"
> ALTER WATCH #w SET [mode: consume]
! E8008 watch error: E8008 IMMUTABLE_WATCH_OPTION: Option 'mode' cannot be changed after watch creation
> ALTER WATCH #w SET [group: "g"]
! E8008 'group'
> ALTER WATCH #w SET [ordering: causal]
! E8008 'ordering'
> ALTER WATCH #w SET [visibility: immediate]
! E8008 'visibility'
> ALTER WATCH #w SET [window: tumbling(5s)]
! E8008 'window'
> ALTER WATCH #w SET [initial: none]
! E8008 'initial'
> ALTER WATCH #w SET [deliver_on: tick]
! E8008 'deliver_on'
> ALTER WATCH #w SET [ack_timeout: 5s]
! E8008 'ack_timeout'
> ALTER WATCH #w SET [buffer: 10, mode: watch]
! E8008
> MATCH s: _Watch RETURN s.buffer_size
2000

=== watch.alter, E8009 | ALTER rejects the same values as WATCH
.scope node
.use tasks
> w = WATCH t: Task RETURN t
> ALTER WATCH #w SET [buffer: 0]
! E8009 buffer
! a positive integer
> ALTER WATCH #w SET [on_full: panic]
! E8009 drop, block, error
> ALTER WATCH #w SET [filter: t.nothing > 1]
! E2002 nothing

=== watch.alter, watch.alter-filter | a smaller buffer takes effect at once
.scope node
.use tasks
> w = WATCH t: Task [initial: none] RETURN t.title
> ALTER WATCH #w SET [buffer: 1]
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
.events w
added "b" (dropped 1)

=== watch.alter-filter, 5.A12 | an altered filter sends added and removed
.scope node
.use tasks
>> SPAWN a: Task { title = "a", n = 1 }
   SPAWN b: Task { title = "b", n = 2 }
   SPAWN c: Task { title = "c", n = 3 }
> w = WATCH t: Task WHERE t.n < 3 [filter: t.n > 1] RETURN t.title
.events w
initial
  "b"
> ALTER WATCH #w SET [filter: t.n = 1]
.events w
removed "b"
added "a"
> SET #c.n = 1
> SET #b.title = "x"
.events w
added "c"
> ALTER WATCH #w SET [filter: true]
.events w
added "x"

=== watch.alter-filter, 5.A12 | a filter can be added later
.scope node
.use tasks
>> SPAWN a: Task { title = "a", n = 1 }
   SPAWN b: Task { title = "b", n = 2 }
> w = WATCH t: Task RETURN t.title
> same = WATCH t: Task RETURN t.title
.events w, same
initial
  "a"
  "b"
.params {"low": 2}
> ALTER WATCH #w SET [filter: t.n >= $low]
.events w
removed "a"
.events same
(nothing)
> SET #a.n = 5
.events w
added "a"
.events same
(nothing)

=== E8010, 5.C11, watch.permissions | a watch is managed by its owner, its actor or the system
.scope node
.use team
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
.session ann as #ann
.session ann2 as #ann
.session bob as #bob
ann> w = WATCH u: User RETURN u.name
.params {"w": "#w"}
bob> PAUSE WATCH #$w
! E8010 watch error: E8010 WATCH_ACCESS_DENIED
.params {"w": "#w"}
bob> ALTER WATCH #$w SET [buffer: 5]
! E8010
.params {"w": "#w"}
ann2> PAUSE WATCH #$w
ann> RESUME WATCH #w
.params {"w": "#w"}
> CANCEL WATCH #$w

=== 5.C11, watch.permissions | META SET on _Watch allows managing watches of others
.scope node
.use team
.define policy ops: ON META SET(_Watch) | META MATCH(_Watch) ALLOW IF EXISTS(me: User WHERE me = current_actor() AND me.name = "Ops")
>> SPAWN ann: User { name = "Ann" }
   SPAWN ops: User { name = "Ops" }
.session ann as #ann
.session ops as #ops
ann> w = WATCH u: User RETURN u.name
ops> MATCH s: _Watch RETURN s.name, s.status
"w" | "active"
.params {"w": "#w"}
ops> CANCEL WATCH #$w
ann> MATCH s: _Watch RETURN s.status
"cancelled"

=== watch.permissions, watch.disclosure | actors see only their own watches as nodes
.scope node
.use team
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
.session ann as #ann
.session bob as #bob
ann> a = WATCH u: User RETURN u.name
bob> b = WATCH u: User RETURN u.name
.events a, b
initial
  "Ann"
  "Bob"
ann> MATCH s: _Watch RETURN s.name
"a"
ann> MATCH e: _WatchEvent RETURN COUNT(*)
1
bob> MATCH s: _Watch RETURN s.name
"b"
> MATCH s: _Watch RETURN s.name
"a"
"b"

=== watch.event-nodes, watch.layer0 | recent events are _WatchEvent nodes
.scope node
.use tasks
> w = WATCH t: Task RETURN t.title
> SPAWN a: Task { title = "a" }
.events w
initial (nothing)
added "a"
> KILL #a
> MATCH s: _Watch, e: _WatchEvent, _watch_event(s, e) AS p WHERE s.name = "w" RETURN p.position, e.event_type, e.tick, e.delivery_id ORDER BY p.position
1 | "initial" | 0 | null
2 | "added" | 0 | null
3 | "removed" | 1 | null
.events w
removed "a"

=== watch.watching-watches | a watch over _Watch follows creation and cancellation
.scope node
.use tasks
> watches = WATCH s: _Watch WHERE s.name != "watches" RETURN s.name, s.status
.events watches
initial (nothing)
> w = WATCH t: Task RETURN t.title
.events watches
added "w" | "active"
> PAUSE WATCH #w
> RESUME WATCH #w
.events watches
changed "w" | "active" -> "w" | "paused"
changed "w" | "paused" -> "w" | "active"
> SPAWN a: Task { title = "a" }
.events w
initial (nothing)
added "a"
.events watches
(nothing)
> CANCEL WATCH #w
.events watches
changed "w" | "active" -> "w" | "cancelled"

=== E8006, watch.limits | watch limits apply to gateway clients only
.scope node
.use tasks
.limits bob 2 4
bob> a = WATCH t: Task RETURN t.title
bob> b = WATCH t: Task RETURN t.n
bob> c = WATCH t: Task RETURN t.status
! E8006 watch error: E8006 WATCH_LIMIT_EXCEEDED
! 2
bob> CANCEL WATCH #a
bob> c = WATCH t: Task RETURN t.status
> d = WATCH t: Task RETURN t.title
> e = WATCH t: Task RETURN t.title
.limits eve 2 4
eve> f = WATCH t: Task RETURN t.title
! E8006 4

=== 5.A5, watch.handle | a trailing AS names the column and the handle
.scope node
.use tasks
> WATCH t: Task RETURN t.title AS live_feed
> PAUSE WATCH #live_feed
> MATCH s: _Watch RETURN s.name, s.status
"live_feed" | "paused"

=== watch.counters | counters count delivered events, the snapshot as one
.reader pull
.scope node
.use tasks
>> SPAWN a: Task { title = "a" }
   SPAWN b: Task { title = "b" }
> w = WATCH t: Task RETURN t.title
.events w
initial
  "a"
  "b"
> MATCH t: Task SET t.title = "c"
> MATCH s: _Watch RETURN s.events_delivered, s.events_pending
1 | 2
.events w limit 1
changed "a" -> "c"
> MATCH s: _Watch RETURN s.events_delivered, s.events_pending
2 | 1
.events w
changed "b" -> "c"

=== watch.alter, watch.reliable, watch.restart | altered options are kept after a restart
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> made = WATCH t: Task [delivery: reliable] RETURN t.title
> later = WATCH t: Task RETURN t.title
.events made, later
initial
  "a"
.confirm made
> SET #a.title = "b"
.events later
changed "a" -> "b" (position 2)
> ALTER WATCH #made SET [buffer: 50, on_full: error]
> ALTER WATCH #later SET [delivery: reliable]
.restart
.attach made
.attach later
> MATCH s: _Watch RETURN s.name, s.buffer_size, s.on_full, s.delivery
"made" | 50 | "error" | "reliable"
"later" | 1000 | "drop" | "reliable"
> SPAWN c: Task { title = "c" }
.events made
changed "a" -> "b" (position 2)
added "c" (position 3)
.events later
added "c" (position 3)
.params {"w": "#made"}
> ALTER WATCH #$w SET [buffer: 60]
.restart
> MATCH s: _Watch WHERE s.name = "made" RETURN s.buffer_size
60

=== watch.alter-filter, watch.reliable, watch.restart | an altered filter is kept after a restart
.scope node
.use tasks
>> SPAWN a: Task { title = "a", n = 1 }
   SPAWN b: Task { title = "b", n = 2 }
> w = WATCH t: Task [delivery: reliable, filter: t.n > 1] RETURN t.title
.events w
initial
  "b"
.confirm w
> ALTER WATCH #w SET [filter: t.n < 2]
.events w
removed "b"
added "a"
.confirm w
.restart
.attach w
> SPAWN c: Task { title = "c", n = 1 }
> SPAWN d: Task { title = "d", n = 5 }
.events w
added "c" (position 4)

=== watch.alter, watch.disconnect | a watch altered to best effort ends with its session
.scope node
.use tasks
bob> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
bob> ALTER WATCH #w SET [delivery: best_effort]
.close bob
.attach w
! E8002

=== watch.watching-watches | changed counters of a watch send no event
.reader pull
.scope node
.use tasks
> w = WATCH t: Task RETURN t.title
> others = WATCH s: _Watch WHERE s.name = "w" [initial: none] RETURN s.name, s.events_pending, s.status
> SPAWN a: Task { title = "a" }
> x = WATCH t: Task RETURN t.n
.events others
(nothing)
> PAUSE WATCH #w
.events others
changed "w" | 2 | "active" -> "w" | 2 | "paused"

=== watch.watching-watches, 5.C9 | a watch over sessions counts their watches
.scope pattern
.use tasks
> here = WATCH s: _Session [initial: none] RETURN COUNT(*) AS sessions
> load = WATCH s: _Session, w: _Watch, _session_has_watch(s, w) WHERE w.name = "b" [initial: none] RETURN w.name
bob> b = WATCH t: Task RETURN t.title
.events here
changed 1 -> 2
.events load
added "b"
.close bob
.events here
changed 2 -> 1
.events load
removed "b"

=== watch.watching-watches, watch.permissions | actors receive events about their own watches only
.scope node
.use team
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
.session ann as #ann
.session bob as #bob
ann> mine = WATCH s: _Watch [initial: none] RETURN s.name
bob> b = WATCH u: User RETURN u.name
ann> a = WATCH u: User RETURN u.name
.events mine
added "a"

=== watch.watching-watches, watch.triggers | a trigger on every cancelled watch
.scope node
.use tasks
.define node Note { text: String }
> WATCH s: _Watch WHERE s.status = "cancelled" ON MATCH DO SPAWN n: Note { text = s.name }
> w = WATCH t: Task RETURN t.title
> CANCEL WATCH #w
> MATCH n: Note RETURN n.text
"w"
