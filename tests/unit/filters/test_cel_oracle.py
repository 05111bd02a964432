"""Random expressions, evaluated by ours and by an independent CEL: the Rust one, through common-expression-language.

Where the two differ on purpose or by a fault of the other, the expressions are kept apart below and pinned:

- `9007199254740993 == 9007199254740992.0`: the other rounds, we compare exactly (docs/reference/filters.md).
- `size('é')`: the other counts bytes, CEL and we count code points.
- `-(-9223372036854775808)`: the other wraps round, in CEL and here it is an error.
- `1 + 1.0`: an error in CEL; JSON does not tell the two kinds apart, so here it is 2.0.
- `0.0 / 0.0 > 0.0`: an error for the other, in CEL and here NaN compares as false.
- `!!null`: the other takes the two signs away first.
- `true > false`: has an order in CEL; here it is an error, as in filter lists.
"""

from __future__ import annotations

import math
import re
from typing import Any

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import FilterError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterInput
from vedette.filters.limits import FilterLimits

DOCUMENT: dict[str, Any] = {
    "i": 7,
    "j": -3,
    "d": 2.5,
    "e": 7.0,
    "s": "news",
    "u": "",
    "t": True,
    "f": False,
    "n": None,
    "l": [1, "a", None, 2.5, True, [1]],
    "k": [],
    "m": {"i": 7, "s": "x", "m": {"i": 1}},
}
LIMITS = FilterLimits(depth=50, nodes=5_000, source_bytes=100_000)
FAILED = "failed"

# Leaves by kind; `fault` raises an evaluation error, `odd` is a kind that few operators accept.
LEAVES = {
    "int": "0 1 (-2) 7 0x10 9223372036854775807 doc.i doc.j doc.m.i doc['m']['m'].i doc.l[0]".split(),
    "double": "0.0 1.5 (-2.25) 1e3 .5 doc.d doc.e".split(),
    "text": [
        "''",
        "'a'",
        '"news"',
        "r'a\\n'",
        "'\\x61\\142\\u0063'",
        "'''a'b'''",
        "doc.s",
        "doc.u",
        "doc.m.s",
    ],
    "bool": "true false doc.t doc.f has(doc.i) has(doc.m.q) has(doc.missing)".split(),
    "list": ["doc.l", "doc.k", "[]", "[1, 2.0, 'a', null, true, [1.0]]", "['news', doc.s]"],
    "odd": ["null", "doc.n", "doc.m", "doc.l"],
    "fault": [
        "doc.missing",
        "doc.m.missing",
        "doc.n.x",
        "doc.l[9]",
        "doc.s[0]",
        "doc.i.x",
        "1 / 0",
        "doc.t % 2",
    ],
}
# Compound expressions by kind. All lines of one kind are equally likely.
RULES = {
    "int": ["({int} + {int})", "({int} - {int})", "{int} * {int}", "({int} / {int})", "({int} % {int})", "size({list})",
            "({bool} ? {int} : {int})", "({int} + {odd})", "{list}.size()"],
    "double": ["({double} + {double})", "({double} - {double})", "{double} * {double}", "{double} / 1.5",
               "({bool} ? {double} : {double})"],
    "text": ["({text} + {text})", "({bool} ? {text} : {text})", "({text} + {odd})"],
    "bool": ["({bool} && {bool})", "({bool} || {bool})", "({bool} && {bool} || {bool} && {fault})",
             "({fault} && {bool})", "({bool} || {fault})", "({odd} && {bool})", "!({bool})", "!({odd})",
             "({any} == {any})", "({any} != {any})", "({int} == {double})", "({list} == {list})",
             "({int} < {int})", "({int} <= {double})", "({double} > {double})", "({text} >= {text})",
             "({int} < {text})", "({text} > {odd})", "({any} in {list})", "({text} in {odd})", "({any} in {fault})",
             "{text}.contains({text})", "{text}.startsWith({text})", "{text}.endsWith({text})",
             "({odd}).contains({text})", "({bool} ? {bool} : {bool})", "({fault} ? {bool} : {bool})"],
    "list": ["({list} + {list})", "[{any}]", "[{any}, {any}]", "[{int}, {double}, {text}]"],
    "odd": [],
    "fault": [],
}  # fmt: skip
KINDS = tuple(LEAVES)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    def write(kind: str, depth: int) -> str:
        if kind == "any":
            kind = draw(st.sampled_from(KINDS))
        if depth == 0 or not RULES[kind]:
            return draw(st.sampled_from(LEAVES[kind]))
        rule = draw(st.sampled_from(RULES[kind]))
        return re.sub(r"\{(\w+)\}", lambda place: write(place[1], draw(st.integers(0, depth - 1))), rule)

    return write(draw(st.sampled_from(["bool", "bool", "any"])), draw(st.integers(1, 4)))


def ours(source: str) -> Any:
    compiled = compile_filter(parse_cel(source, LIMITS), limits=LIMITS)
    try:
        return compiled.evaluate(FilterInput(doc=DOCUMENT))
    except FilterError:
        return FAILED


def theirs(source: str) -> Any:
    try:
        return cel.evaluate(source, {"doc": DOCUMENT})
    except Exception:
        return FAILED


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


@given(expressions())
def test_random_expressions_agree(source: str) -> None:
    assert same(ours(source), theirs(source)), (source, ours(source), theirs(source))


@given(st.text(max_size=4), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.text(max_size=4))
def test_order_of_text_agrees(left: str, sign: str, right: str) -> None:
    environment = FilterInput(doc={"a": left, "b": right})
    assert compile_filter(parse_cel(f"doc.a {sign} doc.b")).evaluate(environment) is cel.evaluate(
        f"doc.a {sign} doc.b", {"doc": environment.doc}
    )


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("9007199254740993 == 9007199254740992.0", False),
        ("size('é')", 1),
        ("-(-9223372036854775808)", FAILED),
        ("0.0 / 0.0 > 0.0", False),
        ("!!null", FAILED),
        ("1 + 1.0", 2.0),
        ("true > false", FAILED),
    ],
)
def test_known_differences_from_the_other_implementation(source: str, value: Any) -> None:
    assert same(ours(source), value)
    assert not same(theirs(source), value), "no longer a difference: let the random expressions have it"
