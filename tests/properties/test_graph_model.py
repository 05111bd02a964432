"""Random statements of several sessions: the engine and the graph model agree after every statement.

Compared are success or the error code, counts, the rows of random queries in every session, the constraints, and at the
end the whole graph, also after the directory was reopened. SERIALIZABLE is checked by its definition: when COMMIT
succeeds, every query of the transaction would still return the same rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

import vedette
from tests.conftest import SOAK
from tests.properties.models.engine_driver import Driver, elements_of
from tests.properties.models.graph import ModelError, ModelGraph, ModelState, ModelTransaction
from tests.properties.models.ontology import OntologyModel, random_ontology
from tests.properties.models.query import ConstraintModel, QueryModel, answer, same_rows
from tests.properties.strategies.random_graphs import random_graph, small
from tests.properties.strategies.random_queries import random_constraint, random_query

SESSIONS = 3
SEARCH = settings(
    max_examples=1_000 if SOAK else 60,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
WRITES = "spawn link link link set set set kill unlink unlink_between match_set match_kill".split()
OUTSIDE = [
    *WRITES * 2,
    *"begin begin begin_serializable begin_serializable".split() * 3,
    "commit",
    "rollback",
]
INSIDE = [*WRITES * 2, *"commit commit commit commit rollback savepoint savepoint rollback_to begin".split()]
ABORTED = ["rollback", "rollback", "commit", "set"]


class EngineAndModel:
    """Runs the same steps on the model and the engine."""

    def __init__(
        self, ontology: OntologyModel, location: str, asked: list[QueryModel], rules: list[ConstraintModel]
    ) -> None:
        self.ontology = ontology
        self.rules = rules
        self.driver = Driver(ontology.text(), location, SESSIONS)
        self.model = ModelState(ontology)
        self.asked = asked
        self.random = Random(0)
        self.serializable: dict[int, tuple[int, list[tuple[QueryModel, dict[int, Any], list[Any]]]]] = {}
        """Session ▸ number of commits at BEGIN, and its reads: query, own writes at that time, rows."""

    def load(self, graph: ModelGraph) -> None:
        """Create the first elements. Constraints that they violate are rejected; the others hold from now on."""
        self.driver.load(graph)
        self.model.committed.items.update(graph.items)
        self.model.keys = len(graph.items)
        kept = []
        for index, rule in enumerate(self.rules):
            outcome = self.driver.define(rule.text(f"c{index}"))
            assert (outcome is None) == rule.holds(graph), (rule.text(f"c{index}"), outcome)
            kept += [rule] if outcome is None else []
        self.rules = kept

    # One step

    def step(self, random: Random) -> None:
        """Run one random operation that is possible in this session."""
        self.random = random
        session = random.randrange(SESSIONS)
        state = (
            ABORTED if session in self.model.aborted else INSIDE if session in self.model.open else OUTSIDE
        )
        name = random.choice(state)
        note(f"{name} in session {session}")
        if session in self.model.aborted and name not in ("rollback", "commit"):
            self._refused(session)
            return
        getattr(self, f"_{name}")(session)
        self.check_queries(session)
        self.driver.validate()

    def _refused(self, session: int) -> None:
        _failed_with(("E5005",), self.driver.run("MATCH a: A RETURN a.k", session=session))

    def _write(self, session: int, change: Callable[[ModelTransaction], Any], outcome: Any) -> None:
        """Compare the outcome of a write in the engine with that of the model."""
        opened = self.model.open.get(session)
        transaction = opened if opened is not None else ModelTransaction(self.model.committed)
        expected, codes = _attempt(lambda: change(transaction))
        if not codes and opened is None and transaction.net():
            codes = self._violations(transaction.view())
        if codes:
            _failed_with(codes, outcome)
            if opened is not None:
                self.model.aborted.add(session)
            return
        assert isinstance(outcome, vedette.Result), (expected, outcome)
        counts = {name: getattr(outcome, name) for name in expected}
        assert counts == expected
        if opened is None:
            self._committed(transaction)

    def _violations(self, graph: ModelGraph) -> tuple[str, ...]:
        return () if all(rule.holds(graph) for rule in self.rules) else ("E3001",)

    def _committed(self, transaction: ModelTransaction) -> None:
        if transaction.net():
            self.model.commits += 1
        transaction.apply()

    # Operations

    def _spawn(self, session: int) -> None:
        key = self.model.new_key()
        type_name = self.random.choice("ABCD")
        values = {"k": key, **{name: small(self.random) for name in _fields(type_name)}}
        outcome = self.driver.spawn(key, type_name, values, session)

        def change(t: ModelTransaction) -> dict[str, int]:
            t.spawn(key, type_name, values)
            return {"created": 1}

        self._write(session, change, outcome)

    def _link(self, session: int) -> None:
        kind = self.random.choice(list(self.ontology.edges.values()))
        targets = self._targets(session, kind.ends)
        if targets is None:
            return
        key, once = self.model.new_key(), self.random.random() < 0.25
        values = {"k": key, "w": small(self.random)}
        outcome = self.driver.link(key, kind.name, targets, values, session, once=once)

        def change(t: ModelTransaction) -> dict[str, int]:
            return {"linked": int(t.link(key, kind.name, targets, values, once=once))}

        self._write(session, change, outcome)

    def _targets(self, session: int, ends: tuple[str, ...]) -> tuple[int, ...] | None:
        """Return mostly elements that exist and have the right type, sometimes others."""
        view = self.model.view(session)
        found = []
        for end in ends:
            odd = self.random.random() < 0.05
            fitting = list(self.driver.ids) if odd else [k for k in view.items if view.fits(k, end)]
            if not fitting:
                return None
            found.append(self.random.choice(fitting))
        return tuple(found)

    def _pick(self, session: int, *, nodes: bool) -> int | None:
        """Return a key, mostly of an existing element, sometimes of a deleted or unknown one."""
        view = self.model.view(session)
        known = [k for k, item in view.items.items() if (item.targets is None) == nodes]
        if self.random.random() < 0.05:
            known = [k for k in self.driver.ids if k not in view.items] or known
        return self.random.choice(known) if known else None

    def _set(self, session: int) -> None:
        key = self._pick(session, nodes=self.random.random() < 0.8)
        if key is None:
            return
        item = self.model.view(session).items.get(key)
        names = ["k"] if item is None else ["w"] if item.targets is not None else _fields(item.type)
        values = {self.random.choice(names): small(self.random) for _ in range(self.random.randint(1, 2))}
        values = {"k": key} if item is None else values
        outcome = self.driver.assign(key, values, session)

        def change(t: ModelTransaction) -> dict[str, int]:
            t.assign(key, values)
            return {"modified": 1}

        self._write(session, change, outcome)

    def _kill(self, session: int) -> None:
        key = self._pick(session, nodes=self.random.random() < 0.95)
        if key is None:
            return
        cascade = self.random.choice((None, None, None, True, False))
        outcome = self.driver.kill(key, cascade, session)

        def change(t: ModelTransaction) -> dict[str, int]:
            deleted, unlinked = t.kill(key, cascade)
            return {"deleted": deleted, "unlinked": unlinked}

        self._write(session, change, outcome)

    def _unlink(self, session: int) -> None:
        key = self._pick(session, nodes=False)
        if key is None:
            return
        outcome = self.driver.unlink(key, session)

        def change(t: ModelTransaction) -> dict[str, int]:
            item = t.view().items.get(key)
            if item is None or item.targets is None:
                raise ModelError("E3601")
            return {"unlinked": t.unlink({key})}

        if key in self.model.view(session).items or key in self.driver.ids:
            self._write(session, change, outcome)

    def _unlink_between(self, session: int) -> None:
        kind = self.random.choice(list(self.ontology.edges.values()))
        found = self._targets(session, kind.ends)
        if found is None:
            return
        targets = tuple(None if self.random.random() < 0.4 else key for key in found)
        outcome = self.driver.unlink_between(kind.name, targets, session)
        self._write(session, lambda t: {"unlinked": t.unlink_between(kind.name, targets)}, outcome)

    def _match_set(self, session: int) -> None:
        type_name, limit = self.random.choice(("Base", "A", "C", "D", "any")), self.random.randint(0, 3)
        outcome = self.driver.run(
            f"MATCH x: {type_name} WHERE x.n <= $limit SET x.n = x.n + 1", {"limit": limit}, session
        )

        def change(t: ModelTransaction) -> dict[str, int]:
            hit = [
                i for i in t.view().nodes(type_name) if i.values["n"] is not None and i.values["n"] <= limit
            ]
            for item in hit:
                t.assign(item.key, {"n": item.values["n"] + 1})
            return {"modified": len(hit)}

        self._write(session, change, outcome)

    def _match_kill(self, session: int) -> None:
        if self.ontology.prevents:
            return  # Whether the deletion is prevented can depend on the order of rows.
        type_name, limit = self.random.choice("BCD"), self.random.randint(0, 3)
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

    # Transactions

    def _begin(self, session: int, *, serializable: bool = False) -> None:
        outcome = self.driver.run("BEGIN SERIALIZABLE" if serializable else "BEGIN", session=session)
        if session in self.model.open:
            _failed_with(("E5001",), outcome)
            self.model.aborted.add(session)
            return
        assert isinstance(outcome, vedette.Result), outcome
        self.model.open[session] = ModelTransaction(self.model.committed, snapshot=serializable)
        if serializable:
            self.serializable[session] = (self.model.commits, [])

    def _begin_serializable(self, session: int) -> None:
        self._begin(session, serializable=True)

    def _commit(self, session: int) -> None:
        outcome = self.driver.run("COMMIT", session=session)
        transaction = self.model.open.pop(session, None)
        started, reads = self.serializable.pop(session, (None, []))
        if transaction is None or session in self.model.aborted:
            self.model.aborted.discard(session)
            _failed_with(("E5004" if transaction is None else "E5005",), outcome)
            return
        if started is not None and isinstance(outcome, vedette.VedetteError) and outcome.code == "E5002":
            assert started != self.model.commits, "a conflict, but no other session committed"
            return
        _, codes = _attempt(transaction.conflicts)
        if not codes and transaction.net():
            codes = self._violations(transaction.view(self.model.committed.items))
        if codes:
            _failed_with(codes, outcome)
            return
        assert isinstance(outcome, vedette.Result), outcome
        for query, writes, rows in (
            reads if transaction.before else ()
        ):  # A read-only transaction keeps the snapshot of its BEGIN.
            now = ModelTransaction(self.model.committed)
            now.writes = writes
            assert same_rows(query, answer(query, now.view()), rows), (
                "a stale read was committed",
                query.text(),
            )
        self._committed(transaction)

    def _rollback(self, session: int) -> None:
        outcome = self.driver.run("ROLLBACK", session=session)
        self.model.aborted.discard(session)
        self.serializable.pop(session, None)
        known = self.model.open.pop(session, None) is not None
        assert isinstance(outcome, vedette.Result) == known, outcome

    def _savepoint(self, session: int) -> None:
        name = self.random.choice("xyz")
        outcome = self.driver.run(f"SAVEPOINT {name}", session=session)
        assert isinstance(outcome, vedette.Result) == (session in self.model.open), outcome
        if session in self.model.open:
            self.model.open[session].savepoint(name)

    def _rollback_to(self, session: int) -> None:
        name = self.random.choice("xyz")
        outcome = self.driver.run(f"ROLLBACK TO {name}", session=session)
        if session not in self.model.open:
            assert isinstance(outcome, vedette.VedetteError)
            return
        _, codes = _attempt(lambda: self.model.open[session].rollback_to(name))
        if codes:
            _failed_with(codes, outcome)
            self.model.aborted.add(session)
            return
        assert isinstance(outcome, vedette.Result), outcome

    # Queries

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


def _attempt(act: Callable[[], Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the result of the model, or the error codes that the engine may raise."""
    try:
        return act(), ()
    except ModelError as error:
        return None, error.codes


def _failed_with(codes: tuple[str, ...], outcome: Any) -> None:
    assert isinstance(outcome, vedette.VedetteError), (codes, outcome)
    assert outcome.code in codes, (codes, outcome)


def _fields(type_name: str) -> list[str]:
    return {"A": ["n", "u", "i"], "B": ["n", "u", "i", "m"], "C": ["n", "u", "i", "m"], "D": ["n"]}[type_name]


@given(
    seed=st.integers(0, 2**32 - 1),
    nodes=st.integers(0, 6),
    edges=st.integers(0, 10),
    depth=st.integers(0, 2),
    steps=st.lists(st.integers(0, 2**32 - 1), min_size=20, max_size=60),
)
# An uncommitted edge whose target another session deletes.
@example(seed=0, nodes=3, edges=3, depth=0, steps=[*[0] * 16, 254, 2938040, 330431035, 29060])
@SEARCH
def test_engine_equals_graph_model(seed: int, nodes: int, edges: int, depth: int, steps: list[int]):
    random = Random(seed)
    ontology = random_ontology(random)
    asked = [random_query(random, ontology, depth) for _ in range(2)]
    rules = [random_constraint(random, ontology, depth) for _ in range(random.choice((0, 1, 2)))]
    note(ontology.text())
    note("\n".join([*(query.text() for query in asked), *(rule.text("c") for rule in rules)]))
    with tempfile.TemporaryDirectory() as folder:
        both = EngineAndModel(ontology, str(Path(folder) / "data"), asked, rules)
        try:
            both.load(random_graph(random, ontology, nodes, edges))
            for step in steps:
                both.step(Random(step))
            both.check_committed()
            both.driver.reopen()
            both.driver.validate()
            both.check_committed()
        finally:
            both.driver.close()
