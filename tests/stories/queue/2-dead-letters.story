-- Attempts, limits, dead letters, their destinations, and REDRIVE.

.ontology jobs
    node Job { name: String, status: String = "pending", n: Int = 0 }
    node Dlq { name: String }

=== ack.limits, queue.max-redeliveries, queue.dead-letters, ack.layer0 | an element becomes a dead letter after three redeliveries
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

=== queue.max-redeliveries, ack.limits | max_redeliveries: 0 dead-letters the first failure
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

=== ack.timeout, ack.limits, queue.attempts | failures and timeouts are counted separately and limited together
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

=== ack.no_retry, queue.no-retry, queue.cause | NACK [no_retry] dead-letters at once
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

=== queue.cause | a dead letter records the cause of the last failure
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

=== queue.dead-letters | dead_letter links letters to a destination
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

=== queue.dead-letters, E8007, ack.errors | a deleted destination parks the element and reports E8007
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

=== queue.dead-letters, E8007, queue.redrive | REDRIVE of a watch delivers parked elements again
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

=== queue.dead-letters, E8007 | an element that cannot be deleted is parked
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

=== queue.redrive, ack.layer0 | REDRIVE restores the element and its edges
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

=== queue.redrive, E8002 | REDRIVE of all dead letters of a watch
.reader pull
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
> REDRIVE WATCH #missing
! E8002
> REDRIVE #missing
! E3601 not found
> CANCEL WATCH #other
.events work
consumed "a" (attempt 1)
consumed "b" (attempt 1)

=== queue.redrive, queue.restart | dead letters survive their watch and a restart
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

=== queue.redrive | REDRIVE does not overwrite an existing element
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

=== queue.redrive | REDRIVE of an edge with a deleted target is rejected
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

=== queue.watching-dead-letters, ack.layer0 | dead letters can be watched
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

=== queue.attempts-per-group, queue.attempts | attempts are reset when the element stops matching
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

=== queue.attempts-per-group, queue.attempts, queue.restart | attempts and delays survive a restart, claims do not
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

=== queue.restart, E8007 | a parked element is still parked after a restart
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
