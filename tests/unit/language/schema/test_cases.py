"""Every rule about declarations and their changes, as ontologies with expected errors (tests/data/schema)."""

from __future__ import annotations

import pytest

from tests.unit.language.schema.schema_cases import Case, define, define_all, read_cases
from vedette.errors import AnalysisError


def errors_of(case: Case) -> list[tuple[int, str, str]]:
    schema = define_all(*case.steps[:-1])
    with pytest.raises(AnalysisError) as caught:
        define(schema, case.steps[-1])
    error = caught.value
    assert error.code == error.fields["problems"][0]["code"]
    return [(each["line"], each["code"], each["message"]) for each in error.fields["problems"]]


@pytest.mark.parametrize(
    "case", read_cases("refused.mew") + read_cases("changes_refused.mew"), ids=lambda case: case.title
)
def test_rejected(case: Case) -> None:
    found = errors_of(case)
    expected = case.expected()
    assert [each[:2] for each in found] == [each[:2] for each in expected], found
    for (_, _, message), (_, _, part) in zip(found, expected, strict=True):
        assert part in message


@pytest.mark.parametrize("case", read_cases("accepted.mew"), ids=lambda case: case.title)
def test_accepted_once_and_again(case: Case) -> None:
    schema = define_all(*case.steps)
    assert define(schema, case.steps[-1]) is schema


@pytest.mark.parametrize("case", read_cases("changes_accepted.mew"), ids=lambda case: case.title)
def test_changes_accepted(case: Case) -> None:
    schema = define_all(*case.steps[:-1])
    grown = define(schema, case.steps[-1])
    assert grown.version == schema.version + 1
    assert define(grown, case.steps[-1]) is grown
    for name, node in schema.nodes.items():
        assert list(grown.nodes[name].layout)[: len(node.layout)] == list(node.layout)
    for name, edge in schema.edges.items():
        assert list(grown.edges[name].layout)[: len(edge.layout)] == list(edge.layout)
