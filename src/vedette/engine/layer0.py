"""Layer 0, virtual: the engine's own structures as nodes and edges that MATCH can read and nobody can write.

Nothing is stored: a provider per type yields elements from the engine's structures when a statement asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from vedette.consume.letter import DeadLetter
from vedette.element import Element, View
from vedette.language.schema import EdgeType, NodeType, Schema
from vedette.language.types import describe
from vedette.values import timestamp_from_ms
from vedette.watch.buffer import Entry
from vedette.watch.watch import Watch

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
            "_Watch": self._watches,
            "_WatchEvent": self._watch_events,
            "_session_has_watch": self._session_watches,
            "_watch_event": self._watch_event_edges,
            "_DeadLetter": self._dead_letters,
            "_watch_dead_letter": self._dead_letter_edges,
            "_dead_letter_in": self._destination_edges,
            "_Ontology": self._ontologies,
            "_NodeType": self._node_types,
            "_EdgeType": self._edge_types,
            "_AttributeDef": self._attributes,
            "_ConstraintDef": self._constraints,
            "_RuleDef": self._rules,
            "_PolicyRule": self._policies,
        }

    def type_of(self, id: str, viewer: Session) -> str | None:
        """The type of the Layer 0 element with this id, if there is one that the viewer sees."""
        for name in self.providers:
            if any(element.id == id for element in self.scan(name, viewer)):
                return name
        return None

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

    # --- watches ----------------------------------------------------------------------------------------------

    def _visible_watches(self, viewer: Session) -> Iterator[Watch]:
        """The system context sees all, an actor its own; whoever has META MATCH on `_Watch` sees all too."""
        everything = viewer.actor is None or self._database.watching.management.may_see_all(viewer)
        for watch in list(self._database.watching.hub.watches.values()):
            if everything or watch.actor == viewer.actor:
                yield watch

    def _watches(self, viewer: Session) -> Iterator[Element]:
        known = set()
        for watch in self._visible_watches(viewer):
            element = self.watch_element(watch)
            known.add(element.id)
            yield element
        for letter in self._letters(viewer):
            if letter.watch not in known:
                known.add(letter.watch)
                yield self._former_watch(letter)

    def _former_watch(self, letter: DeadLetter) -> Element:
        """A watch that is gone, as far as its dead letters remember it."""
        values = {
            "pattern": letter.pattern,
            "mode": "consume",
            "group": letter.group,
            "status": "cancelled",
            "created_at": timestamp_from_ms(letter.created_ms),
            "events_delivered": 0,
            "events_pending": 0,
        }
        layout = self._schema.nodes["_Watch"].layout
        return Element(letter.watch, "_Watch", tuple(values.get(attribute) for attribute in layout))

    def watch_element(self, watch: Watch) -> Element:
        options = watch.options
        values = {
            "pattern": self._database.watching.management.text_of(watch),
            "mode": options.mode,
            "group": options.group,
            "status": str(watch.status),
            "ordering": options.ordering.kind,
            "delivery": options.delivery,
            "visibility": options.visibility,
            "buffer_size": options.buffer,
            "on_full": options.on_full,
            "created_at": timestamp_from_ms(watch.created_ms),
            "events_delivered": watch.delivered,
            "events_pending": watch.pending + self._database.watching.consuming.waiting(watch),
            "last_event_at": timestamp_from_ms(watch.last_event_ms) if watch.last_event_ms else None,
            "name": watch.details.name if watch.has_details else None,
            "session": watch.owner,
        }
        layout = self._schema.nodes["_Watch"].layout
        id = self._database.watching.id_of(watch)
        return Element(id, "_Watch", tuple(values.get(attribute) for attribute in layout))

    def _retained(self, viewer: Session) -> Iterator[tuple[Watch, Entry]]:
        """Events of the watches that the viewer sees: those handed out lately, and those that wait."""
        watches = {watch.number: watch for watch in self._visible_watches(viewer)}
        for watch, entry in list(self._database.watching.recent):
            if watch.number in watches:
                yield watch, entry
        for watch in watches.values():
            for entry in watch.buffer.peek() if watch.buffer is not None else ():
                yield watch, entry

    def _event_id(self, watch: Watch, entry: Entry) -> str:
        return f"v{self._database.watching.id_of(watch)[1:]}_{entry.position:x}"

    def _watch_events(self, viewer: Session) -> Iterator[Element]:
        for watch, entry in self._retained(viewer):
            moment = timestamp_from_ms(watch.last_event_ms or watch.created_ms)
            delivery = entry.delta.delivery
            values = (entry.delta.type, entry.tick, delivery[0] if delivery is not None else None, moment)
            yield Element(self._event_id(watch, entry), "_WatchEvent", values)

    def _watch_event_edges(self, viewer: Session) -> Iterator[Element]:
        for watch, entry in self._retained(viewer):
            ends = (self._database.watching.id_of(watch), self._event_id(watch, entry))
            yield Element(f"e{ends[1]}", "_watch_event", (entry.position,), ends)

    def _session_watches(self, viewer: Session) -> Iterator[Element]:
        for watch in self._visible_watches(viewer):
            if watch.owner is not None:
                id = self._database.watching.id_of(watch)
                yield Element(f"e{id}", "_session_has_watch", (), (watch.owner, id))

    # --- dead letters -----------------------------------------------------------------------------------------

    def _letters(self, viewer: Session) -> Iterator[DeadLetter]:
        """Letters of the watches that the viewer may see."""
        watching = self._database.watching
        everything = viewer.actor is None or watching.management.may_see_all(viewer)
        for letter in list(watching.consuming.letters.letters.values()):
            if everything or letter.actor == viewer.actor:
                yield letter

    def _dead_letters(self, viewer: Session) -> Iterator[Element]:
        layout = self._schema.nodes["_DeadLetter"].layout
        for letter in self._letters(viewer):
            values = {
                "original_match": letter.match,
                "failure_reason": letter.reason,
                "delivery_attempts": letter.attempts,
                "created_at": timestamp_from_ms(letter.created_ms),
                "failures": letter.failures,
                "timeouts": letter.timeouts,
                "cause": letter.cause,
                "element": letter.element,
            }
            yield Element(letter.id, "_DeadLetter", tuple(values[attribute] for attribute in layout))

    def _dead_letter_edges(self, viewer: Session) -> Iterator[Element]:
        for letter in self._letters(viewer):
            yield Element(f"e{letter.id}", "_watch_dead_letter", (), (letter.watch, letter.id))

    def _destination_edges(self, viewer: Session) -> Iterator[Element]:
        graph = self._database.state.graph
        for letter in self._letters(viewer):
            if letter.destination is not None and graph.get(letter.destination) is not None:
                yield Element(f"i{letter.id}", "_dead_letter_in", (), (letter.destination, letter.id))

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
