"""Random statements of several sessions: the engine and a plain dict must agree after every one of them.

What is compared: success or the error's code, counts, the rows of random queries in every session, and at the end the whole
graph, also after the directory was opened again. SERIALIZABLE is held to its meaning, not to a formula: when COMMIT
succeeds, everything the transaction read would still read the same.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import vedette
from tests.properties.engine_driver import Driver, elements_of
from tests.properties.graph_model import ModelError, ModelGraph, ModelState, ModelTransaction
from tests.properties.graph_strategies import graphs
from tests.properties.ontology_model import OntologyModel, ontologies
from tests.properties.query_model import QueryModel, answer, same_rows
from tests.properties.query_strategies import queries

SOAK = os.environ.get("VEDETTE_SOAK", "") not in {"", "0"}
SESSIONS = 3
SEARCH = settings(
    max_examples=1_000 if SOAK else 50,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    deadline=None,
)
OPERATIONS = (
    "spawn spawn link link link link set set set kill kill unlink unlink_between match_set match_kill "
    "begin begin begin_serializable commit commit rollback savepoint rollback_to"
).split()

Step = tuple[str, int, list[int]]
"""An operation, the session that does it, and numbers that it makes its choices with."""
steps = st.tuples(
    st.sampled_from(OPERATIONS), st.integers(0, SESSIONS - 1), st.lists(st.integers(0, 11), min_size=8, max_size=8)
)


class Both:
    """The model and the engine, driven by the same steps."""

    def __init__(self, ontology: OntologyModel, location: str, asked: list[QueryModel]) -> None:
        self.ontology = ontology
        self.driver = Driver(ontology.text(), location, SESSIONS)
        self.model = ModelState(ontology)
        self.asked = asked
        self.serializable: dict[int, tuple[int, list[tuple[QueryModel, dict[int, Any], list[Any]]]]] = {}
        """Session ▸ commits at BEGIN, and what it has read: query, own writes then, rows."""

    def load(self, graph: ModelGraph) -> None:
        """Begin with something."""
        self.driver.load(graph)
        self.model.committed.items.update(graph.items)
        self.model.keys = len(graph.items)

    # --- one step ---------------------------------------------------------------------------------------------

    def step(self, name: str, session: int, numbers: list[int]) -> None:
        if session in self.model.aborted and name not in ("rollback", "commit"):
            self._refused(session)
            return
        act: Callable[[int, list[int]], tuple[Any, Any]] = getattr(self, f"_{name}")
        act(session, list(numbers))
        self.check_queries(session)
        self.driver.validate()

    def _refused(self, session: int) -> None:
        outcome = self.driver.run("MATCH a: A RETURN a.k", session=session)
        assert isinstance(outcome, vedette.VedetteError), "an aborted transaction answered"
        assert outcome.code == "E5005", outcome

    def _write(self, session: int, change: Callable[[ModelTransaction], Any], outcome: Any) -> None:
        """Hold the engine's outcome of a writing statement against the model's."""
        opened = self.model.open.get(session)
        transaction = opened if opened is not None else ModelTransaction(self.model.committed)
        try:
            expected = change(transaction)
        except ModelError as error:
            assert isinstance(outcome, vedette.VedetteError), (error.codes, outcome)
            assert outcome.code in error.codes, (error.codes, outcome)
            if opened is not None:
                self.model.aborted.add(session)
            return
        assert isinstance(outcome, vedette.Result), (expected, outcome)
        if expected is not None:
            counts = {n: getattr(outcome, n) for n in expected}
            assert counts == expected
        if opened is None:
            self._committed(transaction)

    def _committed(self, transaction: ModelTransaction) -> None:
        if transaction.net():
            self.model.commits += 1
        transaction.apply()

    # --- operations -------------------------------------------------------------------------------------------

    def _spawn(self, session: int, numbers: list[int]) -> None:
        key = self.model.new_key()
        type_name = "ABCD"[numbers[0] % 4]
        names = [n for n in "nuim" if n in _fields(type_name)]
        values = {"k": key, **{n: _small(v) for n, v in zip(names, numbers[1:], strict=False)}}
        outcome = self.driver.spawn(key, type_name, values, session)
        self._write(session, lambda t: _counted(t.spawn(key, type_name, values), created=1), outcome)

    def _link(self, session: int, numbers: list[int]) -> None:
        names = list(self.ontology.edges)
        kind = self.ontology.edges[names[numbers[0] % len(names)]]
        targets = self._targets(session, kind.ends, numbers[2:5], misfit=numbers[6] == 0)
        if targets is None:
            return
        key, once = self.model.new_key(), numbers[5] % 4 == 0
        values = {"k": key, "w": _small(numbers[1])}
        outcome = self.driver.link(key, kind.name, targets, values, session, once=once)
        self._write(
            session,
            lambda t: {"linked": int(t.link(key, kind.name, targets, values, once=once))},
            outcome,
        )

    def _targets(
        self, session: int, ends: tuple[str, ...], numbers: list[int], *, misfit: bool
    ) -> tuple[int, ...] | None:
        """Mostly elements that fit and exist; now and then some that do not."""
        view = self.model.view(session)
        found = []
        for end, number in zip(ends, numbers, strict=False):
            fitting = [k for k in view.items if view.fits(k, end)] if not misfit else list(self.driver.ids)
            if not fitting:
                return None
            found.append(fitting[number % len(fitting)])
        return tuple(found)

    def _pick(self, session: int, number: int, *, nodes: bool) -> int | None:
        """A key: mostly of something that is there, sometimes of what is not (any more)."""
        view = self.model.view(session)
        there = [k for k, item in view.items.items() if (item.targets is None) == nodes]
        known = there if number % 6 else [k for k in self.driver.ids if k not in view.items] or there
        return known[number % len(known)] if known else None

    def _set(self, session: int, numbers: list[int]) -> None:
        key = self._pick(session, numbers[0], nodes=numbers[1] % 4 != 0)
        if key is None:
            return
        item = self.model.view(session).items.get(key)
        names = _fields(item.type) if item is not None and item.targets is None else ["w"]
        names = names if item is not None else ["k"]
        values = {names[n % len(names)]: _small(v) for n, v in zip(numbers[2:4], numbers[4:6], strict=True)}
        values = values if item is not None else {"k": key}
        outcome = self.driver.assign(key, values, session)
        self._write(session, lambda t: _counted(t.assign(key, values), modified=1), outcome)

    def _kill(self, session: int, numbers: list[int]) -> None:
        key = self._pick(session, numbers[0], nodes=numbers[2] != 0)
        if key is None:
            return
        cascade = (None, None, None, True, False)[numbers[1] % 5]
        outcome = self.driver.kill(key, cascade, session)

        def change(t: ModelTransaction) -> dict[str, int]:
            deleted, unlinked = t.kill(key, cascade)
            return {"deleted": deleted, "unlinked": unlinked}

        self._write(session, change, outcome)

    def _unlink(self, session: int, numbers: list[int]) -> None:
        key = self._pick(session, numbers[0], nodes=False)
        if key is None:
            return
        outcome = self.driver.unlink(key, session)

        def change(t: ModelTransaction) -> dict[str, int]:
            if key not in t.view().items:
                raise ModelError("E3601")
            return {"unlinked": t.unlink({key})}

        self._write(session, change, outcome)

    def _unlink_between(self, session: int, numbers: list[int]) -> None:
        names = list(self.ontology.edges)
        kind = self.ontology.edges[names[numbers[0] % len(names)]]
        found = self._targets(session, kind.ends, numbers[1:4], misfit=False)
        if found is None:
            return
        targets = tuple(None if numbers[4 + i] % 3 == 0 else key for i, key in enumerate(found))
        outcome = self.driver.unlink_between(kind.name, targets, session)
        self._write(session, lambda t: {"unlinked": t.unlink_between(kind.name, targets)}, outcome)

    def _match_set(self, session: int, numbers: list[int]) -> None:
        type_name = ("Base", "A", "C", "D", "any")[numbers[0] % 5]
        limit = numbers[1] % 4
        outcome = self.driver.run(
            f"MATCH x: {type_name} WHERE x.n <= $limit SET x.n = x.n + 1", {"limit": limit}, session
        )

        def change(t: ModelTransaction) -> dict[str, int]:
            hit = [i for i in t.view().nodes(type_name) if i.values["n"] is not None and i.values["n"] <= limit]
            for item in hit:
                t.assign(item.key, {"n": item.values["n"] + 1})
            return {"modified": len(hit)}

        self._write(session, change, outcome)

    def _match_kill(self, session: int, numbers: list[int]) -> None:
        if self.ontology.prevents:
            return  # whether it is prevented may depend on the order of rows
        type_name, limit = ("B", "C", "D")[numbers[0] % 3], numbers[1] % 3
        outcome = self.driver.run(
            f"MATCH x: {type_name} WHERE x.n = $limit KILL x", {"limit": limit}, session
        )

        def change(t: ModelTransaction) -> dict[str, int]:
            deleted = unlinked = 0
            for key in [i.key for i in t.view().nodes(type_name) if i.values["n"] == limit]:
                if key in t.view().items:
                    dead, lost = t.kill(key, None)
                    deleted, unlinked = deleted + dead, unlinked + lost
            return {"deleted": deleted, "unlinked": unlinked}

        self._write(session, change, outcome)

    # --- transactions -----------------------------------------------------------------------------------------

    def _begin(self, session: int, numbers: list[int], *, serializable: bool = False) -> None:
        outcome = self.driver.run("BEGIN SERIALIZABLE" if serializable else "BEGIN", session=session)
        if session in self.model.open:
            assert isinstance(outcome, vedette.VedetteError)
            assert outcome.code == "E5001"
            self.model.aborted.add(session)
            return
        assert isinstance(outcome, vedette.Result), outcome
        self.model.open[session] = ModelTransaction(self.model.committed, snapshot=serializable)
        if serializable:
            self.serializable[session] = (self.model.commits, [])

    def _begin_serializable(self, session: int, numbers: list[int]) -> None:
        self._begin(session, numbers, serializable=True)

    def _commit(self, session: int, numbers: list[int]) -> None:
        outcome = self.driver.run("COMMIT", session=session)
        transaction = self.model.open.pop(session, None)
        started, reads = self.serializable.pop(session, (None, []))
        if transaction is None or session in self.model.aborted:
            self.model.aborted.discard(session)
            assert isinstance(outcome, vedette.VedetteError), outcome
            assert outcome.code == ("E5004" if transaction is None else "E5005"), outcome
            return
        if started is not None and isinstance(outcome, vedette.VedetteError) and outcome.code == "E5002":
            assert started != self.model.commits, "a conflict, though nobody else committed"
            return
        try:
            transaction.conflicts()
        except ModelError as error:
            assert isinstance(outcome, vedette.VedetteError), (error.codes, outcome)
            assert outcome.code in error.codes, (error.codes, outcome)
            return
        assert isinstance(outcome, vedette.Result), outcome
        for query, writes, rows in reads:
            now = ModelTransaction(self.model.committed)
            now.writes = writes
            assert same_rows(query, answer(query, now.view()), rows), ("a stale read was committed", query.text())
        self._committed(transaction)

    def _rollback(self, session: int, numbers: list[int]) -> None:
        outcome = self.driver.run("ROLLBACK", session=session)
        self.model.aborted.discard(session)
        self.serializable.pop(session, None)
        known = self.model.open.pop(session, None) is not None
        assert isinstance(outcome, vedette.Result) == known, outcome

    def _savepoint(self, session: int, numbers: list[int]) -> None:
        name = "xyz"[numbers[0] % 3]
        outcome = self.driver.run(f"SAVEPOINT {name}", session=session)
        assert isinstance(outcome, vedette.Result) == (session in self.model.open), outcome
        if session in self.model.open:
            self.model.open[session].savepoint(name)

    def _rollback_to(self, session: int, numbers: list[int]) -> None:
        name = "xyz"[numbers[0] % 3]
        outcome = self.driver.run(f"ROLLBACK TO {name}", session=session)
        if session not in self.model.open:
            assert isinstance(outcome, vedette.VedetteError)
            return
        try:
            self.model.open[session].rollback_to(name)
        except ModelError as error:
            assert isinstance(outcome, vedette.VedetteError), outcome
            assert outcome.code in error.codes
            self.model.aborted.add(session)
            return
        assert isinstance(outcome, vedette.Result), outcome

    # --- looking ----------------------------------------------------------------------------------------------

    def check_queries(self, session: int) -> None:
        for index, query in enumerate(self.asked):
            asking = session if index == 0 else index % SESSIONS
            if asking in self.model.aborted:
                continue
            rows = self.driver.rows(query.text(), asking)
            expected = answer(query, self.model.view(asking))
            assert same_rows(query, expected, rows), (asking, query.text(), expected, rows)
            if asking in self.serializable:
                writes = dict(self.model.open[asking].writes)
                self.serializable[asking][1].append((query, writes, rows))

    def check_committed(self) -> None:
        found = {k: (i.type, dict(i.values), i.targets) for k, i in elements_of(self.driver).items()}
        expected = {k: (i.type, dict(i.values), i.targets) for k, i in self.model.committed.items.items()}
        assert found == expected


def _fields(type_name: str) -> list[str]:
    return {"A": ["n", "u", "i"], "B": ["n", "u", "i", "m"], "C": ["n", "u", "i", "m"], "D": ["n"]}[type_name]


def _small(number: int) -> int | None:
    return None if number % 4 == 0 else number % 4


def _counted(_: None, **counts: int) -> dict[str, int]:
    return counts


@given(st.data())
@SEARCH
def test_the_engine_agrees_with_a_dict(data: st.DataObject):
    ontology = data.draw(ontologies(), label="ontology")
    asked = [data.draw(queries(ontology)) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        both = Both(ontology, os.path.join(folder, "data"), asked)
        note(ontology.text())
        note("\n".join(query.text() for query in asked))
        try:
            both.load(data.draw(graphs(ontology), label="graph"))
            for name, session, numbers in data.draw(st.lists(steps, min_size=20, max_size=40), label="steps"):
                both.step(name, session, numbers)
            both.check_committed()
            both.driver.reopen()
            both.driver.validate()
            both.check_committed()
        finally:
            both.driver.close()


