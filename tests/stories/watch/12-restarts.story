-- Watches that last: over sessions, restarts, and ontologies that grow.

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

=== surface.since, wish.define | looking back over an ontology that has grown
.watches one element
.given tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "nobody" }
> SPAWN c: Task { title = "c", owner = "ann" }
> w = WATCH t: Task [initial: since(0)] RETURN t.title, t.owner
.told w in order
added "b" | null
changed "a" | null -> "a" | "nobody"
changed "b" | null -> "b" | "nobody"
added "c" | "ann"

=== surface.since, surface.restart, wish.define | looking back over a restart and an ontology that has grown
.watches one element
.given tasks
> SPAWN a: Task { title = "a" }
> SPAWN b: Task { title = "b" }
.reopen
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "nobody" }
> SPAWN c: Task { title = "c", owner = "ann" }
> w = WATCH t: Task [initial: since(0)] RETURN t.title, t.owner
.told w in order
added "b" | null
changed "a" | null -> "a" | "nobody"
changed "b" | null -> "b" | "nobody"
added "c" | "ann"

=== surface.reliable, surface.restart, wish.define | the ontology grows while nobody reads
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t
> SPAWN a: Task { title = "a" }
.define node Task { title: String, status: String = "todo", n: Int = 0, owner: String = "nobody" }
> SPAWN b: Task { title = "b" }
.reopen
.attach w
.told w in order
added Task #a {title: "a", status: "todo", n: 0}
changed Task #a {title: "a", status: "todo", n: 0} -> Task #a {title: "a", status: "todo", n: 0, owner: "nobody"}
added Task #b {title: "b", status: "todo", n: 0, owner: "nobody"}

=== surface.reliable, surface.restart, 3.2.7 | a reliable watch sees with its actor's eyes, also after a restart
.watches one element
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
.reopen
.session ann as #ann
.attach w by ann
.told w
added "a"
.with {"b": "#b", "ann": "#ann"}
> SET #$b.owner = $ann
.told w
added "b"

=== surface.triggers, surface.restart | a trigger keeps its references and parameters over a restart
.watches one element
.given tasks
.define
    node Team { name: String }
    edge has(team: Team, task: Task)
> SPAWN team: Team { name = "ops" }
.with {"low": 3}
> trig = WATCH t: Task WHERE t.n > $low ON MATCH DO LINK has(#team, t) SET t.status = "taken by " ++ t.title
> SPAWN a: Task { title = "a", n = 5 }
.reopen
> SPAWN b: Task { title = "b", n = 5 }
> MATCH has(g, t) RETURN g.name, t.title, t.status
"ops" | "a" | "taken by a"
"ops" | "b" | "taken by b"

=== surface.windows, surface.reliable, surface.restart | a window that a restart cut off is told with the next one
.watches one element
.given tasks
> w = WATCH t: Task [window: tumbling(10s), delivery: reliable] RETURN t.title
> SPAWN a: Task { title = "a" }
.advance 10s
.told w
initial (nothing)
window 0s..10s
  added "a"
.confirm w
> SPAWN b: Task { title = "b" }
.advance 5s
.reopen
.attach w
.advance 10s
.told w
window 15s..25s
  added "b"

=== surface.aggregates, surface.reliable, surface.restart | counts go on after a restart
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable] RETURN t.status, COUNT(*)
> SPAWN a: Task { title = "a" }
.told w
initial (nothing)
added "todo" | 1
.confirm w
> SPAWN b: Task { title = "b" }
> SET #a.status = "done"
.reopen
> MATCH t: Task WHERE t.title = "b" KILL t
.attach w
.told w
changed "todo" | 1 -> "todo" | 2
changed "todo" | 2 -> "todo" | 1
added "done" | 1
removed "todo" | 1

=== M2, surface.reliable, surface.restart | paused is still paused after a restart
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
> PAUSE WATCH #w
> SPAWN a: Task { title = "a" }
.reopen
> MATCH s: _Watch RETURN s.status
"paused"
.attach w
.told w
(nothing)
.with {"w": "#w"}
> RESUME WATCH #$w
.told w
added "a"

=== B22, surface.reliable | a reliable watch that nobody comes for ends after a while
.watches one element
.settings watch_retention_seconds = 60
.given tasks
bob> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
.close bob
.advance 59s
.attach w by eve
.close eve
.advance 2m
.attach w by fay
! E8002

=== B22, surface.reliable, surface.restart | the same when it waits over a restart
.watches one element
.settings watch_retention_seconds = 60
.given tasks
> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
.reopen
.advance 2m
.attach w
! E8002

=== B22, surface.reliable | whoever comes in time keeps it alive
.watches one element
.settings watch_retention_seconds = 60
.given tasks
bob> w = WATCH t: Task [delivery: reliable, initial: none] RETURN t.title
.close bob
.advance 50s
.attach w by eve
.close eve
.advance 50s
.attach w by fay
> SPAWN a: Task { title = "a" }
.told w
added "a"

=== surface.ordering, surface.reliable, surface.restart | what was handed out first and not confirmed is told again, in order
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable, initial: none, ordering: attribute(t.n DESC)] RETURN t.title
>> SPAWN a: Task { title = "low", n = 1 } SPAWN b: Task { title = "high", n = 9 }
.told w first 1 in order
added "high"
.reopen
.attach w
.told w in order again
added "high"
added "low"

=== surface.ordering, surface.reliable, surface.restart | confirmed out of order, and nothing is lost
.watches one element
.given tasks
> w = WATCH t: Task [delivery: reliable, initial: none, ordering: attribute(t.n DESC)] RETURN t.title
>> SPAWN a: Task { title = "low", n = 1 } SPAWN b: Task { title = "high", n = 9 }
.told w first 1 in order
added "high"
.confirm w
.reopen
.attach w
.told w in order again
added "high"
added "low"
.confirm w
.reopen
.attach w
.told w
(nothing)

=== B37, surface.reliable, surface.restart | what only the time did is told by a fresh snapshot after a restart
.watches one element
.define node Bill { name: String, due: Timestamp }
> w = WATCH b: Bill WHERE b.due < now() [delivery: reliable] RETURN b.name
> SPAWN a: Bill { name = "rent", due = @2024-01-01T00:01:00Z }
.advance 2m
> TICK
.told w
initial (nothing)
added "rent"
.confirm w
> SPAWN b: Bill { name = "gas", due = @2024-01-01T00:05:00Z }
.advance 10m
.reopen
> TICK
.attach w
.told w
initial (position 3)
  "rent"
  "gas"
> SPAWN c: Bill { name = "oil", due = @2024-01-01T00:00:00Z }
.told w
added "oil"

=== B37, surface.triggers, surface.restart | what fell due while the program was down sets off its trigger
.watches one element
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
.reopen
> TICK
> MATCH n: Note RETURN n.text
"rent"
"gas"
.reopen
> TICK
> MATCH n: Note RETURN COUNT(*)
2

=== surface.alter, surface.reliable, surface.restart | a filter altered and not read before a restart: a fresh snapshot
.watches one element
.given tasks
>> SPAWN a: Task { title = "a", n = 1 } SPAWN b: Task { title = "b", n = 2 }
.with {"low": 1}
> w = WATCH t: Task [delivery: reliable, filter: t.n > $low] RETURN t.title
.told w
initial
  "b"
.confirm w
.with {"high": 2}
> ALTER WATCH #w SET [filter: t.n < $high]
.reopen
.attach w
.told w
initial (position 4, dropped 2)
  "a"
> SPAWN c: Task { title = "c", n = 0 }
.told w
added "c"
