-- ACK and other writes in one transaction.

.ontology jobs
    node Job { name: String, status: String = "pending" }
    node Done { name: String [unique] }

=== queue.ack-in-transaction | the result and the ACK commit together
.use jobs
> SPAWN a: Job { name = "a" }
> all = WATCH j: Job RETURN j.name
> done = WATCH d: Done RETURN d.name
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.events all
initial
  "a"
.events done
initial (nothing)
> BEGIN
> SPAWN r: Done { name = "a" }
> ACK #d1
deleted 1
> MATCH j: Job RETURN COUNT(*)
0
eve> MATCH j: Job RETURN COUNT(*)
1
.events all
(nothing)
> COMMIT
.events all
removed "a"
.events done
added "a"
> ACK #d1
! E8004

=== queue.ack-in-transaction | a rollback restores the delivery, which can be acknowledged again
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> BEGIN
> SPAWN r: Done { name = "a" }
> ACK #d1
> ACK #d1
! E8004
> ROLLBACK
> MATCH d: Done RETURN COUNT(*)
0
.events work
(nothing)
> ACK #d1
deleted 1
> MATCH j: Job RETURN COUNT(*)
0

=== queue.ack-in-transaction | ROLLBACK TO restores only later acknowledgements
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> BEGIN
> ACK #d1
> SAVEPOINT half
> ACK #d2
> ROLLBACK TO half
> MATCH j: Job RETURN j.name
"b"
> COMMIT
> MATCH j: Job RETURN j.name
"b"
> ACK #d1
! E8004
> NACK #d2
.events work
consumed "b" (delivery d3, attempt 2)

=== queue.ack-in-transaction, queue.late-ack | a timeout during the transaction rejects the COMMIT
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> BEGIN
> SPAWN r: Done { name = "a" }
> ACK #d1
.advance 10s
.errors work
E8003 {d1}
> COMMIT
! E8004 {d1}
> MATCH d: Done RETURN COUNT(*)
0
> MATCH j: Job RETURN COUNT(*)
1
.events work
consumed "a" (attempt 2)

=== queue.ack-in-transaction | a prevented deletion leaves the delivery open
.define
    node Job { name: String }
    node Report { name: String }
    edge about(report: Report, job: Job) [on_kill_target: prevent]
>> SPAWN a: Job { name = "a" }
   SPAWN r: Report { name = "r" }
   LINK about(#r, #a)
> work = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> ACK #d1
! E3302 about
.events work
(nothing)
.advance 9s
> KILL #r
> ACK #d1
deleted 1

=== queue.ack-in-transaction, ack.timeout | the lease continues after a rejected ACK
.define
    node Job { name: String }
    node Tally { n: Int }
    constraint one_left: t: Tally => EXISTS(j: Job)
>> BEGIN
   SPAWN a: Job { name = "a" }
   SPAWN t: Tally { n = 1 }
   COMMIT
> work = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
.advance 5s
> ACK #d1
! E3001 one_left
> MATCH j: Job RETURN COUNT(*)
1
.advance 5s
.errors work
E8003 {d1}
.events work
consumed "a" (attempt 2)

=== queue.ack-in-transaction | a failing ACK aborts its transaction and keeps the delivery
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
> BEGIN
> ACK #d1
! E3302 about
> COMMIT
! E5005
> KILL #r
> ACK #d1
deleted 1

=== queue.not-transactional | NACK and EXTEND take effect at once and are not rolled back
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> BEGIN
> NACK #d1
.events work
consumed "a" (delivery d2, attempt 2)
> ROLLBACK
> ACK #d1
! E8004
> ACK #d2

=== queue.ack-in-transaction | an ACK conflicts with a concurrent change of the element
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> BEGIN
> ACK #d1
eve> MATCH j: Job SET j.status = "changed"
> COMMIT
! E5002
> MATCH j: Job RETURN j.status
"changed"
> ACK #d1
deleted 1

=== queue.ack-in-transaction, queue.leave | a session that ends with an uncommitted ACK requeues the element
.use jobs
> SPAWN x: Job { name = "x" }
a> one = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events one
initial (nothing)
consumed "x" (delivery d1)
.events two
initial (nothing)
a> BEGIN
a> ACK #d1
.close a
.events two
consumed "x" (attempt 1)
> MATCH j: Job RETURN COUNT(*)
1

=== queue.ack-in-transaction, ack.ack | ACK and the creation of the next element in one commit
.define node Step { n: Int }
> SPAWN s: Step { n = 1 }
> work = WATCH s: Step [mode: consume] RETURN s.n
.events work
initial (nothing)
consumed 1 (delivery d1)
> BEGIN
> SPAWN t: Step { n = 2 }
> ACK #d1
> COMMIT
.events work
consumed 2 (delivery d2)
> ACK #d2
> MATCH s: Step RETURN COUNT(*)
0
