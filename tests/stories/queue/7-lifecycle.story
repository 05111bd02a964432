-- Life cycle of a consumer: create, pause, alter, detach, attach.

.ontology jobs
    node Job { name: String, status: String = "pending", n: Int = 0 }

=== queue.initial, queue.snapshot | initial: full delivers existing elements, none only new ones
.use jobs
> SPAWN a: Job { name = "old" }
> later = WATCH j: Job [mode: consume, initial: none] RETURN j.name
.events later
(nothing)
> SPAWN b: Job { name = "new" }
.events later
consumed "new" (position 1)
> all = WATCH j: Job [mode: consume, initial: full] RETURN j.name
.events all
initial (nothing)
consumed "old"

=== queue.initial | initial: none delivers an existing element that matches again
.use jobs
> SPAWN a: Job { name = "old" }
> later = WATCH j: Job WHERE j.status = "pending" [mode: consume, initial: none] RETURN j.name
> SET #a.name = "changed"
.events later
(nothing)
> SET #a.status = "waiting"
> SET #a.status = "pending"
.events later
consumed "changed"

=== queue.initial, E8009 | a reliable consumer needs initial: full
.use jobs
> w = WATCH j: Job [mode: consume, delivery: reliable, initial: none] RETURN j.name
! E8009 full
> w = WATCH j: Job [mode: consume, delivery: reliable, on_full: drop] RETURN j.name
! E8009 on_full

=== queue.paused | a paused consumer claims nothing and keeps its deliveries
.reader pull
.use jobs
a> one = WATCH j: Job [mode: consume, group: "g", ack_timeout: 10s] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events one, two
initial (nothing)
>> SPAWN x: Job { name = "x" }
   SPAWN y: Job { name = "y" }
.events one
consumed "x" (delivery d1)
a> PAUSE WATCH #one
>> SPAWN z: Job { name = "z" }
.events one
(nothing)
.events two
consumed "y"
consumed "z"
a> ACK #d1
deleted 1
> SPAWN v: Job { name = "v" }
.events one
(nothing)
a> RESUME WATCH #one
.events one
consumed "v"

=== queue.paused, ack.timeout | leases expire while the consumer is paused
.use jobs
> SPAWN x: Job { name = "x" }
> one = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.events one
initial (nothing)
consumed "x" (delivery d1)
> PAUSE WATCH #one
.advance 10s
.errors one
E8003 {d1}
.events one
(nothing)
> RESUME WATCH #one
.events one
consumed "x" (attempt 2)

=== E8002, queue.leave | a cancelled consumer rejects further statements
.use jobs
> SPAWN x: Job { name = "x" }
> one = WATCH j: Job [mode: consume] RETURN j.name
.events one
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
.events one
(nothing)
> MATCH w: _Watch RETURN w.status, w.mode
"cancelled" | "consume"

=== queue.alter, E8008 | options of a consumer that may be altered
.use jobs
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

=== queue.alter | an altered filter withdraws and adds elements
.use jobs
>> SPAWN a: Job { name = "a", n = 1 }
   SPAWN b: Job { name = "b", n = 2 }
   SPAWN c: Job { name = "c", n = 3 }
> one = WATCH j: Job [mode: consume, buffer: 1, filter: j.n < 3] RETURN j.name
.events one
initial (nothing)
consumed "a" (delivery d1)
> ALTER WATCH #one SET [filter: j.n > 2]
.errors one
WITHDRAWN {d1}
> ACK #d1
deleted 1
.events one
consumed "c" (delivery d2)
> ACK #d2
.events one
(nothing)
> MATCH j: Job RETURN j.name
"b"

=== queue.reliable, queue.attach | a reliable consumer that reattaches in time keeps its delivery ids
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
bob> q = WATCH j: Job [mode: consume, delivery: reliable, ack_timeout: 30s, buffer: 1] RETURN j.name
.events q
initial (nothing)
consumed "a" (delivery d1, attempt 1)
.close bob
.advance 20s
.attach q by eve
.events q
consumed "a" (delivery d1, attempt 1)
.advance 20s
eve> ACK #d1
deleted 1
.events q
consumed "b"

=== queue.attach, ack.timeout | a consumer that reattaches too late has lost its deliveries
.use jobs
> SPAWN a: Job { name = "a" }
bob> q = WATCH j: Job [mode: consume, delivery: reliable, group: "g", ack_timeout: 30s] RETURN j.name
rival> r = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events q
initial (nothing)
consumed "a" (delivery d1)
.events r
initial (nothing)
.close bob
.events r
(nothing)
.advance 30s
.events r
consumed "a" (attempt 2)
.attach q by eve
.errors q
E8003 {d1}
.events q
(nothing)
eve> ACK #d1
! E8004

=== queue.attach, queue.leave | a detached reliable consumer claims nothing
.use jobs
bob> q = WATCH j: Job [mode: consume, delivery: reliable, group: "g"] RETURN j.name
rival> r = WATCH j: Job [mode: consume, group: "g"] RETURN j.name
.events q, r
initial (nothing)
.close bob
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
.events r
consumed "a"
consumed "b"

=== queue.reliable, queue.restart, queue.attach | after a restart exactly the unacknowledged elements are delivered again
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> q = WATCH j: Job [mode: consume, delivery: reliable] RETURN j.name
.events q limit 3
initial (nothing)
consumed "a" (delivery d1)
consumed "b" (delivery d2)
> ACK #d1
.restart
.attach q
.events q
consumed "b" (delivery d3, attempt 1)
consumed "c" (delivery d4, attempt 1)
> ACK #d2
! E8004
> ACK #d3
> ACK #d4
.restart
.attach q
.events q
(nothing)

=== queue.restart | a reliable consumer keeps its options and pause after a restart
.define
    node Job { name: String, n: Int }
    node Dlq { name: String }
>> SPAWN dlq: Dlq { name = "dlq" }
   SPAWN a: Job { name = "a", n = 1 }
   SPAWN b: Job { name = "b", n = 2 }
> q = WATCH j: Job [mode: consume, delivery: reliable, buffer: 1, max_redeliveries: 0, ordering: attribute(j.n DESC), dead_letter: #dlq] RETURN j.name
.events q limit 1
initial (nothing)
> PAUSE WATCH #q
.restart
.attach q
.events q
(nothing)
.params {"q": "#q"}
> RESUME WATCH #$q
.events q
consumed "b" (delivery d1)
> NACK #d1
> MATCH _dead_letter_in(d, l) RETURN d.name, l.original_match
"dlq" | "{\"j.name\": \"b\"}"
.events q
consumed "a"

=== E8010, queue.attach | another actor cannot attach to or manage a consumer
.define
    node User { name: String }
    node Job { name: String }
    policy all: ON * ALLOW IF operation() != "META SET"
>> SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
.session ann as #ann
.session bob as #bob
ann> q = WATCH j: Job [mode: consume, delivery: reliable] RETURN j.name
.events q
initial (nothing)
.attach #q by bob
! E8010
.params {"q": "#q"}
bob> CANCEL WATCH #$q
! E8010
.params {"q": "#q"}
bob> REDRIVE WATCH #$q
! E8010

=== queue.attach, queue.leave | a best-effort consumer cannot be attached again
.use jobs
bob> q = WATCH j: Job [mode: consume] RETURN j.name
.events q
initial (nothing)
.attach #q by eve
! E8010
.close bob
.attach #q by eve
! E8002
