-- Order of delivery: arrival, attributes, keys.

.ontology jobs
    node Job { name: String, priority: Int?, at: Int = 0, account: String? }

=== queue.ordering, queue.requeue-order | the default order is the order of arrival
.reader pull
.use jobs
> work = WATCH j: Job [mode: consume, ordering: arrival] RETURN j.name
> same = WATCH j: Job [mode: consume, ordering: causal] RETURN j.name
.events work, same
initial (nothing)
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
   SPAWN d: Job { name = "d" }
.events work limit 2
consumed "a" (delivery d1)
consumed "b"
> SET #c.name = "c, changed"
.events same
consumed "c, changed"
consumed "d"
> NACK #d1
.events work
consumed "a" (attempt 2)

=== queue.ordering | attribute order is a strict priority over all waiting elements
.use jobs
>> SPAWN a: Job { name = "low", priority = 1 }
   SPAWN b: Job { name = "high, later", priority = 9, at = 2 }
   SPAWN c: Job { name = "high, first", priority = 9, at = 1 }
   SPAWN d: Job { name = "unknown" }
   SPAWN e: Job { name = "middle", priority = 5 }
> work = WATCH j: Job [mode: consume, buffer: 1, ordering: attribute(j.priority DESC, j.at ASC)] RETURN j.name
.events work
initial (nothing)
consumed "unknown" (delivery d1)
> ACK #d1
.events work
consumed "high, first" (delivery d2)
> SPAWN f: Job { name = "highest", priority = 10 }
> ACK #d2
.events work
consumed "highest" (delivery d3)
> ACK #d3
.events work
consumed "high, later" (delivery d4)
> ACK #d4
.events work
consumed "middle" (delivery d5)
> ACK #d5
.events work
consumed "low" (delivery d6)
> ACK #d6
.events work
(nothing)

=== queue.ordering | ascending attribute order puts nulls last and keeps arrival order among ties
.use jobs
>> SPAWN a: Job { name = "none" }
   SPAWN b: Job { name = "two", priority = 2 }
   SPAWN c: Job { name = "two again", priority = 2 }
   SPAWN d: Job { name = "one", priority = 1 }
   SPAWN e: Job { name = "none again" }
> work = WATCH j: Job [mode: consume, ordering: attribute(j.priority)] RETURN j.name
.events work
initial (nothing)
consumed "one"
consumed "two"
consumed "two again"
consumed "none"
consumed "none again"

=== queue.ordering | attribute order by three keys of different types
.define node Job { name: String, queue: String, due: Timestamp?, n: Float }
>> SPAWN a: Job { name = "1", queue = "b", due = @2024-01-02T00:00:00Z, n = 1.5 }
   SPAWN b: Job { name = "2", queue = "a", due = @2024-01-02T00:00:00Z, n = -1.0 }
   SPAWN c: Job { name = "3", queue = "b", due = @2024-01-01T00:00:00Z, n = 1.5 }
   SPAWN d: Job { name = "4", queue = "b", due = @2024-01-02T00:00:00Z, n = 2.5 }
   SPAWN e: Job { name = "5", queue = "b", n = 0.0 }
> work = WATCH j: Job [mode: consume, ordering: attribute(j.queue DESC, j.due ASC, j.n DESC)] RETURN j.name
.events work
initial (nothing)
consumed "3"
consumed "4"
consumed "1"
consumed "5"
consumed "2"

=== queue.ordering, queue.requeue-order | priority is kept across redelivery
.use jobs
>> SPAWN a: Job { name = "low", priority = 1 }
   SPAWN b: Job { name = "high", priority = 9 }
   SPAWN c: Job { name = "middle", priority = 5 }
> work = WATCH j: Job [mode: consume, buffer: 1, ordering: attribute(j.priority DESC)] RETURN j.name
.events work
initial (nothing)
consumed "high" (delivery d1)
> NACK #d1
.events work
consumed "high" (delivery d2, attempt 2)
> NACK #d2 [delay: 5s]
.events work
consumed "middle" (delivery d3)
.advance 5s
> ACK #d3
.events work
consumed "high" (delivery d4, attempt 3)
> ACK #d4
.events work
consumed "low"

=== queue.ordering | a changed priority takes effect at once
.use jobs
>> SPAWN a: Job { name = "a", priority = 1 }
   SPAWN b: Job { name = "b", priority = 2 }
   SPAWN c: Job { name = "c", priority = 3 }
> work = WATCH j: Job [mode: consume, buffer: 1, ordering: attribute(j.priority DESC)] RETURN j.name
.events work
initial (nothing)
consumed "c" (delivery d1)
> SET #a.priority = 7
> SET #c.priority = 0
> NACK #d1
.events work
consumed "a" (delivery d2)
> ACK #d2
.events work
consumed "b" (delivery d3)
> ACK #d3
.events work
consumed "c" (attempt 2)

=== queue.ordering | the order may depend on other elements of the match
.reader pull
.define
    node Job { name: String }
    node Customer { name: String, rank: Int }
    edge placed_by(job: Job, customer: Customer)
>> SPAWN gold: Customer { name = "gold", rank = 1 }
   SPAWN iron: Customer { name = "iron", rank = 3 }
   SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   LINK placed_by(#a, #iron)
   LINK placed_by(#b, #gold)
> work = WATCH j: Job, placed_by(j, c), c: Customer [mode: consume, buffer: 1, ordering: attribute(c.rank)] RETURN j.name, c.name
.events work
initial (nothing)
consumed "b" | "gold" (delivery d1)
> NACK #d1
> SET #iron.rank = 0
.events work
consumed "a" | "iron" (delivery d2)
> ACK #d2
.events work
consumed "b" | "gold"

=== queue.total-order | buffer: 1 gives a total order
.define node Event { n: Int, at: Int }
>> SPAWN a: Event { n = 1, at = 10 }
   SPAWN b: Event { n = 2, at = 20 }
> one = WATCH e: Event [mode: consume, buffer: 1, ordering: attribute(e.at)] RETURN e.n
.events one
initial (nothing)
consumed 1 (delivery d1)
> SPAWN c: Event { n = 3, at = 15 }
.events one
(nothing)
> NACK #d1
.events one
consumed 1 (delivery d2)
> ACK #d2
.events one
consumed 3 (delivery d3)
> ACK #d3
.events one
consumed 2 (delivery d4)
> ACK #d4

=== queue.total-order, queue.in-flight | max_in_flight: 1 gives a total order with a standby consumer
.reader pull
.define node Event { n: Int }
a> one = WATCH e: Event [mode: consume, group: "log", max_in_flight: 1] RETURN e.n
b> two = WATCH e: Event [mode: consume, group: "log", max_in_flight: 1] RETURN e.n
.events one, two
initial (nothing)
>> SPAWN x: Event { n = 1 }
   SPAWN y: Event { n = 2 }
   SPAWN z: Event { n = 3 }
.events one
consumed 1 (delivery d1)
.events two
(nothing)
a> ACK #d1
.events two
consumed 2
.events one
(nothing)
.close b
.events one
consumed 2 (delivery d2, attempt 1)
a> ACK #d2
.events one
consumed 3

=== queue.serialize-by | serialize_by delivers one element per key at a time
.use jobs
>> SPAWN a1: Job { name = "a1", account = "a" }
   SPAWN a2: Job { name = "a2", account = "a" }
   SPAWN b1: Job { name = "b1", account = "b" }
   SPAWN a3: Job { name = "a3", account = "a" }
   SPAWN b2: Job { name = "b2", account = "b" }
> work = WATCH j: Job [mode: consume, serialize_by: j.account] RETURN j.name
.events work
initial (nothing)
consumed "a1" (delivery a1)
consumed "b1" (delivery b1)
> ACK #b1
.events work
consumed "b2" (delivery b2)
> NACK #a1
.events work
consumed "a1" (delivery a1_again, attempt 2)
> ACK #a1_again
.events work
consumed "a2" (delivery a2)
> ACK #a2
.events work
consumed "a3"

=== queue.serialize-by, queue.delay | a delayed element blocks later elements of its key
.use jobs
>> SPAWN a1: Job { name = "a1", account = "a" }
   SPAWN a2: Job { name = "a2", account = "a" }
   SPAWN b1: Job { name = "b1", account = "b" }
> work = WATCH j: Job [mode: consume, serialize_by: j.account] RETURN j.name
.events work
initial (nothing)
consumed "a1" (delivery d1)
consumed "b1"
> NACK #d1 [delay: 10s]
.events work
(nothing)
.advance 10s
.events work
consumed "a1" (delivery d2, attempt 2)
> NACK #d2 [no_retry]
.events work
consumed "a2"

=== queue.serialize-by | serialize_by keeps the order per key across a group
.reader pull
.use jobs
a> one = WATCH j: Job [mode: consume, group: "g", serialize_by: j.account, ordering: attribute(j.at)] RETURN j.name
b> two = WATCH j: Job [mode: consume, group: "g", serialize_by: j.account, ordering: attribute(j.at)] RETURN j.name
.events one, two
initial (nothing)
>> SPAWN x3: Job { name = "x3", account = "x", at = 3 }
   SPAWN x1: Job { name = "x1", account = "x", at = 1 }
   SPAWN y2: Job { name = "y2", account = "y", at = 2 }
.events one
consumed "x1" (delivery d1)
consumed "y2"
.events two
(nothing)
> SPAWN x2: Job { name = "x2", account = "x", at = 2 }
a> ACK #d1
.events two
consumed "x2" (delivery d2)
.events one
(nothing)
b> ACK #d2
.events one
consumed "x3"

=== queue.serialize-by | null is a key like any other
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c", account = "c" }
> work = WATCH j: Job [mode: consume, serialize_by: j.account] RETURN j.name
.events work
initial (nothing)
consumed "a"
consumed "c"

=== queue.serialize-by | an element that changes its key moves to the other key
.use jobs
>> SPAWN a1: Job { name = "a1", account = "a" }
   SPAWN a2: Job { name = "a2", account = "a" }
> work = WATCH j: Job [mode: consume, serialize_by: j.account] RETURN j.name
.events work
initial (nothing)
consumed "a1"
> SET #a2.account = "b"
.events work
consumed "a2"
