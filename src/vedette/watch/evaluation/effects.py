"""The hub: every shape and watch of a database, and the way a commit takes through them. No I/O, no threads.

Shapes are found by the types that a commit touched; watches of a shape by key. What each is told goes into its buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vedette.errors import VedetteError
from vedette.language.compile.affected_matches import Difference
from vedette.language.compile.execution_context import Context, Row
from vedette.values import timestamp_from_ms
from vedette.watch.buffer import Outcome
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta, frozen
from vedette.watch.evaluation.rows import Scene, own_row, shape_matches, tell_shape, watches_of
from vedette.watch.numbered_table import NumberedTable
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch, WatchDetails

__all__ = [
    "SetOff",
    "Told",
    "WatchHub",
    "compared",
    "count_row",
    "counted_deltas",
    "evaluate",
    "orders_of",
    "tell_anew",
]


_CANCELLED, _OVERFLOW = WatchStatus.CANCELLED, Outcome.OVERFLOW
_NO_SHAPES: dict[int, WatchShape] = {}


class Told:
    """What one commit led to: the watches with something new, those that overflowed, and triggers to carry out."""

    def __init__(self, tick: int, sequence: int, now_ms: int) -> None:
        self.tick, self.sequence, self.now_ms = tick, sequence, now_ms
        self.evaluated_ms = now_ms
        """What time it was: a transaction may have begun long before it is committed."""
        self.watches: dict[int, Watch] = {}
        """Those that have something new."""
        self.overflowed: list[Watch] = []
        self.failed: dict[int, tuple[Watch, VedetteError]] = {}
        """Watches that could not be evaluated, with the reason."""
        self.repeated = False
        """Whether it is worked out again, from the log: what was acted upon then is not acted upon again."""
        self.triggers: list[tuple[Watch, Row]] = []
        self.sample = 0
        """The number of a watch whose events are wanted for a check."""
        self.sampled: list[Delta] = []

    def push(self, watch: Watch, delta: Delta, row: Row | None) -> None:
        """Let the watch know; an overflow is noted for the caller, who cancels."""
        if watch.status is _CANCELLED:
            return
        if watch.number == self.sample:
            self.sampled.append(delta)
        details = watch.known_details
        if details is not None and not self._passes(watch, details, delta, row):
            return
        if watch.shape.columns:
            self.deliver(watch, delta)

    def _passes(self, watch: Watch, details: WatchDetails, delta: Delta, row: Row | None) -> bool:
        """Triggers, windows and readers that are behind: whether the event goes into the buffer nevertheless."""
        if details.actions is not None and delta.type == ADDED and row is not None:
            self.triggers.append((watch, row))
        if not watch.shape.columns or (details.behind is not None and not self.repeated):
            return False  # the log remembers it for its reader
        if details.window is None:
            return True
        if not watch.shape.aggregates:
            details.window.collect(delta, self.tick, timestamp_from_ms(self.evaluated_ms))
        return False

    def fail(self, watch: Watch, error: VedetteError) -> None:
        """What the commit means for the watch cannot be said: the caller ends it."""
        self.failed.setdefault(watch.number, (watch, error))

    def deliver(self, watch: Watch, delta: Delta) -> None:
        """Put the event into the watch's buffer."""
        if watch.push(delta, self.tick, self.sequence, self.now_ms) is _OVERFLOW:
            self.overflowed.append(watch)
        self.watches[watch.number] = watch


class SetOff(Told):
    """Sets off actions and tells nobody."""

    def deliver(self, watch: Watch, delta: Delta) -> None:
        pass


class WatchHub:
    """Shapes by what they are made of, watches by number."""

    def __init__(self, elder: WatchHub | None = None) -> None:
        """`elder`: another hub of the same database, with which it shares the watches it knows."""
        self.watches: NumberedTable[Watch] = elder.watches if elder is not None else NumberedTable()
        self.shapes: dict[int, WatchShape] = {}
        """All that have a watch."""
        self._by_type: dict[str, dict[int, WatchShape]] = {}
        self.layered: dict[int, WatchShape] = {}
        """Shapes that look at Layer 0."""
        self._always: dict[int, WatchShape] = {}
        """Shapes that look at the time: every commit and tick concerns them."""

    def next_number(self) -> int:
        return self.watches.next_number()

    @property
    def looks_at_time(self) -> bool:
        return bool(self._always)

    # --- watches come and go ----------------------------------------------------------------------------------

    def add(self, watch: Watch) -> None:
        shape = watch.shape
        if not shape.index.size:
            self._enter_shape(shape)
        shape.index.add(shape.key_of(watch.constants), shape.range_constant(watch.constants), watch)
        self.watches[watch.number] = watch

    def remove(self, watch: Watch) -> None:
        """Stop matching for it; the watch itself stays known to those who hold it."""
        shape = watch.shape
        shape.index.remove(shape.key_of(watch.constants), shape.range_constant(watch.constants), watch)
        if not shape.index.size:
            self._leave_shape(shape)

    def forget(self, watch: Watch) -> None:
        self.watches.pop(watch.number)

    def _enter_shape(self, shape: WatchShape) -> None:
        self.shapes[id(shape)] = shape
        for name in shape.types:
            self._by_type.setdefault(name, {})[id(shape)] = shape
        if shape.time_dependent or "_TickState" in shape.types:
            self._always[id(shape)] = shape
        if shape.layered:
            self.layered[id(shape)] = shape

    def _leave_shape(self, shape: WatchShape) -> None:
        self.shapes.pop(id(shape), None)
        for name in shape.types:
            held = self._by_type.get(name)
            if held is not None:
                held.pop(id(shape), None)
        self._always.pop(id(shape), None)
        self.layered.pop(id(shape), None)

    # --- a commit ---------------------------------------------------------------------------------------------

    def concerned(self, changes: Sequence[Difference]) -> list[WatchShape]:
        """Shapes that the changes can concern."""
        if len(changes) == 1 and not self._always:  # most commits
            before, after = changes[0]
            return list(self._by_type.get((after or before).type, _NO_SHAPES).values())  # type: ignore[union-attr]
        found: dict[int, WatchShape] = dict(self._always)
        for before, after in changes:
            element = after if after is not None else before
            held = self._by_type.get(element.type) if element is not None else None
            if held:
                found.update(held)
        return list(found.values())

    def tell(
        self, shapes: Iterable[WatchShape], changes: Sequence[Difference], scene: Scene, told: Told
    ) -> None:
        for shape in shapes:
            if shape.strategy == "rows":
                tell_shape(shape, changes, scene, told.push, told.fail)
            elif shape.strategy == "reevaluated":
                _tell_all_anew(shape, scene, told)
            else:
                _tell_counted(shape, changes, scene, told)


# --- groups and distinct rows -----------------------------------------------------------------------------------


def _tell_counted(shape: WatchShape, changes: Sequence[Difference], scene: Scene, told: Told) -> None:
    """Count rows in and out of each watch's groups (or distinct rows), then tell what is different."""
    touched: dict[int, tuple[Watch, dict[Any, None]]] = {}
    for identity, before, after in shape_matches(shape, changes, scene):
        if shape.aggregates and after is not None:
            _touch_windows(shape, identity, before, after, scene, told)
        for row, sign in ((before, -1), (after, 1)):
            for watch in shape.candidates(row) if row is not None else ():
                if watch.details.window is not None and shape.aggregates:
                    continue
                try:
                    own = own_row(shape, watch, row, scene.own(watch, after=sign > 0))
                    if own is not None:
                        _, marked = touched.setdefault(watch.number, (watch, {}))
                        marked[count_row(watch, own, sign)] = None
                except VedetteError as error:
                    told.fail(watch, error)
    for watch, marked in touched.values():
        _tell_counts(watch, marked, scene.own(watch, after=True), told)


def _tell_counts(watch: Watch, marked: Iterable[Any], context: Context, told: Told) -> None:
    try:
        for delta in counted_deltas(watch, marked, context):
            told.push(watch, delta, None)
    except VedetteError as error:
        told.fail(watch, error)


def _touch_windows(
    shape: WatchShape, identity: Any, before: Row | None, after: Row, scene: Scene, told: Told
) -> None:
    windowed = [watch for watch in shape.candidates(after) if watch.details.window is not None]
    if windowed:
        earlier = {watch.number for watch in shape.candidates(before)} if before is not None else ()
        for watch in windowed:
            _touch_window(watch, identity, before if watch.number in earlier else None, after, scene, told)


def _touch_window(
    watch: Watch, identity: Any, before: Row | None, after: Row | None, scene: Scene, told: Told
) -> None:
    """Sliding windows over aggregates count the matches that were added or changed."""
    shape = watch.shape
    try:
        new = own_row(shape, watch, after, scene.own(watch, after=True))
        old = own_row(shape, watch, before, scene.own(watch, after=False))
        if new is not None and (old is None or shape.taken(old) != shape.taken(new)):
            watch.details.window.touch(identity, timestamp_from_ms(told.evaluated_ms))
    except VedetteError as error:
        told.fail(watch, error)


def count_row(watch: Watch, row: Row, sign: int) -> Any:
    """Count a row in or out; returns what it belongs to."""
    shape, details = watch.shape, watch.details
    if shape.strategy == "groups":
        return details.start_groups(shape).change(shape.contribution(row), sign)
    projected = shape.projected(row)
    identity = frozen(projected)
    details.rows[identity] = details.rows.get(identity, 0) + sign
    if sign > 0 or identity not in details.last_rows:
        details.last_rows.setdefault(identity, projected)
    return identity


def counted_deltas(watch: Watch, identities: Iterable[Any], context: Context) -> Iterable[Delta]:
    details = watch.details
    for identity in identities:
        if watch.shape.strategy == "distinct":
            yield from _distinct_delta(watch, identity)
            continue
        assert details.groups is not None
        results = details.groups.results(identity)
        new = watch.shape.group_row(context, *results) if results is not None else None
        old = details.last_rows.get(identity)
        yield from _difference(watch.shape, identity, old, new)
        if new is None:
            details.last_rows.pop(identity, None)
        else:
            details.last_rows[identity] = new


def _distinct_delta(watch: Watch, identity: Any) -> Iterable[Delta]:
    details = watch.details
    count = details.rows[identity]
    row = details.last_rows[identity]
    told = details.result if details.result is not None else {}
    details.result = told
    if count > 0 and identity not in told:
        told[identity] = row
        yield Delta(ADDED, row, None, identity)
    elif count <= 0:
        del details.rows[identity]
        details.last_rows.pop(identity, None)
        if told.pop(identity, None) is not None:
            yield Delta(REMOVED, row, None, identity)


def _difference(
    shape: WatchShape, identity: Any, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> Iterable[Delta]:
    if old is None and new is not None:
        yield Delta(ADDED, new, None, identity)
    elif new is None and old is not None:
        yield Delta(REMOVED, old, None, identity)
    elif new is not None and old is not None and shape.differs(old, new):
        yield Delta(CHANGED, new, old, identity)


# --- evaluated anew ---------------------------------------------------------------------------------------------


def evaluate(watch: Watch, context: Context) -> dict[Any, dict[str, Any]]:
    """Everything that the watch matches in the context's view: identity ▸ row. What a fresh MATCH would say."""
    shape = watch.shape
    rows = shape.query.run(context)
    if not shape.aggregates:
        found = {shape.identity(row): shape.projected(row) for row in rows}
        return {frozen(row): row for row in found.values()} if shape.distinct else found
    assert shape.returns is not None
    return shape.grouped(rows, context)


def compared(watch: Watch, context: Context) -> dict[Any, Any]:
    """What is different for the watch when this is: its rows, or with windows what groups take from each match."""
    shape = watch.shape
    if not shape.aggregates or watch.details.window is None:
        return evaluate(watch, context)
    return {shape.identity(row): shape.taken(row) for row in shape.query.run(context)}


def orders_of(watch: Watch, context: Context) -> dict[Any, tuple[Any, ...]]:
    """Where each match stands in the watch's order: identity ▸ values; empty when it has none."""
    shape = watch.shape
    if not shape.order or shape.aggregates:
        return {}
    found: dict[Any, tuple[Any, ...]] = {}
    for row in shape.query.run(context):
        identity = frozen(shape.projected(row)) if shape.distinct else shape.identity(row)
        found.setdefault(identity, shape.order_of(row))
    return found


def _tell_all_anew(shape: WatchShape, scene: Scene, told: Told) -> None:
    for watch in watches_of(shape):
        try:
            tell_anew(watch, scene.own(watch, after=True), told)
        except VedetteError as error:
            told.fail(watch, error)


def tell_anew(watch: Watch, context: Context, told: Told) -> None:
    """Evaluate the watch afresh and tell it what is different from what it was told last."""
    details = watch.details
    old, new = details.result or {}, compared(watch, context)
    details.result = new
    details.evaluated_before_ms, details.evaluated_ms = details.evaluated_ms, told.evaluated_ms
    if details.window is not None and watch.shape.aggregates:
        for identity, taken in new.items():
            if old.get(identity) != taken:
                details.window.touch(identity, timestamp_from_ms(told.evaluated_ms))
        return
    acting = details.actions is not None
    matches = {watch.shape.identity(m): m for m in watch.shape.query.run(context)} if acting else {}
    former, details.orders = details.orders, orders_of(watch, context)
    for identity, row in new.items():
        for delta in _difference(watch.shape, identity, old.get(identity), row):
            delta.order = details.orders.get(identity, ())
            told.push(watch, delta, matches.get(identity))
    for identity, row in old.items():
        if identity not in new:
            told.push(watch, Delta(REMOVED, row, None, identity, former.get(identity, ())), None)
