-- Where features meet.

.ontology jobs
    node Job { name: String, status: String = "pending", n: Int = 0, due: Timestamp? }

=== B34, ack.no_retry | nobody wants it any more: no_retry lets go of it as well, and there is no letter
.given jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
.told work
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
.given jobs
>> SPAWN a: Job { name = "in a minute", due = @2024-01-01T00:01:00Z }
   SPAWN b: Job { name = "now", due = @2024-01-01T00:00:00Z }
> work = WATCH j: Job WHERE j.due <= now() [mode: consume, ordering: attribute(j.due)] RETURN j.name
.told work
initial (nothing)
consumed "now" (delivery d1)
> ACK #d1
.advance 59s
> TICK
.told work
(nothing)
.advance 1s
> TICK
.told work
consumed "in a minute"

=== B5 | an ACK in a serializable transaction
.given jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.told work
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
.given jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.told work
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
.given jobs
> SPAWN a: Job { name = "a" }
> q = WATCH j: Job [mode: consume] RETURN j.name
.told q
initial (nothing)
consumed "a" (delivery d1)
> ALTER WATCH #q SET [delivery: reliable]
.reopen
.attach q
.told q
consumed "a" (delivery d2, attempt 1)
> ACK #d2

=== surface.alter, surface.restart | a filter altered and a buffer altered are so after a restart
.given jobs
>> SPAWN a: Job { name = "a", n = 1 }
   SPAWN b: Job { name = "b", n = 2 }
   SPAWN c: Job { name = "c", n = 3 }
> q = WATCH j: Job [mode: consume, delivery: reliable, filter: j.n < 2] RETURN j.name
.told q
initial (nothing)
consumed "a" (delivery d1)
.with {"low": 1}
> ALTER WATCH #q SET [filter: j.n > $low, buffer: 1]
.errors q
WITHDRAWN {d1}
.reopen
.attach q
.told q
consumed "b" (delivery d2, attempt 1)
.told q
(nothing)
> ACK #d2
.told q
consumed "c"

=== B7 | a destination by parameter
.define
    node Job { name: String }
    node Dlq { name: String }
>> SPAWN dlq: Dlq { name = "dlq" }
   SPAWN a: Job { name = "a" }
.with {"dlq": "#dlq", "wait": 5, "tries": 0}
bob> work = WATCH j: Job [mode: consume, dead_letter: #$dlq, ack_timeout: 1s * $wait, max_redeliveries: $tries] RETURN j.name
.told work
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
.told c
initial (nothing)
consumed "x" (delivery d1)
.define policy own: ON MATCH(j: Job) DENY IF j.team = "b"
.errors c
WITHDRAWN {d1}
ann> NACK #d1
.told c
consumed "y"

=== surface.fair, surface.first | the ontology grows under a queue, and the work goes on
.given jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.told work
initial (nothing)
consumed "a" (delivery d1)
.define
    node Urgent: Job { by: String? }
> SPAWN b: Urgent { name = "b" }
b> more = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.told more
initial (nothing)
consumed "b"
> NACK #d1
.told more
consumed "a" (attempt 2)

=== B9, B32 | a job that another watch gave back is there for all who match it
.given jobs
> SPAWN a: Job { name = "a", n = 1 }
a> named = WATCH j: Job WHERE j.name = "a" [mode: consume] RETURN j.name
b> counted = WATCH j: Job WHERE j.n > 0 [mode: consume] RETURN j.n
.told named
initial (nothing)
consumed "a" (delivery d1)
.told counted
initial (nothing)
> SET #a.name = "b"
.errors named
WITHDRAWN {d1}
a> NACK #d1
.told counted
consumed 1 (delivery d2, attempt 1)
b> ACK #d2

=== B24, seed.transactions | a consumer made inside a transaction takes what is committed, and stays when it is rolled back
.given jobs
> SPAWN a: Job { name = "committed" }
> BEGIN
> SPAWN b: Job { name = "draft" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.told work
initial (nothing)
consumed "committed" (delivery d1)
> ROLLBACK
> ACK #d1
deleted 1
.told work
(nothing)

=== surface.redrive, B24 | REDRIVE acts at once, whatever becomes of the transaction around it
.given jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.told work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry]
> BEGIN
> REDRIVE WATCH #work
created 1
> ROLLBACK
> MATCH j: Job RETURN j.name
"a"
.told work
consumed "a"

=== surface.delay, B34 | what is put off and withdrawn meanwhile does not come back
.given jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
.told work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [delay: 10s]
> SET #a.status = "done"
.advance 10s
.told work
(nothing)
> SET #a.status = "pending"
.told work
consumed "a" (attempt 1)

=== surface.delay, B33 | a delay holds for every consumer of the job
.given jobs
> SPAWN a: Job { name = "a" }
a> one = WATCH j: Job [mode: consume, group: "one"] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "two"] RETURN j.name
.told one
initial (nothing)
consumed "a" (delivery d1)
.told two
initial (nothing)
a> NACK #d1 [delay: 10s]
.told two
(nothing)
.advance 10s
.told two
consumed "a" (attempt 1)

=== ack.timeout, surface.extend | a lease and an ack_timeout of less than a second
.given jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, ack_timeout: 250ms] RETURN j.name
.told work
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
.told work
consumed "a" (attempt 2)
