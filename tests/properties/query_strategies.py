"""Random queries over a random ontology; whatever is drawn must be legal in the language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.properties.ontology_model import CONCRETE, OntologyModel, attributes_of
from tests.properties.query_model import EdgePart, Expression, PatternModel, QueryModel

__all__ = ["patterns", "queries", "value_expressions"]

Draw = Callable[[Any], Any]
Scope = dict[str, str]
"""Variable ▸ its type; `edge<e0>` for a variable that holds an edge."""

TYPES = ("A", "B", "Base", "C", "D", "any", "A | D")
TESTED = ("A", "B", "Base", "C", "D")
NUMBERS = st.integers(0, 3)


class _Namer:
    """Names that no other variable of the query has."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"


def _is_edge(type_name: str) -> bool:
    return type_name.startswith("edge<")


def _attributes(type_name: str) -> str:
    return "kw" if _is_edge(type_name) else attributes_of(type_name)


def _fits(known: str, end: str) -> bool:
    if _is_edge(known) or _is_edge(end):
        return known == end
    return not set(CONCRETE[known]).isdisjoint(CONCRETE[end])


# --- patterns ---------------------------------------------------------------------------------------------------


def _pattern(
    draw: Draw, ontology: OntologyModel, scope: Scope, namer: _Namer, *, depth: int, first: tuple[str, str] | None = None
) -> PatternModel:
    """A pattern that binds its variables in `scope`; `first` is a variable that somebody else declares."""
    nodes = [(namer.next("a"), draw(st.sampled_from(TYPES))) for _ in range(draw(st.integers(0, 2)))]
    scope.update(nodes)
    if first is not None:
        scope[first[0]] = first[1]
    least = 1 if first is not None or not nodes else 0
    edges = [_edge_part(draw, ontology, scope, namer) for _ in range(draw(st.integers(least, 2)))]
    where = _condition(draw, ontology, scope, namer, depth) if draw(st.booleans()) else None
    return PatternModel(tuple(nodes), tuple(edges), where, draw(st.booleans()))


def _edge_part(draw: Draw, ontology: OntologyModel, scope: Scope, namer: _Namer) -> EdgePart:
    kind = ontology.edges[draw(st.sampled_from(("e0", "e0", "e1", "e1", "flag", "tri", "about")))]
    repeat = ""
    if kind.name in ("e0", "e1"):
        repeat = draw(st.sampled_from(("", "", "", "+", "*")))
    targets = tuple(_target(draw, end, scope, namer) for end in kind.ends)
    if repeat:
        depth = draw(st.sampled_from((None, None, (1, 1), (1, 2), (2, 2), (2, 3), (0, 1))))
        return EdgePart(kind.name, targets, None, repeat, depth)
    alias = None
    if draw(st.booleans()):
        alias = namer.next("r")
        scope[alias] = f"edge<{kind.name}>"
    return EdgePart(kind.name, targets, alias, place=namer.next("<"))


def _target(draw: Draw, end: str, scope: Scope, namer: _Namer) -> str | None:
    fitting = [name for name, known in scope.items() if _fits(known, end)]
    choice = draw(st.integers(0, 5))
    if choice == 0:
        return None
    if fitting and choice < 5:
        return str(draw(st.sampled_from(fitting)))
    name = namer.next("b")
    scope[name] = end
    return name


# --- conditions -------------------------------------------------------------------------------------------------


def _operand(draw: Draw, scope: Scope) -> Expression:
    variable = draw(st.sampled_from(sorted(scope)))
    return ("attr", variable, draw(st.sampled_from(_attributes(scope[variable]))))


def _condition(draw: Draw, ontology: OntologyModel, scope: Scope, namer: _Namer, depth: int) -> Expression:
    if not scope:
        return ("cmp", "=", ("lit", 1), ("lit", draw(st.integers(0, 1))))
    kinds = ["compare", "compare", "join", "null", "same", "is", "and", "or", "not"]
    if depth > 0:
        kinds += ["exists", "exists", "none", "count"]
    match draw(st.sampled_from(kinds)):
        case "compare":
            op = draw(st.sampled_from(("=", "=", "!=", "<", ">=")))
            sides = [_operand(draw, scope), ("lit", draw(NUMBERS))]
            return ("cmp", op, *(reversed(sides) if draw(st.booleans()) else sides))
        case "join":
            op = draw(st.sampled_from(("=", "=", "=", "!=", "<")))
            return ("cmp", op, _operand(draw, scope), _operand(draw, scope))
        case "null":
            return ("isnull", _operand(draw, scope))
        case "same":
            return _same(draw, scope)
        case "is":
            nodes = [v for v, t in sorted(scope.items()) if not _is_edge(t)]
            return ("is", draw(st.sampled_from(nodes)), draw(st.sampled_from(TESTED))) if nodes else _same(draw, scope)
        case ("and" | "or") as op:
            left = _condition(draw, ontology, scope, namer, depth - 1)
            return (op, left, _condition(draw, ontology, scope, namer, depth - 1))
        case "not":
            return ("not", _condition(draw, ontology, scope, namer, depth - 1))
        case "count":
            return _count(draw, ontology, scope, namer, depth)
        case kind:
            inner = ("exists", _pattern(draw, ontology, dict(scope), namer, depth=depth - 1))
            return ("not", inner) if kind == "none" else inner


def _same(draw: Draw, scope: Scope) -> Expression:
    variable = draw(st.sampled_from(sorted(scope)))
    others = [v for v, t in sorted(scope.items()) if _is_edge(t) == _is_edge(scope[variable])]
    return ("same", variable, draw(st.sampled_from(others)))


def _count(draw: Draw, ontology: OntologyModel, scope: Scope, namer: _Namer, depth: int) -> Expression:
    variable, type_name = namer.next("a"), draw(st.sampled_from(TYPES))
    pattern = _pattern(
        draw, ontology, dict(scope), namer, depth=depth - 1, first=(variable, type_name)
    )
    counted = ("count", variable, type_name, PatternModel(pattern.nodes, pattern.edges, pattern.where))
    return ("cmp", draw(st.sampled_from(("=", ">", "<="))), counted, ("lit", draw(NUMBERS)))


# --- whole queries ----------------------------------------------------------------------------------------------


@st.composite
def patterns(draw: Draw, ontology: OntologyModel, depth: int = 2) -> tuple[PatternModel, Scope]:
    """A pattern of its own, and the variables that it binds."""
    scope: Scope = {}
    pattern = _pattern(draw, ontology, scope, _Namer(), depth=depth)
    return pattern, scope


@st.composite
def value_expressions(draw: Draw, ontology: OntologyModel, scope: Scope, depth: int = 2) -> Expression:
    """A condition over variables that a pattern binds."""
    namer = _Namer()
    namer._count = 50  # past every name that a pattern drew
    return _condition(draw, ontology, dict(scope), namer, depth)


@st.composite
def queries(draw: Draw, ontology: OntologyModel) -> QueryModel:
    scope: Scope = {}
    namer = _Namer()
    pattern = _pattern(draw, ontology, scope, namer, depth=2)
    optional = tuple(_pattern(draw, ontology, scope, namer, depth=1) for _ in range(draw(st.sampled_from((0, 0, 1, 2)))))
    if not scope:
        return QueryModel(pattern, optional, (("agg", "COUNT", None, False, None),))
    keys: list[Expression] = [("attr", v, "k") for v in sorted(scope)]
    style = draw(st.sampled_from(("rows", "rows", "values", "aggregate")))
    if style == "rows":
        returns = tuple(keys)
    elif style == "values":
        returns = tuple(_operand(draw, scope) for _ in range(draw(st.integers(1, 3))))
    else:
        groups = [_operand(draw, scope) for _ in range(draw(st.integers(0, 2)))]
        found = [_aggregate(draw, ontology, scope, namer) for _ in range(draw(st.integers(1, 3)))]
        returns = (*groups, *found)
    distinct = draw(st.booleans())
    if not draw(st.booleans()):
        return QueryModel(pattern, optional, returns, distinct)
    order = tuple((i, draw(st.booleans())) for i in range(len(returns)))
    limit = draw(st.none() | st.integers(0, 4))
    return QueryModel(pattern, optional, returns, distinct, order, limit, draw(st.none() | st.integers(0, 3)))


def _aggregate(draw: Draw, ontology: OntologyModel, scope: Scope, namer: _Namer) -> Expression:
    if draw(st.booleans()):
        return ("agg", "COUNT", None, False, None)
    name = draw(st.sampled_from(("COUNT", "SUM", "MIN", "MAX", "AVG")))
    where = _condition(draw, ontology, scope, namer, 1) if draw(st.integers(0, 3)) == 0 else None
    return ("agg", name, _operand(draw, scope), draw(st.booleans()), where)
