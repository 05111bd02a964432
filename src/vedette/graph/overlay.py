"""A view that replaces versions of some elements of a base view.

One class, three uses: the writes of a transaction on top of the committed graph; the before-images of a snapshot,
which does not change while the graph does; and the state before a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vedette.element import Element, View
from vedette.graph.graph import Graph, IndexLayout

__all__ = ["Overlay"]


class Overlay:
    """`versions` replaces elements of the base; `local_graph` indexes the replacements."""

    __slots__ = ("_may_have_edges", "_unindexed", "base", "layout", "local_graph", "versions")

    def __init__(self, base: View, layout: IndexLayout) -> None:
        self.base = base
        self.layout = layout
        self.versions: dict[str, Element | None] = {}
        """Id ▸ the version that replaces the base version; None if it is deleted."""
        self.local_graph: Graph | None = None
        self._unindexed: list[Element | str] = []
        self._may_have_edges = False
        """True if an edge may be among `versions`.

        Most changes are of nodes, and then edges are read from the base directly.
        """

    def put(self, element: Element) -> None:
        self.versions[element.id] = element
        self._unindexed.append(element)
        if element.targets is not None:
            self._may_have_edges = True

    def delete(self, id: str, *, node: bool = False) -> None:
        """`node`: the element is known to be a node."""
        self.versions[id] = None
        self._unindexed.append(id)
        if not node:
            self._may_have_edges = True

    def revert(self, id: str) -> None:
        """Make the base version visible again."""
        del self.versions[id]
        self._unindexed.append(id)

    def rebased(self, base: View) -> Overlay:
        """The same versions on another base. Valid until something is put or deleted here."""
        other = Overlay(base, self.layout)
        other.versions, other.local_graph, other._may_have_edges = (
            self.versions,
            self._index(),
            self._may_have_edges,
        )
        return other

    # --- View -------------------------------------------------------------------------------------------------

    def get(self, id: str) -> Element | None:
        if id in self.versions:
            return self.versions[id]
        return self.base.get(id)

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        if not self.versions:
            return self.base.scan(types)
        return self._over(self.base.scan(types), self._index().scan(types))

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        if not self.versions:
            return self.base.lookup(owner, attribute, value)
        return self._over(
            self.base.lookup(owner, attribute, value), self._index().lookup(owner, attribute, value)
        )

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        if not self._may_have_edges:
            return self.base.edges_at(edge, position, id)
        return self._over(self.base.edges_at(edge, position, id), self._index().edges_at(edge, position, id))

    def incident(self, id: str) -> Iterable[Element]:
        if not self._may_have_edges:
            return self.base.incident(id)
        return self._over(self.base.incident(id), self._index().incident(id))

    def _over(self, below: Iterable[Element], above: Iterable[Element]) -> Iterator[Element]:
        hidden = self.versions
        for element in below:
            if element.id not in hidden:
                yield element
        yield from above

    def _index(self) -> Graph:
        """The local versions with up-to-date indexes. Built lazily, because most transactions never read them."""
        local = self.local_graph
        if local is None:
            local = self.local_graph = Graph(self.layout)
        if self._unindexed:
            for item in self._unindexed:
                self._enter(local, item)
            self._unindexed.clear()
        for key, places in self.layout.attributes.items():
            if key not in local.indexes:
                local.ensure_index(*key, places)
        return local

    def _enter(self, local: Graph, item: Element | str) -> None:
        if isinstance(item, str):
            known = local.elements.get(item)
            if known is not None and self.versions.get(item) is not known:
                local.remove(known)
        elif self.versions.get(item.id) is item:
            local.put(item)
