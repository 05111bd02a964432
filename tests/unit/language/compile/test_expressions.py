"""Compiled expressions: null rules, access to attributes, functions. The pattern binds Ada, Ben, Cleo or Dora."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.language.compile.small_graph import NOW, context_of, people_and_tasks, run
from vedette.errors import PolicyError, QueryError


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("p.age + 1", 31),
        ("-p.age", -30),
        ("p.boss", None),
        ("p.boss.age", None),
        ('p.name ++ "!"', "Ada!"),
        ('p.age > 29 AND p.name STARTS WITH "A"', True),
        ("p.age IN [1, 30]", True),
        ("NOT p.age = 30", False),
        ("p.id", "1"),
        ("p._type", "Person"),
        ("p:Task", False),
        ("type_of(p)", "Person"),
        ("length(p.name)", 3),
        ("coalesce(p.boss.age, p.age, 7)", 30),
        ("p.boss.age ?? 5", 5),
        ("now()", NOW),
        ("logical_time()", 0),
        ("$text", "Ada"),
        ("#2.name", "Ben"),
        ("10 / 4", 2),
        ("1h + 30m", timedelta(minutes=90)),
        ("EXISTS(t: Task, assigned_to(t, p))", True),
        ("assigned_to(#5, p)", True),
        ("COUNT(t: Task, assigned_to(t, p))", 2),
    ],
)
def test_values(expression: str, expected: Any) -> None:
    assert run(f'MATCH p: Person WHERE p.name = "Ada" RETURN {expression} AS x') == [(expected,)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("p.age = NULL", True),
        ("p.age != 5", True),
        ("p.age < 5", None),
        ("p.age + 1", None),
        ("p.age < 5 AND FALSE", False),
        ("p.age < 5 OR TRUE", True),
        ("p.age < 5 OR FALSE", None),
        ("NOT p.age < 5", None),
        ("p.age IS NULL", True),
    ],
)
def test_null(expression: str, expected: Any) -> None:
    """Cleo has no age."""
    assert run(f'MATCH p: Person WHERE p.name = "Cleo" RETURN {expression} AS x') == [(expected,)]


def test_errors_at_run_time() -> None:
    with pytest.raises(QueryError, match="E2101"):
        run("MATCH p: Person RETURN 1 / 0 AS x")
    with pytest.raises(PolicyError, match="needs an actor"):
        run("MATCH p: Person RETURN #self AS x")


def test_the_candidate_limit_ends_a_statement() -> None:
    context = context_of(people_and_tasks())
    context.candidate_limit = context.pause_at_candidates = 2
    with pytest.raises(QueryError, match="E2103"):
        run("MATCH p: Person RETURN p.name", context=context)
    assert context.candidates_examined > 2


def test_a_long_read_yields_the_lock() -> None:
    context = context_of(people_and_tasks())
    yields = []
    context.pause_at_candidates, context.yield_lock = 1, lambda: yields.append(context.candidates_examined)
    run("MATCH p: Person RETURN p.name", context=context)
    assert yields
