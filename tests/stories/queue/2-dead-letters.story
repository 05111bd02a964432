-- What cannot be consumed: attempts, limits, letters, destinations, and the way back.

.ontology jobs
    node Job { name: String, status: String = "pending", n: Int = 0 }
    node Dlq { name: String }

=== ack.limits, B6, B7, ack.layer0 | one delivery and three more, then a dead letter
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume, max_redeliveries: 3] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1, attempt 1)
> NACK #d1
.events work
consumed "a" (delivery d2, attempt 2)
> NACK #d2
.events work
consumed "a" (delivery d3, attempt 3)
> NACK #d3
.events work
consumed "a" (delivery d4, attempt 4)
> NACK #d4
.events work
(nothing)
> MATCH j: Job RETURN COUNT(*)
0
> MATCH l: _DeadLetter, _watch_dead_letter(w, l)
  RETURN w.name, l.original_match, l.failure_reason, l.delivery_attempts, l.created_at
"work" | "{\"j.name\": \"a\"}" | "max_redeliveries_exceeded" | 4 | @2024-01-01T00:00:00.000Z
> NACK #d4
! E8004

=== B6, ack.limits | without redeliveries the first failure is the last
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, max_redeliveries: 0] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1
.events work
(nothing)
> MATCH l: _DeadLetter RETURN l.failure_reason, l.delivery_attempts
"max_redeliveries_exceeded" | 1

=== ack.timeout, ack.limits, surface.attempts | failures and timeouts are counted apart, and limited together
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, max_redeliveries: 2, ack_timeout: 10s] RETURN j.name
.events work
initial (nothing)
consumed "a"
.advance 10s
.events work
consumed "a" (delivery d2, attempt 2)
> NACK #d2
.events work
consumed "a" (attempt 3)
.advance 10s
.events work
(nothing)
> MATCH l: _DeadLetter RETURN l.failures, l.timeouts, l.delivery_attempts, l.failure_reason, l.cause
1 | 2 | 3 | "max_redeliveries_exceeded" | "ack_timeout"
.errors work
E8003 within 10s
E8003 within 10s

=== ack.no_retry, B8, surface.cause | nobody shall try it again
.use jobs
> SPAWN a: Job { name = "a", n = 7 }
> work = WATCH j: Job [mode: consume] RETURN j.name, j
.events work
initial (nothing)
consumed "a" | Job #a {name: "a", status: "pending", n: 7} (delivery d1)
> NACK #d1
.events work
consumed "a" | Job #a {name: "a", status: "pending", n: 7} (delivery d2, attempt 2)
> NACK #d2 [no_retry, cause: "the address does not exist"]
.events work
(nothing)
> MATCH l: _DeadLetter RETURN l.failure_reason, l.delivery_attempts, l.failures, l.timeouts, l.cause, l.element
"no_retry" | 2 | 2 | 0 | "the address does not exist" | #a
> MATCH l: _DeadLetter WHERE l.original_match CONTAINS "\"n\": 7" RETURN COUNT(*)
1

=== surface.cause | the last failure says why, also of what was tried too often
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [cause: "once"]
.events work
consumed "a" (delivery d2)
.params {"why": "twice"}
> NACK #d2 [cause: $why]
> MATCH l: _DeadLetter RETURN l.cause
"twice"

=== B7 | letters are kept where the watch says
.use jobs
>> SPAWN dlq: Dlq { name = "failed" }
   SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, max_redeliveries: 0, dead_letter: #dlq] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1
> MATCH d: Dlq, _dead_letter_in(d, l) RETURN d.name, l.original_match
"failed" | "{\"j.name\": \"a\"}"

=== B7, E8007, ack.errors | a destination that is gone loses nothing: the job is kept, parked, and said so
.use jobs
>> SPAWN dlq: Dlq { name = "failed" }
   SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, max_redeliveries: 0, dead_letter: #dlq] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> MATCH d: Dlq RETURN d.id
.name destination
> KILL #dlq
> NACK #d1 [no_retry]
warning: Dead letter failed: could not move delivery '{d1}' to '{destination}' - the destination does not exist
.errors work
E8007 Dead letter failed: could not move delivery '{d1}' to '{destination}' - the destination does not exist
.events work
(nothing)
> MATCH j: Job RETURN j.name
"a"
> MATCH l: _DeadLetter RETURN COUNT(*)
0
> ACK #d1
! E8004
.advance 1h
.events work
(nothing)

=== B7, E8007, surface.redrive | what is parked is handed out again when the watch is redriven
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, max_redeliveries: 0, dead_letter: #nowhere] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1
warning: Dead letter failed
.errors work
E8007
.events work
(nothing)
> REDRIVE WATCH #work
.events work
consumed "a" (delivery d2, attempt 1)
> ACK #d2
> MATCH j: Job RETURN COUNT(*)
0

=== B7, E8007 | a job that cannot be deleted cannot be moved either
.define
    node Job { name: String }
    node Report { name: String }
    edge about(report: Report, job: Job) [on_kill_target: prevent]
>> SPAWN a: Job { name = "a" }
   SPAWN r: Report { name = "r" }
   LINK about(#r, #a)
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry]
warning: Dead letter failed
.errors work
E8007
> MATCH j: Job RETURN j.name
"a"
.events work
(nothing)
> KILL #r
> REDRIVE WATCH #work
.events work
consumed "a" (delivery d2)
> NACK #d2 [no_retry]
> MATCH l: _DeadLetter RETURN l.delivery_attempts
1

=== surface.redrive, ack.layer0 | a letter is sent back: the job is there again, with all that hung on it
.define
    node Job { name: String, n: Int }
    node Person { name: String }
    edge for_person(job: Job, person: Person) { since: Int = 3 }
>> SPAWN ann: Person { name = "Ann" }
   SPAWN a: Job { name = "a", n = 5 }
   LINK for_person(#a, #ann)
> work = WATCH j: Job [mode: consume, max_redeliveries: 0] RETURN j
.events work
initial (nothing)
consumed Job #a {name: "a", n: 5} (delivery d1)
> NACK #d1
> MATCH l: _DeadLetter RETURN l.id
.name letter
> REDRIVE #letter
created 1, linked 1
> MATCH for_person(j, p) AS e RETURN j, p.name, e.since
Job #a {name: "a", n: 5} | "Ann" | 3
> MATCH l: _DeadLetter RETURN COUNT(*)
0
.events work
consumed Job #a {name: "a", n: 5} (delivery d2, attempt 1)
> REDRIVE #letter
! E3601 was not found

=== surface.redrive, E8002 | all letters of a watch
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> work = WATCH j: Job [mode: consume] RETURN j.name
> other = WATCH j: Job [mode: consume] RETURN j.name
.events work limit 3
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
.events other
initial (nothing)
consumed "c" (delivery d3)
> NACK #d1 [no_retry]
> NACK #d2 [no_retry]
> NACK #d3 [no_retry]
> MATCH l: _DeadLetter RETURN COUNT(*)
3
> REDRIVE WATCH #work
created 2
> MATCH l: _DeadLetter, _watch_dead_letter(w, l) RETURN w.name
"other"
> REDRIVE WATCH #nobody
! E8002
> REDRIVE #nobody
! E3601 not found
> CANCEL WATCH #other
.events work
consumed "a" (attempt 1)
consumed "b" (attempt 1)

=== surface.redrive, surface.restart | letters outlive their watch and the process, and can be sent back then
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry, cause: "broken"]
.restart
> MATCH l: _DeadLetter, _watch_dead_letter(w, l) RETURN l.cause, w.status, w.mode
"broken" | "cancelled" | "consume"
> MATCH l: _DeadLetter RETURN l.id
.name letter
> REDRIVE #letter
created 1
.restart
> MATCH l: _DeadLetter RETURN COUNT(*)
0
> MATCH j: Job RETURN j.name
"a"
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (attempt 1)

=== surface.redrive | what is there again is not written over
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry]
> MATCH l: _DeadLetter RETURN l.id
.name letter
> REDRIVE #letter
.events work
consumed "a" (delivery d2)
> REDRIVE #letter
! E3601
> ACK #d2

=== surface.redrive | an edge that joined what is gone cannot be sent back
.define
    node User { name: String }
    edge invited(by: User, whom: User)
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
   LINK invited(#ann, #bob)
> work = WATCH invited(a, b) [mode: consume] RETURN a.name, b.name
.events work
initial (nothing)
consumed "Ann" | "Bob" (delivery d1)
> NACK #d1 [no_retry]
> MATCH l: _DeadLetter RETURN l.id
.name letter
> KILL #bob
> REDRIVE #letter
! E3601 was deleted
> MATCH l: _DeadLetter RETURN COUNT(*)
1

=== B40, ack.layer0 | dead letters can be watched
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
> alarm = WATCH l: _DeadLetter RETURN l.failure_reason, l.cause
> dead = WATCH l: _DeadLetter, _watch_dead_letter(#work, l) RETURN COUNT(*)
.events alarm
initial (nothing)
.events dead
initial
  0
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry, cause: "broken"]
.events alarm
added "no_retry" | "broken"
.events dead
changed 0 -> 1
> REDRIVE WATCH #work
.events alarm
removed "no_retry" | "broken"
.events dead
changed 1 -> 0
.events work
consumed "a"

=== B33, surface.attempts | attempts are forgotten when the job stops matching
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job WHERE j.status = "pending" [mode: consume, max_redeliveries: 1] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1
.events work
consumed "a" (delivery d2, attempt 2)
> SET #a.status = "later"
.errors work
WITHDRAWN {d2}
> NACK #d2
> SET #a.status = "pending"
.events work
consumed "a" (delivery d3, attempt 1)
> ACK #d3

=== B33, surface.attempts, surface.restart | attempts and delays survive a restart, claims do not and count no attempt
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> work = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
consumed "c" (delivery d3)
> NACK #d1
> NACK #d2 [delay: 1h]
.restart
> work = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d4, attempt 2)
consumed "c" (delivery d5, attempt 1)
> ACK #d3
! E8004
> NACK #d4
> MATCH l: _DeadLetter RETURN l.delivery_attempts
2
> ACK #d5
.advance 1h
.events work
consumed "b" (delivery d6, attempt 2)

=== surface.restart, E8007 | parked is still parked after a restart
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, dead_letter: #nowhere] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> NACK #d1 [no_retry]
.errors work
E8007
.restart
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
> REDRIVE WATCH #work
.events work
consumed "a" (attempt 1)
