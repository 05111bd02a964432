-- Several consumers: groups, fair shares, leaving and being lost.

.ontology jobs
    node Job { name: String, account: String = "", status: String = "pending" }

=== ack.competing, seed.groups, seed.work-queue | each job goes to one worker of the group
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

=== surface.fair, seed.load | a poll hands out a fair part of what is there
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

=== surface.fair | whoever asks alone is always given something
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

=== surface.buffer, B16 | buffer is what one consumer may hold; nothing is dropped
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

=== surface.buffer, surface.fair | a full consumer leaves its part to the others
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

=== surface.in-flight | at most so many of a group at a time
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

=== B9, seed.groups | a claim is global: two groups over the same jobs share them, too
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

=== B33, surface.attempts | every group counts its own attempts
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

=== B39 | the member that holds a job says how long, how often, and where it goes
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

=== B39, B9 | different patterns in one group
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

=== seed.load, surface.leave, B11 | a consumer that goes in good order leaves its jobs to the others, and no attempt counts
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

=== surface.leave | cancelling is good order as well
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

=== surface.leave, surface.attempts | a consumer that is lost counts a failure for each of its jobs
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

=== surface.leave | what waits is for whoever comes
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

=== B31, E8004 | only who received a job may answer for it
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

=== seed.groups | in watch mode a group means nothing: all see all
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
