"""Runs the steps of a case. After each step, the folded events of every watch must equal a fresh MATCH."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import vedette
from tests.properties.models.watch_fold import Fold
from tests.properties.strategies.watch_cases import (
    WRITERS,
    Case,
    Define,
    Do,
    Manage,
    Restart,
    StartWatch,
    Step,
)
from tests.properties.strategies.watch_patterns import Placeholder, Reference
from tests.properties.strategies.watch_queries import Query
from vedette.change import Event
from vedette.engine.commit.lock import LockScope
from vedette.engine.session.session import Session
from vedette.errors import PolicyError, VedetteError

__all__ = ["Oracle", "WatchReader", "shortest"]

_NAMES = re.compile(r"#(\w+)")
_STATIC = ("E1", "E2")
"""Error codes of invalid statement texts. The generator must not produce them."""
_LAZY = 5
"""A lazy reader polls at every fifth step."""


class UnknownName(Exception):
    """The case refers to an element that was never created, because its statement was rejected."""


class WatchReader:
    """One watch, its folded events, and the query that they must agree with."""

    def __init__(self, oracle: Oracle, step: StartWatch) -> None:
        self.step, self.query = step, step.query
        self._oracle = oracle
        self._reader = oracle.session(step.actor)
        self._match = oracle.with_ids(self.query.match_text(step.values))
        self._parameters = oracle.values(self.query.parameters(step.values))
        self._fold = Fold(identity=self._identity(), changes=self.query.kind != "distinct")
        self._new_events: list[Event] = []
        self._check_count = 0
        self.altered = False
        self.ended = False
        """True after the case has cancelled the watch."""
        self.history: list[tuple[int, Counter[Any]]] = []
        """The tick of the last event, and the rows at that time."""
        self._begin()

    def _begin(self) -> None:
        tick = 0
        if self.step.initial == "none":
            if self.step.immediate and self._oracle.in_transaction:
                raise UnknownName("what open transactions have written")
            self._fold.begin(self.expected())
        elif self.step.initial == "since":
            tick, rows = self._oracle.earlier(self.step)
            self._fold.rows = Counter(rows)
        self.handle = self._reader.watch(self._oracle.with_ids(self.step.text(tick)), self._parameters)

    def alter(self) -> None:
        """Expect the rows of another filter from now on, as if the data had changed."""
        text = self._oracle.with_ids(self.query.alter_text(self.handle.id, self.step.values))
        self._reader.execute(text, self._parameters)
        self.query, self.altered = self.query.altered(), True
        self._match = self._oracle.with_ids(self.query.match_text(self.step.values))

    def attach(self) -> bool:
        """Attach to the watch in a new process. This fails if the actor was deleted."""
        try:
            self._reader = self._oracle.session(self.step.actor)
        except PolicyError:
            return False
        self.handle = self._reader.attach(self.handle.id)
        return True

    def _identity(self) -> tuple[str, ...] | None:
        if self.query.kind == "groups":
            return tuple(f"k{place}" for place in range(self.query.keys))
        if self.query.identified:
            return tuple(f"ids{place}" for place in range(len(self.query.variables)))
        return None

    def expected(self, uncommitted: Session | None = None) -> list[dict[str, Any]]:
        """Return the rows of a fresh MATCH, one per identity; unnamed parallel edges are collapsed.

        `uncommitted` is the session whose uncommitted writes the watch sees.
        """
        reader = uncommitted or self._reader
        if uncommitted is not None and self.step.actor is not None:
            uncommitted.execute(f"BEGIN SESSION AS #{self._oracle.id_of(self.step.actor)}")
        result = reader.execute(self._match, self._parameters)
        if uncommitted is not None and self.step.actor is not None:
            uncommitted.execute("END SESSION")
        ids = self.query.ids_in_match
        columns = result.columns[ids:]
        rows = [(row[:ids], dict(zip(columns, row[ids:], strict=True))) for row in result.rows]
        return list(dict(rows).values()) if self.query.kind == "rows" else [row for _, row in rows]

    def new_events(self) -> list[dict[str, Any]]:
        """Return the events since the last call as a client receives them, without tick and position."""
        events, self._new_events = self._new_events, []
        return [
            {name: value for name, value in event.to_dict().items() if name not in ("tick", "position")}
            for event in events
        ]

    def check(self, *, last: bool = False) -> None:
        self._check_count += 1
        if self.step.lazy and self._check_count % _LAZY and not last:
            return
        events = self._poll()
        if self.handle.status != "active":
            assert not events, f"a {self.handle.status} watch delivers {events}"
            self.ended = self.ended or self._oracle.is_gone(self.step.actor)
            assert self.ended == (self.handle.status == "cancelled"), self.handle.errors()
            return
        self._new_events += events
        try:
            self._fold.take(events, again=self.step.reliable)
            uncommitted = self.step.immediate and self._oracle.in_transaction
            if not uncommitted:
                self._compare()
            elif writer := self._oracle.only_uncommitted_writer(self.step.actor):
                self._compare(writer)
        except AssertionError as error:
            raise AssertionError(f"{self.step}\n{error}\nevents: {events}") from error
        tick = self._oracle.tick - 1
        if not uncommitted and (not self.history or self.history[-1][0] != tick):
            self.history.append((tick, Counter(self._fold.rows)))

    def _poll(self) -> list[Event]:
        """Poll all pending events. Some readers poll in small pieces."""
        if self.step.number % 2 == 0 and not self.step.lazy:
            return self.handle.poll()
        found: list[Event] = []
        while more := self.handle.poll(limit=2 if self.step.number % 2 else None):
            found += more
        return found

    def _compare(self, uncommitted: Session | None = None) -> None:
        expected = Fold()
        expected.begin(self.expected(uncommitted))
        missing, surplus = expected.rows - self._fold.rows, self._fold.rows - expected.rows
        assert not missing, f"missing rows: {dict(missing)}"
        assert not surplus, f"surplus rows: {dict(surplus)}"


class Oracle:
    """An in-memory database, the sessions of a case, and the readers of its watches."""

    def __init__(self, ontology: str, place: str = ":memory:") -> None:
        self._place = place
        self._ids: dict[str, str] = {}
        self._open()
        self.db.define(ontology)
        self.readers: dict[int, WatchReader] = {}
        self.refused: list[tuple[Step, VedetteError]] = []

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def _open(self) -> None:
        self.db = vedette.open(self._place, environment={})
        self._writers = [self.db.session() for _ in range(WRITERS)]
        self._sessions: dict[str | None, Session] = {}

    @property
    def tick(self) -> int:
        return self.db.database("default").state.tick

    @property
    def in_transaction(self) -> bool:
        return any(writer.transaction is not None for writer in self._writers)

    def only_uncommitted_writer(self, actor: str | None) -> Session | None:
        """Return the session with the only open transaction, if its own MATCH shows exactly what an immediate watch
        sees.
        """
        writing = [writer for writer in self._writers if writer.transaction is not None]
        one = writing[0].transaction if len(writing) == 1 else None
        if one is None or one.serializable or one.abort_reason:
            return None
        alive = actor is None or one.transaction.view.get(self.id_of(actor)) is not None
        return writing[0] if alive else None

    def earlier(self, step: StartWatch) -> tuple[int, Counter[Any]]:
        """Return the rows of the watch that `step` names as of some commits ago, and the tick of the last of these
        commits.
        """
        other = self.readers.get(step.other)
        if other is None or other.altered or len(other.history) <= step.back:
            raise UnknownName(f"the past of watch {step.other}")
        if other.history[-1 - step.back][0] < 0:
            raise UnknownName(f"the past of watch {step.other}")
        return other.history[-1 - step.back]

    @classmethod
    def try_case(cls, case: Case, place: str = ":memory:") -> Oracle:
        """Run a whole case. Statements may be rejected, but no watch may deliver a wrong event."""
        with cls(case.ontology.text(), place) as oracle:
            for step in case.steps:
                try:
                    oracle.take(step)
                except UnknownName:
                    continue
                except VedetteError as error:
                    oracle.refused.append((step, error))
                    if isinstance(step, StartWatch) and error.code.startswith(_STATIC):
                        raise
                oracle.check(step)
            oracle.check("all of it", last=True)
        return oracle

    # For tests written by hand

    def do(self, *statements: str, session: int = 0) -> None:
        """Execute statements and check all watches after each."""
        for text in statements:
            self.take(Do(session, text))
            self.check(text)

    def together(self, *statements: str) -> None:
        """Execute statements in one transaction and check all watches."""
        self.do("BEGIN", *statements, "COMMIT")

    def start_watch(self, pattern: str, returns: str, *, kind: str = "rows", **more: Any) -> WatchReader:
        """Start a watch. `ids` are the variables of the pattern that identify a row among parallel edges.

        `values` are the parameters $p0, $p1 …
        """
        where, actor, keys = more.get("where"), more.get("actor"), more.get("keys", 0)
        ids = tuple(str(more.get("ids", "")).split())
        values = more.get("values", ())
        placeholders = tuple(Placeholder((value,), "parameter", place) for place, value in enumerate(values))
        query = Query(pattern, where, more.get("filter"), (returns,), ids, placeholders, kind, keys)
        query = replace(query, other_filter=more.get("other"))
        immediate = more.get("immediate", False)
        self.take(StartWatch(len(self.readers), query, values, actor, immediate=immediate))
        self.check(pattern)
        reader = self.readers[len(self.readers) - 1]
        reader.new_events()
        return reader

    # Names

    def with_ids(self, text: str) -> str:
        """Replace the names that the case gave to elements by their ids."""
        return _NAMES.sub(lambda found: f"#{self._ids.get(found[1], found[1])}", text)

    def values(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return {name: self._value(value) for name, value in parameters.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, Reference):
            return self.id_of(value.name)
        return list(value) if isinstance(value, tuple) else value

    def id_of(self, name: str) -> str:
        if name not in self._ids:
            raise UnknownName(name)
        return self._ids[name]

    def is_gone(self, actor: str | None) -> bool:
        """Return True if the actor was deleted, which ends its watches."""
        return actor is not None and self.db.default.state.graph.get(self.id_of(actor)) is None

    def session(self, actor: str | None) -> Session:
        """Return the session in which an actor watches and reads. None is the system context."""
        if actor not in self._sessions:
            self._sessions[actor] = self.db.session(actor=None if actor is None else self.id_of(actor))
        return self._sessions[actor]

    # Steps

    def take(self, step: Step) -> None:
        match step:
            case Do():
                self._do(step)
            case StartWatch():
                self.readers[step.number] = WatchReader(self, step)
            case Define():
                self.db.define(step.text)
            case Manage() if step.watch not in self.readers:
                pass
            case Manage(operation="ALTER"):
                self.readers[step.watch].alter()
            case Manage():
                reader = self.readers[step.watch]
                self.session(None).execute(f"{step.operation} WATCH #{reader.handle.id}")
                reader.ended = reader.ended or step.operation == "CANCEL"
            case Restart():
                if step.death:
                    self._leave_a_copy()
                self.db.close()
                self._open()
                self.readers = {n: f for n, f in self.readers.items() if not f.ended and f.attach()}

    def _leave_a_copy(self) -> None:
        """Continue with a copy of the current files, as after a crash. Closing the original does not affect it."""
        gate = self.db.database("default").log_writer
        gate.wait_durable(gate.submitted_sequence)
        former, self._place = self._place, f"{self._place}+"
        shutil.copytree(former, self._place)

    def _do(self, step: Do) -> None:
        writer = self._writers[step.session]
        try:
            writer.execute(self.with_ids(step.text))
        except VedetteError:
            if writer.transaction is not None:
                writer.execute("ROLLBACK")
            raise
        self._ids.update(writer.bindings)

    def check(self, after: object, *, last: bool = False) -> None:
        database = self.db.database("default")
        database.wait_durable(LockScope(database).observe())
        for reader in self.readers.values():
            try:
                reader.check(last=last)
            except AssertionError as error:
                raise AssertionError(f"after {after}\n{error}") from error


def shortest(case: Case, fails: Callable[[Case], bool], *, most: int = 500) -> Case:
    """Return a smaller case that still fails: steps are removed one by one and in runs."""
    tried, size = 0, len(case.steps)
    while size:
        start, shorter = 0, False
        while start < len(case.steps) and tried < most:
            tried += 1
            fewer = replace(case, steps=case.steps[:start] + case.steps[start + size :])
            if fails(fewer):
                case, shorter = fewer, True
            else:
                start += size
        size = size if shorter and tried < most else size // 2
    return case
