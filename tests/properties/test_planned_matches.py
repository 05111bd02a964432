"""Whatever the planner thinks of: a query answers what trying every assignment answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.properties.engine_driver import Driver
from tests.properties.graph_model import Item, ModelGraph
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
