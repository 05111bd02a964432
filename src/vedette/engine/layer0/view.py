"""Layer 0: the engine's own structures as nodes and edges that MATCH can read and no statement can write.

Nothing is stored. A provider per type yields elements from the engine's structures when a statement reads them. The
first letter of an id tells its kind, so that one element is found without scanning the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from vedette.element import Element, View
from vedette.language.schema.model import EdgeType, NodeType, Schema
from vedette.language.types import describe
from vedette.queue.reports import DeadLetter
from vedette.values import timestamp_from_ms
from vedette.watch.recent_events import RecentEvent, event_fields
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.context.session_context import Viewer
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = ["Layer0", "Layer0View", "Layer0Visibility"]

_ONTOLOGY = (
    "_Ontology",
    "_NodeType",
    "_EdgeType",
    "_AttributeDef",
    "_ConstraintDef",
    "_RuleDef",
    "_PolicyRule",
)
_TYPES_BY_ID_PREFIX = {
    "v": ("_WatchEvent",),
    "ev": ("_watch_event",),
    "el": ("_watch_dead_letter",),
    "i": ("_dead_letter_in",),
    "_": ("_TickState", *_ONTOLOGY),
}
"""Id prefix ▸ types to scan for it. Watches, sessions and letters are found directly."""


class Layer0Visibility:
    """What a viewer sees of Layer 0: the system context all, an actor its own; with META MATCH on `_Watch` every
    watch.
    """

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self.actor = viewer.actor

    @cached_property
    def every_watch(self) -> bool:
        if self.actor is None:
            return True
        return self._viewer.database.watching.management.may_see_all_watches(self._viewer)

    def sees_watch_of(self, actor: str | None) -> bool:
        return actor == self.actor or self.every_watch

    def sees_session_of(self, actor: str | None) -> bool:
        return self.actor is None or actor == self.actor


Provider = Callable[[Layer0Visibility], Iterator[Element]]


class Layer0:
    """The providers of one database."""

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

    def type_of(self, id: str, viewer: Viewer) -> str | None:
        """The type of the Layer 0 element with this id, if it exists and the viewer can see it."""
        element = self.find(id, Layer0Visibility(viewer))
        return element.type if element is not None else None

    def scan(self, type_name: str, visibility: Layer0Visibility) -> Iterable[Element]:
        provider = self.providers.get(type_name)
        return provider(visibility) if provider is not None else ()

    def find(self, id: str, visibility: Layer0Visibility) -> Element | None:
        """The element with this id, if it is visible."""
        kind = id[:2] if id[:1] == "e" else id[:1]
        if kind == "w":
            return self._find_watch(id, visibility)
        if kind == "s":
            session = self._database.sessions.get(id)
            seen = session is not None and visibility.sees_session_of(session.actor)
            return self.session_element(session) if seen and session is not None else None
        if kind == "l":
            letter = self._database.watching.consuming.dead_letters.letters.get(id)
            seen = letter is not None and visibility.sees_watch_of(letter.actor)
            return self._letter_element(letter) if seen and letter is not None else None
        if kind == "ew":
            watch = self._database.watching.management.find_by_id(id[1:])
            seen = watch is not None and visibility.sees_watch_of(watch.actor)
            return self.session_watch_edge(watch) if seen and watch is not None else None
        scanned = (
            element for name in _TYPES_BY_ID_PREFIX.get(kind, ()) for element in self.scan(name, visibility)
        )
        return next((element for element in scanned if element.id == id), None)

    def edges_at(self, edge: str, position: int, id: str, visibility: Layer0Visibility) -> Iterable[Element]:
        if edge != "_session_has_watch":
            return [e for e in self.scan(edge, visibility) if e.targets and e.targets[position] == id]
        if position == 1:
            found = self.find(f"e{id}", visibility)
            return (found,) if found is not None and found.type == edge else ()
        return [
            e
            for e in self._ownerships(self._watches_of_session(id), visibility)
            if e.targets and e.targets[0] == id
        ]

    # --- the engine -------------------------------------------------------------------------------------------

    def _sessions(self, visibility: Layer0Visibility) -> Iterator[Element]:
        for session in list(self._database.sessions.values()):
            if visibility.sees_session_of(session.actor):
                yield self.session_element(session)

    def session_element(self, session: Session) -> Element:
        return Element(session.id, "_Session", (session.started_at,))

    def _tick_state(self, visibility: Layer0Visibility) -> Iterator[Element]:
        state = self._database.state
        yield Element("_tick", "_TickState", (state.tick, state.last_tick_at))

    # --- watches ----------------------------------------------------------------------------------------------

    def _visible_watches(self, visibility: Layer0Visibility) -> Iterator[Watch]:
        for watch in list(self._database.watching.committed_index.watches.values()):
            if visibility.sees_watch_of(watch.actor):
                yield watch

    def _watches_of_session(self, id: str) -> Iterator[Watch]:
        watching = self._database.watching
        for number in list(watching.by_session.get(id, ())):
            watch = watching.committed_index.watches.get(number)
            if watch is not None:
                yield watch

    def _find_watch(self, id: str, visibility: Layer0Visibility) -> Element | None:
        watch = self._database.watching.management.find_by_id(id)
        if watch is not None:
            return self.watch_element(watch) if visibility.sees_watch_of(watch.actor) else None
        return next(
            (self.ended_watch_element(letter) for letter in self._letters(visibility) if letter.watch == id),
            None,
        )

    def _watches(self, visibility: Layer0Visibility) -> Iterator[Element]:
        known = set()
        for watch in self._visible_watches(visibility):
            element = self.watch_element(watch)
            known.add(element.id)
            yield element
        for letter in self._letters(visibility):
            if letter.watch not in known:
                known.add(letter.watch)
                yield self.ended_watch_element(letter)

    def ended_watch_element(self, letter: DeadLetter) -> Element:
        """A watch that no longer exists, as far as its dead letters describe it."""
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
            "pattern": self._database.watching.management.statement_text(watch),
            "mode": options.mode,
            "group": options.group,
            "status": str(watch.status),
            "ordering": options.ordering.kind,
            "delivery": options.delivery,
            "visibility": options.visibility,
            "buffer_size": options.buffer,
            "on_full": options.on_full,
            "created_at": timestamp_from_ms(watch.created_ms),
            "events_delivered": watch.delivered_count,
            "events_pending": watch.buffered_count + self._database.watching.consuming.ready_count(watch),
            "last_event_at": timestamp_from_ms(watch.last_event_ms) if watch.last_event_ms else None,
            "name": watch.details.name if watch.has_details else None,
            "session": watch.session_id,
        }
        layout = self._schema.nodes["_Watch"].layout
        id = self._database.watching.id_of(watch)
        return Element(id, "_Watch", tuple(values.get(attribute) for attribute in layout))

    def _visible_events(self, visibility: Layer0Visibility) -> Iterator[RecentEvent]:
        """Events of visible watches: recently delivered and buffered ones, each once."""
        watches = {watch.number: watch for watch in self._visible_watches(visibility)}
        buffers = [(watch, watch.buffer) for watch in watches.values() if watch.buffer is not None]
        waiting = [
            RecentEvent(*event_fields(watch, entry)) for watch, buffer in buffers for entry in buffer.peek()
        ]
        handed_out = [
            event for event in self._database.watching.recent_events if event.watch.number in watches
        ]
        found = {(event.watch.number, event.position): event for event in (*handed_out, *waiting)}
        yield from found.values()

    def _event_id(self, event: RecentEvent) -> str:
        return f"v{self._database.watching.id_of(event.watch)[1:]}_{event.position:x}"

    def _watch_events(self, visibility: Layer0Visibility) -> Iterator[Element]:
        for event in self._visible_events(visibility):
            moment = timestamp_from_ms(event.at_ms or event.watch.last_event_ms or event.watch.created_ms)
            values = (event.type, event.tick, event.delivery_id, moment)
            yield Element(self._event_id(event), "_WatchEvent", values)

    def _watch_event_edges(self, visibility: Layer0Visibility) -> Iterator[Element]:
        for event in self._visible_events(visibility):
            ends = (self._database.watching.id_of(event.watch), self._event_id(event))
            yield Element(f"e{ends[1]}", "_watch_event", (event.position,), ends)

    def _session_watches(self, visibility: Layer0Visibility) -> Iterator[Element]:
        return self._ownerships(self._visible_watches(visibility), visibility)

    def _ownerships(self, watches: Iterable[Watch], visibility: Layer0Visibility) -> Iterator[Element]:
        for watch in watches:
            edge = self.session_watch_edge(watch) if visibility.sees_watch_of(watch.actor) else None
            if edge is not None:
                yield edge

    def session_watch_edge(self, watch: Watch) -> Element | None:
        """The edge from its session to a watch; None if the watch has outlived its session."""
        if watch.session_id is None:
            return None
        id = self._database.watching.id_of(watch)
        return Element(f"e{id}", "_session_has_watch", (), (watch.session_id, id))

    # --- dead letters -----------------------------------------------------------------------------------------

    def _letters(self, visibility: Layer0Visibility) -> Iterator[DeadLetter]:
        """Letters of watches that the viewer may see."""
        for letter in list(self._database.watching.consuming.dead_letters.letters.values()):
            if visibility.sees_watch_of(letter.actor):
                yield letter

    def _dead_letters(self, visibility: Layer0Visibility) -> Iterator[Element]:
        return map(self._letter_element, self._letters(visibility))

    def _letter_element(self, letter: DeadLetter) -> Element:
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
        layout = self._schema.nodes["_DeadLetter"].layout
        return Element(letter.id, "_DeadLetter", tuple(values[attribute] for attribute in layout))

    def _dead_letter_edges(self, visibility: Layer0Visibility) -> Iterator[Element]:
        for letter in self._letters(visibility):
            yield Element(f"e{letter.id}", "_watch_dead_letter", (), (letter.watch, letter.id))

    def _destination_edges(self, visibility: Layer0Visibility) -> Iterator[Element]:
        graph = self._database.state.graph
        for letter in self._letters(visibility):
            if letter.destination is not None and graph.get(letter.destination) is not None:
                yield Element(f"i{letter.id}", "_dead_letter_in", (), (letter.destination, letter.id))

    # --- the ontology -----------------------------------------------------------------------------------------

    @property
    def _schema(self) -> Schema:
        return self._database.schema

    def _make(self, type_name: str, key: str, /, **values: Any) -> Element:
        layout = self._schema.nodes[type_name].layout
        return Element(f"{type_name}:{key}", type_name, tuple(values.get(attribute) for attribute in layout))

    def _ontologies(self, visibility: Layer0Visibility) -> Iterator[Element]:
        for name in self._schema.ontologies:
            yield self._make("_Ontology", name, name=name)

    def _node_types(self, visibility: Layer0Visibility) -> Iterator[Element]:
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

    def _edge_types(self, visibility: Layer0Visibility) -> Iterator[Element]:
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

    def _attributes(self, visibility: Layer0Visibility) -> Iterator[Element]:
        facts = ("optional", "required", "unique", "readonly", "indexed", "doc")
        holders: list[NodeType | EdgeType] = [*self._schema.nodes.values(), *self._schema.edges.values()]
        for holder in holders:
            for a in holder.attributes.values():
                if a.declared_in == holder.name:
                    yield self._make(
                        "_AttributeDef",
                        f"{a.declared_in}.{a.name}",
                        name=a.name,
                        owner=a.declared_in,
                        type=describe(a.type),
                        **{fact: getattr(a, fact) for fact in facts},
                    )

    def _constraints(self, visibility: Layer0Visibility) -> Iterator[Element]:
        for c in self._schema.constraints.values():
            yield self._make("_ConstraintDef", c.name, name=c.name, soft=c.soft, message=c.message, doc=c.doc)

    def _rules(self, visibility: Layer0Visibility) -> Iterator[Element]:
        for r in self._schema.rules.values():
            yield self._make("_RuleDef", r.name, name=r.name, priority=r.priority, manual=r.manual, doc=r.doc)

    def _policies(self, visibility: Layer0Visibility) -> Iterator[Element]:
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


class Layer0View:
    """The graph together with Layer 0."""

    def __init__(self, view: View, layer0: Layer0, viewer: Viewer) -> None:
        self._view = view
        self._layer0 = layer0
        self._visibility = Layer0Visibility(viewer)

    def get(self, id: str) -> Element | None:
        found = self._view.get(id)
        return found if found is not None else self._layer0.find(id, self._visibility)

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        own = tuple(name for name in types if not name.startswith("_"))
        virtual = [self._layer0.scan(name, self._visibility) for name in types if name.startswith("_")]
        return chain(self._view.scan(own) if own else (), *virtual)

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        return self._view.lookup(owner, attribute, value)

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        if not edge.startswith("_"):
            return self._view.edges_at(edge, position, id)
        return self._layer0.edges_at(edge, position, id, self._visibility)

    def incident(self, id: str) -> Iterable[Element]:
        return self._view.incident(id)
