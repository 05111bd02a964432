"""The CEL subset: values, rejected texts with the position of the error, size limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.filters.filter_cases import cel_cases, cel_environment, load
from vedette.errors import FilterError, SettingsError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterInput, FilterOutcome
from vedette.filters.limits import FilterLimits, check_limits
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Index,
    ListLiteral,
    Literal,
    Unary,
    Variable,
)

ENVIRONMENT = cel_environment()


@pytest.mark.parametrize(("source", "value", "fault"), cel_cases())
def test_values(source: str, value: Any, fault: str | None) -> None:
    compiled = compile_filter(parse_cel(source))
    if fault is not None:
        with pytest.raises(FilterError, match="E1203") as raised:
            compiled.evaluate(ENVIRONMENT)
        assert fault in raised.value.text
        assert compiled.outcome(ENVIRONMENT) is FilterOutcome.FAILED
        return
    found = compiled.evaluate(ENVIRONMENT)
    assert (found, type(found)) == (value, type(value))
    assert compiled.matches(ENVIRONMENT) is (found is True)


@pytest.mark.parametrize(("source", "code", "column", "text"), load("cel_refused"))
def test_errors_point_at_the_position(source: str, code: str, column: int, text: str) -> None:
    with pytest.raises(FilterError) as raised:
        parse_cel(source)
    error = raised.value
    assert error.code == code
    assert text in error.text
    (diagnostic,) = error.diagnostics
    assert (diagnostic.line, diagnostic.column) == (1, column)  # type: ignore[attr-defined]
    assert "^" in diagnostic.render()


def test_an_error_on_a_later_line_is_underlined_there() -> None:
    with pytest.raises(FilterError) as raised:
        parse_cel("doc.a == 1 &&\n  total > 5")
    assert str(raised.value).splitlines()[1:] == [
        "   2 |   total > 5",
        (
            "         ^^^^^ 'total' is not a variable; the variables are doc, id, collection, op, before, request; "
            "a field is written doc.total (line 2, column 3)"
        ),
    ]


@pytest.mark.parametrize("source", [b"doc.a", None, 5, ["doc.a"]])
def test_only_a_text_is_accepted(source: Any) -> None:
    with pytest.raises(FilterError, match="E1201"):
        parse_cel(source)


DOC = Variable("doc")


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("doc.a == -1", Binary("==", Attribute(DOC, "a"), Literal(-1))),
        ("resource.data['a'] != 'x'", Binary("!=", Attribute(DOC, "a"), Literal("x"))),
        ("event.type == 'create'", Binary("==", Variable("op"), Literal("create"))),
        ("doc.l[0]", Index(Attribute(DOC, "l"), Literal(0))),
        ("doc.a in [1]", Binary("IN", Attribute(DOC, "a"), ListLiteral((Literal(1),)))),
        ("!doc.a.contains('x')", Unary("NOT", Binary("CONTAINS", Attribute(DOC, "a"), Literal("x")))),
        ("doc.a.size()", Call("size", (Attribute(DOC, "a"),))),
        ("has(doc.a)", Call("has", (Attribute(DOC, "a"),))),
        ("timestamp('2025-01-01T00:00:00Z')", Literal(datetime(2025, 1, 1, tzinfo=UTC))),
        ("duration('1.5s')", Literal(timedelta(seconds=1.5))),
        (
            "id == '1' && id == '2' && id == '3'",
            Binary(
                "AND",
                Binary(
                    "AND",
                    Binary("==", Variable("id"), Literal("1")),
                    Binary("==", Variable("id"), Literal("2")),
                ),
                Binary("==", Variable("id"), Literal("3")),
            ),
        ),
    ],
)
def test_trees(source: str, tree: Any) -> None:
    assert parse_cel(source) == tree


def test_spans_cover_the_source_of_each_node() -> None:
    source = "doc.a == 1 && !(doc.b in [2, 3])"
    tree = parse_cel(source)
    assert isinstance(tree, Binary)
    assert source[slice(*tree.span)] == source[:-1]  # parentheses are not part of a node
    assert source[slice(*tree.left.span)] == "doc.a == 1"


class TestLimits:
    def refused(self, source: str, limits: FilterLimits | None = None) -> FilterError:
        with pytest.raises(FilterError) as raised:
            parse_cel(source, limits or FilterLimits())
        assert raised.value.code == "E1202"
        return raised.value

    def test_source(self) -> None:
        parse_cel("'" + "x" * 8190 + "'")
        assert self.refused("'" + "x" * 8191 + "'").fields["limit"] == "source_bytes"
        assert self.refused("'" + "é" * 4096 + "'").fields["limit"] == "source_bytes"
        self.refused("x" * 1_000_000)

    def test_depth(self) -> None:
        parse_cel("!" * 19 + "true")
        assert self.refused("!" * 20 + "true").fields == {"limit": "depth", "allowed": 20}
        self.refused("1" + " + 1" * 20)
        self.refused("doc" + ".a" * 20)

    @pytest.mark.parametrize(
        "opening", ["(", "[", "!(", "-(", "size(", "doc[", "1 + (", "true ? 1 : ", "has("]
    )
    def test_nesting(self, opening: str) -> None:
        self.refused(opening * 800)
        self.refused(opening * 10_000, FilterLimits(source_bytes=1_000_000))

    def test_parentheses_add_no_depth_to_the_tree(self) -> None:
        assert parse_cel("(" * 30 + "true" + ")" * 30) == Literal(True)

    def test_a_chain_of_and_is_shallow(self) -> None:
        tree = parse_cel(" && ".join(f"doc.f{n} == {n}" for n in range(100)))
        assert check_limits(tree).depth <= 10
        document: Any = {f"f{n}": n for n in range(100)}
        assert compile_filter(tree).matches(FilterInput(doc=document))
        assert not compile_filter(tree).matches(FilterInput(doc=document | {"f57": 0}))

    def test_nodes(self) -> None:
        assert self.refused(" || ".join(["id == ''"] * 126)).fields["limit"] == "nodes"

    def test_lists(self) -> None:
        parse_cel(f"doc.a in [{','.join(map(str, range(256)))}]")
        assert self.refused(f"doc.a in [{','.join(map(str, range(257)))}]").fields["limit"] == "list_items"

    def test_static_cost(self) -> None:
        limits = FilterLimits(cost_steps=5)
        parse_cel("doc.a == 1", limits)
        assert self.refused("doc.a in [1, 2, 3]", limits).fields["limit"] == "cost_steps"

    def test_the_error_underlines_the_list(self) -> None:
        error = self.refused("id == '' && doc.a in [1, 2, 3]", FilterLimits(list_items=2))
        assert [diagnostic.column for diagnostic in error.diagnostics] == [22]  # type: ignore[attr-defined]

    @pytest.mark.parametrize("limits", [{"depth": 0}, {"depth": 51}, {"nodes": 0}, {"cost_steps": -1}])
    def test_limits_have_limits(self, limits: dict[str, int]) -> None:
        with pytest.raises(SettingsError, match="E0101"):
            FilterLimits(**limits)
