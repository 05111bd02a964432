-- Every option, its values, and the values that are rejected.

.ontology tasks
    node Task { title: String = "?", n: Int = 0, at: Timestamp = now() }
    node Person { name: String? }
    edge assigned(task: Task, person: Person)

=== watch.options, 5.A2 | every option, in one bracket or in several
.scope node
.use tasks
> a = WATCH t: Task [mode: watch, group: "g", ordering: arrival, delivery: best_effort, visibility: committed, window: none, buffer: 10, on_full: drop, initial: full, deliver_on: commit, filter: t.n > 0] RETURN t.n
> b = WATCH t: Task
  [mode: watch]
  [group: "group_name"]
  [ordering: attribute(t.n DESC, t.title)]
  [delivery: reliable]
  [visibility: committed]
  [window: none]
  [buffer: 10]
  [ack_timeout: 30s]
  [max_redeliveries: 3]
  [initial: none]
  RETURN t.n
> c = WATCH t: Task [window: tumbling(1s), buffer: 5] RETURN t.n
> d = WATCH t: Task [window: sliding(10s, 1s)] [visibility: immediate] RETURN t.n
> e = WATCH t: Task [window: tumbling(2 * 5.seconds), ordering: causal] RETURN t.n
> MATCH s: _Watch WHERE s.name = "b" RETURN s.group, s.ordering, s.delivery, s.buffer_size
"group_name" | "attribute" | "reliable" | 10

=== watch.options, example.parameters | options take parameters
.scope node
.use tasks
.params {"size": 7, "from": 2}
> w = WATCH t: Task [buffer: $size, filter: t.n >= $from] RETURN t.n
> MATCH s: _Watch RETURN s.buffer_size
7
> SPAWN a: Task { n = 1 }
> SPAWN b: Task { n = 2 }
.events w
initial (nothing)
added 2

=== E8009, watch.option-ranges | the mode
.scope node
.use tasks
> WATCH t: Task [mode: sometimes] RETURN t
! E8009 watch error: E8009 INVALID_WATCH_OPTION: Invalid watch option 'mode'
! allowed are watch, consume

=== E8009, watch.option-ranges | an invalid option value is rejected with the allowed values
.scope node
.use tasks
> WATCH t: Task [ordering: random] RETURN t
! E8009 'ordering'
! arrival, causal, attribute(
> WATCH t: Task [ordering: attribute()] RETURN t
! E8009/E1001
> WATCH t: Task [delivery: maybe] RETURN t
! E8009 'delivery'
! best_effort, reliable
> WATCH t: Task [visibility: invisible] RETURN t
! E8009 'visibility'
! committed, immediate
> WATCH t: Task [on_full: explode] RETURN t
! E8009 'on_full'
! drop, block, error
> WATCH t: Task [deliver_on: friday] RETURN t
! E8009 'deliver_on'
! tick, commit
> WATCH t: Task [initial: some] RETURN t
! E8009 'initial'
! full, none, since(
> WATCH t: Task [window: round(5s)] RETURN t
! E8009 'window'
! none, tumbling(duration), sliding(duration, interval)

=== E8009, watch.option-ranges | numbers and durations out of range
.scope node
.use tasks
> WATCH t: Task [buffer: 0] RETURN t
! E8009 'buffer'
! a positive integer
> WATCH t: Task [buffer: -5] RETURN t
! E8009 'buffer'
> WATCH t: Task [buffer: "many"] RETURN t
! E8009 'buffer'
> WATCH t: Task [buffer: 1.5] RETURN t
! E8009 'buffer'
> WATCH t: Task [window: tumbling(0s)] RETURN t
! E8009 'window'
> WATCH t: Task [window: tumbling(5)] RETURN t
! E8009 'window'
> WATCH t: Task [window: sliding(5s)] RETURN t
! E8009 'window'
> WATCH t: Task [window: sliding(5s, 0s)] RETURN t
! E8009 'window'
> WATCH t: Task [ack_timeout: 0s] RETURN t
! E8009 'ack_timeout'
> WATCH t: Task [max_redeliveries: -1] RETURN t
! E8009 'max_redeliveries'
> WATCH t: Task [initial: since(-2)] RETURN t
! E8009 'initial'
> WATCH t: Task [initial: since("x")] RETURN t
! E8009 'initial'
> WATCH t: Task [group: 5] RETURN t
! E8009 'group'
> WATCH t: Task [dead_letter: "x"] RETURN t
! E8009 'dead_letter'

=== E8009, 5.A2, 5.A13 | unknown and repeated options
.scope node
.use tasks
> WATCH t: Task [colour: blue] RETURN t
! E8009 'colour'
! known are
! buffer
> WATCH t: Task [buffer: 5] [buffer: 6] RETURN t
! E8009 'buffer'
! twice

=== E8009, 5.C12, watch.branching | branches are not available
.scope node
.use tasks
> WATCH t: Task [branch: #branch_123] RETURN t
! E8009 branching is not available
> WATCH t: Task [branches: all] RETURN t
! E8009 branching is not available

=== E8009, watch.optional-match | OPTIONAL MATCH is rejected with advice
.scope pattern
.use tasks
> WATCH t: Task OPTIONAL MATCH p: Person, assigned(t, p) RETURN t.title, p.name
! E8009 OPTIONAL MATCH
! EXISTS

=== watch.option-ranges | a window shorter than its interval is allowed and leaves gaps
.scope node
.use tasks
> w = WATCH t: Task [window: sliding(1s, 10s), initial: none] RETURN t.n
.advance 5s
> SPAWN a: Task { n = 1 }
.advance 4500ms
> SPAWN b: Task { n = 2 }
.advance 500ms
.events w
window 9s..10s
  added 2

=== 5.A12, watch.filter | filter and WHERE are combined
.scope node
.use tasks
> both = WATCH t: Task WHERE t.n > 1 [filter: t.n < 5] RETURN t.n
> one = WATCH t: Task WHERE t.n > 1 AND t.n < 5 RETURN t.n
>> SPAWN a: Task { n = 1 }
   SPAWN b: Task { n = 3 }
   SPAWN c: Task { n = 7 }
.events both, one
initial (nothing)
added 3

=== 5.A9 | ORDER BY and LIMIT are rejected
.scope node
.use tasks
> WATCH t: Task RETURN t ORDER BY t.n
! E1001
> WATCH t: Task RETURN t LIMIT 5
! E1001

=== watch.mode | unknown types and attributes are rejected
.scope pattern
.use tasks
> WATCH t: Tusk RETURN t
! E2001 Tusk
> WATCH t: Task WHERE t.size > 1 RETURN t
! E2002 size
> WATCH t: Task, assigned(t, #missing) RETURN t
! E3601 not found
> WATCH t: Task RETURN t, $x
! E2008
> MATCH s: _Watch RETURN COUNT(*)
0

=== watch.mode, 2.6.1 | column names must be unique
.scope node
.use tasks
> WATCH t: Task RETURN t.n + 1, t.n + 2
! E2005 AS
> WATCH t: Task RETURN COUNT(t WHERE t.n > 1), COUNT(t WHERE t.n > 2)
! E2005 COUNT
> w = WATCH t: Task RETURN t.n + 1 AS a, t.n + 2 AS b, t.n, t.n
.events w
initial (nothing)
> SPAWN t: Task { n = 1 }
.events w
added 2 | 3 | 1
