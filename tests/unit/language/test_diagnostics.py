"""Diagnostics point at the source; a collector keeps a limited number and raises them together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vedette.errors import AnalysisError
from vedette.language.diagnostics import Diagnostic, DiagnosticCollector, Span, line_and_column


def error(diagnostics: Sequence[Diagnostic]) -> AnalysisError:
    return AnalysisError(diagnostics[0].code, diagnostics[0].message, diagnostics=diagnostics)


def test_lines_and_columns_count_from_one() -> None:
    assert line_and_column("ab\ncd", 0) == (1, 1)
    assert line_and_column("ab\ncd", 4) == (2, 2)
    assert line_and_column("ab\ncd", 99) == (2, 3)


def test_render_underlines_the_span() -> None:
    diagnostic = Diagnostic(code="E2001", message="unknown", span=Span(3, 5), source="ab cd ef")
    assert diagnostic.render() == "   1 | ab cd ef\n          ^^ unknown (line 1, column 4)"


def test_render_keeps_the_underline_aligned_in_long_and_odd_lines() -> None:
    source = "\t\ud800" + "x" * 500 + "y"
    shown, pointer = (
        Diagnostic(code="E1", message="m", span=Span(502, 503), source=source).render().split("\n")
    )
    assert shown[pointer.index("^")] == "y"
    shown.encode()


def test_a_collector_without_errors_raises_nothing() -> None:
    DiagnosticCollector("text", 5).raise_first(error)


def test_a_collector_drops_errors_past_its_limit() -> None:
    collector = DiagnosticCollector("text", 2)
    for number in range(3):
        assert not collector.is_full or number == 2
        collector.report("E2001", str(number), Span(number, number))
    assert [each.message for each in collector.found] == ["0", "1"]


def test_a_collector_raises_all_errors_in_the_order_of_the_text() -> None:
    collector = DiagnosticCollector("text", 5)
    collector.report("E2002", "second", Span(3, 4))
    collector.report("E2001", "first", Span(0, 1))
    with pytest.raises(AnalysisError) as caught:
        collector.raise_first(error, sort=True)
    assert caught.value.code == "E2001"
    assert [each.message for each in collector.found] == ["first", "second"]
    assert list(caught.value.diagnostics) == collector.found
