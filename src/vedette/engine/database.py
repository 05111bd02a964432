"""One database (= tenant): its state in memory, its store, and the turn that everyone who touches it must hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from threading import Lock
from typing import Any

from msgspec import MsgspecError

from vedette.change import Event
from vedette.clock import Clock
from vedette.element import Element
from vedette.engine.commit.encode import RIGHTS_KEY, TICK_KEY, Rights, encode_commits
from vedette.engine.commit.history import History
from vedette.engine.commit.lock import Turn
from vedette.engine.context.prepared import StatementCache
from vedette.engine.layer0.view import LayerZero
from vedette.engine.maintenance import Upkeep
from vedette.engine.reactor import Reactor
from vedette.engine.session.async_session import AsyncSession, DurableWaiters
from vedette.engine.session.session import Session
from vedette.engine.state.definition import grown_elements
from vedette.engine.state.graph_state import Commit, GraphState
from vedette.engine.watch_service.service import Watching
from vedette.errors import ConstraintViolation, StoreError, VedetteError, WatchError
from vedette.graph.graph import Graph
from vedette.language.compile.execution_context import Context
from vedette.language.parser import parse_declarations
from vedette.language.parser.limits import DEFAULT_LIMITS
from vedette.language.schema.extend import extend_schema
from vedette.language.schema.layer0 import layer0_schema
from vedette.language.schema.model import Schema
from vedette.settings import Settings
from vedette.storage.element_codec import ElementCodec
from vedette.storage.group_commit import CommitGate, GroupCommit, NullCommit
from vedette.storage.meta import damaged
from vedette.storage.seam import Loaded, Store
from vedette.values import timestamp_from_ms

__all__ = ["Database"]

_LISTED = 20
"""How many elements that contradict a definition are named when it is refused."""


class Database:
    """A graph with its ontology, sessions and journal. Every public method may be called from any thread."""

    def __init__(self, name: str, store: Store, settings: Settings, clock: Clock, *, keeps: bool) -> None:
        self.name = name
        self.settings = settings
        self.clock = clock
        self.turn = Lock()
        """Held by whoever reads or writes the state; never while waiting for a disk."""
        self.sessions: dict[str, Session] = {}
        self._reactors: list[Reactor] = []
        self.waiters = DurableWaiters(self)
        limits = replace(DEFAULT_LIMITS, max_source_characters=settings.max_statement_characters)
        self.statements = StatementCache(settings.plan_cache_size, limits)
        self._limits = limits
        self.work_limit = settings.max_statement_work
        self._store = store
        self._keeps = keeps
        self.foreign = False
        """Opened by the process that this one was forked from."""
        self._refusal: str | None = None
        """Why nothing is written any more."""
        self._closed = False
        self._load(self._first_facts(store))
        self.layer0 = LayerZero(self)
        self.watching = Watching(self)
        self.watching.creation.restore(self.stored_meta)
        self.watching.triggers.run(Turn(self))
        self._upkeep = Upkeep(self)
        self._upkeep.start()

    # --- opening and closing ----------------------------------------------------------------------------------

    def _load(self, facts: Loaded, lost: GraphState | None = None) -> None:
        """Take up what the store holds; `lost` is the state that it replaces after a failed flush."""
        try:
            state, codec = self._stored_state(facts)
        except StoreError:
            raise
        except (
            VedetteError,
            MsgspecError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as e:
            raise damaged(f"the database '{self.name}'", f"{type(e).__name__}: {e}".split("\n")[0]) from e
        if lost is not None:
            state.take_over(lost)
        self.boot, self.epoch = facts.boot, facts.epoch
        self.stored_meta = facts.meta
        self.rights = Rights(*json.loads(facts.meta.get(RIGHTS_KEY, "[0, 0]")))
        self.state, self._codec = state, codec
        self.history = History(
            self._store,
            lambda: self._codec,
            keeps=self._keeps,
            keep=self.settings.retained_commits,
            keep_bytes=self.settings.retained_megabytes << 20,
        )
        self.history.start(facts.tick)
        self.gate: CommitGate[Commit] = (
            GroupCommit(
                self._store,
                encode=lambda commits: encode_commits(lambda: self._codec, commits),
                tick=facts.tick,
                durability="relaxed" if self.settings.durability == "relaxed" else "fsync",
                name=self.name,
            )
            if self._keeps
            else NullCommit(facts.tick)
        )

    def _first_facts(self, store: Store) -> Loaded:
        try:
            return store.load()
        except (ArithmeticError, LookupError, TypeError, ValueError) as e:
            raise damaged(f"the database '{self.name}'", f"{type(e).__name__}: {e}".split("\n")[0]) from e

    def _stored_state(self, facts: Loaded) -> tuple[GraphState, ElementCodec]:
        schema = layer0_schema()
        for text in facts.definitions:
            schema = extend_schema(schema, parse_declarations(text, limits=self._limits), text)
        state = GraphState(
            schema,
            boot=facts.boot,
            sequence=facts.tick,
            tick=int(facts.meta.get(TICK_KEY, "0")),
            ticks_by_commit=self.settings.tick == "commit",
        )
        codec = ElementCodec(schema)
        load_elements(state.graph, codec, self._store)
        state.replan()
        return state, codec

    def close(self) -> None:
        """End all sessions and flush what is left. Closing twice is nothing."""
        with self.turn:
            if self._closed:
                return
            self._closed = True
        for reactor in self._reactors:
            reactor.close()  # while it can still note that it has dealt with what is in its hands
        with self.turn:
            self._refusal = self._closing
            sessions = list(self.sessions.values())
        self._upkeep.stop()
        self.watching.consuming.deliveries.stop()
        for session in sessions:
            session.close()
        self.watching.management.stop()
        try:
            self.gate.close()
        finally:
            self._store.close()
            with self.turn:
                self.watching.consuming.desk.clear()

    @property
    def _closing(self) -> str:
        return f"The database '{self.name}' is closed: open it again"

    def image(self, element: Element) -> bytes:
        """The element as the journal keeps it."""
        return self._codec.image(element)

    def from_image(self, image: Mapping[str, Any]) -> Element:
        return self._codec.from_image(image["_type"], image["id"], json.dumps(image).encode())

    def definitions(self) -> list[str]:
        """The declarations as they were given, oldest first; read from the store."""
        return list(self._store.facts().definitions)

    @property
    def keeps(self) -> bool:
        """Whether there is anything beyond memory."""
        return self._keeps

    def trim(self, before_ms: int) -> None:
        """Forget the journal's rows that are older."""
        self._store.trim(before_ms)

    @property
    def schema(self) -> Schema:
        return self.state.schema

    def session(self, actor: str | None = None) -> Session:
        """A new session. None is the system context (policy bypassed); else the node id of who is asking."""
        self.check_open()
        try:
            return Session(self, actor)
        finally:
            if actor is not None:  # whether there is such an actor is told, like all else, when it is durable
                self.wait(Turn(self).taken())

    def async_session(self, actor: str | None = None) -> AsyncSession:
        """A session for asyncio; open and use it inside a running loop."""
        self.check_open()
        return AsyncSession(self, actor)

    def reactor(
        self,
        name: str,
        watch_text: str,
        callback: Callable[[Event], object],
        params: Mapping[str, Any] | None = None,
        /,
        **named: Any,
    ) -> Reactor:
        """Call Python for every event of a watch, durably: the position under `name` survives restarts."""
        self.check_open()
        if any(reactor.name == name and reactor.running for reactor in self._reactors):
            raise WatchError(
                "E8010", f"Reactor '{name}' is running already: close it first, or take another name"
            )
        reactor = Reactor(self, name, watch_text, callback, {**(params or {}), **named})
        self._reactors.append(reactor)
        return reactor

    # --- defining ---------------------------------------------------------------------------------------------

    def define(self, text: str) -> None:
        """Add declarations. Identical ones are accepted; what would break the data is refused with the list."""
        self.admit()
        turn = Turn(self)
        try:
            with turn:
                self.check_writable()
                commit = self._define(text)
                if commit is not None:
                    self.gate.submit(commit.sequence, commit)
                    self.watching.committed(commit, 0)
                if commit is not None and commit.sequence == self.rights.sequence:
                    self.watching.lasting.rights_changed()
            self.watching.triggers.run(turn)
        finally:
            self.wait(turn)

    def _define(self, text: str) -> Commit | None:
        state, policies = self.state, self.schema.policies.keys()
        schema = extend_schema(state.schema, parse_declarations(text, limits=self._limits), text)
        if schema is state.schema:
            return None
        candidate = GraphState(schema, boot=0, sequence=0, tick=0, ticks_by_commit=False)
        candidate.program.check(text)
        changes, padded = grown_elements(state.graph, state.schema, schema, self.clock.now)
        self._check_data(schema, padded | {after.id: after for _, after in changes if after is not None})
        for session in self.sessions.values():
            session.abort("the ontology changed meanwhile")
        seen = self.watching.before_define()
        padded.update({before.id: before for before, _ in changes if before is not None})
        state.torn = True
        for id, element in padded.items():
            state.graph.replace(state.graph.elements[id], element)
        self._codec = ElementCodec(schema)
        self.history.widen(lambda name: len((schema.nodes.get(name) or schema.edges[name]).layout))
        state.apply(changes)
        state.use(schema)
        meta: tuple[tuple[str, str], ...] = ()
        if schema.policies.keys() != policies:
            self.rights = Rights(state.sequence + 1, state.tick)
            meta = ((RIGHTS_KEY, json.dumps(self.rights)),)
        commit = state.record(self.clock.now(), changes, definition=text, meta=meta)
        self.watching.after_define(seen, commit)
        return commit

    def _check_data(self, schema: Schema, padded: dict[str, Any]) -> None:
        """New constraints and new uniqueness must hold for what is there already."""
        old = self.state.schema
        fresh = [
            name for name in schema.constraints if name not in old.constraints and not name.startswith("_")
        ]
        trial = GraphState(schema, boot=0, sequence=0, tick=self.state.tick, ticks_by_commit=False)
        trial.graph = Graph(trial.layout)
        unique = _new_uniques(old, schema)
        if not fresh and not unique:
            return
        for element in self.state.graph.elements.values():
            trial.graph.add(padded.get(element.id, element))
        trial.use(schema)
        check_existing(trial, fresh, unique, self.clock)

    def moment(self) -> Callable[[], datetime]:
        """now(): the time of day, or logical time as milliseconds since 1970; one moment for a transaction (C19)."""
        present = self.clock.now() if self.settings.now == "wall" else timestamp_from_ms(self.state.tick)
        return lambda: present

    # --- for sessions -----------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Wait for room in the queue to the disk; refuse when nothing is written any more."""
        if self._refusal is not None:
            self.check_writable()
        self.gate.admit()

    def check_writable(self) -> None:
        """Refuse after a failed write and after closing. A commit asks with the turn held, when nothing can change."""
        if self._refusal is not None:
            raise StoreError("E6005", self._refusal)

    def check_open(self) -> None:
        if self._closed:
            raise StoreError("E6005", self._closing)

    def wait(self, turn: Turn) -> None:
        """Return when everything that was seen in the turn is durable. A failed flush makes the database read-only."""
        if turn.gate.durable_tick >= turn.seen:
            return
        try:
            turn.gate.wait(turn.seen)
        except StoreError as error:
            self.fail(error, turn)
            raise
        if self.watching.consuming.supply.crowded:
            self.watching.consuming.supply.let_in()

    def fail(self, error: StoreError, turn: Turn) -> None:
        """Fail-stop: what was not flushed never happened. Reload the last durable state, refuse writes from now on.

        When not even that can be read, the lost state stays, and with it its gate, which lets no result pass.
        """
        lost = turn.gate
        turn.seen = 0  # told now, and only once
        with self.turn:
            if lost is not self.gate:
                return
            self._refusal = self._refusal or (
                f"The database '{self.name}' is read-only since a write failed ({error.text}): "
                "mend the cause and open it again"
            )
            for session in self.sessions.values():
                session.abort("the store failed")
            try:
                self._load(self._store.facts(), self.state)
            except StoreError:
                return
            self.watching.reloaded()
        lost.close()

    def mend(self) -> None:
        """Load anew when a commit was cut short, by a Ctrl-C say: it is there whole or not at all. With the turn held.

        A database that keeps nothing has nowhere to load from.
        """
        lost = self.state
        if not self._keeps or not (lost.torn or lost.sequence > self.gate.submitted_tick):
            return
        for session in self.sessions.values():
            session.abort("a commit was interrupted")
        self.gate.close()  # makes durable what others submitted
        self._load(self._store.facts(), lost)
        lost.sequence = self.state.sequence
        self.watching.reloaded()

    @property
    def read_only(self) -> str | None:
        """Why writes are refused; None while they are not."""
        return self._refusal


def load_elements(graph: Graph, codec: ElementCodec, store: Store) -> None:
    add, decode = graph.add, codec.element
    for record in store.elements():
        add(decode(record))


def _new_uniques(old: Schema, new: Schema) -> list[tuple[str, str]]:
    known = {(a.owner, a.name) for n in old.nodes.values() for a in n.attributes.values() if a.unique}
    return sorted(
        {
            (a.owner, a.name)
            for n in new.nodes.values()
            for a in n.attributes.values()
            if a.unique and (a.owner, a.name) not in known and a.owner in old.nodes
        }
    )


def check_existing(
    state: GraphState, constraints: Sequence[str], uniques: Sequence[tuple[str, str]], clock: Clock
) -> None:
    """Raise when existing elements violate hard constraints or uniqueness declared just now, with the list."""
    found = list(islice(_contradictions(state, constraints, uniques, clock), _LISTED + 1))
    if not found:
        return
    texts = [error.text for error in found[:_LISTED]] + ["and more"] * (len(found) > _LISTED)
    raise ConstraintViolation(found[0].code, "; ".join(texts), fields=found[0].fields)


def _contradictions(
    state: GraphState, constraints: Sequence[str], uniques: Sequence[tuple[str, str]], clock: Clock
) -> Iterator[ConstraintViolation]:
    for owner, attribute in uniques:
        for value, held in state.graph.indexes[owner, attribute].entries.items():
            if isinstance(held, dict):
                text = f"Attribute '{attribute}' of '{owner}' cannot become unique: {value!r} occurs more than once"
                yield ConstraintViolation("E3003", text, fields={"type": owner, "attribute": attribute})
    moment: Callable[[], Any] = clock.now
    for constraint in state.program.constraints:
        if constraint.name in constraints and not constraint.soft:
            context = Context(view=state.graph, now=moment, tick=state.tick)
            for row in constraint.matches.everything(context):
                if constraint.violated_by(row):
                    text = constraint.describe(row)
                    yield ConstraintViolation("E3001", text, fields={"constraint": constraint.name})
