-- Several consumers: groups, fair shares, closed and lost consumers.

.ontology jobs
    node Job { name: String, account: String = "", status: String = "pending" }

=== ack.competing, queue.groups, queue.work-queue | each element is delivered to one consumer of the group
.reader pull
.use jobs
a> one = WATCH j: Job WHERE j.status = "pending" [mode: consume] [group: "workers"] [ack_timeout: 60s] RETURN j.name
b> two = WATCH j: Job WHERE j.status = "pending" [mode: consume] [group: "workers"] [ack_timeout: 60s] RETURN j.name
.events one, two
initial (nothing)
>> SPAWN x: Job { name = "job_1" }
   SPAWN y: Job { name = "job_2" }
.events one
consumed "job_1" (delivery d_a1)
.events two
consumed "job_2" (delivery d_b1)
a> ACK #d_a1
b> NACK #d_b1
.events one
consumed "job_2" (delivery d_a2, attempt 2)
.events two
(nothing)
a> ACK #d_a2
> MATCH j: Job RETURN COUNT(*)
0

=== queue.fair-share, queue.load | a poll returns at most the fair share
.reader pull
.use jobs
a> one = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events one, two
initial (nothing)
>> SPAWN j1: Job { name = "1" }
   SPAWN j2: Job { name = "2" }
   SPAWN j3: Job { name = "3" }
   SPAWN j4: Job { name = "4" }
   SPAWN j5: Job { name = "5" }
.events one
consumed "1" (delivery d1)
consumed "2"
consumed "3"
.events two
consumed "4"
consumed "5"
.events one, two
(nothing)
> SPAWN j6: Job { name = "6" }
.events two
consumed "6"
.events one
(nothing)
a> ACK #d1
>> SPAWN j7: Job { name = "7" }
   SPAWN j8: Job { name = "8" }
.events one
consumed "7"
consumed "8"

=== queue.fair-share | a single poll always returns an element
.reader pull
.use jobs
a> one = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events one, two
initial (nothing)
> SPAWN j1: Job { name = "1" }
.events one
consumed "1"
> SPAWN j2: Job { name = "2" }
.events one
consumed "2"
> SPAWN j3: Job { name = "3" }
.events two
consumed "3"

=== queue.buffer, queue.no-drop | buffer limits the deliveries of a consumer and drops nothing
.reader pull
.use jobs
> slow = WATCH j: Job [mode: consume, buffer: 2, on_full: drop] RETURN j.name
.events slow
initial (nothing)
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
   SPAWN d: Job { name = "d" }
.events slow
consumed "a" (delivery d1)
consumed "b" (delivery d2)
.events slow
(nothing)
> ACK #d1
.events slow
consumed "c" (delivery d3)
> ALTER WATCH #slow SET [buffer: 3]
.events slow
consumed "d"
> MATCH j: Job RETURN COUNT(*)
3

=== queue.buffer, queue.fair-share | a full consumer does not reduce the share of others
.use jobs
a> small = WATCH j: Job [mode: consume, group: "g", buffer: 1] RETURN j.name
b> large = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events small, large
initial (nothing)
>> SPAWN j1: Job { name = "1" }
   SPAWN j2: Job { name = "2" }
   SPAWN j3: Job { name = "3" }
   SPAWN j4: Job { name = "4" }
.events small
consumed "1"
.events large
consumed "2"
consumed "3"
consumed "4"

=== queue.in-flight | max_in_flight limits a whole group
.reader pull
.use jobs
a> one = WATCH j: Job [mode: consume, group: "g", max_in_flight: 3] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g", max_in_flight: 3] RETURN j.name
.events one, two
initial (nothing)
>> SPAWN j1: Job { name = "1" }
   SPAWN j2: Job { name = "2" }
   SPAWN j3: Job { name = "3" }
   SPAWN j4: Job { name = "4" }
.events one
consumed "1" (delivery d1)
consumed "2"
.events two
consumed "3"
.events two
(nothing)
a> ACK #d1
.events two
consumed "4"

=== queue.global-claim, queue.groups | a claim is global: two groups over the same elements share them
.reader pull
.use jobs
> SPAWN a: Job { name = "a" }
a> mail = WATCH j: Job [mode: consume, group: "mail"] RETURN j.name
b> print = WATCH j: Job [mode: consume, group: "print"] RETURN j.name
.events mail
initial (nothing)
consumed "a" (delivery d1)
.events print
initial (nothing)
a> NACK #d1
.events print
consumed "a" (delivery d2, attempt 1)
.events mail
(nothing)
b> ACK #d2
> MATCH j: Job RETURN COUNT(*)
0

=== queue.attempts-per-group, queue.attempts | every group counts its own attempts
.reader pull
.use jobs
> SPAWN a: Job { name = "a" }
a> one = WATCH j: Job [mode: consume, group: "one", max_redeliveries: 1] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "two", max_redeliveries: 1] RETURN j.name
.events one
initial (nothing)
consumed "a" (delivery d1, attempt 1)
.events two
initial (nothing)
a> NACK #d1
.events two
consumed "a" (delivery d2, attempt 1)
b> NACK #d2
.events two
consumed "a" (delivery d3, attempt 2)
b> NACK #d3
> MATCH l: _DeadLetter, _watch_dead_letter(w, l) RETURN w.group, l.delivery_attempts
"two" | 2

=== queue.group-options | timeout, redeliveries and destination are those of the holding consumer
.reader pull
.define
    node Job { name: String, n: Int = 0 }
    node Dlq { name: String }
>> SPAWN dlq: Dlq { name = "dlq" }
   SPAWN a: Job { name = "a" }
a> patient = WATCH j: Job [mode: consume, group: "g", ack_timeout: 1h, max_redeliveries: 9] RETURN j.name
> strict = WATCH j: Job [mode: consume, group: "g", ack_timeout: 5s, max_redeliveries: 0, dead_letter: #dlq] RETURN j.name
.events patient
initial (nothing)
consumed "a" (delivery d1)
.events strict
initial (nothing)
.advance 10m
a> NACK #d1
.events strict
consumed "a" (attempt 2)
.advance 5s
.errors strict
E8003 within 5s
> MATCH _dead_letter_in(d, l) RETURN d.name, l.failures, l.timeouts
"dlq" | 1 | 1

=== queue.group-options, queue.global-claim | different patterns in one group
.reader pull
.define node Job { name: String, n: Int = 0 }
a> low = WATCH j: Job WHERE j.n < 5 [mode: consume, group: "g"] RETURN j.name
b> all = WATCH j: Job [mode: consume, group: "g"] RETURN j.name, j.n
.events low, all
initial (nothing)
>> SPAWN x: Job { name = "x", n = 9 }
   SPAWN y: Job { name = "y", n = 1 }
.events low
consumed "y"
.events all
consumed "x" | 9

=== queue.load, queue.leave, queue.claim-at-delivery | closing a consumer requeues its deliveries without counting an attempt
.reader pull
.use jobs
a> one = WATCH j: Job [mode: consume, group: "g", max_redeliveries: 0] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g", max_redeliveries: 0] RETURN j.name
.events one, two
initial (nothing)
>> SPAWN x: Job { name = "x" }
   SPAWN y: Job { name = "y" }
.events one
consumed "x" (delivery d1)
.events two
consumed "y" (delivery d2)
.close a
.events two
consumed "x" (delivery d3, attempt 1)
a> ACK #d1
! E5007
> ACK #d1
! E8004
b> ACK #d3
b> ACK #d2

=== queue.leave | cancelling a consumer counts no attempt
.use jobs
> SPAWN x: Job { name = "x" }
a> one = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events one
initial (nothing)
consumed "x" (delivery d1)
a> CANCEL WATCH #one
a> ACK #d1
! E8004
.events two
initial (nothing)
consumed "x" (attempt 1)

=== queue.leave, queue.attempts | losing a consumer counts a failure for each delivery
.use jobs
> SPAWN x: Job { name = "x" }
a> one = WATCH j: Job [mode: consume, group: "g", max_redeliveries: 1] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g", max_redeliveries: 1] RETURN j.name
.events one
initial (nothing)
consumed "x" (delivery d1)
.disconnect a
.events two
initial (nothing)
consumed "x" (delivery d2, attempt 2)
.disconnect b
> MATCH j: Job RETURN COUNT(*)
0
> MATCH l: _DeadLetter RETURN l.failure_reason, l.failures, l.timeouts, l.cause
"max_redeliveries_exceeded" | 2 | 0 | "the consumer was lost"

=== queue.leave | waiting elements are delivered to a later consumer
.use jobs
a> one = WATCH j: Job [mode: consume] RETURN j.name
.events one
initial (nothing)
.close a
> SPAWN x: Job { name = "x" }
b> two = WATCH j: Job [mode: consume] RETURN j.name
.events two
initial (nothing)
consumed "x"

=== queue.delivery-ids, E8004 | only the receiving session may answer a delivery
.define
    node User { name: String }
    node Job { name: String }
    policy all: ON * ALLOW IF true
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
   SPAWN x: Job { name = "x" }
.session ann as #ann
.session bob as #bob
.session ann2 as #ann
ann> hers = WATCH j: Job [mode: consume] RETURN j.name
.events hers
initial (nothing)
consumed "x" (delivery d1)
bob> ACK #d1
! E8004 Invalid delivery ID: '{d1}' not found or already processed
bob> NACK #d1
! E8004
bob> EXTEND #d1
! E8004
ann2> ACK #d1
! E8004
ann> EXTEND #d1
> ACK #d1
deleted 1

=== queue.groups | a group has no effect in watch mode
.use jobs
a> one = WATCH j: Job [mode: watch, group: "g", ack_timeout: 5s, max_in_flight: 1, serialize_by: j.account] RETURN j.name
b> two = WATCH j: Job [group: "g"] RETURN j.name
.events one, two
initial (nothing)
>> SPAWN x: Job { name = "x" }
   SPAWN y: Job { name = "y" }
.events one, two
added "x"
added "y"
