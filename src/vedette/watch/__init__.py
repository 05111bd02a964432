"""Incremental maintenance of standing queries. Pure: no I/O, no threads; time is a parameter.

Shape and constants. A WATCH statement is split into a shape and a tuple of constants. Every literal, parameter,
`#name` and captured session value becomes a numbered constant; what is left is the shape, compiled once and shared
by all watches that differ only in constants.

Conditions. A condition without constants is shared: evaluated once per candidate match for all watches of the
shape. `expression = constant` is a key: watches are found by hash. At most one `expression < constant` is a range:
watches under a key are found by bisection. All others are residual: evaluated per watch that key and range select.
A condition may be shared or a key only if it has the same value for every actor and cannot raise.

One commit. `ShapeIndex.affected_shapes` finds shapes by the types of the changed elements. The shape's finder
starts at each changed element and completes the pattern on the state before and after the commit. Key and range of
the row before and of the row after select watches. A watch found only after gets `added`, only before `removed`, on
both sides `changed` if the projected row differs.

Strategies. `rows`: as above. `groups` and `distinct`: rows before are counted out, rows after counted in, and only
touched groups are projected. `reevaluated`: the whole query runs and is compared with its last result; used where
the changes do not determine the result (`now()`, most of Layer 0, COLLECT, aggregates over paths with an open end).

Delivery. The watch numbers the event (`position`) and appends it to its buffer with the sequence of the commit.
`take` returns what is durable. A full buffer drops the oldest event and reports it in the next, fails the watch, or
blocks writers. A reliable watch drops nothing: the engine stops evaluating it and replays the log later. Windows
collect deltas, or record which matches changed, until the clock closes them.

Reading order: `options`, `status`, `watch`, `buffer`, `shapes.shape`, `evaluation.rows`, `evaluation.effects`.
"""

__all__: list[str] = []
