-- One consumer, its deliveries, and how they end.

.ontology jobs
    node Job { name: String, status: String = "pending" }

=== queue.events, queue.protocol, ack.ack, ack.forms, queue.snapshot | an acknowledged element is deleted
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j
.events work
initial (nothing) (position 1)
consumed Job #a {name: "a", status: "pending"} (delivery d1, attempt 1, position 2)
> MATCH j: Job RETURN j.name
"a"
> ACK "{d1}"
deleted 1
> MATCH j: Job RETURN COUNT(*)
0
.events work
(nothing)

=== ack.workflow, ack.pattern, ack.forms | ACK, NACK and NACK [no_retry]
.use jobs
> SPAWN failed_jobs: Job { name = "where letters go", status = "n/a" }
> work = WATCH j: Job WHERE j.status = "pending"
    [mode: consume]
    [ack_timeout: 30s]
    [max_redeliveries: 3]
    [dead_letter: #failed_jobs]
    RETURN j.name
.events work
initial (nothing)
>> SPAWN a: Job { name = "fine" }
   SPAWN b: Job { name = "flaky" }
   SPAWN c: Job { name = "hopeless" }
.events work
consumed "fine" (delivery d1)
consumed "flaky" (delivery d2)
consumed "hopeless" (delivery d3)
.params {"deliveryId": "#d1"}
> ACK $deliveryId
deleted 1
> NACK "{d2}"
deleted 0
> NACK "{d3}" [no_retry]
.events work
consumed "flaky" (delivery d4, attempt 2)
> ACK #d4
> MATCH j: Job RETURN j.name
"where letters go"
> MATCH _dead_letter_in(#failed_jobs, l) RETURN l.failure_reason, l.delivery_attempts
"no_retry" | 1

=== ack.id, ack.errors, E8004, queue.late-ack | a delivery id can be answered once
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> ACK #d1
> ACK #d1
! E8004 Invalid delivery ID: '{d1}' not found or already processed
> NACK #d1
! E8004
> EXTEND #d1
! E8004
> NACK #d2
> ACK #d2
! E8004 Invalid delivery ID: '{d2}' not found or already processed
> ACK "nonsense"
! E8004 Invalid delivery ID: 'nonsense' not found or already processed
.events work
consumed "b" (delivery d3, attempt 2)

=== ack.id, ack.forms | invalid delivery ids are rejected
.use jobs
> ACK 7
! E1001
.params {"d": 7}
> ACK $d
! E2003 String
> ACK
! E1001
> NACK "d_1" [perhaps]
! E8009 allowed are no_retry, delay: Duration, cause: String
> NACK "d_1" [delay: 30]
! E8009 Duration above zero
> NACK "d_1" [delay: 0s]
! E8009 Duration above zero
> NACK "d_1" [delay: 1s, delay: 2s]
! E8009 twice
> NACK "d_1" [no_retry, delay: 1s]
! E8009 no next attempt
> NACK "d_1" [cause: 5]
! E8009 String
> EXTEND "d_1" [by: 0s]
! E8009 Duration above zero
> EXTEND "d_1" [for: 5s]
! E8009 allowed are by: Duration

=== ack.timeout, ack.errors, E8003, queue.timeout-report, queue.clock, queue.attempts | a delivery without an answer times out
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.advance 9s
.events work
(nothing)
.errors work
(nothing)
.advance 1s
.errors work
E8003 Acknowledgment timeout: delivery '{d1}' not acknowledged within 10s
.events work
consumed "a" (delivery d2, attempt 2)
> ACK #d1
! E8004 Invalid delivery ID: '{d1}' not found or already processed
> ACK #d2
> MATCH j: Job RETURN COUNT(*)
0

=== queue.late-ack, ack.id | a late ACK has no effect on the next delivery
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.advance 10s
> ACK #d1
! E8004
> MATCH j: Job RETURN COUNT(*)
1
.errors work
E8003
.events work
consumed "a" (delivery d2, attempt 2)
> NACK #d1
! E8004
> ACK #d2

=== queue.extend | EXTEND prolongs a lease
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.advance 8s
> EXTEND #d1
.advance 8s
> EXTEND #d1 [by: 1m]
.advance 59s
> EXTEND "{d1}" [by: 5s]
.advance 4s
.errors work
(nothing)
.advance 1s
.errors work
E8003 within 10s
.events work
consumed "a" (delivery d2, attempt 2)
> EXTEND #d1
! E8004
> ACK #d2

=== queue.extend, ack.forms | EXTEND counts from now and may shorten the lease
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, ack_timeout: 1h] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.params {"span": 5, "d": "#d1"}
> EXTEND $d [by: 1s * $span]
.advance 5s
.errors work
E8003
.events work
consumed "a" (attempt 2)

=== queue.delay | NACK [delay] postpones redelivery
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
> work = WATCH j: Job [mode: consume, buffer: 1] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [delay: 30s]
.events work
consumed "b" (delivery d2)
> ACK #d2
.events work
(nothing)
.advance 29s
.events work
(nothing)
.advance 1s
.events work
consumed "a" (delivery d3, attempt 2)
> ACK #d3

=== ack.nack, queue.requeue-order | NACK requeues at the former rank
.reader pull
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work limit 3
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> NACK #d2
> NACK #d1
.events work
consumed "a" (attempt 2)
consumed "b" (attempt 2)
consumed "c" (attempt 1)

=== queue.ack-deletes, queue.first-element | ACK deletes the first element of the pattern and its edges only
.define
    node Message { text: String }
    node Channel { name: String }
    edge posted(message: Message, channel: Channel)
>> SPAWN c: Channel { name = "c" }
   SPAWN m: Message { text = "hello" }
   LINK posted(#m, #c)
> read = WATCH m: Message, c: Channel, posted(m, c) [mode: consume] RETURN m.text, c.name
.events read
initial (nothing)
consumed "hello" | "c" (delivery d1)
> ACK #d1
deleted 1, unlinked 1
> MATCH c: Channel RETURN c.name
"c"
> MATCH m: Message RETURN COUNT(*)
0

=== queue.ack-deletes | ACK unlinks a first element that is an edge
.define
    node User { name: String }
    edge invited(by: User, whom: User) { at: Int = 0 }
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
   LINK invited(#ann, #bob)
> work = WATCH invited(a, b) AS i [mode: consume] RETURN a.name, b.name, i.at
.events work
initial (nothing)
consumed "Ann" | "Bob" | 0 (delivery d1)
> ACK #d1
unlinked 1
> MATCH u: User RETURN COUNT(*)
2
> MATCH invited(a, b) RETURN COUNT(*)
0

=== queue.first-element, queue.global-claim | an element with several matches is one delivery
.define
    node Message { text: String }
    node Tag { name: String, weight: Int }
    edge tagged(message: Message, tag: Tag)
>> SPAWN m: Message { text = "hello" }
   SPAWN x: Tag { name = "x", weight = 1 }
   SPAWN y: Tag { name = "y", weight = 2 }
   LINK tagged(#m, #x)
   LINK tagged(#m, #y)
> work = WATCH m: Message, t: Tag, tagged(m, t)
    [mode: consume, ordering: attribute(t.weight DESC)] RETURN m.text, t.name
.events work
initial (nothing)
consumed "hello" | "y" (delivery d1)
> ACK #d1
deleted 1, unlinked 2
.events work
(nothing)

=== queue.visible-to-others | a delivered element is hidden from consumers only
.use jobs
> all = WATCH j: Job RETURN j.name
.events all
initial (nothing)
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
> rival = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.events rival
initial (nothing)
.events all
added "a"
> MATCH j: Job RETURN j.name
"a"
> SET #a.status = "running"
> ACK #d1
.events all
removed "a"

=== queue.withdrawn | a waiting element that stops matching is not delivered
.reader pull
.use jobs
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> SET #a.status = "cancelled"
> KILL #b
.events work
initial (nothing)
consumed "c"
> SET #a.status = "pending"
.events work
consumed "a" (attempt 1)

=== queue.withdrawn | the holder of an element that stops matching is informed, and NACK does not requeue it
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> SET #a.status = "cancelled"
.errors work
WITHDRAWN delivery '{d1}' does not match any more
> NACK #d1
.events work
(nothing)
> MATCH j: Job RETURN j.status
"cancelled"
> SET #a.status = "pending"
.events work
consumed "a" (attempt 1)

=== queue.withdrawn | ACK deletes a withdrawn element, and succeeds if it no longer exists
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> SET #a.status = "cancelled"
> KILL #b
.errors work
WITHDRAWN {d1}
WITHDRAWN {d2}
> ACK #d1
deleted 1
> ACK #d2
deleted 0
> ACK #d2
! E8004
> MATCH j: Job RETURN COUNT(*)
0

=== queue.withdrawn, ack.timeout | the timeout of a withdrawn delivery has no effect
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume, ack_timeout: 10s, max_redeliveries: 0] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> SET #a.status = "cancelled"
.errors work
WITHDRAWN {d1}
.advance 10s
.errors work
E8003 {d1}
.events work
(nothing)
> MATCH j: Job RETURN j.status
"cancelled"
> MATCH l: _DeadLetter RETURN COUNT(*)
0

=== queue.withdrawn | an element that matches again while held is requeued by NACK
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> SET #a.status = "paused"
.errors work
WITHDRAWN {d1}
> SET #a.status = "pending"
.events work
(nothing)
> NACK #d1
.events work
consumed "a" (attempt 2)

=== queue.rules | an element created by a rule can be consumed
.define
    node Order { total: Int }
    node Review { total: Int }
    rule review: o: Order WHERE o.total > 100 AND NOT EXISTS(r: Review WHERE r.total = o.total) => SPAWN r: Review { total = o.total }
> work = WATCH r: Review [mode: consume] RETURN r.total
> SPAWN o: Order { total = 500 }
.events work
initial (nothing)
consumed 500

=== queue.trigger, E8009 | aggregates, DISTINCT, actions and Layer 0 types are rejected
.use jobs
> w = WATCH j: Job [mode: consume] RETURN COUNT(*)
! E8009 aggregate
> w = WATCH j: Job [mode: consume] RETURN DISTINCT j.name
! E8009 DISTINCT
> w = WATCH j: Job [mode: consume] ON MATCH DO SET j.status = "seen"
! E8009
> w = WATCH j: Job [mode: consume] ON MATCH DO SET j.status = "seen" RETURN j.name
! E8009 ON MATCH DO
> w = WATCH d: _DeadLetter [mode: consume] RETURN d
! E8009 Layer 0
> w = WATCH j: Job [mode: consume, window: tumbling(5s)] RETURN j.name
! E8009 window
> w = WATCH j: Job [mode: consume, initial: since(3)] RETURN j.name
! E8009 full, none
> w = WATCH j: Job [mode: consume, ack_timeout: 0s] RETURN j.name
! E8009 ack_timeout
> w = WATCH j: Job [mode: consume, ack_timeout: 30] RETURN j.name
! E8009 ack_timeout
> w = WATCH j: Job [mode: consume, max_redeliveries: -1] RETURN j.name
! E8009 max_redeliveries
> w = WATCH j: Job [mode: consume, max_in_flight: 0] RETURN j.name
! E8009 max_in_flight
> w = WATCH j: Job [mode: consume, buffer: 0] RETURN j.name
! E8009 buffer
> w = WATCH j: Job [mode: consume, group: 5] RETURN j.name
! E8009 group
> w = WATCH j: Job [mode: consume, dead_letter: "text"] RETURN j.name
! E8009 dead_letter
> w = WATCH j: Job [mode: consume, serialize_by: j.nothing] RETURN j.name
! E2002
> w = WATCH j: Job [mode: eat] RETURN j.name
! E8009 watch, consume
> MATCH w: _Watch RETURN COUNT(*)
0

=== queue.window, queue.visibility, queue.committed-only | only committed elements are delivered, also with visibility: immediate
.use jobs
> w = WATCH j: Job [mode: consume, visibility: immediate, window: none] RETURN j.name
.events w
initial (nothing)
bob> BEGIN
bob> SPAWN a: Job { name = "draft" }
.events w
(nothing)
bob> SET #a.name = "final"
bob> COMMIT
.events w
consumed "final"

=== queue.transactions | an element created and deleted in one transaction is never delivered
.use jobs
> w = WATCH j: Job [mode: consume] RETURN j.name
.events w
initial (nothing)
> BEGIN
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SET #b.name = "c"
   KILL #a
> COMMIT
.events w
consumed "c"

=== queue.deliver-on | deliver_on: tick delivers elements at the tick
.settings tick = "manual"
.use jobs
> SPAWN early: Job { name = "early" }
> TICK
> w = WATCH j: Job [mode: consume, deliver_on: tick] RETURN j.name
.events w
initial (nothing)
consumed "early"
> SPAWN a: Job { name = "a" }
.events w
(nothing)
> TICK
.events w
consumed "a"
