"""Compiled patterns: each kind of step finds its matches, once per match."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.language.compile.small_graph import (
    SmallGraph,
    compiler,
    context_of,
    edge,
    node,
    people_and_tasks,
    run,
)
from tests.unit.language.resolve.statements import resolve_match
from vedette.language.resolve.tree import ResolvedNode


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("MATCH t: Task RETURN t.title", ["plan", "write"]),
        ("MATCH t: Project RETURN t.title", ["plan"]),
        ('MATCH p: Person WHERE p.id = "2" RETURN p.name', ["Ben"]),
        ('MATCH p: Person WHERE p.name = "Dora" RETURN p.name', ["Dora"]),
        (
            'MATCH t: Task, p: Person, assigned_to(t, p) WHERE p.name = "Ada" RETURN t.title',
            ["plan", "write"],
        ),
        ("MATCH t: Task, assigned_to(t, #2) RETURN t.title", ["plan"]),
        ("MATCH assigned_to(t, _) AS e RETURN t.title", ["plan", "plan", "write"]),
        ("MATCH p: Person WHERE NOT EXISTS(assigned_to(_, p)) RETURN p.name", ["Cleo", "Dora"]),
        ("MATCH a: Person, b: Person WHERE a.age = b.age AND a.name < b.name RETURN b.name", ["Dora"]),
        (
            'MATCH a: Person, b: Person, reports_to+(a, b) WHERE a.id = "1" RETURN b.name',
            ["Ben", "Cleo", "Dora"],
        ),
        (
            'MATCH a: Person, b: Person, reports_to*(a, b) [depth: 1] WHERE a.id = "1" RETURN b.name',
            ["Ada", "Ben"],
        ),
        ("MATCH a: Person, reports_to+(a, #4) [depth: 2..2] RETURN a.name", ["Ben"]),
        ("MATCH a: Person, reports_to+(a, a) RETURN a.name", []),
    ],
)
def test_matches(statement: str, expected: list[Any]) -> None:
    assert sorted(value for (value,) in run(statement)) == expected


def test_a_symmetric_edge_matches_once_in_its_stored_orientation() -> None:
    assert run("MATCH a: Person, b: Person, knows(a, b) RETURN a.name, b.name") == [("Ben", "Ada")]
    assert run('MATCH a: Person, b: Person, knows(a, b) WHERE a.name = "Ada" RETURN b.name') == [("Ben",)]


def test_an_edge_from_an_element_to_itself() -> None:
    graph = SmallGraph([node("1", "Person", name="Ada"), edge("2", "reports_to", "1", "1")])
    assert run("MATCH p: Person, reports_to(p, p) RETURN p.name", graph) == [("Ada",)]


def test_a_path_that_reaches_the_default_depth_adds_a_warning() -> None:
    people = [node(str(i), "Person", name=str(i)) for i in range(103)]
    links = [edge(f"e{i}", "reports_to", str(i), str(i + 1)) for i in range(102)]
    context = context_of(SmallGraph([*people, *links]))
    rows = run(
        'MATCH a: Person, b: Person, reports_to+(a, b) WHERE a.id = "0" RETURN b.name', context=context
    )
    assert len(rows) == 100
    assert context.warnings[0].startswith(
        "W3104 path search over 'reports_to' stopped at the default depth of 100"
    )


def test_compile_pattern_returns_its_plan_and_lists_it() -> None:
    _, query, _ = resolve_match("MATCH p: Person WHERE EXISTS(assigned_to(_, p)) RETURN p")
    pattern_compiler = compiler()
    compiled = pattern_compiler.compile_pattern(query.pattern, lambda row: False)
    assert pattern_compiler.plans[0] is compiled.plan
    assert len(pattern_compiler.plans) == 2, "the nested pattern has a plan of its own"


def test_a_consumer_stops_the_search() -> None:
    analysis, query, _ = resolve_match("MATCH p: Person RETURN p")
    (person,) = query.pattern.elements
    assert isinstance(person, ResolvedNode)
    register = person.register
    seen: list[str] = []

    def first(row: list[Any]) -> bool:
        seen.append(row[register].id)
        return True

    search = compiler().compile_pattern(query.pattern, first).run
    row: list[Any] = [context_of(people_and_tasks()), *[None] * analysis.register_count]
    assert search(row) is True
    assert seen == ["1"]
