"""One database (tenant): its state in memory, its store, and the engine lock."""

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
from vedette.engine.commit.encode import POLICY_CHANGE_NOTE, TICK_NOTE, PolicyChange, encode_commits
from vedette.engine.commit.history import CommitHistory
from vedette.engine.commit.lock import LockScope
from vedette.engine.context.prepared import StatementCache
from vedette.engine.layer0.view import Layer0
from vedette.engine.maintenance import Maintenance
from vedette.engine.reactor import Reactor
from vedette.engine.session.async_session import AsyncSession, DurableWaiters
from vedette.engine.session.session import Session
from vedette.engine.state.definition import pad_elements
from vedette.engine.state.graph_state import Commit, GraphState
from vedette.engine.watch_service.service import WatchService
from vedette.errors import ConstraintViolation, StoreError, VedetteError, WatchError
from vedette.graph.graph import Graph
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.parser import parse_declarations
from vedette.language.parser.lexer import DEFAULT_PARSER_LIMITS
from vedette.language.schema.extend import extend_schema
from vedette.language.schema.layer0 import layer0_schema
from vedette.language.schema.model import Schema
from vedette.settings import Settings
from vedette.storage.element_codec import ElementCodec
from vedette.storage.group_commit import GroupCommitLogWriter, LogWriter, NullLogWriter
from vedette.storage.meta import store_corrupt
from vedette.storage.seam import Store, StoreInfo
from vedette.values import timestamp_from_ms

__all__ = ["Database"]

_MAX_LISTED_VIOLATIONS = 20
"""Maximum number of violating elements listed when a definition is rejected."""


class Database:
    """A graph with its ontology, sessions and log. Public methods may be called from any thread."""

    def __init__(self, name: str, store: Store, settings: Settings, clock: Clock, *, keeps: bool) -> None:
        self.name = name
        self.settings = settings
        self.clock = clock
        self.lock = Lock()
        """The engine lock: held while reading or writing the state, never while waiting for the disk."""
        self.sessions: dict[str, Session] = {}
        self._reactors: list[Reactor] = []
        self.durable_waiters = DurableWaiters(self)
        limits = replace(DEFAULT_PARSER_LIMITS, max_source_characters=settings.max_statement_characters)
        self.statements = StatementCache(settings.plan_cache_size, limits)
        self._limits = limits
        self.work_limit = settings.max_statement_work
        self._store = store
        self._keeps = keeps
        self.is_forked_copy = False
        """True in a forked child of the process that opened the database."""
        self._refusal: str | None = None
        """Why the database is read-only; None if it is not."""
        self._closed = False
        self._load(self._first_facts(store))
        self.layer0 = Layer0(self)
        self.watching = WatchService(self)
        self.watching.creation.restore(self.stored_notes)
        self.watching.triggers.run_pending(LockScope(self))
        self._maintenance = Maintenance(self)
        self._maintenance.start()

    # --- opening and closing ----------------------------------------------------------------------------------

    def _load(self, facts: StoreInfo, lost: GraphState | None = None) -> None:
        """Load the stored state. `lost` is the state it replaces after a failed flush."""
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
            raise store_corrupt(
                f"the database '{self.name}'", f"{type(e).__name__}: {e}".split("\n")[0]
            ) from e
        if lost is not None:
            state.continue_from(lost)
        self.boot, self.epoch = facts.boot_count, facts.epoch
        self.stored_notes = facts.meta
        self.last_policy_change = PolicyChange(*json.loads(facts.meta.get(POLICY_CHANGE_NOTE, "[0, 0]")))
        self.state, self._codec = state, codec
        self.history = CommitHistory(
            self._store,
            lambda: self._codec,
            keeps=self._keeps,
            keep=self.settings.retained_commits,
            keep_bytes=self.settings.retained_megabytes << 20,
        )
        self.history.reset(facts.sequence)
        self.log_writer: LogWriter[Commit] = (
            GroupCommitLogWriter(
                self._store,
                encode=lambda commits: encode_commits(lambda: self._codec, commits),
                sequence=facts.sequence,
                durability="relaxed" if self.settings.durability == "relaxed" else "fsync",
                name=self.name,
            )
            if self._keeps
            else NullLogWriter(facts.sequence)
        )

    def _first_facts(self, store: Store) -> StoreInfo:
        try:
            return store.open_for_writing()
        except (ArithmeticError, LookupError, TypeError, ValueError) as e:
            raise store_corrupt(
                f"the database '{self.name}'", f"{type(e).__name__}: {e}".split("\n")[0]
            ) from e

    def _stored_state(self, facts: StoreInfo) -> tuple[GraphState, ElementCodec]:
        schema = layer0_schema()
        for text in facts.definitions:
            schema = extend_schema(schema, parse_declarations(text, limits=self._limits), text)
        state = GraphState(
            schema,
            boot=facts.boot_count,
            sequence=facts.sequence,
            tick=int(facts.meta.get(TICK_NOTE, "0")),
            ticks_by_commit=self.settings.tick == "commit",
        )
        codec = ElementCodec(schema)
        load_elements(state.graph, codec, self._store)
        state.invalidate_plans()
        return state, codec

    def close(self) -> None:
        """End all sessions and flush. Closing twice has no effect."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        for reactor in self._reactors:
            reactor.close()  # while it can still store its position
        with self.lock:
            self._refusal = self._closed_message
            sessions = list(self.sessions.values())
        self._maintenance.stop()
        self.watching.consuming.settlement.stop()
        for session in sessions:
            session.close()
        self.watching.management.cancel_timers()
        try:
            self.log_writer.close()
        finally:
            self._store.close()
            with self.lock:
                self.watching.consuming.dispatcher.clear()

    @property
    def _closed_message(self) -> str:
        return f"The database '{self.name}' is closed: open it again"

    def encode_image(self, element: Element) -> bytes:
        """The element as stored in the log."""
        return self._codec.image(element)

    def decode_image(self, image: Mapping[str, Any]) -> Element:
        return self._codec.from_image(image["_type"], image["id"], json.dumps(image).encode())

    def definitions(self) -> list[str]:
        """The declarations as given, oldest first, read from the store."""
        return list(self._store.info().definitions)

    @property
    def is_persistent(self) -> bool:
        """False for a database that is only in memory."""
        return self._keeps

    def trim_log(self, before_ms: int) -> None:
        """Delete log rows older than this time."""
        self._store.trim(before_ms)

    @property
    def schema(self) -> Schema:
        return self.state.schema

    def session(self, actor: str | None = None) -> Session:
        """Open a session. None is the system context (no policies); otherwise the node id of the actor."""
        self.check_open()
        try:
            return Session(self, actor)
        finally:
            if (
                actor is not None
            ):  # like any result, the existence of the actor is reported only when it is durable
                self.wait_durable(LockScope(self).observe())

    def async_session(self, actor: str | None = None) -> AsyncSession:
        """A session for asyncio. Open and use it inside a running event loop."""
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
                "E8010", f"Reactor '{name}' is already running; close it first, or use another name"
            )
        reactor = Reactor(self, name, watch_text, callback, {**(params or {}), **named})
        self._reactors.append(reactor)
        return reactor

    # --- defining ---------------------------------------------------------------------------------------------

    def define(self, text: str) -> None:
        """Add declarations.

        Identical ones are accepted. A definition that existing data violates is rejected with a list.
        """
        self.admit_write()
        lock_scope = LockScope(self)
        try:
            with lock_scope:
                self.check_writable()
                commit = self._define(text)
                if commit is not None:
                    self.log_writer.append(commit.sequence, commit)
                    self.watching.follow(commit, 0)
                if commit is not None and commit.sequence == self.last_policy_change.sequence:
                    self.watching.durable_watches.reset_after_policy_change()
            self.watching.triggers.run_pending(lock_scope)
        finally:
            self.wait_durable(lock_scope)

    def _define(self, text: str) -> Commit | None:
        state, policies = self.state, self.schema.policies.keys()
        schema = extend_schema(state.schema, parse_declarations(text, limits=self._limits), text)
        if schema is state.schema:
            return None
        candidate = GraphState(schema, boot=0, sequence=0, tick=0, ticks_by_commit=False)
        candidate.program.compile_all(text)
        changes, padded = pad_elements(state.graph, state.schema, schema, self.clock.now)
        self._check_data(schema, padded | {after.id: after for _, after in changes if after is not None})
        for session in self.sessions.values():
            session.abort("the ontology changed meanwhile")
        seen = self.watching.before_define()
        padded.update({before.id: before for before, _ in changes if before is not None})
        state.is_applying = True
        for id, element in padded.items():
            state.graph.replace(state.graph.elements[id], element)
        self._codec = ElementCodec(schema)
        self.history.pad_elements(lambda name: len((schema.nodes.get(name) or schema.edges[name]).layout))
        state.apply(changes)
        state.use_schema(schema)
        meta: tuple[tuple[str, str], ...] = ()
        if schema.policies.keys() != policies:
            self.last_policy_change = PolicyChange(state.sequence + 1, state.tick)
            meta = ((POLICY_CHANGE_NOTE, json.dumps(self.last_policy_change)),)
        commit = state.next_commit(self.clock.now(), changes, definition=text, meta=meta)
        self.watching.after_define(seen, commit)
        return commit

    def _check_data(self, schema: Schema, padded: dict[str, Any]) -> None:
        """Check that new constraints and uniqueness hold for existing data."""
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
        trial.use_schema(schema)
        check_existing_data(trial, fresh, unique, self.clock)

    def statement_time(self) -> Callable[[], datetime]:
        """The function now(): wall-clock time, or logical time as milliseconds since 1970.

        Fixed for a transaction.
        """
        present = self.clock.now() if self.settings.now == "wall" else timestamp_from_ms(self.state.tick)
        return lambda: present

    # --- for sessions -----------------------------------------------------------------------------------------

    def admit_write(self) -> None:
        """Wait for room in the log queue. Raise if the database is read-only."""
        if self._refusal is not None:
            self.check_writable()
        self.log_writer.wait_for_room()

    def check_writable(self) -> None:
        """Raise if the database is read-only or closed. A commit checks again with the lock held."""
        if self._refusal is not None:
            raise StoreError("E6005", self._refusal)

    def check_open(self) -> None:
        if self._closed:
            raise StoreError("E6005", self._closed_message)

    def wait_durable(self, lock_scope: LockScope) -> None:
        """Wait until everything observed in the lock scope is durable.

        A failed flush makes the database read-only.
        """
        if lock_scope.log_writer.durable_sequence >= lock_scope.observed_sequence:
            return
        try:
            lock_scope.log_writer.wait_durable(lock_scope.observed_sequence)
        except StoreError as error:
            self.handle_write_failure(error, lock_scope)
            raise
        if self.watching.consuming.matcher.large_arrivals:
            self.watching.consuming.matcher.enqueue_durable()

    def handle_write_failure(self, error: StoreError, lock_scope: LockScope) -> None:
        """Fail-stop: discard what was not flushed, reload the last durable state, and reject further writes.

        If the reload fails, the lost state stays with its log writer, which reports every result as failed.
        """
        lost = lock_scope.log_writer
        lock_scope.observed_sequence = 0  # report the failure once
        with self.lock:
            if lost is not self.log_writer:
                return
            self._refusal = self._refusal or (
                f"The database '{self.name}' is read-only since a write failed ({error.text}): "
                "fix the cause and open it again"
            )
            for session in self.sessions.values():
                session.abort("the store failed")
            try:
                self._load(self._store.info(), self.state)
            except StoreError:
                return
            self.watching.rebuild()
        lost.close()

    def repair_interrupted_commit(self) -> None:
        """Reload if a commit was interrupted, by Ctrl-C say, so that it is either complete or absent. Call with the
        lock held.

        A database that is only in memory has nothing to reload from.
        """
        lost = self.state
        if not self._keeps or not (lost.is_applying or lost.sequence > self.log_writer.submitted_sequence):
            return
        for session in self.sessions.values():
            session.abort("a commit was interrupted")
        self.log_writer.close()  # makes durable what others have submitted
        self._load(self._store.info(), lost)
        lost.sequence = self.state.sequence
        self.watching.rebuild()

    @property
    def read_only(self) -> str | None:
        """Why writes are rejected; None if they are accepted."""
        return self._refusal


def load_elements(graph: Graph, codec: ElementCodec, store: Store) -> None:
    add, decode = graph.add, codec.element
    for record in store.elements():
        add(decode(record))


def _new_uniques(old: Schema, new: Schema) -> list[tuple[str, str]]:
    known = {(a.declared_in, a.name) for n in old.nodes.values() for a in n.attributes.values() if a.unique}
    return sorted(
        {
            (a.declared_in, a.name)
            for n in new.nodes.values()
            for a in n.attributes.values()
            if a.unique and (a.declared_in, a.name) not in known and a.declared_in in old.nodes
        }
    )


def check_existing_data(
    state: GraphState, constraints: Sequence[str], uniques: Sequence[tuple[str, str]], clock: Clock
) -> None:
    """Raise if existing elements violate new constraints or uniqueness, with a list."""
    found = list(islice(_violations(state, constraints, uniques, clock), _MAX_LISTED_VIOLATIONS + 1))
    if not found:
        return
    texts = [error.text for error in found[:_MAX_LISTED_VIOLATIONS]] + ["and more"] * (
        len(found) > _MAX_LISTED_VIOLATIONS
    )
    raise ConstraintViolation(found[0].code, "; ".join(texts), fields=found[0].fields)


def _violations(
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
            context = ExecutionContext(view=state.graph, now=moment, tick=state.tick)
            for row in constraint.matches.find_all(context):
                if constraint.violated_by(row):
                    text = constraint.describe(row)
                    yield ConstraintViolation("E3001", text, fields={"constraint": constraint.name})
