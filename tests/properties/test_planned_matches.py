"""Whatever plan is chosen, a query returns the rows that trying every assignment returns."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.conftest import SOAK
from tests.properties.models.engine_driver import Driver
from tests.properties.models.graph import ModelGraph, ModelTransaction
from tests.properties.models.ontology import random_ontology
from tests.properties.models.policy import POLICIES, seen
from tests.properties.models.query import QueryModel, answer, same_rows
from tests.properties.strategies.random_graphs import random_graph, small
from tests.properties.strategies.random_queries import random_query

SEARCH = settings(
    max_examples=5_000 if SOAK else 100,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
SIZES = {
    "seed": st.integers(0, 2**32 - 1),
    "nodes": st.integers(0, 7),
    "edges": st.integers(0, 14),
    "depth": st.integers(0, 2),
}
QUERIES = 8


class GraphAndQueries:
    """A graph and the queries to run on it."""

    def __init__(self, seed: int, nodes: int, edges: int, depth: int) -> None:
        self.random = Random(seed)
        self.ontology = random_ontology(self.random, plain=True)
        self.graph = random_graph(self.random, self.ontology, nodes, edges)
        self.asked = [random_query(self.random, self.ontology, depth) for _ in range(QUERIES)]
        note(self.ontology.text())


def check(driver: Driver, query: QueryModel, graph: ModelGraph, session: int = 0) -> None:
    expected = answer(query, graph)
    found = driver.rows(query.text(), session)
    if not same_rows(query, expected, found):
        note(query.text())
        note("\n".join(map(repr, graph.items.values())))
        note("\n".join(map(str, driver.rows("EXPLAIN " + query.text(), session))))
    assert same_rows(query, expected, found), (expected, found)


@given(**SIZES)
@SEARCH
def test_plan_equals_brute_force_on_committed_graph(seed: int, nodes: int, edges: int, depth: int):
    case = GraphAndQueries(seed, nodes, edges, depth)
    driver = Driver(case.ontology.text())
    try:
        driver.load(case.graph)
        driver.vedette.default.state.invalidate_plans()  # Plan with the current sizes.
        for query in case.asked:
            check(driver, query, case.graph)
        driver.validate()
    finally:
        driver.close()


@given(**SIZES, split=st.integers(0, 12), touched=st.integers(0, 5))
@SEARCH
def test_plan_equals_brute_force_with_uncommitted_writes(
    seed: int, nodes: int, edges: int, depth: int, split: int, touched: int
):
    """A part of the graph is committed. An open transaction writes the rest, changes and deletes elements."""
    case = GraphAndQueries(seed, nodes, edges, depth)
    items = list(case.graph.items.values())
    committed = ModelGraph(case.ontology, {item.key: item for item in items[:split]})
    rest = ModelGraph(case.ontology, {item.key: item for item in items[split:]})
    driver = Driver(case.ontology.text(), sessions=2)
    try:
        driver.load(committed)
        driver.run("BEGIN")
        driver.load(rest)
        transaction = ModelTransaction(committed)
        for item in rest.items.values():
            transaction.write(item.key, item)
        for _ in range(touched if items else 0):
            touch(driver, transaction, case.random.choice(items).key, small(case.random))
        for query in case.asked:
            check(driver, query, transaction.view(), session=0)
            check(driver, query, committed, session=1)
    finally:
        driver.close()


def touch(driver: Driver, transaction: ModelTransaction, key: int, value: int | None) -> None:
    """Set an attribute, or delete the element if there is no value to set."""
    item = transaction.view().items.get(key)
    if item is None:
        return
    if value is not None:
        name = "n" if item.targets is None else "w"
        transaction.assign(key, {name: value})
        outcome = driver.assign(key, {name: value})
    elif item.targets is None:
        transaction.kill(key, None)
        outcome = driver.kill(key, None)
    else:
        transaction.unlink({key})
        outcome = driver.unlink(key)
    assert not isinstance(outcome, Exception), outcome


@given(**SIZES, in_transaction=st.booleans())
@SEARCH
def test_plan_equals_brute_force_with_policies(
    seed: int, nodes: int, edges: int, depth: int, in_transaction: bool
):
    case = GraphAndQueries(seed, nodes, edges, depth)
    driver = Driver(case.ontology.text() + "\nnode Actor\n" + POLICIES)
    try:
        driver.run("SPAWN actor: Actor")
        actor = driver.sessions[0].bindings["actor"]
        if in_transaction:
            driver.run("BEGIN")
        driver.load(case.graph)
        driver.run("BEGIN SESSION AS #$actor", {"actor": actor})
        for query in case.asked:
            check(driver, query, seen(case.graph))
    finally:
        driver.close()
