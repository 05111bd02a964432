"""The strategy and the properties of a compiled shape."""

from __future__ import annotations

import pytest

from tests.support.shapes import shape_of, watches_of


@pytest.mark.parametrize(
    ("statement", "strategy"),
    [
        ("WATCH p: Person RETURN p.name", "rows"),
        ("WATCH p: Person WHERE p.age > 3 RETURN p.name", "rows"),
        ("WATCH assigned(t, p), p: Person, t: Task RETURN t.title", "rows"),
        ("WATCH p: Person WHERE EXISTS(t: Task, assigned(t, p)) RETURN p.name", "rows"),
        ("WATCH p: Person RETURN COUNT(*) AS n", "groups"),
        ("WATCH p: Person RETURN p.age, COUNT(*) AS n", "groups"),
        ("WATCH p: Person RETURN DISTINCT p.age", "distinct"),
        ("WATCH t: Task WHERE t.due < now() RETURN t.title", "reevaluated"),
        ("WATCH s: _Session RETURN COUNT(*) AS n", "groups"),
    ],
)
def test_strategy(statement: str, strategy: str) -> None:
    assert shape_of(statement).strategy == strategy


@pytest.mark.parametrize(
    ("statement", "types"),
    [
        ("WATCH p: Person RETURN p.name", {"Person"}),
        ("WATCH assigned(t, p), p: Person, t: Task RETURN t.title", {"Person", "Task", "assigned"}),
        ("WATCH p: Person WHERE EXISTS(t: Task, assigned(t, p)) RETURN p.name", {"Person", "assigned"}),
    ],
)
def test_types_that_affect_the_shape(statement: str, types: set[str]) -> None:
    assert types <= shape_of(statement).types


def test_watches_that_differ_in_constants_share_a_shape() -> None:
    first, second, other = watches_of(
        'WATCH p: Person WHERE p.name = "Ann" RETURN p.age',
        'WATCH p: Person WHERE p.name = "Bob" RETURN p.age',
        'WATCH p: Person WHERE p.name = "Bob" RETURN p.name',
    )
    assert first.shape is second.shape
    assert first.shape is not other.shape
    assert first.shape.key_of_constants(first.constants) != first.shape.key_of_constants(second.constants)


@pytest.mark.parametrize(
    ("statement", "is_time_dependent"),
    [("WATCH p: Person RETURN p.name", False), ("WATCH t: Task WHERE t.due < now() RETURN t.title", True)],
)
def test_time_dependence(statement: str, is_time_dependent: bool) -> None:
    assert shape_of(statement).time_dependent is is_time_dependent


def test_a_pattern_of_one_node_needs_no_search() -> None:
    assert shape_of("WATCH p: Person WHERE p.age > 3 RETURN p.name").single_node is not None
    assert shape_of("WATCH assigned(t, p), p: Person, t: Task RETURN t.title").single_node is None
