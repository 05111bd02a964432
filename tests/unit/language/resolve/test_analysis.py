"""Questions about resolved expressions, and their text for EXPLAIN."""

from __future__ import annotations

import pytest

from tests.unit.language.resolve.statements import resolve_match
from vedette.language.resolve.analysis import (
    can_raise,
    child_expressions,
    registers_read,
    split_conjuncts,
    transform_expression,
    walk_expression,
)
from vedette.language.resolve.explain import explain_expression, explain_target, variable_names
from vedette.language.resolve.queries import bound_registers, outer_registers
from vedette.language.resolve.tree import FixedValue, ResolvedExists, ResolvedExpression, VariableRef
from vedette.language.types import INT


def condition(text: str) -> ResolvedExpression:
    _, query, _ = resolve_match(f"MATCH t: Task, p: Person WHERE {text} RETURN t")
    (found,) = query.pattern.where
    return found


def test_conditions_are_split_at_and() -> None:
    _, query, _ = resolve_match(
        "MATCH t: Task WHERE t.active AND (t.rank = 1 OR t.rank = 2) AND t.size = 3 RETURN t"
    )
    assert [explain_expression(each) for each in query.pattern.where] == [
        "t.active",
        "(t.rank = 1) OR (t.rank = 2)",
        "t.size = 3",
    ]
    assert split_conjuncts(None) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t.rank = p.age", {"t", "p"}),
        ("EXISTS(q: Person, knows(p, q) WHERE q.age > t.rank)", {"t", "p"}),
        ("NOT t.active", {"t"}),
    ],
)
def test_registers_read(text: str, expected: set[str]) -> None:
    found = condition(text)
    names = {part.register: part.name for part in walk_expression(found) if isinstance(part, VariableRef)}
    assert {names.get(register, "p") for register in registers_read(found)} == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 / t.rank > 0", True),
        ("t.rank / 2.0 > 0", False),
        ("round(1.5) = t.rank", True),
        ("t.rank + 1 > 0", False),
        ('t.title = "a"', False),
        ("EXISTS(q: Person WHERE 1 / q.age > 0)", True),
    ],
)
def test_can_raise(text: str, expected: bool) -> None:
    assert can_raise(condition(text)) is expected


def test_transform_replaces_parts() -> None:
    one, two = FixedValue(1, INT), FixedValue(2, INT)
    found = transform_expression(condition("t.rank = 1"), lambda part: two if part == one else None)
    assert explain_expression(found) == "t.rank = 2"


def test_child_expressions_include_those_of_a_nested_pattern() -> None:
    found = condition("EXISTS(assigned_to(t, #5) WHERE t.active)")
    assert [explain_expression(each) for each in child_expressions(found)] == ["t.active", "#5"]


def test_bound_and_outer_registers() -> None:
    _, query, _ = resolve_match("MATCH t: Task WHERE EXISTS(p: Person, assigned_to(t, p)) RETURN t")
    (exists,) = query.pattern.where
    assert isinstance(exists, ResolvedExists)
    assert bound_registers(query.pattern).isdisjoint(bound_registers(exists.pattern))
    assert outer_registers(query) == frozenset()
    assert variable_names(query.pattern) == {1: "t"}
    assert explain_target(None, {}) == "_"
