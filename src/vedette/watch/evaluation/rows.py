"""Evaluates one commit for the watches of one shape (strategy `rows`).

The pattern without constants is matched once on the state before and once after the commit. Each match that
appeared, disappeared or stayed is looked up by key. Only watches found that way evaluate their own conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from vedette.element import Element, View
from vedette.errors import VedetteError
from vedette.gil import interruptible
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.union_view import ElementChange
from vedette.watch.delta import ADDED, CHANGED, REMOVED, Delta, values_equal
from vedette.watch.evaluation.commit_views import CommitViews
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

__all__ = ["affected_matches", "evaluate_rows", "row_for_watch", "watches_of"]

Push = Callable[[Watch, Delta, "Row | None"], None]
Fail = Callable[[Watch, VedetteError], None]
"""Receives a watch whose conditions or projection raised an error."""


def _fail_if_read() -> Any:
    raise AssertionError("a self-contained shape read more than its element")


_UNUSED_CONTEXT = ExecutionContext(view=cast(View, None), now=_fail_if_read)
"""For shapes that read nothing but their element."""


def evaluate_rows(
    shape: WatchShape, changes: Sequence[ElementChange], views: CommitViews, push: Push, fail: Fail
) -> None:
    """Pass every delta that the changes cause for watches of the shape to `push`."""
    matches = _single_matches if shape.single_node is not None else affected_matches
    for identity, before, after in interruptible(matches(shape, changes, views)):
        _compare_sides(shape, identity, before, after, views, push, fail)


def affected_matches(
    shape: WatchShape, changes: Sequence[ElementChange], views: CommitViews
) -> Sequence[tuple[Any, Row | None, Row | None]]:
    if shape.single_node is not None:
        return _single_matches(shape, changes, views)
    before, after = shape.finder.find_before_and_after(views.before, views.after, changes)
    if shape.finder.may_find_duplicates:
        _find_missing_side(shape, before, views.after, after)
        _find_missing_side(shape, after, views.before, before)
    merged = [(shape.identity(row), row, after.get(key)) for key, row in before.items()]
    return merged + [(shape.identity(row), None, row) for key, row in after.items() if key not in before]


def _find_missing_side(
    shape: WatchShape, these: dict[Any, Row], context: ExecutionContext, others: dict[Any, Row]
) -> None:
    """If unnamed edges can satisfy a match in several ways, search a match missing on one side with the whole
    pattern.
    """
    for identity, row in these.items():
        if identity not in others:
            held = shape.finder.reevaluate(context, row)
            if held is not None:
                others[identity] = held


def _single_matches(
    shape: WatchShape, changes: Sequence[ElementChange], views: CommitViews
) -> Sequence[tuple[Any, Row | None, Row | None]]:
    """A pattern of one node: the changes are the matches."""
    assert shape.single_node is not None
    types = shape.single_node.types
    earlier, later = (
        (_UNUSED_CONTEXT, _UNUSED_CONTEXT) if shape.is_self_contained else (views.before, views.after)
    )
    matches = []
    for old, new in interruptible(changes):
        element: Element = new or old  # type: ignore[assignment]
        if element.type in types:
            before = _row(shape, earlier, old) if old is not None else None
            after = _row(shape, later, new) if new is not None else None
            if before is not None or after is not None:
                matches.append(((element.id,), before, after))
    return matches


def _row(shape: WatchShape, context: ExecutionContext, element: Element) -> Row | None:
    row = shape.empty_row.copy()
    row[0] = context
    row[shape.single_register] = element
    if shape.shared_tests:
        for closure in shape.shared_tests:
            if not closure(row):
                return None
    return row


# --- one match --------------------------------------------------------------------------------------------------


def _compare_sides(
    shape: WatchShape,
    identity: Any,
    before: Row | None,
    after: Row | None,
    views: CommitViews,
    push: Push,
    fail: Fail,
) -> None:
    earlier = shape.find_watches(before) if before is not None else ()
    later = shape.find_watches(after) if after is not None else ()
    if not earlier and not later:
        return
    if shape.needs_per_watch_check:
        deltas = _DeltaCache(shape, identity)
        was, now = _by_number(earlier), _by_number(later)
        for number, watch in {**was, **now}.items():
            old, new = before if number in was else None, after if number in now else None
            try:
                _compare_for_watch(shape, watch, old, new, views, push, deltas)
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
        deltas = _DeltaCache(shape, identity)
        _compare_shared(_by_number(earlier), _by_number(later), before, after, push, deltas)


def _compare_shared(
    was: dict[int, Watch],
    now: dict[int, Watch],
    before: Row | None,
    after: Row | None,
    push: Push,
    deltas: _DeltaCache,
) -> None:
    """Compare a match that exists on both sides: for each watch it may be added, removed or changed."""
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
    return shape.key_index.all_watches()


def _compare_for_watch(
    shape: WatchShape,
    watch: Watch,
    before: Row | None,
    after: Row | None,
    views: CommitViews,
    push: Push,
    shared: _DeltaCache,
) -> None:
    """Compare for a watch with its own conditions, projection or policy view."""
    old = row_for_watch(shape, watch, before, views.context_for(watch, after=False))
    new = row_for_watch(shape, watch, after, views.context_for(watch, after=True))
    if old is None and new is None:
        return
    own = shape.projects_constants or watch.actor is not None
    deltas = _DeltaCache(shape, shared.identity) if own else shared
    if old is None:
        push(watch, deltas.added(new), new)
    elif new is None:
        push(watch, deltas.removed(old), old)
    else:
        delta = deltas.changed(old, new)
        if delta is not None:
            push(watch, delta, new)


def row_for_watch(shape: WatchShape, watch: Watch, row: Row | None, context: ExecutionContext) -> Row | None:
    """The match as this watch sees it, or None if its conditions or its actor's policy view reject it."""
    if row is None:
        return None
    if shape.has_symmetric_choice or (watch.actor is not None and shape.depends_on_actor):
        return shape.actor_finder.reevaluate(context, row)
    if not shape.residual_tests and not shape.projects_constants:
        return row
    own = row.copy()
    own[0] = context
    for closure in shape.residual_tests:
        if not closure(own):
            return None
    return own


def _delta(type: str, shape: WatchShape, identity: Any, row: Row | None) -> Delta:
    assert row is not None
    return Delta(type, shape.project_row(row), None, identity, shape.order_values(row) if shape.order else ())


class _DeltaCache:
    """The deltas of one match. Each is built at most once and shared by all watches that see the same row."""

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
            old, new = shape.project_row(before), shape.project_row(after)
            equal = values_equal(old, new) and not shape.changes_queue_order(before, after)
            self._changed = (
                None if equal else Delta(CHANGED, new, old, self.identity, shape.order_values(after)),
            )
        return self._changed[0]
