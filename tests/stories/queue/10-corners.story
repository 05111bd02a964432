-- Where features meet.

.ontology jobs
    node Job { name: String, status: String = "pending", n: Int = 0, due: Timestamp? }

=== B34, ack.no_retry | nobody wants it any more: no_retry lets go of it as well, and there is no letter
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

=== B35, seed.timing | a job for later: the time is looked at with every commit and tick
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

=== B5 | an ACK in a serializable transaction
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

=== B5, B34 | somebody else deletes the job while its ACK waits for the commit
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

=== surface.alter, surface.attach, surface.restart | a consumer made reliable lasts from then on
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

=== surface.alter, surface.restart | a filter altered and a buffer altered are so after a restart
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

=== B7 | a destination by parameter
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

=== B4, E8009 | a path is nothing that could be deleted
.define
    node Person { name: String }
    edge knows(one: Person, other: Person)
> w = WATCH knows+(a, b) [mode: consume] RETURN a.name
! E8009 begin with a node or an edge

=== seed.policy, surface.withdrawn | another policy, and what is hidden by it is withdrawn
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

=== surface.fair, surface.first | the ontology grows under a queue, and the work goes on
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

=== B9, B32 | a job that another watch gave back is there for all who match it
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

=== B24, seed.transactions | a consumer made inside a transaction takes what is committed, and stays when it is rolled back
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

=== surface.redrive, B24 | REDRIVE acts at once, whatever becomes of the transaction around it
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

=== surface.delay, B34 | what is put off and withdrawn meanwhile does not come back
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

=== surface.delay, B33 | a delay holds for every consumer of the job
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

=== ack.timeout, surface.extend | a lease and an ack_timeout of less than a second
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

=== surface.redrive, B4 | what hangs on a job goes with it, and comes back with it
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

=== surface.redrive | a letter that would break a constraint stays a letter
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

=== surface.leave | a consumer that cannot be computed any more ends, says why, and lets go of what it held
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

=== B9, surface.first | a union of types, and their subtypes, in one queue
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

=== surface.serial, B34 | a job that is withdrawn while it is held frees its key when it is let go of
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

=== surface.serial, surface.restart, surface.delay | a delayed job holds its key back after a restart, too
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

=== surface.buffer, surface.alter | a buffer made smaller than what is held takes nothing back
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

=== B32, seed.ordering | an element keeps its arrival, however often it is given back
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

=== surface.redrive | of several letters those that can be are sent back, and the others are named
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
