"""The size of a filter is checked when it is compiled; work on documents is counted during evaluation."""

from __future__ import annotations

import pytest

from vedette.errors import FilterError, SettingsError
from vedette.filters import FilterInput, FilterOutcome, compile_filter, parse_cel
from vedette.filters.inputs import MeteredInput, StepLimitExceeded
from vedette.filters.limits import FilterLimits, check_limits, quote_name


@pytest.mark.parametrize(
    ("text", "limits", "limit"),
    [
        ("doc.a == 1 && doc.b == 2", FilterLimits(nodes=8), "nodes"),
        ("!!!!doc.a", FilterLimits(depth=4), "depth"),
        ("doc.a in [1, 2, 3]", FilterLimits(list_items=2), "list_items"),
        ("doc.a in [1, 2, 3]", FilterLimits(cost_steps=5), "cost_steps"),
    ],
)
def test_too_large(text: str, limits: FilterLimits, limit: str) -> None:
    with pytest.raises(FilterError, match="E1202") as caught:
        check_limits(parse_cel(text), limits)
    assert caught.value.fields["limit"] == limit


def test_the_size_of_a_filter() -> None:
    size = check_limits(parse_cel("doc.a in [1, 2, 3]"))
    assert (size.nodes, size.depth, size.cost_steps) == (4, 3, 7)


def test_work_on_a_document_is_limited() -> None:
    compiled = compile_filter(parse_cel("doc.a in doc.items"), limits=FilterLimits(cost_steps=20))
    assert compiled.outcome(FilterInput(doc={"a": 1, "items": [1]})) is FilterOutcome.MATCH
    long = FilterInput(doc={"a": 1, "items": list(range(100))})
    assert compiled.outcome(long) is FilterOutcome.FAILED
    with pytest.raises(FilterError, match="needs more steps"):
        compiled.evaluate(long)


def test_a_metered_input_counts_down() -> None:
    metered = MeteredInput(FilterInput(doc={"a": 1}, id="x"), 2)
    assert (metered.doc, metered.id) == ({"a": 1}, "x")
    metered.charge(2)
    with pytest.raises(StepLimitExceeded):
        metered.charge(1)


@pytest.mark.parametrize("limits", [{"nodes": 0}, {"depth": 51}])
def test_limits_have_limits(limits: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="E0101"):
        FilterLimits(**limits)


def test_quoted_names_are_short_ascii() -> None:
    assert quote_name("ä") == "'\\xe4'"
    assert len(quote_name("x" * 500)) == 62
