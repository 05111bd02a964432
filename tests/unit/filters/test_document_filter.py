"""Compiled filters: outcomes, step limits, trees built by hand, binding of the request."""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from tests.unit.filters.filter_cases import cel_cases, cel_environment
from vedette.errors import FilterError
from vedette.filters.bind_request import bind_request
from vedette.filters.cel_parser import parse_cel
from vedette.filters.document_filter import DocumentFilter, compile_filter
from vedette.filters.filter_list import parse_filters
from vedette.filters.inputs import FilterInput, FilterOutcome, FilterRequest
from vedette.filters.limits import FilterLimits
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    ListLiteral,
    Literal,
    Parameter,
    TypeTest,
    Unary,
    Variable,
)


def cel(source: str, **limits: int) -> DocumentFilter:
    return compile_filter(parse_cel(source), limits=FilterLimits(**limits))


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("doc.n > 1", FilterOutcome.MATCH),
        ("doc.n < 1", FilterOutcome.NO_MATCH),
        ("doc.x > 1", FilterOutcome.FAILED),
        ("doc.n", FilterOutcome.FAILED),
        ("doc.n + 1", FilterOutcome.FAILED),
    ],
)
def test_outcomes(source: str, outcome: FilterOutcome) -> None:
    compiled = cel(source)
    assert compiled.outcome(FilterInput(doc={"n": 2})) is outcome
    assert compiled.matches(FilterInput(doc={"n": 2})) is (outcome is FilterOutcome.MATCH)


def test_defaults_of_the_filter_input() -> None:
    nobody = FilterInput(doc=None)
    assert cel("request.auth == null && before == null && doc == null").matches(nobody)
    assert cel("request.auth.userId == 'x'").outcome(nobody) is FilterOutcome.FAILED
    assert cel("has(before.x)").outcome(nobody) is FilterOutcome.FAILED


def test_any_mapping_is_a_document() -> None:
    document = MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})
    environment = FilterInput(doc=document)  # type: ignore[arg-type]
    assert cel("doc.a.b == [1, 2] && has(doc.a.b) && 'b' in doc.a && size(doc.a) == 1").matches(environment)
    assert cel("doc.a == doc.a && doc.a.b[1] == 2 && doc['a']['b'].size() == 2").matches(environment)
    assert compile_filter(parse_filters([{"field": "a.b", "op": "contains", "value": 2}])).matches(
        environment
    )


class TestBudget:
    """Work that depends on the document is counted during evaluation."""

    @pytest.mark.parametrize(
        ("source", "document"),
        [
            ("1 in doc.l", {"l": [0] * 11_000}),
            ("'x' in doc.l", {"l": ["y"] * 11_000}),
            ("doc.l == doc.l", {"l": [0] * 11_000}),
            ("doc.l != doc.l", {"l": [{"a": 1}] * 6_000}),
            ("[1] in doc.l", {"l": [[1, 2]] * 11_000}),
            ("doc.s.contains('x')", {"s": "y" * 700_000}),
            ("size(doc.s + doc.s) > 0", {"s": "y" * 400_000}),
            ("size(doc.l + doc.l) > 0", {"l": [0] * 6_000}),
            ("doc.l == doc.l || true", {"l": deep(20_000)}),
            ("false && 1 in doc.l || 1 in doc.l", {"l": [0] * 11_000}),
        ],
    )
    def test_exceeded(self, source: str, document: Any) -> None:
        compiled = cel(source)
        assert compiled.outcome(FilterInput(doc=document)) is FilterOutcome.FAILED
        with pytest.raises(FilterError, match=r"E1203 .* more steps"):
            compiled.evaluate(FilterInput(doc=document))

    def test_a_filter_list_is_charged_too(self) -> None:
        compiled = compile_filter(parse_filters([{"field": "l", "op": "contains", "value": 1}]))
        assert compiled.outcome(FilterInput(doc={"l": [0] * 11_000})) is FilterOutcome.FAILED
        assert compiled.outcome(FilterInput(doc={"l": [0] * 9_000})) is FilterOutcome.NO_MATCH

    def test_work_of_several_operators_is_added(self) -> None:
        document: Any = {"l": [0] * 40}
        assert (
            cel("1 in doc.l || 2 in doc.l", cost_steps=100).outcome(FilterInput(doc=document))
            is FilterOutcome.NO_MATCH
        )
        assert cel("1 in doc.l || 2 in doc.l || 3 in doc.l", cost_steps=120).outcome(
            FilterInput(doc=document)
        ) is (FilterOutcome.FAILED)

    def test_each_evaluation_has_its_own_step_limit(self) -> None:
        compiled = cel("0 in doc.l", cost_steps=50)
        assert all(compiled.matches(FilterInput(doc={"l": [0] * 40})) for _ in range(10))

    def test_deep_documents_are_compared_without_recursion(self) -> None:
        assert cel("doc.a == doc.b").matches(FilterInput(doc={"a": deep(9_000), "b": deep(9_000)}))


class TestHandMadeTrees:
    @pytest.mark.parametrize(
        "tree",
        [
            Variable("nobody"),
            Variable("request"),
            Parameter("p"),
            TypeTest(Variable("doc"), "T"),
            Binary("=", Variable("id"), Literal("x")),
            Binary("??", Variable("id"), Literal("x")),
            Unary("IS NULL", Variable("id")),
            Call("nothing", ()),
            Call("size", ()),
            Call("has", (Literal(1),)),
            Call("holds", ()),
            ListLiteral((Parameter("p"),)),
        ],
    )
    def test_nodes_without_meaning_in_filters_are_rejected(self, tree: Any) -> None:
        with pytest.raises(FilterError, match="E1201"):
            compile_filter(tree)

    def test_depth_is_measured_without_recursion(self) -> None:
        tree: Any = Variable("doc")
        for _ in range(50_000):
            tree = Attribute(tree, "a")
        with pytest.raises(FilterError, match="E1202"):
            compile_filter(tree)

    def test_constants_that_are_not_scalars(self) -> None:
        tree = Binary("==", Attribute(Variable("doc"), "a"), Literal({"b": [1]}))
        assert compile_filter(tree).matches(FilterInput(doc={"a": {"b": [1.0]}}))
        assert not compile_filter(tree).matches(FilterInput(doc={"a": {"b": [True]}}))
        assert compile_filter(Binary("IN", Variable("id"), Literal({"x": 1}))).matches(
            FilterInput(doc={}, id="x")
        )


class TestBindRequest:
    REQUEST = FilterRequest(
        auth={"userId": "u1", "roles": ["admin"], "claims": {"team": "eu", "grid": [[1]]}},
        time=datetime(2025, 6, 1, tzinfo=UTC),
    )

    @pytest.mark.parametrize(
        ("source", "bound"),
        [
            ("doc.owner == request.auth.userId", "doc.owner == 'u1'"),
            ("'admin' in request.auth.roles && id == ''", "'admin' in ['admin'] && id == ''"),
            ("request.auth.claims.team == doc.team", "'eu' == doc.team"),
            ("has(request.auth.claims.team)", "true"),
            ("has(request.auth.claims.none)", "false"),
            ("has(doc.a.b)", "has(doc.a.b)"),
            ("doc.at < request.time", "doc.at < timestamp('2025-06-01T00:00:00Z')"),
            ("[request.auth.userId][0]", "['u1'][0]"),
            ("!(true ? size(request.auth.userId) == 2 : false)", "!(true ? size('u1') == 2 : false)"),
        ],
    )
    def test_request_values_become_constants(self, source: str, bound: str) -> None:
        assert bind_request(parse_cel(source), self.REQUEST) == parse_cel(bound)

    def test_auth_is_null_without_a_token(self) -> None:
        assert bind_request(parse_cel("request.auth == null"), FilterRequest()) == parse_cel("null == null")

    @pytest.mark.parametrize(("source", "value", "fault"), cel_cases())
    def test_binding_the_request_does_not_change_the_outcome(
        self, source: str, value: Any, fault: str | None
    ) -> None:
        environment = cel_environment()
        bound = compile_filter(bind_request(parse_cel(source), environment.request))
        unasked = FilterInput(
            doc=environment.doc,
            id=environment.id,
            collection=environment.collection,
            op=environment.op,
            before=environment.before,
        )
        if fault is None:
            assert bound.evaluate(unasked) == value
        else:
            assert bound.outcome(unasked) is FilterOutcome.FAILED
