"""Elements hidden from an actor do not affect the answers that the actor gets.

One database contains elements hidden from the actor; in the other they are deleted and hidden attributes are null. Both
must answer every statement of the actor alike. Omitted is what a writer can always find out: that a unique value is
taken, an edge exists, a limit is reached, and how many edges were deleted with a node.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import vedette
from tests.conftest import SOAK
from tests.properties.models.engine_driver import Driver
from tests.properties.models.graph import ModelGraph
from tests.properties.models.ontology import OntologyModel, random_ontology
from tests.properties.models.policy import POLICIES, seen
from tests.properties.strategies.random_graphs import random_graph
from tests.properties.strategies.random_queries import random_query

SEARCH = settings(
    max_examples=3_000 if SOAK else 40,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
WRITES = """
policy set_some: ON SET(x: Base, _) ALLOW IF x.n = 3 AND NOT x:C
policy set_flags: ON SET(e: flag, "w") ALLOW IF EXISTS(flag(x) AS f WHERE f = e AND x.n = 3 AND NOT x:C)
policy kill_some: ON KILL(x: A) ALLOW IF x.n = 3 AND NOT x:C
policy link_some: ON LINK(e: e0) | LINK(_, d: D) ALLOW IF true
policy spawn_some: ON SPAWN(x: B) ALLOW IF x.n != 1
policy spawn_never: ON SPAWN(x: B) DENY IF x.n = 1 MESSAGE "not these"
policy unlink_some: ON UNLINK(e: flag) ALLOW IF EXISTS(flag(x) AS f WHERE f = e AND x.n = 3 AND NOT x:C)
"""
# Elements that can be written by id are visible: a policy that allows writes to hidden elements reveals them.


@pytest.fixture(autouse=True, scope="module")
def quiet_audit() -> Iterator[None]:
    """Do not log the thousands of expected denials."""
    audit = logging.getLogger("vedette.audit")
    level = audit.level
    audit.setLevel(logging.CRITICAL)
    yield
    audit.setLevel(level)


def prepared(ontology: OntologyModel, graph: ModelGraph, *, bare: bool) -> Driver:
    """Create the graph in a database with policies. With `bare`, hidden elements are left out."""
    driver = Driver(f"{ontology.text()}\nnode Actor\n{POLICIES}\n{WRITES}")
    driver.run("SPAWN actor: Actor")
    driver.load(graph)
    left = seen(graph).items
    for key, item in graph.items.items() if bare else ():
        if key not in left:
            driver.run("UNLINK #$id" if item.targets is not None else "KILL #$id", {"id": driver.ids[key]})
        else:
            hidden = {n: None for n, v in item.values.items() if left[key].values[n] != v}
            assert not hidden or not isinstance(driver.assign(key, hidden), Exception)
    driver.sessions = [
        driver.vedette.session(driver.sessions[0].bindings["actor"])
    ]  # A session without bindings.
    return driver


def statements(random: Random, ontology: OntologyModel, driver: Driver) -> list[tuple[str, dict[str, Any]]]:
    """Statements of the actor, with every existing id and with the results of MATCH."""
    statements: list[tuple[str, dict[str, Any]]] = []
    ids = [*driver.ids.values(), "nobody"]
    for id in ids:
        statements += [(text, {"id": id, "n": random.randint(0, 3)}) for text in BY_ID]
    for _ in range(12):
        kind = random.choice(list(ontology.edges.values()))
        ends = {f"t{i}": random.choice(ids) for i in range(len(kind.ends))}
        targets = ", ".join("_" if random.random() < 0.3 else f"#${name}" for name in ends)
        statements.append((f"UNLINK {kind.name}({targets}) RETURNING k, w", ends))
        if kind.name == "e1":
            continue  # An element may be hidden between two visible ones.
        targets = ", ".join(f"#${name}" for name in ends)
        once = random.choice(("", "IF NOT EXISTS "))
        statements.append((f"LINK {once}{kind.name}({targets}) {{ k = 99 }} RETURNING created, k, w", ends))
    for type_name in ("Base", "A", "D", "any"):
        statements += [(text.replace("TYPE", type_name), {"n": random.randint(0, 3)}) for text in BY_MATCH]
    statements += [(random_query(random, ontology).text(), {}) for _ in range(4)]
    statements += [("SPAWN b: B { k = 98, n = $n } RETURNING *", {"n": n}) for n in (1, 2)]
    return statements


BY_ID = (
    "INSPECT #$id",
    "SET #$id.n = $n RETURNING n, k",
    "SET #$id { n = $n, w = 1 }",
    "SET #$id.w = $n RETURNING w",
    "UNLINK #$id",
    "MATCH x: any WHERE x = #$id RETURN x.k, x.u",
    "MATCH e0(#$id, y) RETURN y.k",
    "MATCH () RETURN #$id.n, #$id.u, type_of(#$id), #$id:A",
    "KILL { MATCH x: Base WHERE x.id = $id RETURN x } RETURNING k, u",
)
BY_MATCH = (
    "MATCH x: TYPE SET x.n = x.n + $n RETURNING k, n",
    "MATCH x: TYPE WHERE x.n = 3 SET x.n = x.n SET x.n = coalesce(x.k, 0) RETURNING n",
    "MATCH x: TYPE, y: TYPE WHERE x.n = $n LINK IF NOT EXISTS e0(x, y) { k = 97 } RETURNING created",
    "MATCH x: TYPE WHERE x.n = 3 KILL x RETURNING k",
)


def answered(driver: Driver, text: str, params: dict[str, Any]) -> Any:
    """Return the rows or the error text. The statement is rolled back."""
    driver.run("BEGIN")
    outcome = driver.run(text, params)
    driver.run("ROLLBACK")
    if isinstance(outcome, vedette.VedetteError):
        return str(outcome), outcome.fields
    return Counter(map(repr, outcome.rows)), outcome.created, outcome.modified, outcome.linked


@given(
    seed=st.integers(0, 2**32 - 1),
    nodes=st.integers(0, 7),
    edges=st.integers(0, 14),
)
@SEARCH
def test_hidden_elements_do_not_affect_answers(seed: int, nodes: int, edges: int):
    random = Random(seed)
    ontology = random_ontology(random, plain=True)
    graph = random_graph(random, ontology, nodes, edges)
    note(ontology.text())
    note("\n".join(map(repr, graph.items.values())))
    full = prepared(ontology, graph, bare=False)
    bare = prepared(ontology, graph, bare=True)
    try:
        for text, params in statements(random, ontology, full):
            with_hidden, without = answered(full, text, params), answered(bare, text, params)
            assert with_hidden == without, (text, params, with_hidden, without)
    finally:
        full.close()
        bare.close()
