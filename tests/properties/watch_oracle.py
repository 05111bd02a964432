"""Carries a case out: after every step, what each watch was told must amount to what a fresh MATCH says."""

from __future__ import annotations

import re
from typing import Any

import vedette
from tests.properties.watch_cases import WRITERS, Case, Do, Follow, Manage, Step
from tests.properties.watch_fold import Fold, frozen
from tests.properties.watch_patterns import Reference
from vedette.engine.session import Session
from vedette.errors import VedetteError

__all__ = ["Oracle", "Unnamed"]

_NAMES = re.compile(r"#([ne]\d+)\b")
_DENIED = "E8001"


class Unnamed(Exception):
    """The case speaks of an element that was never made, because its statement was refused."""


class _Follower:
    """One watch, what it was told so far, and the query that it must agree with."""

    def __init__(self, oracle: Oracle, step: Follow, session: Session) -> None:
        self.step, self.query = step, step.query
        self._reader = oracle.reader(step.actor)
        self._match = oracle.with_ids(self.query.match_text(step.values))
        self._parameters = oracle.values(self.query.parameters(step.values))
        self.fold = Fold(identity=self._identity(), changes=self.query.kind != "distinct")
        self.handle = session.watch(oracle.with_ids(step.text()), self._parameters)
        if not step.initial:
            self.fold.begin(self.expected())

    def _identity(self) -> tuple[str, ...] | None:
        if self.query.kind == "groups":
            return tuple(f"k{place}" for place in range(self.query.keys))
        if self.query.identified:
            return tuple(f"ids{place}" for place in range(len(self.query.variables)))
        return None

    def expected(self) -> list[dict[str, Any]]:
        """What MATCH says: one row for each identity, parallel edges that nobody named collapsed."""
        result = self._reader.execute(self._match, self._parameters)
        ids = self.query.ids_in_match
        columns = result.columns[ids:]
        rows = [(row[:ids], dict(zip(columns, row[ids:], strict=True))) for row in result.rows]
        return list(dict(rows).values()) if self.query.kind == "rows" else [row for _, row in rows]

    def check(self) -> None:
        if self.handle.status == "cancelled":
            assert not self.handle.poll()
            return
        events = self.handle.poll()
        if self.handle.status == "paused":
            assert not events
            return
        try:
            self.fold.take(events)
            expected = Fold()
            expected.begin(self.expected())
            missing, surplus = expected.rows - self.fold.rows, self.fold.rows - expected.rows
            assert not missing, f"never told: {dict(missing)}"
            assert not surplus, f"told, but not there: {dict(surplus)}"
        except AssertionError as error:
            raise AssertionError(f"{self.step}\n{error}\nevents: {events}") from error


class Oracle:
    """A database in memory, the sessions of a case, and its followers."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.db = vedette.open(":memory:", environment={})
        self.db.define(case.ontology.text())
        self._writers = [self.db.session() for _ in range(WRITERS)]
        self._readers: dict[str | None, Session] = {}
        self._ids: dict[str, str] = {}
        self.followers: list[_Follower | None] = []
        self.refused: list[str] = []

    def run(self) -> None:
        with self.db:
            for step in self.case.steps:
                self._take(step)
                self._check(step)

    # --- names ------------------------------------------------------------------------------------------------

    def with_ids(self, text: str) -> str:
        return _NAMES.sub(lambda found: f"#{self._id(found[1])}", text)

    def values(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return {name: self._value(value) for name, value in parameters.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, Reference):
            return self._id(value.name)
        return list(value) if isinstance(value, tuple) else value

    def _id(self, name: str) -> str:
        if name not in self._ids:
            raise Unnamed(name)
        return self._ids[name]

    def reader(self, actor: str | None) -> Session:
        if actor not in self._readers:
            self._readers[actor] = self.db.session(actor=None if actor is None else self._id(actor))
        return self._readers[actor]

    # --- steps ------------------------------------------------------------------------------------------------

    def _take(self, step: Step) -> None:
        try:
            match step:
                case Do():
                    self._do(step)
                case Follow():
                    self.followers.append(None)
                    self.followers[-1] = _Follower(self, step, self.reader(step.actor))
                case Manage():
                    self._manage(step)
        except Unnamed:
            pass
        except VedetteError as error:
            self.refused.append(f"{step} ▸ {error}")
            if isinstance(step, Follow) and error.code.startswith(("E1", "E2")):
                raise

    def _do(self, step: Do) -> None:
        writer = self._writers[step.session]
        try:
            writer.execute(self.with_ids(step.text))
        except VedetteError:
            if writer.transaction is not None:
                writer.execute("ROLLBACK")
            raise
        for name, id in writer.bindings.items():
            self._ids[name] = id

    def _manage(self, step: Manage) -> None:
        follower = self.followers[step.watch]
        if follower is not None:
            self.reader(None).execute(f"{step.operation} WATCH #{follower.handle.id}")

    def _check(self, step: Step) -> None:
        for follower in self.followers:
            if follower is None:
                continue
            try:
                follower.check()
            except AssertionError as error:
                raise AssertionError(f"after {step}\n{error}\n{self.case}") from error
