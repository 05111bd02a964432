"""Filter lists: the truth table, regressions, rejected lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.filters.filter_cases import load
from vedette.errors import FilterError
from vedette.filters.document_filter import compile_filter
from vedette.filters.filter_list import parse_filters
from vedette.filters.inputs import FilterInput, FilterOutcome
from vedette.filters.limits import FilterLimits
from vedette.language.syntax.expressions import Attribute, Binary, Call, ListLiteral, Literal, Variable

TABLE = load("truth_table")


@pytest.mark.parametrize("row", TABLE["rows"], ids=lambda row: f"{row['op']} {row['value']!r}")
def test_truth_table(row: dict[str, Any]) -> None:
    compiled = compile_filter(parse_filters([{"field": "f", "op": row["op"], "value": row["value"]}]))
    outcomes = {name: compiled.outcome(FilterInput(doc=doc)) for name, doc in TABLE["documents"].items()}
    assert [name for name, outcome in outcomes.items() if outcome is FilterOutcome.MATCH] == row["met"]
    assert FilterOutcome.FAILED not in outcomes.values()


@pytest.mark.parametrize("case", load("lists"), ids=lambda case: case["about"])
def test_lists(case: dict[str, Any]) -> None:
    compiled = compile_filter(parse_filters(case["filters"]))
    environment = FilterInput(doc=case["doc"], id="d1")
    assert compiled.matches(environment) is case["match"]
    assert compiled.outcome(environment) is not FilterOutcome.FAILED


@pytest.mark.parametrize("case", load("lists_refused"), ids=lambda case: repr(case["filters"])[:60])
def test_rejected_lists(case: dict[str, Any]) -> None:
    with pytest.raises(FilterError) as raised:
        parse_filters(case["filters"])
    assert raised.value.code == case["code"]
    assert case["text"] in raised.value.text


def test_a_deleted_document_does_not_match_and_does_not_fail() -> None:
    compiled = compile_filter(parse_filters([{"field": "f", "op": "!=", "value": 1}]))
    assert compiled.outcome(FilterInput(doc=None)) is FilterOutcome.NO_MATCH


def test_tree() -> None:
    doc = Variable("doc")
    tree = parse_filters(
        (
            {"field": "a.b", "op": ">=", "value": 1},
            {"field": "c", "op": "in", "value": [1, 1.0, True, "x", "x", None]},
            {"field": "d", "op": "contains", "value": "x"},
        )
    )
    candidates = ListLiteral((Literal(1), Literal(True), Literal("x"), Literal(None)))
    first = Binary(">=", Attribute(Attribute(doc, "a"), "b"), Literal(1))
    second = Binary("IN", Attribute(doc, "c"), candidates)
    third = Call("member", (Literal("x"), Attribute(doc, "d")))
    assert tree == Call("holds", (Binary("AND", Binary("AND", first, second), third),))
    assert parse_filters([]) == Literal(True)


def test_timestamps_and_durations_as_values_and_as_nodes() -> None:
    noon = datetime(2025, 6, 1, 12, tzinfo=UTC)
    for value in (noon, {"type": "timestamp", "value": "2025-06-01T14:00:00+02:00"}):
        compiled = compile_filter(parse_filters([{"field": "at", "op": ">", "value": value}]))
        assert compiled.matches(FilterInput(doc={"at": noon + timedelta(seconds=1)}))
        assert not compiled.matches(FilterInput(doc={"at": noon}))
        assert not compiled.matches(FilterInput(doc={"at": "2025-06-01T12:00:01Z"}))
        assert not compiled.matches(FilterInput(doc={"at": timedelta(days=1)}))
    for span in (timedelta(minutes=1), {"type": "duration", "value": "1m"}):
        compiled = compile_filter(parse_filters([{"field": "d", "op": "==", "value": span}]))
        assert compiled.matches(FilterInput(doc={"d": timedelta(seconds=60)}))


class TestLimits:
    def limit(self, filters: list[Any], limits: FilterLimits | None = None) -> Any:
        with pytest.raises(FilterError) as raised:
            parse_filters(filters, limits or FilterLimits())
        assert raised.value.code == "E1202"
        return raised.value.fields["limit"]

    def test_duplicate_values_of_in_are_counted_once(self) -> None:
        condition = {"field": "a", "op": "in", "value": [*range(256), *range(256)]}
        parse_filters([condition, condition | {"field": "b"}, condition | {"field": "c"}])
        assert self.limit([condition | {"value": list(range(257))}]) == "list_items"

    def test_conditions(self) -> None:
        condition = {"field": "a", "op": "==", "value": 1}
        parse_filters([condition] * 100)
        assert self.limit([condition] * 101) == "nodes"
        assert self.limit([condition] * 100_000) == "nodes"

    def test_texts(self) -> None:
        parse_filters([{"field": "a" * 8192, "op": "==", "value": "é" * 4096}])
        assert self.limit([{"field": "a", "op": "==", "value": "é" * 4097}]) == "source_bytes"
        assert self.limit([{"field": "a" * 8193, "op": "==", "value": 1}]) == "source_bytes"
        assert self.limit([{"field": "a", "op": "==", "value": "x" * 8193}]) == "source_bytes"

    def test_cost(self) -> None:
        conditions = [{"field": f"f{n}", "op": "in", "value": list(range(256))} for n in range(40)]
        assert self.limit(conditions) == "cost_steps"
