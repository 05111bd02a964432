-- How consumers begin, pause, change, go away and come back.

.ontology jobs
    node Job { name: String, status: String = "pending", n: Int = 0 }

=== seed.initial, B12 | full: an empty snapshot, then what is there; none: only what comes
.given jobs
> SPAWN a: Job { name = "old" }
> later = WATCH j: Job [mode: consume, initial: none] RETURN j.name
.told later
(nothing)
> SPAWN b: Job { name = "new" }
.told later
consumed "new" (position 1)
> all = WATCH j: Job [mode: consume, initial: full] RETURN j.name
.told all
initial (nothing)
consumed "old"

=== seed.initial | none: what was there is new when it stops matching and matches again
.given jobs
> SPAWN a: Job { name = "old" }
> later = WATCH j: Job WHERE j.status = "pending" [mode: consume, initial: none] RETURN j.name
> SET #a.name = "changed"
.told later
(nothing)
> SET #a.status = "waiting"
> SET #a.status = "pending"
.told later
consumed "changed"

=== seed.initial, E8009 | a reliable consumer takes what is there
.given jobs
> w = WATCH j: Job [mode: consume, delivery: reliable, initial: none] RETURN j.name
! E8009 full
> w = WATCH j: Job [mode: consume, delivery: reliable, on_full: drop] RETURN j.name
! E8009 on_full

=== B15 | a paused consumer claims nothing; what it holds stays its own
.given jobs
a> one = WATCH j: Job [mode: consume, group: "g", ack_timeout: 10s] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.told one, two
initial (nothing)
>> SPAWN x: Job { name = "x" }
   SPAWN y: Job { name = "y" }
.told one
consumed "x" (delivery d1)
a> PAUSE WATCH #one
>> SPAWN z: Job { name = "z" }
.told one
(nothing)
.told two
consumed "y"
consumed "z"
a> ACK #d1
deleted 1
> SPAWN v: Job { name = "v" }
.told one
(nothing)
a> RESUME WATCH #one
.told one
consumed "v"

=== B15, ack.timeout | a lease runs out also while its watch is paused
.given jobs
> SPAWN x: Job { name = "x" }
> one = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.told one
initial (nothing)
consumed "x" (delivery d1)
> PAUSE WATCH #one
.advance 10s
.errors one
E8003 {d1}
.told one
(nothing)
> RESUME WATCH #one
.told one
consumed "x" (attempt 2)

=== E8002, surface.leave | a cancelled consumer is over; its statements say so
.given jobs
> SPAWN x: Job { name = "x" }
> one = WATCH j: Job [mode: consume] RETURN j.name
.told one
initial (nothing)
consumed "x" (delivery d1)
> CANCEL WATCH #one
> CANCEL WATCH #one
> RESUME WATCH #one
! E8002
> PAUSE WATCH #one
! E8002
> ALTER WATCH #one SET [buffer: 5]
! E8002
> ACK #d1
! E8004
.told one
(nothing)
> MATCH w: _Watch RETURN w.status, w.mode
"cancelled" | "consume"

=== surface.alter, E8008 | what may be altered, and what may not
.given jobs
> one = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
> ALTER WATCH #one SET [mode: watch]
! E8008 Option 'mode' cannot be changed after watch creation
> ALTER WATCH #one SET [group: "h"]
! E8008 group
> ALTER WATCH #one SET [ordering: attribute(j.n)]
! E8008 ordering
> ALTER WATCH #one SET [ack_timeout: 5s]
! E8008 ack_timeout
> ALTER WATCH #one SET [max_redeliveries: 5]
! E8008 max_redeliveries
> ALTER WATCH #one SET [serialize_by: j.n]
! E8008 serialize_by
> ALTER WATCH #one SET [buffer: 0]
! E8009 positive integer

=== surface.alter | another filter: what does not pass any more is withdrawn, what does now is work
.given jobs
>> SPAWN a: Job { name = "a", n = 1 }
   SPAWN b: Job { name = "b", n = 2 }
   SPAWN c: Job { name = "c", n = 3 }
> one = WATCH j: Job [mode: consume, buffer: 1, filter: j.n < 3] RETURN j.name
.told one
initial (nothing)
consumed "a" (delivery d1)
> ALTER WATCH #one SET [filter: j.n > 2]
.errors one
WITHDRAWN {d1}
> ACK #d1
deleted 1
.told one
consumed "c" (delivery d2)
> ACK #d2
.told one
(nothing)
> MATCH j: Job RETURN j.name
"b"

=== seed.reliable, surface.attach | a reliable consumer that comes back in time keeps its deliveries, under the same ids
.given jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
bob> q = WATCH j: Job [mode: consume, delivery: reliable, ack_timeout: 30s, buffer: 1] RETURN j.name
.told q
initial (nothing)
consumed "a" (delivery d1, attempt 1)
.close bob
.advance 20s
.attach q by eve
.told q
consumed "a" (delivery d1, attempt 1)
.advance 20s
eve> ACK #d1
deleted 1
.told q
consumed "b"

=== surface.attach, ack.timeout | too late: the job is somebody else's by then
.given jobs
> SPAWN a: Job { name = "a" }
bob> q = WATCH j: Job [mode: consume, delivery: reliable, group: "g", ack_timeout: 30s] RETURN j.name
rival> r = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.told q
initial (nothing)
consumed "a" (delivery d1)
.told r
initial (nothing)
.close bob
.told r
(nothing)
.advance 30s
.told r
consumed "a" (attempt 2)
.attach q by eve
.errors q
E8003 {d1}
.told q
(nothing)
eve> ACK #d1
! E8004

=== surface.attach, surface.leave | while its owner is away, a reliable consumer claims nothing new
.given jobs
bob> q = WATCH j: Job [mode: consume, delivery: reliable, group: "g"] RETURN j.name
rival> r = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.told q, r
initial (nothing)
.close bob
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
.told r
consumed "a"
consumed "b"

=== seed.reliable, surface.restart, surface.attach | after a restart every job that was not acknowledged comes again, and no other
.given jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> q = WATCH j: Job [mode: consume, delivery: reliable] RETURN j.name
.told q first 3
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> ACK #d1
.reopen
.attach q
.told q
consumed "b" (delivery d3, attempt 1)
consumed "c" (delivery d4, attempt 1)
> ACK #d2
! E8004
> ACK #d3
> ACK #d4
.reopen
.attach q
.told q
(nothing)

=== surface.restart | a reliable consumer is what it was: its destination, its order, its pause
.define
    node Job { name: String, n: Int }
    node Dlq { name: String }
>> SPAWN dlq: Dlq { name = "dlq" }
   SPAWN a: Job { name = "a", n = 1 }
   SPAWN b: Job { name = "b", n = 2 }
> q = WATCH j: Job [mode: consume, delivery: reliable, buffer: 1, max_redeliveries: 0, ordering: attribute(j.n DESC), dead_letter: #dlq] RETURN j.name
.told q first 1
initial (nothing)
> PAUSE WATCH #q
.reopen
.attach q
.told q
(nothing)
.with {"q": "#q"}
> RESUME WATCH #$q
.told q
consumed "b" (delivery d1)
> NACK #d1
> MATCH _dead_letter_in(d, l) RETURN d.name, l.original_match
"dlq" | "{\"j.name\": \"b\"}"
.told q
consumed "a"

=== E8010, surface.attach | a consumer of somebody else cannot be taken up or managed
.define
    node User { name: String }
    node Job { name: String }
    policy all: ON * ALLOW IF operation() != "META SET"
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
.session ann as #ann
.session bob as #bob
ann> q = WATCH j: Job [mode: consume, delivery: reliable] RETURN j.name
.told q
initial (nothing)
.attach #q by bob
! E8010
.with {"q": "#q"}
bob> CANCEL WATCH #$q
! E8010
.with {"q": "#q"}
bob> REDRIVE WATCH #$q
! E8010

=== surface.attach, surface.leave | a best-effort consumer cannot be taken up again
.given jobs
bob> q = WATCH j: Job [mode: consume] RETURN j.name
.told q
initial (nothing)
.attach #q by eve
! E8010
.close bob
.attach #q by eve
! E8002
