-- Reactors, and EXPLAIN WATCH.

.ontology tasks
    node Task { title: String, status: String = "todo", priority: Int = 0 }
    node Person { name: String }
    edge assigned_to(task: Task, person: Person)

=== watch.reactor, watch.durable-reactors | a reactor is called for every event
.scope node
.use tasks
.reactor mailer = WATCH t: Task WHERE t.status = "done" [initial: none] RETURN t.title
> SPAWN a: Task { title = "a" }
> SET #a.status = "done"
> SPAWN b: Task { title = "b", status = "done" }
.events mailer ordered
added "a"
added "b"
> MATCH i: Invocation RETURN i.code_module, i.status, i.error
"mailer" | "succeeded" | null
"mailer" | "succeeded" | null

=== watch.invocations, watch.durable-reactors | failed reactor calls can be watched
.scope node
.use tasks
.reactor mailer failing = WATCH t: Task [initial: none] RETURN t.title
> failed = WATCH i: Invocation WHERE i.status = "failed" RETURN i.code_module, i.error, i.started_at
.events failed
initial (nothing)
> SPAWN a: Task { title = "a" }
.events mailer
added "a"
.events failed
added "mailer" | "RuntimeError: this callback always fails" | @2024-01-01T00:00:00.000Z
> SPAWN b: Task { title = "b" }
.events mailer
added "b"
.events failed
added "mailer" | "RuntimeError: this callback always fails" | @2024-01-01T00:00:00.000Z

=== watch.durable-reactors, watch.restart | a restarted reactor continues where it stopped
.scope node
.use tasks
.reactor mailer = WATCH t: Task RETURN t.title
> SPAWN a: Task { title = "a" }
.events mailer
initial (nothing)
added "a"
.restart
> SPAWN b: Task { title = "b" }
> SET #b.title = "c"
.reactor mailer = WATCH t: Task RETURN t.title
.events mailer ordered
added "b"
changed "b" -> "c"
> SPAWN d: Task { title = "d" }
.events mailer
added "d"

=== watch.explain | EXPLAIN WATCH shows the strategy and the guarantees
.scope node
.use tasks
> EXPLAIN WATCH t: Task WHERE t.status = "done" AND t.priority > 5 RETURN t.title
columns: aspect | value
"host" | "engine, at commit"
"mode" | "incremental: each match that is added, removed or changed is an event"
"concerned by" | "Task"
"key columns" | "t.status = ?1"
"range" | "t.priority > ?2"
"residual" | "none"
"cost per change" | "the changed element alone, then the watches under its key"
"ordering" | "arrival: in the order of commits"
"delivery" | "best effort: at most once; beyond the buffer the oldest is dropped and counted; ends with its session"
"visibility" | "committed, delivered on commit"
> MATCH s: _Watch RETURN COUNT(*)
0

=== watch.explain | EXPLAIN WATCH shows that a query is reevaluated
.scope pattern
.use tasks
> EXPLAIN WATCH t: Task RETURN COLLECT(t.title)
rows: 10
> EXPLAIN WATCH t: Task, p: Person, assigned_to(t, p) WHERE p = #missing OR t.title CONTAINS "x" [delivery: reliable, ordering: causal] RETURN t
rows: 10
> EXPLAIN WATCH t: Task [mode: nonsense] RETURN t
! E8009
> EXPLAIN WATCH t: Nothing RETURN t
! E2001

=== watch.durable-reactors | reactors with equal statements have their own constants
.scope node
.use tasks
.reactor done = WATCH t: Task WHERE t.status = "done" [initial: none] RETURN t.title
.reactor sent = WATCH t: Task WHERE t.status = "sent" [initial: none] RETURN t.title
> SPAWN a: Task { title = "a", status = "sent" }
.events done
(nothing)
.events sent
added "a"
