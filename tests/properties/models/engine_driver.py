"""Runs the operations of the graph model on the engine and returns their outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import vedette
from tests.properties.models.graph import Item, ModelGraph
from vedette.testing import ManualClock

__all__ = ["Driver", "elements_of"]

SETTINGS = vedette.Settings(manage_gc=False, durability="relaxed")


class Driver:
    """A database and its sessions. Elements are identified by the keys of the model."""

    def __init__(self, ontology: str, location: str = ":memory:", sessions: int = 1) -> None:
        self.location = location
        self.vedette = vedette.open(location, settings=SETTINGS, clock=ManualClock())
        self.vedette.define(ontology)
        self.sessions = [self.vedette.session() for _ in range(sessions)]
        self.ids: dict[int, str] = {}

    def close(self) -> None:
        self.vedette.close()

    def reopen(self) -> None:
        self.vedette.close()
        self.vedette = vedette.open(self.location, settings=SETTINGS, clock=ManualClock())

    def run(
        self, text: str, params: Mapping[str, Any] | None = None, session: int = 0
    ) -> vedette.Result | vedette.VedetteError:
        try:
            return self.sessions[session].execute(text, params)
        except vedette.VedetteError as error:
            return error

    def define(self, text: str) -> vedette.VedetteError | None:
        try:
            self.vedette.define(text)
        except vedette.VedetteError as error:
            return error
        return None

    def rows(self, text: str, session: int = 0) -> list[tuple[Any, ...]]:
        return self.sessions[session].execute(text).rows

    # Operations, the same as those of the model

    def spawn(self, key: int, type_name: str, values: Mapping[str, Any], session: int = 0) -> Any:
        return self._make(key, f"SPAWN v: {type_name} {{ {_assignments(values)} }}", values, session)

    def link(
        self,
        key: int,
        edge: str,
        targets: tuple[int, ...],
        values: Mapping[str, Any],
        session: int = 0,
        *,
        once: bool = False,
    ) -> Any:
        ids = {f"t{i}": self.ids[target] for i, target in enumerate(targets)}
        ends = ", ".join(f"#${name}" for name in ids)
        text = f"LINK {'IF NOT EXISTS ' if once else ''}v: {edge}({ends}) {{ {_assignments(values)} }}"
        return self._make(key, text, {**values, **ids}, session)

    def _make(self, key: int, text: str, params: Mapping[str, Any], session: int) -> Any:
        outcome = self.run(text, params, session)
        if isinstance(outcome, vedette.Result) and outcome.created + outcome.linked:
            self.ids[key] = self.sessions[session].bindings["v"]
        return outcome

    def assign(self, key: int, values: Mapping[str, Any], session: int = 0) -> Any:
        return self.run(f"SET #$id {{ {_assignments(values)} }}", {**values, "id": self.ids[key]}, session)

    def kill(self, key: int, cascade: bool | None, session: int = 0) -> Any:
        words = {None: "", True: " CASCADE", False: " NO CASCADE"}[cascade]
        return self.run(f"KILL #$id{words}", {"id": self.ids[key]}, session)

    def unlink(self, key: int, session: int = 0) -> Any:
        return self.run("UNLINK #$id", {"id": self.ids[key]}, session)

    def unlink_between(self, edge: str, targets: tuple[int | None, ...], session: int = 0) -> Any:
        ids = {f"t{i}": self.ids[target] for i, target in enumerate(targets) if target is not None}
        ends = ", ".join("_" if t is None else f"#$t{i}" for i, t in enumerate(targets))
        return self.run(f"UNLINK {edge}({ends})", ids, session)

    def load(self, graph: ModelGraph) -> None:
        """Create every item of a model in the database."""
        for item in graph.items.values():
            if item.targets is None:
                outcome = self.spawn(item.key, item.type, item.values)
            else:
                outcome = self.link(item.key, item.type, item.targets, item.values)
            assert isinstance(outcome, vedette.Result), outcome

    def validate(self) -> None:
        self.vedette.default.state.graph.validate()


def _assignments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = ${name}" for name in values)


def elements_of(driver: Driver) -> dict[int, Item]:
    """Return the committed state of the engine in the form of the model."""
    state = driver.vedette.default.state
    found: dict[int, Item] = {}
    keys: dict[str, int] = {}
    for element in state.graph.elements.values():
        holder = state.schema.nodes.get(element.type) or state.schema.edges[element.type]
        values = dict(zip(holder.layout, element.values, strict=True))
        keys[element.id] = values["k"]
        found[values["k"]] = Item(values["k"], element.type, values)
    for element in state.graph.elements.values():
        if element.targets is not None:
            item = found[keys[element.id]]
            targets = tuple(keys[target] for target in element.targets)
            found[item.key] = Item(item.key, item.type, item.values, targets)
    return found
