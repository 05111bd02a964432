-- Watches that last: over sessions, restarts, and ontologies that grow.

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

=== surface.since, wish.define | looking back over an ontology that has grown
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "nobody" }
> SPAWN c: Task { title = "c", owner = "ann" }
> w = WATCH t: Task [initial: since(0)] RETURN t.title, t.owner
.events w ordered
added "b" | null
changed "a" | null -> "a" | "nobody"
changed "b" | null -> "b" | "nobody"
added "c" | "ann"

=== surface.since, surface.restart, wish.define | looking back over a restart and an ontology that has grown
.scope node
.use tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.restart
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "nobody" }
> SPAWN c: Task { title = "c", owner = "ann" }
> w = WATCH t: Task [initial: since(0)] RETURN t.title, t.owner
.events w ordered
added "b" | null
changed "a" | null -> "a" | "nobody"
changed "b" | null -> "b" | "nobody"
added "c" | "ann"

=== surface.reliable, surface.restart, wish.define | the ontology grows while nobody reads
.scope node
.use tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t
> SPAWN a: Task { title = "a" }
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "nobody" }
> SPAWN b: Task { title = "b" }
.restart
.attach w
.events w ordered
added Task #a {title: "a", status: "todo", n: 0}
changed Task #a {title: "a", status: "todo", n: 0} -> Task #a {title: "a", status: "todo", n: 0, owner: "nobody"}
added Task #b {title: "b", status: "todo", n: 0, owner: "nobody"}

=== surface.reliable, surface.restart, 3.2.7 | a reliable watch sees with its actor's eyes, also after a restart
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

=== surface.triggers, surface.restart | a trigger keeps its references and parameters over a restart
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

=== surface.windows, surface.reliable, surface.restart | a window that a restart cut off is told with the next one
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

=== surface.aggregates, surface.reliable, surface.restart | counts go on after a restart
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

=== M2, surface.reliable, surface.restart | paused is still paused after a restart
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

=== B22, surface.reliable | a reliable watch that nobody comes for ends after a while
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

=== B22, surface.reliable, surface.restart | the same when it waits over a restart
.scope node
.settings watch_retention_seconds = 60
.use tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
.restart
.advance 2m
.attach w
! E8002

=== B22, surface.reliable | whoever comes in time keeps it alive
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

=== surface.ordering, surface.reliable, surface.restart | what was handed out first and not confirmed is told again, in order
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

=== surface.ordering, surface.reliable, surface.restart | confirmed out of order, and nothing is lost
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

=== B37, surface.reliable, surface.restart | what only the time did is told by a fresh snapshot after a restart
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

=== B37, surface.triggers, surface.restart | what fell due while the program was down sets off its trigger
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

=== surface.alter, surface.reliable, surface.restart | a filter altered and not read before a restart: a fresh snapshot
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
