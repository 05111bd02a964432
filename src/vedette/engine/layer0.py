"""Layer 0, virtual: the engine's own structures as nodes and edges that MATCH can read and nobody can write.

Nothing is stored: a provider per type yields elements from the engine's structures when a statement asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from vedette.element import Element, View
from vedette.language.schema import EdgeType, NodeType, Schema
from vedette.language.types import describe

if TYPE_CHECKING:
    from vedette.engine.database import Database
    from vedette.engine.session import Session

__all__ = ["LayerView", "LayerZero"]

Provider = Callable[["Session"], Iterator[Element]]


class LayerZero:
    """The providers of one database. An actor sees its own sessions; the system context sees all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.providers: dict[str, Provider] = {
            "_Session": self._sessions,
            "_TickState": self._tick_state,
            "_Ontology": self._ontologies,
            "_NodeType": self._node_types,
            "_EdgeType": self._edge_types,
            "_AttributeDef": self._attributes,
            "_ConstraintDef": self._constraints,
            "_RuleDef": self._rules,
            "_PolicyRule": self._policies,
        }

    def scan(self, type_name: str, viewer: Session) -> Iterable[Element]:
        provider = self.providers.get(type_name)
        return provider(viewer) if provider is not None else ()

    # --- the engine -------------------------------------------------------------------------------------------

    def _sessions(self, viewer: Session) -> Iterator[Element]:
        for session in list(self._database.sessions.values()):
            if viewer.actor is None or session.actor == viewer.actor:
                yield Element(session.id, "_Session", (session.started_at,))

    def _tick_state(self, viewer: Session) -> Iterator[Element]:
        state = self._database.state
        yield Element("_tick", "_TickState", (state.tick, state.last_tick_at))

    # --- the ontology -----------------------------------------------------------------------------------------

    @property
    def _schema(self) -> Schema:
        return self._database.schema

    def _make(self, type_name: str, key: str, /, **values: Any) -> Element:
        layout = self._schema.nodes[type_name].layout
        return Element(f"{type_name}:{key}", type_name, tuple(values.get(attribute) for attribute in layout))

    def _ontologies(self, viewer: Session) -> Iterator[Element]:
        for name in self._schema.ontologies:
            yield self._make("_Ontology", name, name=name)

    def _node_types(self, viewer: Session) -> Iterator[Element]:
        for n in self._schema.nodes.values():
            parents = ", ".join(n.parents)
            yield self._make(
                "_NodeType",
                n.name,
                name=n.name,
                abstract=n.abstract,
                sealed=n.sealed,
                parents=parents,
                doc=n.doc,
            )

    def _edge_types(self, viewer: Session) -> Iterator[Element]:
        for e in self._schema.edges.values():
            facts = (
                "symmetric",
                "no_self",
                "acyclic",
                "unique",
                "on_kill_source",
                "on_kill_target",
                "doc",
                "arity",
            )
            joined = ", ".join(f"{p.name}: {describe(p.type)}" for p in e.parameters)
            yield self._make(
                "_EdgeType",
                e.name,
                name=e.name,
                parameters=joined,
                **{fact: getattr(e, fact) for fact in facts},
            )

    def _attributes(self, viewer: Session) -> Iterator[Element]:
        facts = ("optional", "required", "unique", "readonly", "indexed", "doc")
        holders: list[NodeType | EdgeType] = [*self._schema.nodes.values(), *self._schema.edges.values()]
        for holder in holders:
            for a in holder.attributes.values():
                if a.owner == holder.name:
                    yield self._make(
                        "_AttributeDef",
                        f"{a.owner}.{a.name}",
                        name=a.name,
                        owner=a.owner,
                        type=describe(a.type),
                        **{fact: getattr(a, fact) for fact in facts},
                    )

    def _constraints(self, viewer: Session) -> Iterator[Element]:
        for c in self._schema.constraints.values():
            yield self._make("_ConstraintDef", c.name, name=c.name, soft=c.soft, message=c.message, doc=c.doc)

    def _rules(self, viewer: Session) -> Iterator[Element]:
        for r in self._schema.rules.values():
            yield self._make("_RuleDef", r.name, name=r.name, priority=r.priority, manual=r.manual, doc=r.doc)

    def _policies(self, viewer: Session) -> Iterator[Element]:
        for p in self._schema.policies.values():
            yield self._make(
                "_PolicyRule",
                p.name,
                name=p.name,
                allow=p.allow,
                priority=p.priority,
                message=p.message,
                doc=p.doc,
            )


class LayerView:
    """A view of the graph with Layer 0 beside it."""

    def __init__(self, view: View, layer0: LayerZero, viewer: Session) -> None:
        self._view = view
        self._layer0 = layer0
        self._viewer = viewer

    def get(self, id: str) -> Element | None:
        found = self._view.get(id)
        if found is not None:
            return found
        for name in self._layer0.providers:
            for element in self._layer0.scan(name, self._viewer):
                if element.id == id:
                    return element
        return None

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        own = tuple(name for name in types if not name.startswith("_"))
        virtual = [self._layer0.scan(name, self._viewer) for name in types if name.startswith("_")]
        return chain(self._view.scan(own) if own else (), *virtual)

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        return self._view.lookup(owner, attribute, value)

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        if not edge.startswith("_"):
            return self._view.edges_at(edge, position, id)
        return [e for e in self._layer0.scan(edge, self._viewer) if e.targets and e.targets[position] == id]

    def incident(self, id: str) -> Iterable[Element]:
        return self._view.incident(id)
