"""The affected-match finder returns every match that a set of changes affects, and no other."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.conftest import SOAK
from tests.properties.models.engine_driver import Driver
from tests.properties.models.graph import ModelGraph, ModelTransaction
from tests.properties.models.ontology import OntologyModel, random_ontology
from tests.properties.models.query import ConstraintModel, matches, value_of
from tests.properties.strategies.random_graphs import random_graph
from tests.properties.strategies.random_queries import random_constraint
from tests.properties.strategies.random_writes import random_write
from vedette.engine.state.graph_state import GraphState
from vedette.language.compile.affected_matches import AffectedMatchFinder
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.parser import parse_declarations
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import AnalysisContext, ExpressionSite, Scope
from vedette.language.syntax.declarations import ConstraintDeclaration

SEARCH = settings(
    max_examples=5_000 if SOAK else 150,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
RULES = 6

Identity = frozenset[tuple[str, int | None]]
"""A match: the element of each variable."""


class Finder:
    """A pattern and a condition, compiled by the engine as for constraints and rules."""

    def __init__(self, rule: ConstraintModel, state: GraphState) -> None:
        source = rule.text("c")
        (declaration,) = parse_declarations(source)
        assert isinstance(declaration, ConstraintDeclaration)
        analysis = AnalysisContext(state.schema, source)
        scope = Scope(analysis)
        resolver = PatternResolver(analysis, ExpressionSite(allows_actor=False))
        pattern = resolver.resolve_pattern(declaration.pattern, declaration.where, scope)
        condition = resolver.resolve_condition(declaration.condition, scope)
        analysis.raise_if_any()
        assert condition is not None
        compiler = PatternCompiler(state.plan_context)
        self._slots = {name: slot.register for name, slot in scope.variables.items()}
        self.matches = AffectedMatchFinder(pattern, (condition,), compiler, analysis.register_count)

    def found(self, rows: list[Any], keys: dict[str, int]) -> set[Identity]:
        return {frozenset((name, keys[row[slot].id]) for name, slot in self._slots.items()) for row in rows}


def concerned(
    rule: ConstraintModel, before: ModelGraph, after: ModelGraph, touched: set[int]
) -> set[Identity]:
    """Return the matches that are new, contain a changed element, or whose condition has another value now."""
    known = {
        _identity(rule, m): value_of(rule.condition, m, before) for m in matches(rule.pattern, {}, before)
    }
    found = set()
    for match in matches(rule.pattern, {}, after):
        identity = _identity(rule, match)
        changed = not touched.isdisjoint(key for key in match.values() if key is not None)
        if identity not in known or changed or known[identity] is not value_of(rule.condition, match, after):
            found.add(identity)
    return found


def _identity(rule: ConstraintModel, match: dict[str, int | None]) -> Identity:
    return frozenset((name, match[name]) for name in rule.pattern.variables)


@given(
    seed=st.integers(0, 2**32 - 1),
    nodes=st.integers(0, 7),
    edges=st.integers(0, 14),
    depth=st.integers(0, 2),
    writes=st.integers(1, 4),
)
@SEARCH
def test_finder_returns_every_affected_match(seed: int, nodes: int, edges: int, depth: int, writes: int):
    random = Random(seed)
    ontology = random_ontology(random, plain=random.random() < 0.7)
    before = random_graph(random, ontology, nodes, edges)
    note(ontology.text())
    driver = Driver(ontology.text())
    try:
        driver.load(before)
        driver.run("BEGIN")
        transaction = ModelTransaction(before)
        for _ in range(writes):
            note(str(random_write(random, driver, transaction)))
        opened = driver.sessions[0].transaction
        assert opened is not None
        state, changes = driver.vedette.default.state, opened.transaction.net_changes()
        after, keys = transaction.view(), {id: key for key, id in driver.ids.items()}
        for _ in range(RULES):
            rule = random_constraint(random, ontology, depth)
            finder = Finder(rule, state)
            context = ExecutionContext(view=opened.transaction.view, now=driver.vedette.clock.now)
            found = finder.found(finder.matches.find(context, changes), keys)
            there = {_identity(rule, match) for match in matches(rule.pattern, {}, after)}
            missed = concerned(rule, before, after, set(transaction.net())) - found
            assert not missed, (rule.text("c"), missed, after.items)
            assert found <= there, (rule.text("c"), found - there, after.items)
            everything = finder.found(finder.matches.find_all(context), keys)
            assert everything == there, (rule.text("c"), everything, there)
    finally:
        driver.close()


LOG = "node Log { " + ", ".join(f"v{i}: Int?" for i in range(12)) + " }"


def random_rule(random: Random, depth: int) -> tuple[OntologyModel, ConstraintModel]:
    """A pattern that no Log node matches; otherwise a rule that logs its matches would log its own logs."""
    while True:
        ontology = random_ontology(random, plain=True)
        rule = random_constraint(random, ontology, depth)
        if "any" not in rule.text("r") and "any" not in ontology.text() and len(rule.pattern.variables) <= 12:
            return ontology, rule


@given(
    seed=st.integers(0, 2**32 - 1),
    nodes=st.integers(0, 6),
    edges=st.integers(0, 10),
    depth=st.integers(0, 2),
    writes=st.integers(1, 4),
)
@SEARCH
def test_rule_fires_once_for_every_new_match(seed: int, nodes: int, edges: int, depth: int, writes: int):
    random = Random(seed)
    ontology, rule = random_rule(random, depth)
    before = random_graph(random, ontology, nodes, edges)
    names = rule.pattern.variables
    logged = ", ".join(f"v{i} = {name}.k" for i, name in enumerate(names))
    note(f"{ontology.text()}\n{rule.pattern.text()}")
    driver = Driver(f"{ontology.text()}\n{LOG}")
    try:
        driver.load(before)
        driver.vedette.define(f"rule log: {rule.pattern.text()} => SPAWN entry: Log {{ {logged} }}")
        driver.run("BEGIN")
        transaction = ModelTransaction(before)
        for _ in range(writes):
            note(random_write(random, driver, transaction))
        known = {_identity(rule, match) for match in matches(rule.pattern, {}, before)}
        there = {_identity(rule, match) for match in matches(rule.pattern, {}, transaction.view())}
        assert not isinstance(driver.run("COMMIT"), Exception)
        columns = ", ".join(f"l.v{i}" for i in range(len(names))) or "1"
        rows = driver.rows(f"MATCH l: Log RETURN {columns}")
        fired = [frozenset(zip(names, row, strict=False)) for row in rows]
        assert len(fired) == len(set(fired)), "fired twice for one match"
        assert there - known <= set(fired) <= there, (there - known, fired, there)
    finally:
        driver.close()
