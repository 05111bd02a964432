"""The elements of one state of a graph, indexed by id, type, attribute value and adjacency.

The committed state is one `Graph`. The writes of a transaction and the before-images of a snapshot are small graphs
on top of it (`overlay.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from vedette.element import Element
from vedette.graph.postings import Postings, add_posting, postings, remove_posting

__all__ = ["AttributeIndex", "Graph", "IndexLayout", "index_key"]

_NOTHING: tuple[Element, ...] = ()


def index_key(value: Any) -> Any:
    """The index key of a value: distinguishes true from 1."""
    return (bool, value) if value is True or value is False else value


class AttributeIndex:
    """Elements by the value of one attribute, for its declaring type and all subtypes.

    Null and NaN are not indexed.
    """

    __slots__ = ("entries", "places")

    def __init__(self, places: dict[str, int]) -> None:
        self.places = places
        """The position of the attribute in the values of each covered type."""
        self.entries: dict[Any, Postings] = {}

    def add(self, element: Element) -> None:
        value = element.values[self.places[element.type]]
        if value is not None and value == value:  # noqa: PLR0124 - NaN is not equal to itself
            add_posting(self.entries, index_key(value), element)

    def remove(self, element: Element) -> None:
        value = element.values[self.places[element.type]]
        if value is not None and value == value:  # noqa: PLR0124 - NaN is not equal to itself
            remove_posting(self.entries, index_key(value), element)


class IndexLayout:
    """Which attributes are indexed. Shared by a graph and all overlays on it."""

    __slots__ = ("arities", "attributes")

    def __init__(self) -> None:
        self.attributes: dict[tuple[str, str], dict[str, int]] = {}
        """(owner, attribute) ▸ the position of the attribute in each covered type."""
        self.arities: dict[str, int] = {}


class Graph:
    """A mutable set of elements with its indexes. The caller is responsible for locking."""

    __slots__ = ("_by_type_indexes", "adjacency", "elements", "get", "indexes", "layout", "types")

    get: Callable[[str], Element | None]
    """The `get` of the dict itself, because every row of every result goes through it."""

    def __init__(self, layout: IndexLayout) -> None:
        self.layout = layout
        self.elements: dict[str, Element] = {}
        self.get = self.elements.get
        self.types: dict[str, dict[str, Element]] = {}
        self.adjacency: dict[str, tuple[dict[str, Postings], ...]] = {}
        self.indexes: dict[tuple[str, str], AttributeIndex] = {}
        self._by_type_indexes: dict[str, list[AttributeIndex]] = {}
        for key in layout.attributes:
            self._open_index(key)

    # --- View -------------------------------------------------------------------------------------------------

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        if len(types) == 1:
            members = self.types.get(types[0])
            return members.values() if members else _NOTHING
        return chain.from_iterable([self.types[name].values() for name in types if name in self.types])

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        return postings(self.indexes[owner, attribute].entries.get(index_key(value)))

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        positions = self.adjacency.get(edge)
        return postings(positions[position].get(id)) if positions else _NOTHING

    def incident(self, id: str) -> Iterator[Element]:
        seen: set[str] = set()
        for positions in self.adjacency.values():
            for ends in positions:
                for edge in postings(ends.get(id)):
                    if edge.id not in seen:
                        seen.add(edge.id)
                        yield edge

    def get_many(self, ids: Sequence[str]) -> list[Element | None]:
        """Many elements by id, read back to back with their values.

        In a large memory the processor then waits for all of them at once instead of one after another.
        """
        elements = self.elements
        found = [elements.get(id) for id in ids]
        _ = [element.values for element in found if element is not None]
        return found

    # --- changes ----------------------------------------------------------------------------------------------

    def add(self, element: Element) -> None:
        id, name = element.id, element.type
        self.elements[id] = element
        members = self.types.get(name)
        if members is None:
            members = self.types[name] = {}
        members[id] = element
        for index in self._by_type_indexes.get(name, ()):
            index.add(element)
        if element.targets is not None:
            self._add_adjacency(element)

    def remove(self, element: Element) -> None:
        del self.elements[element.id]
        del self.types[element.type][element.id]
        for index in self._by_type_indexes.get(element.type, ()):
            index.remove(element)
        if element.targets is not None:
            for ends, target in zip(self.adjacency[element.type], element.targets, strict=True):
                remove_posting(ends, target, element)

    def warm(self, ids: Sequence[str]) -> None:
        """Read what will be removed, so that it is in the CPU cache; see `get_many`."""
        found = self.get_many(ids)
        for name in {element.type for element in found if element is not None}:
            members = self.types[name]
            _ = [id in members for id in ids]

    def replace(self, old: Element, new: Element) -> None:
        """Replace `old` by a new version of the same element, which keeps its position in every scan."""
        self.elements[new.id] = new
        self.types[new.type][new.id] = new
        for index in self._by_type_indexes.get(new.type, ()):
            position = index.places[new.type]
            before, after = old.values[position], new.values[position]
            if before is after or index_key(before) == index_key(after):
                if index.entries.get(after) is old:
                    index.entries[after] = new
                else:
                    index.add(new)
            else:
                index.remove(old)
                index.add(new)
        if new.targets is not None:
            self._add_adjacency(new)

    def put(self, element: Element) -> None:
        """Add the element, or replace its current version."""
        old = self.elements.get(element.id)
        if old is None:
            self.add(element)
        else:
            self.replace(old, element)

    def _add_adjacency(self, edge: Element) -> None:
        positions = self.adjacency.get(edge.type)
        assert edge.targets is not None
        if positions is None:
            positions = self.adjacency[edge.type] = tuple({} for _ in edge.targets)
        for ends, target in zip(positions, edge.targets, strict=True):
            add_posting(ends, target, edge)

    # --- indexes ----------------------------------------------------------------------------------------------

    def ensure_index(self, owner: str, attribute: str, places: dict[str, int]) -> None:
        """Create the index on the attribute, if needed, and add all existing elements."""
        key = (owner, attribute)
        self.layout.attributes[key] = places
        known = self.indexes.get(key)
        if known is not None and known.places == places:
            return
        self._close_index(key)
        index = self._open_index(key)
        for element in self.scan(tuple(places)):
            index.add(element)

    def _open_index(self, key: tuple[str, str]) -> AttributeIndex:
        index = self.indexes[key] = AttributeIndex(self.layout.attributes[key])
        for name in index.places:
            self._by_type_indexes.setdefault(name, []).append(index)
        return index

    def _close_index(self, key: tuple[str, str]) -> None:
        index = self.indexes.pop(key, None)
        if index is not None:
            for name in index.places:
                self._by_type_indexes[name].remove(index)

    # --- statistics for the planner -----------------------------------------------------------------------------

    def count(self, types: Iterable[str]) -> int:
        return sum(len(self.types.get(name, ())) for name in types)

    def average_degree(self, edge: str, position: int) -> float:
        """The average number of edges of the type at this position, over elements that have any."""
        positions = self.adjacency.get(edge)
        if not positions or not positions[position]:
            return 0.0
        return len(self.types[edge]) / len(positions[position])

    def elements_per_value(self, owner: str, attribute: str) -> float:
        """The average number of elements per value of an indexed attribute."""
        index = self.indexes[owner, attribute]
        return max(1.0, self.count(index.places) / max(1, len(index.entries)))

    def validate(self) -> None:
        """Raise AssertionError unless every index agrees with the elements. For tests."""
        for name, members in self.types.items():
            assert all(
                self.elements.get(id) is element and element.type == name for id, element in members.items()
            )
        assert sum(map(len, self.types.values())) == len(self.elements)
        for edge, positions in self.adjacency.items():
            for position, ends in enumerate(positions):
                found = {e.id: target for target, held in ends.items() for e in postings(held)}
                assert found == {
                    e.id: e.targets[position] for e in self.scan((edge,)) if e.targets is not None
                }
                assert all(self.elements[e.id] is e for held in ends.values() for e in postings(held))
        for index in self.indexes.values():
            for value, held in index.entries.items():
                for element in postings(held):
                    assert self.elements[element.id] is element
                    assert index_key(element.values[index.places[element.type]]) == value
