-- Durable watches across sessions, restarts and extensions of the ontology.

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

=== watch.since, example.define | since() across an extension of the ontology
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "unassigned" }
> SPAWN c: Task { title = "c", owner = "ann" }
> w = WATCH t: Task [initial: since(0)] RETURN t.title, t.owner
.events w ordered
added "b" | null
changed "a" | null -> "a" | "unassigned"
changed "b" | null -> "b" | "unassigned"
added "c" | "ann"

=== watch.since, watch.restart, example.define | since() across a restart and an extension of the ontology
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.restart
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "unassigned" }
> SPAWN c: Task { title = "c", owner = "ann" }
> w = WATCH t: Task [initial: since(0)] RETURN t.title, t.owner
.events w ordered
added "b" | null
changed "a" | null -> "a" | "unassigned"
changed "b" | null -> "b" | "unassigned"
added "c" | "ann"

=== watch.reliable, watch.restart, example.define | the ontology is extended while a reliable watch is detached
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t
> SPAWN a: Task { title = "a" }
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "unassigned" }
> SPAWN b: Task { title = "b" }
.restart
.attach w
.events w ordered
added Task #a {title: "a", status: "todo", n: 0}
changed Task #a {title: "a", status: "todo", n: 0} -> Task #a {title: "a", status: "todo", n: 0, owner: "unassigned"}
added Task #b {title: "b", status: "todo", n: 0, owner: "unassigned"}

=== watch.reliable, watch.restart, 3.2.7 | a reliable watch keeps the permissions of its actor after a restart
.scope node
.define
    node User { name: String }
    node Task { title: String, owner: User? }
    policy w: ON META SPAWN(_Watch) | MATCH(u: User) ALLOW IF true
    policy own: ON MATCH(t: Task) ALLOW IF t.owner = current_actor()
>> SPAWN ann: User { name = "Ann" } SPAWN bob: User { name = "Bob" }
.session ann as #ann
ann> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
> SPAWN a: Task { title = "a", owner = #ann }
> SPAWN b: Task { title = "b", owner = #bob }
.restart
.session ann as #ann
.attach w by ann
.events w
added "a"
.params {"b": "#b", "ann": "#ann"}
> SET #$b.owner = $ann
.events w
added "b"

=== watch.durable-triggers, watch.restart | a trigger keeps its references and parameters after a restart
.scope node
.use tasks
.define
    node Team { name: String }
    edge has(team: Team, task: Task)
> SPAWN team: Team { name = "ops" }
.params {"low": 3}
> trig = WATCH t: Task WHERE t.n > $low ON MATCH DO LINK has(#team, t) SET t.status = "taken by " ++ t.title
> SPAWN a: Task { title = "a", n = 5 }
.restart
> SPAWN b: Task { title = "b", n = 5 }
> MATCH has(g, t) RETURN g.name, t.title, t.status
"ops" | "a" | "taken by a"
"ops" | "b" | "taken by b"

=== watch.window-events, watch.reliable, watch.restart | a window interrupted by a restart is part of the next window
.scope node
.use tasks
> w = WATCH t: Task [window: tumbling(10s), delivery: reliable] RETURN t.title
> SPAWN a: Task { title = "a" }
.advance 10s
.events w
initial (nothing)
window 0s..10s
  added "a"
.confirm w
> SPAWN b: Task { title = "b" }
.advance 5s
.restart
.attach w
.advance 10s
.events w
window 15s..25s
  added "b"

=== watch.aggregates, watch.reliable, watch.restart | counts continue after a restart
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable] RETURN t.status, COUNT(*)
> SPAWN a: Task { title = "a" }
.events w
initial (nothing)
added "todo" | 1
.confirm w
> SPAWN b: Task { title = "b" }
> SET #a.status = "done"
.restart
> MATCH t: Task WHERE t.title = "b" KILL t
.attach w
.events w
changed "todo" | 1 -> "todo" | 2
changed "todo" | 2 -> "todo" | 1
added "done" | 1
removed "todo" | 1

=== watch.pause, watch.reliable, watch.restart | a paused watch is still paused after a restart
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
> PAUSE WATCH #w
> SPAWN a: Task { title = "a" }
.restart
> MATCH s: _Watch RETURN s.status
"paused"
.attach w
.events w
(nothing)
.params {"w": "#w"}
> RESUME WATCH #$w
.events w
added "a"

=== watch.disconnect, watch.reliable | a detached reliable watch expires
.scope node
.settings watch_retention_seconds = 60
.use tasks
bob> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
.close bob
.advance 59s
.attach w by eve
.close eve
.advance 2m
.attach w by fay
! E8002

=== watch.disconnect, watch.reliable, watch.restart | a detached reliable watch expires after a restart
.scope node
.settings watch_retention_seconds = 60
.use tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
.restart
.advance 2m
.attach w
! E8002

=== watch.disconnect, watch.reliable | attaching in time keeps a reliable watch alive
.scope node
.settings watch_retention_seconds = 60
.use tasks
bob> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
.close bob
.advance 50s
.attach w by eve
.close eve
.advance 50s
.attach w by fay
> SPAWN a: Task { title = "a" }
.events w
added "a"

=== watch.match-order, watch.reliable, watch.restart | unconfirmed events are delivered again in their order after a restart
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, initial: none, ordering: attribute(t.n DESC)] RETURN t.title
>> SPAWN a: Task { title = "low", n = 1 } SPAWN b: Task { title = "high", n = 9 }
.events w limit 1 ordered
added "high"
.restart
.attach w
.events w ordered redelivered
added "high"
added "low"

=== watch.match-order, watch.reliable, watch.restart | events confirmed out of order are not lost
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, initial: none, ordering: attribute(t.n DESC)] RETURN t.title
>> SPAWN a: Task { title = "low", n = 1 } SPAWN b: Task { title = "high", n = 9 }
.events w limit 1 ordered
added "high"
.confirm w
.restart
.attach w
.events w ordered redelivered
added "high"
added "low"
.confirm w
.restart
.attach w
.events w
(nothing)

=== watch.time-conditions, watch.reliable, watch.restart | matches changed by time during a restart arrive as a new snapshot
.scope node
.define node Bill { name: String, due: Timestamp }
> w = WATCH b: Bill WHERE b.due < now() [delivery: reliable] RETURN b.name
> SPAWN a: Bill { name = "rent", due = @2024-01-01T00:01:00Z }
.advance 2m
> TICK
.events w
initial (nothing)
added "rent"
.confirm w
> SPAWN b: Bill { name = "gas", due = @2024-01-01T00:05:00Z }
.advance 10m
.restart
> TICK
.attach w
.events w
initial (position 3)
  "rent"
  "gas"
> SPAWN c: Bill { name = "oil", due = @2024-01-01T00:00:00Z }
.events w
added "oil"

=== watch.time-conditions, watch.durable-triggers, watch.restart | a match that became due during downtime runs its trigger
.scope node
.define
    node Bill { name: String, due: Timestamp }
    node Note { text: String }
> WATCH b: Bill WHERE b.due < now() ON MATCH DO SPAWN n: Note { text = b.name }
> SPAWN a: Bill { name = "rent", due = @2024-01-01T00:01:00Z }
> SPAWN b: Bill { name = "gas", due = @2024-01-01T00:05:00Z }
.advance 2m
> TICK
> MATCH n: Note RETURN n.text
"rent"
.advance 10m
.restart
> TICK
> MATCH n: Note RETURN n.text
"rent"
"gas"
.restart
> TICK
> MATCH n: Note RETURN COUNT(*)
2

=== watch.alter-filter, watch.reliable, watch.restart | a filter altered before a restart and not read gives a new snapshot
.scope node
.use tasks
>> SPAWN a: Task { title = "a", n = 1 } SPAWN b: Task { title = "b", n = 2 }
.params {"low": 1}
> w = WATCH t: Task [delivery: reliable, filter: t.n > $low] RETURN t.title
.events w
initial
  "b"
.confirm w
.params {"high": 2}
> ALTER WATCH #w SET [filter: t.n < $high]
.restart
.attach w
.events w
initial (position 4, dropped 2)
  "a"
> SPAWN c: Task { title = "c", n = 0 }
.events w
added "c"
