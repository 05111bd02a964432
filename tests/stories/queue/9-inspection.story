-- Consumers as nodes, and EXPLAIN of consumers.

.ontology jobs
    node Job { name: String, status: String = "pending", priority: Int = 0, account: String = "" }

=== queue.counters, ack.layer0 | counters count deliveries, redeliveries and waiting elements
.reader pull
.use jobs
>> SPAWN a: Job { name = "a" }
   SPAWN b: Job { name = "b" }
   SPAWN c: Job { name = "c" }
> work = WATCH j: Job [mode: consume, group: "g", buffer: 2] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
consumed "b"
> MATCH w: _Watch RETURN w.mode, w.group, w.buffer_size, w.events_delivered, w.events_pending, w.last_event_at
"consume" | "g" | 2 | 3 | 1 | @2024-01-01T00:00:00.000Z
.advance 5s
> NACK #d1
> MATCH w: _Watch RETURN w.events_delivered, w.events_pending
3 | 2
.events work
consumed "a" (attempt 2)
> MATCH w: _Watch RETURN w.events_delivered, w.events_pending, w.last_event_at
4 | 1 | @2024-01-01T00:00:05.000Z

=== ack.layer0 | deliveries are events of their watch, with their ids
.use jobs
> SPAWN a: Job { name = "a" }
> work = WATCH j: Job [mode: consume] RETURN j.name
.events work
initial (nothing)
consumed "a" (delivery d1)
> MATCH _watch_event(w, v) AS e RETURN e.position, v.event_type, v.delivery_id ORDER BY e.position
1 | "initial" | null
2 | "consumed" | #d1

=== queue.explain | EXPLAIN shows the guarantees of a consumer
.use jobs
> EXPLAIN WATCH j: Job WHERE j.status = "pending" [mode: consume] RETURN j.name
columns: aspect | value
"host" | "engine, at commit"
"mode" | "incremental: each match that is added, removed or changed updates the queue"
"concerned by" | "Job"
"key columns" | "j.status = ?1"
"range" | "none"
"residual" | "none"
"cost per change" | "the changed element alone, then the watches under its key"
"ordering" | "arrival: the oldest first, also after a redelivery"
"claim" | "j: one holder at a time, over all consume watches; ACK kills it"
"group" | "none: the only consumer of its queue"
"in hand" | "at most 1000 for this watch"
"lease" | "30s, then it counts as failed; EXTEND renews it"
"attempts" | "at most 4 deliveries, then a dead letter"
"delivery" | "at least once, acknowledged once; attempts, delays and dead letters survive a restart; its deliveries are released when its session ends"
"visibility" | "committed, delivered on commit"

=== queue.explain | EXPLAIN of a consumer with all options
.use jobs
> SPAWN dlq: Job { name = "dlq", status = "n/a" }
> EXPLAIN WATCH j: Job WHERE j.status = "pending"
    [mode: consume, group: "g", ordering: attribute(j.priority DESC), serialize_by: j.account, max_in_flight: 5, buffer: 2,
     ack_timeout: 90s, max_redeliveries: 0, dead_letter: #dlq, delivery: reliable]
  RETURN j.name
"host" | "engine, at commit"
"mode" | "incremental: each match that is added, removed or changed updates the queue"
"concerned by" | "Job"
"key columns" | "j.status = ?1"
"range" | "none"
"residual" | "none"
"cost per change" | "the changed element alone, then the watches under its key"
"ordering" | "attribute: strict priority over all queued elements by their current values; ties by arrival"
"serialized by" | "j.account: one at a time of each value, in order"
"claim" | "j: one holder at a time, over all consume watches; ACK kills it"
"group" | "g: each element goes to one consumer, in fair shares"
"in hand" | "at most 2 for this watch, 5 for its group"
"lease" | "90s, then it counts as failed; EXTEND renews it"
"attempts" | "at most 1 delivery, then a dead letter, in the destination"
"delivery" | "at least once, acknowledged once; attempts, delays and dead letters survive a restart; so does the watch; attaching within the lease keeps its deliveries"
"visibility" | "committed, delivered on commit"

=== queue.explain, E8009 | EXPLAIN rejects what WATCH rejects
.use jobs
> EXPLAIN WATCH j: Job [mode: consume] RETURN COUNT(*)
! E8009
> EXPLAIN WATCH j: Job [mode: consume, window: tumbling(5s)] RETURN j
! E8009

=== queue.claim-at-delivery | an element is claimed when it is delivered
.reader pull
.use jobs
> SPAWN a: Job { name = "a" }
> slow = WATCH j: Job [mode: consume, ack_timeout: 10s] RETURN j.name
.advance 1h
> quick = WATCH j: Job [mode: consume] RETURN j.name
.events quick
initial (nothing)
consumed "a" (delivery d1)
.errors slow
(nothing)
> MATCH w: _Watch WHERE w.name = "slow" RETURN w.events_pending
1

=== queue.explain, queue.ack-deletes | EXPLAIN of a consumer of edges
.define
    node User { name: String }
    edge invited(by: User, whom: User)
> EXPLAIN WATCH invited(a, b) [mode: consume, group: "g", deliver_on: tick, max_redeliveries: 1] RETURN a.name
"host" | "engine, at commit"
"mode" | "incremental: each match that is added, removed or changed updates the queue"
"concerned by" | "User, invited"
"key columns" | "none: every watch of this shape is checked"
"range" | "none"
"residual" | "none"
"cost per change" | "the matches around the changed element, then the watches under their keys"
"ordering" | "arrival: the oldest first, also after a redelivery"
"claim" | "invited: one holder at a time, over all consume watches; ACK unlinks it"
"group" | "g: each element goes to one consumer, in fair shares"
"in hand" | "at most 1000 for this watch"
"lease" | "30s, then it counts as failed; EXTEND renews it"
"attempts" | "at most 2 deliveries, then a dead letter"
"delivery" | "at least once, acknowledged once; attempts, delays and dead letters survive a restart; its deliveries are released when its session ends"
"visibility" | "committed, delivered on tick"
