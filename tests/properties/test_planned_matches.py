"""Whatever the planner thinks of: a query answers what trying every assignment answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.properties.engine_driver import Driver
from tests.properties.graph_model import Item, ModelGraph, ModelTransaction
from tests.properties.graph_strategies import graphs
from tests.properties.ontology_model import OntologyModel, ontologies
from tests.properties.query_model import QueryModel, answer, same_rows
from tests.properties.query_strategies import queries

SOAK = os.environ.get("VEDETTE_SOAK", "") not in {"", "0"}
SEARCH = settings(
    max_examples=3_000 if SOAK else 150,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    deadline=None,
)


@st.composite
def worlds(draw: Callable[[Any], Any]) -> tuple[OntologyModel, ModelGraph, list[QueryModel]]:
    ontology = draw(ontologies(plain=True))
    graph = draw(graphs(ontology))
    return ontology, graph, [draw(queries(ontology)) for _ in range(3)]


def check(driver: Driver, query: QueryModel, graph: ModelGraph, session: int = 0) -> None:
    expected = answer(query, graph)
    found = driver.rows(query.text(), session)
    if not same_rows(query, expected, found):
        note(query.text())
        note("\n".join(map(repr, graph.items.values())))
        note("\n".join(map(str, driver.rows("EXPLAIN " + query.text(), session))))
    assert same_rows(query, expected, found), (expected, found)


@given(worlds())
@SEARCH
def test_a_committed_graph(world: tuple[OntologyModel, ModelGraph, list[QueryModel]]):
    ontology, graph, asked = world
    note(ontology.text())
    driver = Driver(ontology.text())
    try:
        driver.load(graph)
        driver.home.default.state.replan()
        for query in asked:
            note(query.text())
            check(driver, query, graph)
        driver.validate()
    finally:
        driver.close()


@given(worlds(), st.data())
@SEARCH
def test_a_graph_with_the_writes_of_a_transaction_over_it(
    world: tuple[OntologyModel, ModelGraph, list[QueryModel]], data: st.DataObject
):
    """Half of the graph is committed, the rest written in a transaction, which also changes and deletes."""
    ontology, graph, asked = world
    driver = Driver(ontology.text(), sessions=2)
    try:
        split = data.draw(st.integers(0, len(graph.items)), label="committed")
        keys = list(graph.items)
        driver.load(ModelGraph(ontology, {k: graph.items[k] for k in keys[:split]}))
        committed = ModelGraph(ontology, {k: graph.items[k] for k in keys[:split]})
        transaction = ModelTransaction(committed)
        driver.run("BEGIN")
        driver.load(ModelGraph(ontology, {k: graph.items[k] for k in keys[split:]}))
        for key in keys[split:]:
            transaction.write(key, graph.items[key])
        for key in data.draw(st.lists(st.sampled_from(keys), max_size=4) if keys else st.just([]), label="touched"):
            touch(driver, transaction, key, data.draw(st.none() | st.integers(0, 3)))
        note("\n".join(map(repr, transaction.view().items.values())))
        for query in asked:
            note(query.text())
            check(driver, query, transaction.view(), session=0)
            check(driver, query, committed, session=1)
    finally:
        driver.close()


def touch(driver: Driver, transaction: ModelTransaction, key: int, value: int | None) -> None:
    """Set an attribute, or delete when there is no value to set."""
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


POLICIES = """
policy nodes: ON MATCH(x: Base) ALLOW IF x.n != 2
policy others: ON MATCH(d: D) ALLOW IF d.n != 1 AND current_actor() != null
policy never: ON MATCH(c: C) DENY IF c.i = 1
policy unflagged: ON MATCH(x: Base) DENY IF EXISTS(flag(f) WHERE f = x AND x.n = 0)
policy heavy: ON MATCH(e: e1) DENY IF e.w = 3
policy hide: ON MATCH(x: A).u DENY IF x.n = 1
policy hide_index: ON MATCH(b: B).i ALLOW IF b.n = 3
policy hide_weight: ON MATCH(e: e0).w DENY IF e.w = 2
"""


def seen(graph: ModelGraph) -> ModelGraph:
    """What the policies above leave of a graph."""
    visible: dict[int, Item] = {}
    for item in graph.items.values():
        if item.targets is None and _node_seen(item, graph):
            visible[item.key] = _masked(item)
    for _ in range(2):  # edges about edges are seen after those
        for item in graph.items.values():
            if item.targets is not None and all(target in visible for target in item.targets):
                if not (item.type == "e1" and item.values["w"] == 3):
                    visible[item.key] = _masked(item)
    return ModelGraph(graph.ontology, visible)


def _node_seen(item: Item, graph: ModelGraph) -> bool:
    values = item.values
    if item.type == "D":
        return values["n"] != 1
    flagged = any(edge.targets == (item.key,) for edge in graph.edges("flag"))
    if (item.type == "C" and values["i"] == 1) or (flagged and values["n"] == 0):
        return False
    return values["n"] != 2


def _masked(item: Item) -> Item:
    hidden = set()
    if item.type in ("A", "C") and item.values["n"] == 1:
        hidden.add("u")
    if item.type == "B" and item.values["n"] != 3:
        hidden.add("i")
    if item.type == "e0" and item.values["w"] == 2:
        hidden.add("w")
    return Item(item.key, item.type, {n: None if n in hidden else v for n, v in item.values.items()}, item.targets)


@given(worlds(), st.booleans())
@SEARCH
def test_a_graph_behind_policies(
    world: tuple[OntologyModel, ModelGraph, list[QueryModel]], in_transaction: bool
):
    ontology, graph, asked = world
    driver = Driver(ontology.text() + "node Actor\n" + POLICIES)
    try:
        driver.run("SPAWN actor: Actor")
        actor = driver.sessions[0].bindings["actor"]
        if in_transaction:
            driver.run("BEGIN")
        driver.load(graph)
        driver.run("BEGIN SESSION AS #$actor", {"actor": actor})
        expected = seen(graph)
        note("\n".join(map(repr, expected.items.values())))
        for query in asked:
            note(query.text())
            check(driver, query, expected)
    finally:
        driver.close()
