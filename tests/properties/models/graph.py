"""Reference model of the graph: one dict, full scans, no index, no plan. The engine must agree with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.properties.models.ontology import CONCRETE, EdgeModel, OntologyModel

__all__ = ["Item", "ModelError", "ModelGraph", "ModelState", "ModelTransaction"]

CASCADES = {None: "as declared", True: "forced", False: "none"}


class ModelError(Exception):
    """The operation must fail with one of these codes."""

    def __init__(self, *codes: str) -> None:
        super().__init__(*codes)
        self.codes = codes


@dataclass(frozen=True)
class Item:
    """One version of a node or an edge; versions are compared by identity."""

    key: int
    type: str
    values: Mapping[str, Any]
    targets: tuple[int, ...] | None = None

    def __hash__(self) -> int:
        return id(self)


@dataclass
class ModelGraph:
    """A state: every item by its key."""

    ontology: OntologyModel
    items: dict[int, Item] = field(default_factory=dict)

    def nodes(self, type_name: str) -> Iterator[Item]:
        types = CONCRETE[type_name]
        return (i for i in self.items.values() if i.targets is None and i.type in types)

    def edges(self, name: str) -> Iterator[Item]:
        """Return the edges whose targets all exist.

        Another session may have deleted a target of an uncommitted edge.
        """
        return (
            i
            for i in self.items.values()
            if i.targets is not None and i.type == name and all(key in self.items for key in i.targets)
        )

    def incident(self, key: int) -> list[Item]:
        return [i for i in self.items.values() if i.targets is not None and key in i.targets]

    def fits(self, key: int, end: str) -> bool:
        item = self.items[key]
        if end.startswith("edge<"):
            return item.type == end[5:-1]
        return item.targets is None and item.type in CONCRETE[end]

    def orders(self, edge: Item) -> list[tuple[int, ...]]:
        """Return the orders in which the targets of a stored edge can match arguments. A symmetric edge has two."""
        assert edge.targets is not None
        if self.ontology.edges[edge.type].symmetric and edge.targets[0] != edge.targets[1]:
            return [edge.targets, edge.targets[::-1]]
        return [edge.targets]

    # Checks

    def check_unique(self, item: Item) -> None:
        value = item.values.get("u")
        if value is not None and any(
            other.key != item.key and other.values.get("u") == value
            for other in self.items.values()
            if other.targets is None
        ):
            raise ModelError("E3003")

    def twin(self, kind: EdgeModel, targets: tuple[int, ...]) -> Item | None:
        return next((e for e in self.edges(kind.name) if targets in self.orders(e)), None)

    def check_edge(self, kind: EdgeModel, targets: tuple[int, ...]) -> None:
        codes = []
        if (kind.no_self or kind.acyclic) and len(set(targets)) < len(targets):
            codes.append("E3012")
        if kind.unique and self.twin(kind, targets) is not None:
            codes.append("E3003")
        if kind.acyclic and targets[0] in self.reachable(kind.name, targets[1]):
            codes.append("E3011")
        for position, most in enumerate(kind.most):
            ends = targets if kind.symmetric else (targets[position],)
            if most is not None and any(self.degree(kind, position, end) >= most for end in ends):
                codes.append("E3010")
        if codes:
            raise ModelError(*codes)

    def degree(self, kind: EdgeModel, position: int, key: int) -> int:
        edges = [e.targets or () for e in self.edges(kind.name)]
        if kind.symmetric:
            return sum(targets.count(key) for targets in edges)
        return sum(targets[position] == key for targets in edges)

    def reachable(self, edge: str, start: int) -> set[int]:
        """Return all nodes reachable from `start` by a path of any length, including `start`."""
        found = {start}
        while True:
            more = {e.targets[1] for e in self.edges(edge) if e.targets and e.targets[0] in found} - found
            if not more:
                return found
            found |= more

    # Deletion

    def doomed(self, key: int, cascade: bool | None) -> set[int]:
        """Return the nodes that are deleted together with this node. Raise if a `prevent` rule forbids the deletion."""
        dead: set[int] = set()
        pending = [key]
        while pending:
            each = pending.pop()
            if each in dead:
                continue
            dead.add(each)
            for edge in self.incident(each):
                pending += self._dragged(edge, each, cascade)
        return dead

    def _dragged(self, edge: Item, key: int, cascade: bool | None) -> list[int]:
        kind = self.ontology.edges[edge.type]
        found = []
        for position, action in enumerate((kind.on_kill_source, kind.on_kill_target)):
            if edge.targets is None or len(edge.targets) != 2 or edge.targets[position] != key:
                continue
            if action == "prevent":
                raise ModelError("E3302")
            forced = cascade is True and position == 0
            if forced or (cascade is not False and action == "cascade"):
                other = edge.targets[1 - position]
                if other in self.items and self.items[other].targets is None:
                    found.append(other)
        return found

    def edges_lost(self, keys: set[int]) -> set[int]:
        """Return the edges that touch any of these items, and the edges about those edges."""
        lost: set[int] = set()
        pending = list(keys)
        while pending:
            for edge in self.incident(pending.pop()):
                if edge.key not in lost:
                    lost.add(edge.key)
                    pending.append(edge.key)
        return lost


class ModelTransaction:
    """Uncommitted writes over a committed state. `before` maps each written key to its value before the first write."""

    def __init__(self, committed: ModelGraph, *, snapshot: bool = False) -> None:
        self._committed = committed
        self._snapshot = dict(committed.items) if snapshot else None
        self.before: dict[int, Item | None] = {}
        self.writes: dict[int, Item | None] = {}
        self._savepoints: dict[str, tuple[dict[int, Item | None], dict[int, Item | None]]] = {}

    @property
    def base(self) -> dict[int, Item]:
        return self._snapshot if self._snapshot is not None else self._committed.items

    def view(self, base: dict[int, Item] | None = None) -> ModelGraph:
        items = {k: i for k, i in (self.base if base is None else base).items() if k not in self.writes}
        items |= {k: i for k, i in self.writes.items() if i is not None}
        return ModelGraph(self._committed.ontology, items)

    def write(self, key: int, item: Item | None) -> None:
        if key not in self.before:
            self.before[key] = self.base.get(key)
        self.writes[key] = item

    # Operations

    def spawn(self, key: int, type_name: str, values: Mapping[str, Any]) -> None:
        item = Item(key, type_name, values)
        self.view().check_unique(item)
        self.write(key, item)

    def assign(self, key: int, values: Mapping[str, Any]) -> None:
        view = self.view()
        if key not in view.items:
            raise ModelError("E3601")
        item = replace(view.items[key], values={**view.items[key].values, **values})
        view.check_unique(item)
        self.write(key, item)

    def link(
        self, key: int, name: str, targets: tuple[int, ...], values: Mapping[str, Any], *, once: bool
    ) -> bool:
        """Return True if a new edge was created."""
        view = self.view()
        kind = view.ontology.edges[name]
        if any(target not in view.items for target in targets):
            raise ModelError("E3601", "E2003")
        if not all(view.fits(target, end) for target, end in zip(targets, kind.ends, strict=True)):
            raise ModelError("E2003", "E3501")
        if (once or kind.symmetric) and view.twin(kind, targets) is not None:
            return False
        view.check_edge(kind, targets)
        self.write(key, Item(key, name, values, targets))
        return True

    def unlink(self, keys: set[int]) -> int:
        lost = keys | self.view().edges_lost(keys)
        for key in lost:
            self.write(key, None)
        return len(lost)

    def unlink_between(self, name: str, targets: tuple[int | None, ...]) -> int:
        view = self.view()
        found = {
            edge.key
            for edge in view.edges(name)
            if any(
                all(w is None or w == t for w, t in zip(targets, o, strict=True)) for o in view.orders(edge)
            )
        }
        if not found:
            raise ModelError("E3601")
        return self.unlink(found)

    def kill(self, key: int, cascade: bool | None) -> tuple[int, int]:
        view = self.view()
        if key not in view.items:
            raise ModelError("E3601")
        if view.items[key].targets is not None:
            raise ModelError("E3603")
        dead = view.doomed(key, cascade)
        lost = view.edges_lost(dead)
        for each in dead | lost:
            self.write(each, None)
        return len(dead), len(lost)

    # Savepoints, commit and rollback

    def savepoint(self, name: str) -> None:
        self._savepoints.pop(name, None)
        self._savepoints[name] = (dict(self.before), dict(self.writes))

    def rollback_to(self, name: str) -> None:
        if name not in self._savepoints:
            raise ModelError("E5006")
        before, writes = self._savepoints[name]
        self.before, self.writes = dict(before), dict(writes)
        names = list(self._savepoints)
        for later in names[names.index(name) + 1 :]:
            del self._savepoints[later]

    def net(self) -> dict[int, tuple[Item | None, Item | None]]:
        pairs = {k: (self.before[k], self.writes[k]) for k in self.writes}
        return {k: (old, new) for k, (old, new) in pairs.items() if _differ(old, new)}

    def conflicts(self) -> None:
        """Raise if the writes are no longer valid on the current committed state."""
        net = self.net()
        if not net:
            return
        now = self._committed.items
        if any(now.get(key) is not old for key, old in self.before.items()):
            raise ModelError("E5002")
        merged = self.view(now)
        codes: list[str] = []
        for key, (old, new) in net.items():
            if new is None:
                codes += ["E5002"] if merged.incident(key) else []
            elif new.targets is None:
                codes += _codes(lambda new=new: merged.check_unique(new))
            elif old is None:
                codes += self._recheck(merged, new)
        if codes:
            raise ModelError(*codes)

    def _recheck(self, merged: ModelGraph, edge: Item) -> list[str]:
        targets = edge.targets or ()
        if any(target not in merged.items for target in targets):
            return ["E5002"]
        others = ModelGraph(merged.ontology, {k: i for k, i in merged.items.items() if k != edge.key})
        return _codes(lambda: others.check_edge(merged.ontology.edges[edge.type], targets))

    def apply(self) -> None:
        for key, (_, new) in self.net().items():
            if new is None:
                self._committed.items.pop(key, None)
            else:
                self._committed.items[key] = new


class ModelState:
    """A committed graph and its open transactions."""

    def __init__(self, ontology: OntologyModel) -> None:
        self.committed = ModelGraph(ontology)
        self.open: dict[int, ModelTransaction] = {}
        self.aborted: set[int] = set()
        self.keys = 0
        self.commits = 0

    def new_key(self) -> int:
        self.keys += 1
        return self.keys

    def view(self, session: int) -> ModelGraph:
        return self.open[session].view() if session in self.open else self.committed


def _differ(old: Item | None, new: Item | None) -> bool:
    if old is None or new is None:
        return old is not new
    return dict(old.values) != dict(new.values)


def _codes(check: Any) -> list[str]:
    try:
        check()
    except ModelError as error:
        return list(error.codes)
    return []
