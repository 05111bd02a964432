"""How one commit is told to the watches of one shape.

The shape's pattern without constants is matched once, before and after; each match that came, went or stayed is looked
up by key, and only the watches found there are asked whether their own conditions let it through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from vedette.element import Element, View
from vedette.errors import VedetteError
from vedette.gil import in_turns
from vedette.language.compile.affected_matches import Difference
from vedette.language.compile.execution_context import Context, Row
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta, same
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

__all__ = ["Moment", "Scene", "own_row", "shape_matches", "tell_shape", "watches_of"]

Moment = Callable[[], Any]
Push = Callable[[Watch, Delta, "Row | None"], None]
Fail = Callable[[Watch, VedetteError], None]
"""Told about a watch whose conditions or projections cannot be evaluated."""
SightOf = Callable[[Watch, Context], None]
"""Puts the eyes of the watch's actor before a context's view."""


def _nobody_looks() -> Any:
    raise AssertionError("a shape that was thought to look at its element alone looks around")


_NOWHERE = Context(view=cast(View, None), now=_nobody_looks)
"""For shapes that look at nothing but their element."""


class Scene:
    """One change of the graph: the views before and after it, and the contexts that watches look through.

    `before` and `after` are contexts without a watch; they are made when they are first asked for.
    """

    __slots__ = ("_after", "_before", "_earlier_view", "_now", "_own", "_sight", "_tick", "_view")

    def __init__(
        self,
        before: Callable[[], View],
        after: View,
        now: Moment,
        tick: int,
        sight: SightOf | None = None,
    ) -> None:
        """`before` puts the earlier view together; it is called at most once."""
        self._earlier_view, self._view = before, after
        self._now, self._tick, self._sight = now, tick, sight
        self._before: Context | None = None
        self._after: Context | None = None
        self._own: dict[tuple[int, bool], Context] = {}

    @property
    def before(self) -> Context:
        if self._before is None:
            self._before = Context(self._earlier_view(), self._now, tick=self._tick)
        return self._before

    @property
    def after(self) -> Context:
        if self._after is None:
            self._after = Context(self._view, self._now, tick=self._tick)
        return self._after

    def own(self, watch: Watch, *, after: bool) -> Context:
        """The context of one watch: its constants, its actor."""
        key = (watch.number, after)
        known = self._own.get(key)
        if known is None:
            shared = self.after if after else self.before
            known = Context(
                view=shared.view, constants=watch.constants, now=self._now, tick=self._tick, actor=watch.actor
            )
            if self._sight is not None and (watch.actor is not None or watch.shape.layered):
                self._sight(watch, known)
            self._own[key] = known
        return known


def tell_shape(
    shape: WatchShape, changes: Sequence[Difference], scene: Scene, push: Push, fail: Fail
) -> None:
    """Find what the changes mean for every watch of the shape."""
    matches = _single_matches if shape.single is not None else shape_matches
    for identity, before, after in in_turns(matches(shape, changes, scene)):
        _tell(shape, identity, before, after, scene, push, fail)


def shape_matches(
    shape: WatchShape, changes: Sequence[Difference], scene: Scene
) -> Sequence[tuple[Any, Row | None, Row | None]]:
    if shape.single is not None:
        return _single_matches(shape, changes, scene)
    before, after = shape.matches.find_around(scene.before, scene.after, changes)
    if shape.matches.collapses:
        _complete(shape, before, scene.after, after)
        _complete(shape, after, scene.before, before)
    merged = [(shape.identity(row), row, after.get(key)) for key, row in before.items()]
    return merged + [(shape.identity(row), None, row) for key, row in after.items() if key not in before]


def _complete(shape: WatchShape, these: dict[Any, Row], context: Context, others: dict[Any, Row]) -> None:
    """Another edge without a name may hold a match up: what is missing on one side is looked for there, whole."""
    for identity, row in these.items():
        if identity not in others:
            held = shape.matches.holds(context, row)
            if held is not None:
                others[identity] = held


def _single_matches(
    shape: WatchShape, changes: Sequence[Difference], scene: Scene
) -> Sequence[tuple[Any, Row | None, Row | None]]:
    """A pattern of one node: the changes are the matches."""
    assert shape.single is not None
    types = shape.single.types
    earlier, later = (_NOWHERE, _NOWHERE) if shape.blind else (scene.before, scene.after)
    matches = []
    for old, new in in_turns(changes):
        element: Element = new or old  # type: ignore[assignment]
        if element.type in types:
            before = _row(shape, earlier, old) if old is not None else None
            after = _row(shape, later, new) if new is not None else None
            if before is not None or after is not None:
                matches.append(((element.id,), before, after))
    return matches


def _row(shape: WatchShape, context: Context, element: Element) -> Row | None:
    row = shape.blank.copy()
    row[0] = context
    row[shape.slot] = element
    if shape.closed_closures:
        for closure in shape.closed_closures:
            if not closure(row):
                return None
    return row


# --- one match --------------------------------------------------------------------------------------------------


def _tell(
    shape: WatchShape,
    identity: Any,
    before: Row | None,
    after: Row | None,
    scene: Scene,
    push: Push,
    fail: Fail,
) -> None:
    earlier = shape.candidates(before) if before is not None else ()
    later = shape.candidates(after) if after is not None else ()
    if not earlier and not later:
        return
    if shape.private:
        deltas = _Deltas(shape, identity)
        was, now = _by_number(earlier), _by_number(later)
        for number, watch in {**was, **now}.items():
            old, new = before if number in was else None, after if number in now else None
            try:
                _tell_one(shape, watch, old, new, scene, push, deltas)
            except VedetteError as error:
                fail(watch, error)
    elif not earlier:
        delta = _delta(ADDED, shape, identity, after)
        for watch in later:
            push(watch, delta, after)
    elif not later:
        delta = _delta(REMOVED, shape, identity, before)
        for watch in earlier:
            push(watch, delta, before)
    else:
        deltas = _Deltas(shape, identity)
        _tell_shared(_by_number(earlier), _by_number(later), before, after, push, deltas)


def _tell_shared(
    was: dict[int, Watch],
    now: dict[int, Watch],
    before: Row | None,
    after: Row | None,
    push: Push,
    deltas: _Deltas,
) -> None:
    """The match was there and is: for each watch it may have come, gone or changed."""
    for number, watch in now.items():
        if number in was:
            delta = deltas.changed(before, after)
            if delta is not None:
                push(watch, delta, after)
        else:
            push(watch, deltas.added(after), after)
    for number, watch in was.items():
        if number not in now:
            push(watch, deltas.removed(before), before)


def _by_number(watches: Collection[Watch]) -> dict[int, Watch]:
    return {watch.number: watch for watch in watches}


def watches_of(shape: WatchShape) -> list[Watch]:
    return shape.index.everything()


def _tell_one(
    shape: WatchShape,
    watch: Watch,
    before: Row | None,
    after: Row | None,
    scene: Scene,
    push: Push,
    shared: _Deltas,
) -> None:
    """A watch with conditions, a projection or eyes of its own is asked."""
    old = own_row(shape, watch, before, scene.own(watch, after=False))
    new = own_row(shape, watch, after, scene.own(watch, after=True))
    if old is None and new is None:
        return
    own = shape.open_projection or watch.actor is not None
    deltas = _Deltas(shape, shared.identity) if own else shared
    if old is None:
        push(watch, deltas.added(new), new)
    elif new is None:
        push(watch, deltas.removed(old), old)
    else:
        delta = deltas.changed(old, new)
        if delta is not None:
            push(watch, delta, new)


def own_row(shape: WatchShape, watch: Watch, row: Row | None, context: Context) -> Row | None:
    """The match as this watch sees it, or None when its own conditions or its actor's sight do not let it through."""
    if row is None:
        return None
    if shape.turnable or (watch.actor is not None and shape.judged):
        return shape.verify.holds(context, row)
    if not shape.residual_closures and not shape.open_projection:
        return row
    own = row.copy()
    own[0] = context
    for closure in shape.residual_closures:
        if not closure(own):
            return None
    return own


def _delta(type: str, shape: WatchShape, identity: Any, row: Row | None) -> Delta:
    assert row is not None
    return Delta(type, shape.projected(row), None, identity, shape.order_of(row) if shape.order else ())


class _Deltas:
    """The events of one match, each made at most once."""

    __slots__ = ("_added", "_changed", "_removed", "identity", "shape")

    def __init__(self, shape: WatchShape, identity: Any) -> None:
        self.shape, self.identity = shape, identity
        self._added: Delta | None = None
        self._removed: Delta | None = None
        self._changed: tuple[Delta | None] | None = None

    def added(self, row: Row | None) -> Delta:
        if self._added is None:
            self._added = _delta(ADDED, self.shape, self.identity, row)
        return self._added

    def removed(self, row: Row | None) -> Delta:
        if self._removed is None:
            self._removed = _delta(REMOVED, self.shape, self.identity, row)
        return self._removed

    def changed(self, before: Row | None, after: Row | None) -> Delta | None:
        assert before is not None
        assert after is not None
        if self._changed is None:
            shape = self.shape
            old, new = shape.projected(before), shape.projected(after)
            equal = same(old, new) and not shape.moves(before, after)
            self._changed = (
                None if equal else Delta(CHANGED, new, old, self.identity, shape.order_of(after)),
            )
        return self._changed[0]
