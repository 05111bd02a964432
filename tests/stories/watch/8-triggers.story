-- ON MATCH DO: actions that run on the server without a client.

.ontology ops
    node Team { name: String }
    node Task { title: String, priority: Int = 0 }
    node Notification { message: String }
    edge notify(team: Team, notification: Notification)

.ontology tasks
    node Task { title: String, status: String = "todo", n: Int = 0 }

=== watch.triggers, watch.durable-triggers | a trigger creates a notification for every match
.scope node
.use ops
> SPAWN ops_team: Team { name = "ops" }
> SPAWN old: Task { title = "old", priority = 10 }
> WATCH t: Task WHERE t.priority > 8
    [mode: watch]
    ON MATCH DO
      SPAWN n: Notification {
        message = "High priority task: " ++ t.title
      }
      LINK notify(#ops_team, n)
> MATCH n: Notification RETURN COUNT(*)
0
> SPAWN a: Task { title = "leak", priority = 9 }
> MATCH notify(t, n) RETURN t.name, n.message
"ops" | "High priority task: leak"
> SET #a.title = "big leak"
> SPAWN b: Task { title = "paint", priority = 1 }
> MATCH n: Notification RETURN COUNT(*)
1
> SET #b.priority = 9
> MATCH n: Notification RETURN n.message
"High priority task: leak"
"High priority task: paint"

=== watch.triggers, watch.causal-order | a trigger runs after the commit in its own transaction, and its events follow their cause
.scope node
.use ops
> w = WATCH x: Task | Notification [initial: none, ordering: causal] RETURN x:Task AS is_task
> WATCH t: Task ON MATCH DO SPAWN n: Notification { message = t.title }
> SPAWN a: Task { title = "a" }
.events w ordered
added true (tick 0)
added false (tick 1)

=== watch.triggers | a failing trigger does not affect the commit that caused it
.scope node
.use ops
.define constraint polite: n: Notification => n.message != "rude"
> t = WATCH t: Task ON MATCH DO SPAWN n: Notification { message = t.title }
> SPAWN a: Task { title = "rude" }
> SPAWN b: Task { title = "kind" }
> MATCH t: Task RETURN COUNT(*)
2
> MATCH n: Notification RETURN n.message
"kind"
.errors t
E3001 polite

=== watch.triggers, example.trigger-chain | chains of triggers are bounded
.scope node
.define node Counter { n: Int }
> again = WATCH c: Counter ON MATCH DO SPAWN d: Counter { n = c.n + 1 }
> SPAWN c: Counter { n = 0 }
> MATCH c: Counter RETURN COUNT(*), MAX(c.n)
101 | 100
.errors again
E8009 100

=== watch.durable-triggers | a trigger survives its session until it is cancelled
.scope node
.use ops
bob> t = WATCH t: Task ON MATCH DO SPAWN n: Notification { message = t.title }
.close bob
> SPAWN a: Task { title = "a" }
> MATCH n: Notification RETURN COUNT(*)
1
> MATCH s: _Watch RETURN s.name, s.status
"t" | "active"
> MATCH s: _Watch WHERE s.name = "t" DO CANCEL WATCH s.id
> SPAWN b: Task { title = "b" }
> MATCH n: Notification RETURN COUNT(*)
1

=== watch.durable-triggers, watch.restart | a trigger survives a restart and runs once
.scope node
.use ops
> t = WATCH t: Task ON MATCH DO SPAWN n: Notification { message = t.title }
> SPAWN a: Task { title = "a" }
.restart
> SPAWN b: Task { title = "b" }
> MATCH n: Notification RETURN n.message
"a"
"b"
.attach t
> CANCEL WATCH #nothing
! E8002
> MATCH s: _Watch DO CANCEL WATCH s.id
.restart
> SPAWN c: Task { title = "c" }
> MATCH n: Notification RETURN COUNT(*)
2

=== watch.triggers, example.authority | a trigger runs with the authority of its creator
.scope node
.define
    node User { name: String, clerk: Bool = false }
    node Task { title: String }
    node Note { text: String }
    policy watch: ON META SPAWN(_Watch) | MATCH(_) ALLOW IF true
    policy clerks: ON SPAWN(n: Note) ALLOW IF EXISTS(me: User WHERE me = current_actor() AND me.clerk)
>> SPAWN ann: User { name = "Ann", clerk = true }
   SPAWN bob: User { name = "Bob" }
.session ann as #ann
.session bob as #bob
ann> hers = WATCH t: Task ON MATCH DO SPAWN n: Note { text = "Ann saw " ++ t.title }
bob> his = WATCH t: Task ON MATCH DO SPAWN n: Note { text = "Bob saw " ++ t.title }
> SPAWN t: Task { title = "x" }
> MATCH n: Note RETURN n.text
"Ann saw x"
.errors his
E7001
.errors hers
(nothing)

=== 5.A4, watch.durable-triggers | actions and events of one watch
.scope node
.use ops
> both = WATCH t: Task WHERE t.priority > 5 ON MATCH DO SPAWN n: Notification { message = t.title } RETURN t.title
.events both
initial (nothing)
> SPAWN a: Task { title = "a", priority = 6 }
.events both
added "a"
> MATCH n: Notification RETURN n.message
"a"

=== watch.durable-triggers, watch.pause | triggers over several elements, with edges and updates
.scope pattern
.use ops
>> SPAWN team: Team { name = "ops" }
   SPAWN a: Task { title = "a" }
.define edge handles(team: Team, task: Task)
> WATCH g: Team, t: Task, handles(g, t) ON MATCH DO SET t.title = t.title ++ " (" ++ g.name ++ ")" SET t.priority = 5
> LINK handles(#team, #a)
> MATCH t: Task RETURN t.title, t.priority
"a (ops)" | 5

=== watch.durable-triggers | a cancelled trigger stops, a paused trigger keeps its matches
.scope node
.use ops
> t = WATCH t: Task ON MATCH DO SPAWN n: Notification { message = t.title }
> CANCEL WATCH #t
> SPAWN a: Task { title = "a" }
> MATCH n: Notification RETURN COUNT(*)
0
> p = WATCH t: Task ON MATCH DO SPAWN n: Notification { message = t.title }
> PAUSE WATCH #p
> SPAWN b: Task { title = "b" }
> SPAWN c: Task { title = "c" }
> MATCH n: Notification RETURN COUNT(*)
0
> RESUME WATCH #p
> MATCH n: Notification RETURN n.message
"b"
"c"
> SPAWN d: Task { title = "d" }
> MATCH n: Notification RETURN COUNT(*)
3

=== watch.durable-triggers, watch.pause, watch.restart | a resumed trigger continues, also after a restart
.scope node
.use ops
> p = WATCH t: Task ON MATCH DO SPAWN n: Notification { message = t.title }
> PAUSE WATCH #p
> SPAWN a: Task { title = "a" }
.restart
> SPAWN b: Task { title = "b" }
> MATCH n: Notification RETURN COUNT(*)
0
> MATCH w: _Watch DO RESUME WATCH w.id
> MATCH n: Notification RETURN n.message
"a"
"b"

=== E8005, watch.durable-triggers, watch.pause | a paused trigger keeps at most a full buffer of matches
.scope node
.use ops
> p = WATCH t: Task [buffer: 2] ON MATCH DO SPAWN n: Notification { message = t.title }
> PAUSE WATCH #p
>> SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" } SPAWN c: Task { title = "c" }
> RESUME WATCH #p
> MATCH n: Notification RETURN n.message
"b"
"c"
.errors p
E8005 the trigger does not run

=== watch.time-conditions, watch.durable-triggers | a time condition runs its trigger at the next tick
.scope node
.define
    node Bill { name: String, due: Timestamp }
    node Reminder { text: String }
> WATCH b: Bill WHERE b.due < now() ON MATCH DO SPAWN r: Reminder { text = b.name }
> SPAWN rent: Bill { name = "rent", due = @2024-01-01T00:01:00Z }
> SPAWN gas: Bill { name = "gas", due = @2024-02-01 }
.advance 2m
> TICK
> TICK
> MATCH r: Reminder RETURN r.text
"rent"

=== E8009, watch.durable-triggers | actions are rejected for groups
.scope node
.use ops
> WATCH t: Task ON MATCH DO SPAWN n: Notification { message = "x" } RETURN COUNT(*)
! E8009 ON MATCH DO
> WATCH t: Task ON MATCH DO SPAWN n: Notification { message = "x" } RETURN DISTINCT t.title
! E8009 ON MATCH DO

=== watch.triggers, watch.durable-triggers | a trigger that deletes its match
.scope node
.use tasks
> trig = WATCH t: Task WHERE t.status = "done" ON MATCH DO KILL t
> all = WATCH t: Task [initial: none] RETURN t.title, t.status
> SPAWN a: Task { title = "a" }
> SET #a.status = "done"
.events all ordered
added "a" | "todo"
changed "a" | "todo" -> "a" | "done"
removed "a" | "done"
> MATCH t: Task RETURN COUNT(*)
0

=== watch.triggers, watch.durable-triggers | a trigger that changes its match runs again
.scope node
.use tasks
> SPAWN a: Task { title = "a", n = 1 }
> trig = WATCH t: Task WHERE t.status = "go" ON MATCH DO SET t.status = "went" SET t.n = t.n + 1
> SET #a.status = "go"
> SET #a.status = "go"
> MATCH t: Task RETURN t.status, t.n
"went" | 3

=== watch.triggers, watch.durable-triggers | two matches of one commit, two actions
.scope node
.use tasks
>> SPAWN a: Task { title = "a" } SPAWN b: Task { title = "b" }
> trig = WATCH t: Task WHERE t.status = "go" ON MATCH DO SET t.n = 1
> BEGIN
> SET #a.status = "go"
> SET #b.status = "go"
> COMMIT
> MATCH t: Task RETURN t.n
1
1

=== E8009, watch.durable-triggers, watch.visibility | actions are rejected with visibility: immediate
.scope node
.use ops
> WATCH t: Task [visibility: immediate] ON MATCH DO SPAWN n: Notification { message = "x" }
! E8009 visibility
! committed

=== watch.durable-triggers, example.define | a trigger uses the current ontology
.scope node
.define
    node Order { n: Int }
    node Note { n: Int }
> WATCH o: Order ON MATCH DO SPAWN x: Note { n = o.n }
> SPAWN a: Order { n = 1 }
.define
    node Note { n: Int, kind: String [required] = "trigger" }
> SPAWN b: Order { n = 2 }
> MATCH x: Note RETURN x.n, x.kind
1 | "trigger"
2 | "trigger"

=== watch.durable-triggers, watch.reliable, watch.restart | after a restart actions do not run again, events are delivered again
.scope node
.define
    node Order { n: Int }
    node Note { n: Int }
> w = WATCH o: Order [delivery: reliable, initial: none] ON MATCH DO SPAWN x: Note { n = o.n } RETURN o.n
> SPAWN a: Order { n = 1 }
> SPAWN b: Order { n = 2 }
.events w
added 1
added 2
.restart
.attach #w by ann
.events w redelivered
added 1
added 2
> MATCH x: Note RETURN x.n
1
2
