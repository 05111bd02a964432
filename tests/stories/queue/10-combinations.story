-- Combinations of features.

.ontology jobs
    node Job { name: String, status: String = "pending", n: Int = 0, due: Timestamp? }

=== queue.withdrawn, ack.no_retry | no_retry of a withdrawn delivery creates no dead letter
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> SET #a.status = "cancelled"
.errors work
WITHDRAWN {d1}
> NACK #d1 [no_retry]
> MATCH l: _DeadLetter RETURN COUNT(*)
0
> MATCH j: Job RETURN j.status
"cancelled"

=== queue.clock, queue.deliver-on | a time condition is evaluated at every commit and tick
.use jobs
>> SPAWN a: Job { name = "in a minute", due = @2024-01-01T00:01:00Z }
   SPAWN b: Job { name = "now", due = @2024-01-01T00:00:00Z }
> work = WATCH j: Job WHERE j.due <= now() [mode: consume, ordering: attribute(j.due)] RETURN j.name
.events work
initial (nothing)
consumed "now" (delivery d1)
> ACK #d1
.advance 59s
> TICK
.events work
(nothing)
.advance 1s
> TICK
.events work
consumed "in a minute"

=== queue.ack-in-transaction | an ACK in a serializable transaction
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> BEGIN SERIALIZABLE
> MATCH j: Job RETURN COUNT(*)
1
> ACK #d1
deleted 1
> COMMIT
> MATCH j: Job RETURN COUNT(*)
0

=== queue.ack-in-transaction, queue.withdrawn | the element is deleted while its ACK waits for the commit
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> BEGIN
> ACK #d1
eve> MATCH j: Job KILL j
> COMMIT
! E5002
> ACK #d1
deleted 0
> ACK #d1
! E8004

=== queue.alter, queue.attach, queue.restart | a consumer altered to reliable is durable
.use jobs
> SPAWN a: Job { name = "a" }
> q = WATCH j: Job [mode: consume] RETURN j.name
.events q
initial (nothing)
consumed "a" (delivery d1)
> ALTER WATCH #q SET [delivery: reliable]
.restart
.attach q
.events q
consumed "a" (delivery d2, attempt 1)
> ACK #d2

=== queue.alter, queue.restart | altered filter and buffer of a consumer are kept after a restart
.use jobs
>> SPAWN a: Job { name = "a", n = 1 }
   SPAWN b: Job { name = "b", n = 2 }
   SPAWN c: Job { name = "c", n = 3 }
> q = WATCH j: Job [mode: consume, delivery: reliable, filter: j.n < 2] RETURN j.name
.events q
initial (nothing)
consumed "a" (delivery d1)
.params {"low": 1}
> ALTER WATCH #q SET [filter: j.n > $low, buffer: 1]
.errors q
WITHDRAWN {d1}
.restart
.attach q
.events q
consumed "b" (delivery d2, attempt 1)
.events q
(nothing)
> ACK #d2
.events q
consumed "c"

=== queue.dead-letters | a destination by parameter
.define
    node Job { name: String }
    node Dlq { name: String }
>> SPAWN dlq: Dlq { name = "dlq" }
   SPAWN a: Job { name = "a" }
.params {"dlq": "#dlq", "wait": 5, "tries": 0}
bob> work = WATCH j: Job [mode: consume, dead_letter: #$dlq, ack_timeout: 1s * $wait, max_redeliveries: $tries] RETURN j.name
.events work
initial (nothing)
consumed "a"
.advance 5s
.errors work
E8003 within 5s
> MATCH _dead_letter_in(d, l) RETURN d.name, l.timeouts
"dlq" | 1

=== queue.ack-deletes, E8009 | a path as first element is rejected
.define
    node Person { name: String }
    edge knows(one: Person, other: Person)
> w = WATCH knows+(a, b) [mode: consume] RETURN a.name
! E8009 begin with a node or an edge

=== queue.policy, queue.withdrawn | elements hidden by a new policy are withdrawn
.define
    node User { name: String }
    node Job { name: String, team: String = "a" }
    policy watching: ON META SPAWN(_Watch) ALLOW IF true
    policy jobs: ON MATCH(j: Job) ALLOW IF true
    policy kills: ON KILL(j: Job) ALLOW IF true
>> SPAWN ann: User { name = "Ann" }
   SPAWN x: Job { name = "x", team = "b" }
   SPAWN y: Job { name = "y" }
.session ann as #ann
ann> c = WATCH j: Job [mode: consume, buffer: 1] RETURN j.name
.events c
initial (nothing)
consumed "x" (delivery d1)
.define policy own: ON MATCH(j: Job) DENY IF j.team = "b"
.errors c
WITHDRAWN {d1}
ann> NACK #d1
.events c
consumed "y"

=== queue.fair-share, queue.first-element | a queue continues when the ontology is extended
.reader pull
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.define
    node Urgent: Job { by: String? }
> SPAWN b: Urgent { name = "b" }
b> more = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events more
initial (nothing)
consumed "b"
> NACK #d1
.events more
consumed "a" (attempt 2)

=== queue.global-claim, queue.requeue-order | a requeued element is available to every matching consumer
.use jobs
> SPAWN a: Job { name = "a", n = 1 }
a> named = WATCH j: Job WHERE j.name = "a" [mode: consume] RETURN j.name
b> counted = WATCH j: Job WHERE j.n > 0 [mode: consume] RETURN j.n
.events named
initial (nothing)
consumed "a" (delivery d1)
.events counted
initial (nothing)
> SET #a.name = "b"
.errors named
WITHDRAWN {d1}
a> NACK #d1
.events counted
consumed 1 (delivery d2, attempt 1)
b> ACK #d2

=== queue.not-transactional, queue.transactions | a consumer created inside a transaction consumes committed elements and survives a rollback
.use jobs
> SPAWN a: Job { name = "committed" }
> BEGIN
> SPAWN b: Job { name = "draft" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "committed" (delivery d1)
> ROLLBACK
> ACK #d1
deleted 1
.events work
(nothing)

=== queue.redrive, queue.not-transactional | REDRIVE takes effect at once and is not rolled back
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry]
> BEGIN
> REDRIVE WATCH #work
created 1
> ROLLBACK
> MATCH j: Job RETURN j.name
"a"
.events work
consumed "a"

=== queue.delay, queue.withdrawn | a delayed element that stops matching is not delivered again
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [delay: 10s]
> SET #a.status = "done"
.advance 10s
.events work
(nothing)
> SET #a.status = "pending"
.events work
consumed "a" (attempt 1)

=== queue.delay, queue.attempts-per-group | a delay applies to every consumer of the element
.reader pull
.use jobs
> SPAWN a: Job { name = "a" }
a> one = WATCH j: Job [mode: consume, group: "one"] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "two"] RETURN j.name
.events one
initial (nothing)
consumed "a" (delivery d1)
.events two
initial (nothing)
a> NACK #d1 [delay: 10s]
.events two
(nothing)
.advance 10s
.events two
consumed "a" (attempt 1)

=== ack.timeout, queue.extend | leases and timeouts below one second
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, ack_timeout: 250ms] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.advance 249ms
> EXTEND #d1 [by: 100ms]
.advance 99ms
.errors work
(nothing)
.advance 1ms
.errors work
E8003 within 250ms
.events work
consumed "a" (attempt 2)

=== queue.redrive, queue.ack-deletes | edges and owned elements are deleted and redriven with their element
.define
    node Job { name: String }
    node Attachment { file: String }
    node Person { name: String }
    edge owns(job: Job, attachment: Attachment) [on_kill_source: cascade]
    edge sent_by(attachment: Attachment, person: Person) { at: Int = 1 }
    edge doubts(person: Person, sending: edge<sent_by>)
>> SPAWN ann: Person { name = "Ann" }
   SPAWN a: Job { name = "a" }
   SPAWN f: Attachment { file = "f" }
   LINK owns(#a, #f)
   LINK sent_by(#f, #ann) AS sending
   LINK doubts(#ann, #sending)
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry]
> MATCH x: Attachment RETURN COUNT(*)
0
> MATCH doubts(p, s) RETURN COUNT(*)
0
.restart
> MATCH l: _DeadLetter RETURN l.id
.name letter
> REDRIVE #letter
created 2, linked 3
> MATCH j: Job, owns(j, f), sent_by(f, p) AS s, doubts(d, s) RETURN j.name, f.file, p.name, s.at, d.name
"a" | "f" | "Ann" | 1 | "Ann"

=== queue.redrive | REDRIVE of a dead letter that violates a constraint is rejected
.define node Job { name: String [unique] }
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry]
> SPAWN b: Job { name = "a" }
.events work
consumed "a" (delivery d2, attempt 1)
> REDRIVE WATCH #work
! E3003 unique
> MATCH l: _DeadLetter RETURN COUNT(*)
1
> ACK #d2
> REDRIVE WATCH #work
created 1
.events work
consumed "a" (attempt 1)

=== queue.leave | a consumer whose condition fails ends with an error and requeues its deliveries
.use jobs
>> SPAWN a: Job { name = "a", n = 1 }
   SPAWN b: Job { name = "b", n = 2 }
> work = WATCH j: Job [mode: consume, buffer: 1] RETURN j.name, 10 / j.n AS part
> other = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" | 10 (delivery d1)
.events other
initial (nothing)
consumed "b"
> SET #b.n = 0
.errors work
E2101 Division by zero
> MATCH w: _Watch WHERE w.name = "work" RETURN w.status
"cancelled"
> ACK #d1
! E8004
.events other
consumed "a" (attempt 1)

=== queue.global-claim, queue.first-element | a union of types, and their subtypes, in one queue
.define
    node Job { name: String }
    node Urgent: Job { by: Int }
    node Task { name: String }
>> SPAWN a: Task { name = "task" }
   SPAWN b: Urgent { name = "urgent", by = 5 }
   SPAWN c: Job { name = "job" }
> work = WATCH w: Job | Task [mode: consume] RETURN w.name
.events work
initial (nothing)
consumed "task" (delivery d1)
consumed "urgent" (delivery d2)
consumed "job"
> ACK #d1
> ACK #d2
> MATCH u: Urgent RETURN COUNT(*)
0

=== queue.serialize-by, queue.withdrawn | a withdrawn delivery releases its key when it ends
.define node Job { name: String, account: String, status: String = "pending" }
>> SPAWN a: Job { name = "a1", account = "a" }
   SPAWN b: Job { name = "a2", account = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume, serialize_by: j.account] RETURN j.name
.events work
initial (nothing)
consumed "a1" (delivery d1)
> SET #a.status = "cancelled"
.errors work
WITHDRAWN {d1}
.events work
(nothing)
> NACK #d1
.events work
consumed "a2"

=== queue.serialize-by, queue.restart, queue.delay | a delayed element blocks its key after a restart
.define node Job { name: String, account: String }
>> SPAWN a: Job { name = "a1", account = "a" }
   SPAWN b: Job { name = "a2", account = "a" }
> work = WATCH j: Job [mode: consume, serialize_by: j.account] RETURN j.name
.events work
initial (nothing)
consumed "a1" (delivery d1)
> NACK #d1 [delay: 1m]
.restart
> work = WATCH j: Job [mode: consume, serialize_by: j.account] RETURN j.name
.events work
initial (nothing)
.advance 1m
.events work
consumed "a1" (delivery d2, attempt 2)
> ACK #d2
.events work
consumed "a2"

=== queue.buffer, queue.alter | a buffer smaller than the held deliveries revokes none
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> work = WATCH j: Job [mode: consume, buffer: 2] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> ALTER WATCH #work SET [buffer: 1]
> ACK #d1
.events work
(nothing)
> ACK #d2
.events work
consumed "c"

=== queue.requeue-order, queue.ordering | an element keeps its arrival order across redeliveries
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
> work = WATCH j: Job [mode: consume, buffer: 1] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1
> SPAWN c: Job { name = "c" }
.events work
consumed "a" (delivery d2, attempt 2)
> SET #a.n = 5
> NACK #d2
.events work
consumed "a" (delivery d3, attempt 3)
> ACK #d3
.events work
consumed "b"

=== queue.redrive | REDRIVE of several dead letters reports those that failed
.define node Job { name: String [unique] }
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> NACK #d1 [no_retry]
> NACK #d2 [no_retry]
> SPAWN c: Job { name = "a" }
> REDRIVE WATCH #work
created 1
warning: 'a' is taken
> MATCH l: _DeadLetter RETURN l.original_match
"{\"j.name\": \"a\"}"
.events work
consumed "a" (attempt 1)
consumed "b" (attempt 1)
