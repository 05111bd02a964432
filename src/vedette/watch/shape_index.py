"""The index of shapes and watches, and the evaluation of a commit against it. No I/O, no threads.

Shapes are found by the types of the changed elements, watches of a shape by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vedette.language.compile.union_view import ElementChange
from vedette.watch.evaluation.commit_views import CommitViews
from vedette.watch.evaluation.counted import evaluate_counted
from vedette.watch.evaluation.effects import CommitEffects
from vedette.watch.evaluation.reevaluation import reevaluate_shape
from vedette.watch.evaluation.rows import evaluate_rows
from vedette.watch.numbered_table import NumberedTable
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

__all__ = ["ShapeIndex"]

_NO_SHAPES: dict[int, WatchShape] = {}


class ShapeIndex:
    """Shapes by the types they read, and watches by number."""

    def __init__(self, elder: ShapeIndex | None = None) -> None:
        """`elder` is another index of the same database; both share one table of watches."""
        self.watches: NumberedTable[Watch] = elder.watches if elder is not None else NumberedTable()
        self.shapes: dict[int, WatchShape] = {}
        """All shapes that have a watch."""
        self._by_type: dict[str, dict[int, WatchShape]] = {}
        self.layer0_shapes: dict[int, WatchShape] = {}
        """Shapes that read Layer 0."""
        self._time_dependent_shapes: dict[int, WatchShape] = {}
        """Shapes that depend on the time: every commit and tick affects them."""

    def next_number(self) -> int:
        return self.watches.next_number()

    @property
    def has_time_dependent_shapes(self) -> bool:
        return bool(self._time_dependent_shapes)

    # --- watches ----------------------------------------------------------------------------------------------

    def add(self, watch: Watch) -> None:
        shape = watch.shape
        if not shape.key_index.size:
            self._enter_shape(shape)
        shape.key_index.add(
            shape.key_of_constants(watch.constants), shape.range_of_constants(watch.constants), watch
        )
        self.watches[watch.number] = watch

    def remove(self, watch: Watch) -> None:
        """Stop evaluating the watch. It stays in `watches`."""
        shape = watch.shape
        shape.key_index.remove(
            shape.key_of_constants(watch.constants), shape.range_of_constants(watch.constants), watch
        )
        if not shape.key_index.size:
            self._leave_shape(shape)

    def discard(self, watch: Watch) -> None:
        self.watches.pop(watch.number)

    def _enter_shape(self, shape: WatchShape) -> None:
        self.shapes[id(shape)] = shape
        for name in shape.types:
            self._by_type.setdefault(name, {})[id(shape)] = shape
        if shape.time_dependent or "_TickState" in shape.types:
            self._time_dependent_shapes[id(shape)] = shape
        if shape.reads_layer0:
            self.layer0_shapes[id(shape)] = shape

    def _leave_shape(self, shape: WatchShape) -> None:
        self.shapes.pop(id(shape), None)
        for name in shape.types:
            held = self._by_type.get(name)
            if held is not None:
                held.pop(id(shape), None)
        self._time_dependent_shapes.pop(id(shape), None)
        self.layer0_shapes.pop(id(shape), None)

    # --- a commit ---------------------------------------------------------------------------------------------

    def affected_shapes(self, changes: Sequence[ElementChange]) -> list[WatchShape]:
        """The shapes that the changes can affect."""
        if len(changes) == 1 and not self._time_dependent_shapes:  # the common case
            before, after = changes[0]
            return list(self._by_type.get((after or before).type, _NO_SHAPES).values())  # type: ignore[union-attr]
        found: dict[int, WatchShape] = dict(self._time_dependent_shapes)
        for before, after in changes:
            element = after if after is not None else before
            held = self._by_type.get(element.type) if element is not None else None
            if held:
                found.update(held)
        return list(found.values())

    def evaluate_commit(
        self,
        shapes: Iterable[WatchShape],
        changes: Sequence[ElementChange],
        views: CommitViews,
        effects: CommitEffects,
    ) -> None:
        for shape in shapes:
            if shape.strategy == "rows":
                evaluate_rows(shape, changes, views, effects.add_delta, effects.add_failure)
            elif shape.strategy == "reevaluated":
                reevaluate_shape(shape, views, effects)
            else:
                evaluate_counted(shape, changes, views, effects)
