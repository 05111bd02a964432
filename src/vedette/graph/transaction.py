"""One transaction: an overlay of writes on the committed graph, checked as they are made.

Checked at the operation: targets, types, unique, no_self, acyclic, maximum cardinality, referential actions.
Checked at commit by `GraphState.commit`: conflicts with concurrent commits, minimum cardinality, constraints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vedette.element import Element, View
from vedette.errors import TransactionError
from vedette.graph import integrity
from vedette.graph.graph import IndexLayout
from vedette.graph.overlay import Overlay
from vedette.graph.type_layout import SchemaLayout
from vedette.language.schema.model import EdgeType

__all__ = ["ChangeCounts", "Transaction", "differs"]

_ABSENT = object()


def differs(old: Element | None, new: Element | None) -> bool:
    """True if two versions of an element differ in a value or its type: true is not 1."""
    if old is None or new is None:
        return new is not old
    return old is not new and not (old.values == new.values and all(map(_same_kind, old.values, new.values)))


def _same_kind(left: Any, right: Any) -> bool:
    return type(left) is type(right)


class ChangeCounts:
    """The counts of a statement's result: nodes created, modified and deleted, edges linked and unlinked."""

    __slots__ = ("created", "deleted", "linked", "modified", "unlinked")

    def __init__(self) -> None:
        self.created = self.modified = self.deleted = self.linked = self.unlinked = 0


class Transaction:
    """Uncommitted writes. `view` includes them; `before_images` has the base version of each touched element."""

    __slots__ = (
        "_log",
        "_savepoints",
        "before_images",
        "counts",
        "new_id",
        "published",
        "tables",
        "touched",
        "view",
    )

    def __init__(
        self,
        base: View,
        layout: IndexLayout,
        tables: SchemaLayout,
        new_id: Callable[[str], str],
        counts: ChangeCounts | None = None,
    ) -> None:
        """`counts` receives the number of created, changed and deleted elements."""
        self.view = Overlay(base, layout)
        self.before_images: dict[str, Element | None] = {}
        self.tables = tables
        self.new_id = new_id
        self.counts = counts if counts is not None else ChangeCounts()
        self.touched: dict[str, Element | None] | None = None
        """If set (by rules): id ▸ the version before, for everything written since."""
        self.published: dict[str, Element | None] = {}
        """Versions that were published before the commit (visibility: immediate)."""
        self._log: list[tuple[str, Any, bool]] = []
        self._savepoints: dict[str, int] = {}

    # --- operations -------------------------------------------------------------------------------------------

    def spawn(self, node: Element) -> None:
        self._check_values(node)
        self._put(None, node)
        self.counts.created += 1

    def link(self, edge: EdgeType, element: Element) -> None:
        assert element.targets is not None
        integrity.check_edge(self.view, edge, element.targets)
        self._check_values(element)
        self._put(None, element)
        self.counts.linked += 1

    def find_edge(self, edge: EdgeType, targets: tuple[str, ...]) -> Element | None:
        """The edge of this type between these targets (in either order if symmetric), if it exists."""
        return integrity.existing_edge(self.view, edge, targets)

    def update(self, element: Element, new: Element) -> None:
        table = self.tables.types[new.type]
        if table.uniques or table.references:
            self._check_values(new, element)
        self._put(element, new)
        self.counts.modified += 1

    def kill(self, node: Element, cascade: bool | None) -> list[Element]:
        """Delete a node with the referential actions of its edges. Return the deleted nodes, this one first."""
        to_delete = integrity.nodes_to_delete(self.view, self.tables.schema, node, cascade)
        for each in to_delete:
            for edge in list(self.view.incident(each.id)):
                if self.view.get(edge.id) is not None:
                    self.unlink(edge)
            self._drop(each)
            self.counts.deleted += 1
        return to_delete

    def unlink(self, edge: Element) -> None:
        """Delete an edge and, recursively, every edge that targets it."""
        pending = [edge]
        while pending:
            each = pending.pop()
            if self.view.get(each.id) is None:
                continue
            pending.extend(self.view.incident(each.id))
            self._drop(each)
            self.counts.unlinked += 1

    def _check_values(self, element: Element, old: Element | None = None) -> None:
        table = self.tables.types[element.type]
        if table.uniques:
            integrity.check_uniques(self.view, table, element)
        if table.references:
            integrity.check_references(self.view, self.tables.schema, table, element, old)

    # --- writes -----------------------------------------------------------------------------------------------

    def _put(self, old: Element | None, new: Element) -> None:
        self._save_before_image(new.id, old)
        self.view.put(new)

    def _drop(self, element: Element) -> None:
        self._save_before_image(element.id, element)
        self.view.delete(element.id)

    def _save_before_image(self, id: str, old: Element | None) -> None:
        if self._savepoints:
            self._log.append((id, self.view.versions.get(id, _ABSENT), id not in self.before_images))
        self.before_images.setdefault(id, old)
        if self.touched is not None:
            self.touched.setdefault(id, old)

    # --- savepoints -------------------------------------------------------------------------------------------

    def savepoint(self, name: str) -> None:
        self._savepoints.pop(name, None)
        self._savepoints[name] = len(self._log)

    def rollback_to(self, name: str) -> None:
        """Undo everything since the savepoint. The savepoint stays usable; later ones are removed."""
        if name not in self._savepoints:
            raise TransactionError("E5006", f"Savepoint '{name}' does not exist", fields={"savepoint": name})
        mark = self._savepoints[name]
        while len(self._log) > mark:
            id, state, first = self._log.pop()
            if state is _ABSENT:
                self.view.revert(id)
            elif state is None:
                self.view.delete(id)
            else:
                self.view.put(state)
            if first:
                del self.before_images[id]
        names = list(self._savepoints)
        for later in names[names.index(name) + 1 :]:
            del self._savepoints[later]

    # --- uncommitted visibility -------------------------------------------------------------------------------

    def take_unpublished(self) -> list[tuple[Element | None, Element | None]]:
        """The changes since the last call, for publication before the commit."""
        changes = []
        touched = {**dict.fromkeys(self.before_images), **dict.fromkeys(self.published)}
        for id in touched:
            now = self.view.get(id)
            last = self.published.get(id, self.before_images.get(id))
            if now is not last:
                changes.append((last, now))
                self.published[id] = now
        return changes

    # --- result -----------------------------------------------------------------------------------------------

    def net_changes(self) -> list[tuple[Element | None, Element | None]]:
        """The net effect: (before, after) of every changed element, in the order of first change."""
        net = []
        hidden = self.view.versions
        for id, old in self.before_images.items():
            new = hidden[id]
            if new is not old and differs(old, new):
                net.append((old, new))
        return net
