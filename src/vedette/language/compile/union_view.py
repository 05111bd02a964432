"""A view that shows the graph before and after a set of changes at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from vedette.element import Element, View

__all__ = ["ElementChange", "UnionView"]

ElementChange = tuple[Element | None, Element | None]
"""An element before and after a change; None where it does not exist."""


class UnionView:
    """A view of `view` that also contains elements which only one side of the changes has.

    An element that exists in `view` is shown as `view` has it. Otherwise the changed element is shown: the old version
    of a deleted element, the new version of one that `view` does not contain yet. `lookup` reads the underlying index
    only, so a search by attribute value does not find the additional elements.
    """

    def __init__(self, view: View, changes: Sequence[ElementChange]) -> None:
        self._view = view
        self._changes = changes

    @cached_property
    def _additional(self) -> dict[str, Element]:
        one_sided = (before or after for before, after in self._changes if before is None or after is None)
        return {e.id: e for e in one_sided if e is not None and self._view.get(e.id) is None}

    @cached_property
    def _additional_by_target(self) -> dict[tuple[str, int, str], list[Element]]:
        """Additional edges by (type, position, target), so that `edges_at` does not examine all changes of a commit."""
        found: dict[tuple[str, int, str], list[Element]] = {}
        for element in self._additional.values():
            for position, target in enumerate(element.targets or ()):
                found.setdefault((element.type, position, target), []).append(element)
        return found

    def get(self, id: str) -> Element | None:
        return self._view.get(id) or self._additional.get(id)

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        return chain(self._view.scan(types), [e for e in self._additional.values() if e.type in types])

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        return self._view.lookup(owner, attribute, value)

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        here = self._view.edges_at(edge, position, id)
        more = self._additional_by_target.get((edge, position, id))
        return here if more is None else chain(here, more)

    def incident(self, id: str) -> Iterable[Element]:
        more = [e for e in self._additional.values() if e.targets is not None and id in e.targets]
        return chain(self._view.incident(id), more)
