"""Every rule of the resolver, as statements with their expected errors (tests/data/resolve)."""

from __future__ import annotations

import pytest

from tests.support.paths import DATA
from tests.unit.language.resolve.statements import analysis_of, resolve_statement
from tests.unit.language.schema.schema_cases import Case, read_case_file
from vedette.language.parser import parse_script


@pytest.mark.parametrize("case", read_case_file(DATA / "resolve" / "errors.mew"), ids=lambda case: case.title)
def test_errors_create_no_cycles(case: Case) -> None:
    (text,) = case.steps
    analysis = analysis_of(text)
    for statement in parse_script(text):
        resolve_statement(analysis, statement)
    found = [(each.line, each.code, each.message) for each in analysis.diagnostics.found]
    expected = case.expected()
    assert [each[:2] for each in found] == [each[:2] for each in expected], found
    for (_, _, message), (_, _, part) in zip(found, expected, strict=True):
        assert part in message
