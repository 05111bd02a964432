"""RETURN: groups, DISTINCT, ORDER BY, LIMIT, OFFSET, OPTIONAL MATCH, and elements as dictionaries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.language.compile.small_graph import SCHEMA, compiler, context_of, people_and_tasks, run
from tests.unit.language.resolve.statements import resolve_match
from vedette.errors import QueryError
from vedette.language.compile.queries import RowQuery
from vedette.language.resolve.tree import FixedValue
from vedette.language.types import INT


def test_groups_and_aggregates() -> None:
    rows = run(
        "MATCH t: Task, p: Person, assigned_to(t, p) RETURN p.name, COUNT(*) AS n, SUM(t.rank) AS s ORDER BY n DESC"
    )
    assert rows == [("Ada", 2, 3), ("Ben", 1, 2)]


def test_aggregates_without_rows_give_one_row() -> None:
    assert run('MATCH p: Person WHERE p.name = "none" RETURN COUNT(*), MAX(p.age)') == [(0, None)]


def test_aggregates_skip_nulls_and_apply_where_and_distinct() -> None:
    query = "MATCH p: Person RETURN COUNT(p.age), COUNT(DISTINCT p.age), COUNT(p WHERE p.age > 30)"
    assert run(query) == [(3, 2, 2)]


def test_nulls_are_last_in_ascending_order() -> None:
    rows = run("MATCH p: Person RETURN p.name ORDER BY p.age, p.name DESC")
    assert [name for (name,) in rows] == ["Ada", "Dora", "Ben", "Cleo"]


def test_limit_and_offset() -> None:
    assert run("MATCH p: Person RETURN p.name ORDER BY p.name LIMIT 2 OFFSET 1") == [("Ben",), ("Cleo",)]
    assert run("MATCH p: Person RETURN p.name LIMIT 0") == []


def test_a_negative_limit_is_an_error() -> None:
    analysis, query, returns = resolve_match("MATCH p: Person RETURN p.name LIMIT 1")
    rows = RowQuery(
        query, replace(returns, limit=FixedValue(-1, INT)), compiler(), analysis.register_count, SCHEMA
    )
    with pytest.raises(QueryError, match="LIMIT must be an Int"):
        rows.run(context_of(people_and_tasks()))


def test_distinct() -> None:
    assert run("MATCH p: Person WHERE p.age IS NOT NULL RETURN DISTINCT p.age ORDER BY p.age") == [
        (30,),
        (40,),
    ]


def test_optional_match_keeps_rows_without_a_match() -> None:
    rows = run(
        "MATCH p: Person OPTIONAL MATCH t: Task, assigned_to(t, p) RETURN p.name, t.title ORDER BY p.name, t.title"
    )
    assert rows == [("Ada", "plan"), ("Ada", "write"), ("Ben", "plan"), ("Cleo", None), ("Dora", None)]


def test_elements_are_returned_as_dictionaries() -> None:
    ((ada, ids),) = run(
        'MATCH p: Person WHERE p.name = "Ada" RETURN p, COLLECT(t: Task, assigned_to(t, p)) AS tasks'
    )
    assert ada == {"id": "1", "_type": "Person", "name": "Ada", "age": 30, "boss": None}
    assert [task["id"] for task in ids] == ["5", "6"]
