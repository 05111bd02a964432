"""Nodes and edges as matching sees them, and the views through which it reads them.

An `Element` is one immutable version of a node or an edge; a change creates a new one. A version can be shared by a
transaction, a snapshot, the log and a watch, and before-images cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

__all__ = ["Element", "View"]


@mypyc_attr(acyclic=True)  # compiled, it is not tracked by the garbage collector
class Element:
    """One version of a node (`targets` is None) or an edge. Compare versions with `is`, identities by `id`."""

    __slots__ = ("id", "targets", "type", "values")

    def __init__(
        self, id: str, type: str, values: tuple[Any, ...], targets: tuple[str, ...] | None = None
    ) -> None:
        self.id = id
        self.type = type
        self.values = values
        """Attribute values in the order of the schema's layout of `type`."""
        self.targets = targets

    def __repr__(self) -> str:
        joined = "" if self.targets is None else f"({', '.join(self.targets)})"
        return f"<{self.type}{joined} {self.id} {self.values}>"


class View(Protocol):
    """A state of the graph: committed, with a transaction's writes, before a commit, or as an actor may see it.

    Iterables may be live: read them completely or copy them before the underlying state changes.
    """

    def get(self, id: str, /) -> Element | None:
        """The element with this id, or None."""
        ...

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        """Every element whose own type is one of these."""
        ...

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        """Elements of type `owner` or below with this value; only for attributes that have an index."""
        ...

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        """Edges of the type that have the element `id` at this position."""
        ...

    def incident(self, id: str) -> Iterable[Element]:
        """Every edge that joins the element `id`, each once."""
        ...
