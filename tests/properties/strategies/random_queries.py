"""Random valid queries over a random ontology."""

from __future__ import annotations

from random import Random

from tests.properties.models.ontology import CONCRETE, OntologyModel, attributes_of
from tests.properties.models.query import ConstraintModel, EdgePart, Expression, PatternModel, QueryModel

__all__ = ["random_constraint", "random_query"]

Scope = dict[str, str]
"""Variable ▸ its type. `edge<e0>` is the type of a variable bound to an edge."""

TYPES = ("A", "B", "Base", "C", "D", "any", "A | D")
TESTED = ("A", "B", "Base", "C", "D")


class _Namer:
    """Generates variable names that are unique within the query."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._count = 0

    def next(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._mark}{self._count}"


def _is_edge(type_name: str) -> bool:
    return type_name.startswith("edge<")


def _attributes(type_name: str) -> str:
    return "kw" if _is_edge(type_name) else attributes_of(type_name)


def _fits(known: str, end: str) -> bool:
    if _is_edge(known) or _is_edge(end):
        return known == end
    return not set(CONCRETE[known]).isdisjoint(CONCRETE[end])


# Patterns


def _pattern(
    random: Random,
    ontology: OntologyModel,
    scope: Scope,
    namer: _Namer,
    *,
    depth: int,
    first: tuple[str, str] | None = None,
) -> PatternModel:
    """Return a pattern that binds its variables in `scope`. `first` is a variable declared elsewhere."""
    nodes = [(namer.next("a"), random.choice(TYPES)) for _ in range(random.randint(0, 2))]
    scope.update(nodes)
    if first is not None:
        scope[first[0]] = first[1]
    least = 1 if first is not None or not nodes else 0
    edges = [_edge_part(random, ontology, scope, namer) for _ in range(random.randint(least, 2))]
    where = _condition(random, ontology, scope, namer, depth) if random.random() < 0.5 else None
    return PatternModel(tuple(nodes), tuple(edges), where, random.random() < 0.5)


def _edge_part(random: Random, ontology: OntologyModel, scope: Scope, namer: _Namer) -> EdgePart:
    kind = ontology.edges[random.choice(("e0", "e0", "e1", "e1", "flag", "tri", "about"))]
    repeat = ""
    if kind.name in ("e0", "e1"):
        repeat = random.choice(("", "", "", "+", "*"))
    targets = tuple(_target(random, end, scope, namer) for end in kind.ends)
    if repeat:
        depth = random.choice((None, None, (1, 1), (1, 2), (2, 2), (2, 3), (0, 1)))
        return EdgePart(kind.name, targets, None, repeat, depth)
    alias = None
    if random.random() < 0.5:
        alias = namer.next("r")
        scope[alias] = f"edge<{kind.name}>"
    return EdgePart(kind.name, targets, alias, place=namer.next("<"))


def _target(random: Random, end: str, scope: Scope, namer: _Namer) -> str | None:
    fitting = [name for name, known in scope.items() if _fits(known, end)]
    choice = random.randint(0, 5)
    if choice == 0:
        return None
    if fitting and choice < 5:
        return str(random.choice(fitting))
    name = namer.next("b")
    scope[name] = end
    return name


# Conditions


def _operand(random: Random, scope: Scope) -> Expression:
    variable = random.choice(sorted(scope))
    return ("attr", variable, random.choice(_attributes(scope[variable])))


def _condition(
    random: Random, ontology: OntologyModel, scope: Scope, namer: _Namer, depth: int
) -> Expression:
    if not scope:
        return ("cmp", "=", ("lit", 1), ("lit", random.randint(0, 1)))
    kinds = ["compare", "compare", "join", "null", "same", "is", "and", "or", "not"]
    if depth > 0:
        kinds += ["exists", "exists", "none", "count"]
    match random.choice(kinds):
        case "compare":
            op = random.choice(("=", "=", "!=", "<", ">="))
            sides = [_operand(random, scope), ("lit", random.randint(0, 3))]
            return ("cmp", op, *(reversed(sides) if random.random() < 0.5 else sides))
        case "join":
            op = random.choice(("=", "=", "=", "!=", "<"))
            return ("cmp", op, _operand(random, scope), _operand(random, scope))
        case "null":
            return ("isnull", _operand(random, scope))
        case "same":
            return _same(random, scope)
        case "is":
            nodes = [v for v, t in sorted(scope.items()) if not _is_edge(t)]
            return ("is", random.choice(nodes), random.choice(TESTED)) if nodes else _same(random, scope)
        case ("and" | "or") as op:
            left = _condition(random, ontology, scope, namer, depth - 1)
            return (op, left, _condition(random, ontology, scope, namer, depth - 1))
        case "not":
            return ("not", _condition(random, ontology, scope, namer, depth - 1))
        case "count":
            return _count(random, ontology, scope, namer, depth)
        case kind:
            inner = ("exists", _pattern(random, ontology, dict(scope), namer, depth=depth - 1))
            return ("not", inner) if kind == "none" else inner


def _same(random: Random, scope: Scope) -> Expression:
    variable = random.choice(sorted(scope))
    others = [v for v, t in sorted(scope.items()) if _is_edge(t) == _is_edge(scope[variable])]
    return ("same", variable, random.choice(others))


def _count(random: Random, ontology: OntologyModel, scope: Scope, namer: _Namer, depth: int) -> Expression:
    variable, type_name = namer.next("a"), random.choice(TYPES)
    pattern = _pattern(random, ontology, dict(scope), namer, depth=depth - 1, first=(variable, type_name))
    counted = ("count", variable, type_name, PatternModel(pattern.nodes, pattern.edges, pattern.where))
    return ("cmp", random.choice(("=", ">", "<=")), counted, ("lit", random.randint(0, 3)))


# Whole queries


def random_constraint(random: Random, ontology: OntologyModel, depth: int = 2) -> ConstraintModel:
    """Return a pattern and a condition over its variables. `depth` limits the nesting of conditions."""
    scope: Scope = {}
    namer = _Namer("p")
    pattern = _pattern(random, ontology, scope, namer, depth=depth)
    return ConstraintModel(pattern, _condition(random, ontology, scope, namer, depth))


def random_query(random: Random, ontology: OntologyModel, depth: int = 2) -> QueryModel:
    scope: Scope = {}
    namer = _Namer("p")
    pattern = _pattern(random, ontology, scope, namer, depth=depth)
    count = random.choice((0, 0, 0, 1, 2))
    optional = tuple(_pattern(random, ontology, scope, namer, depth=min(depth, 1)) for _ in range(count))
    if not scope:
        return QueryModel(pattern, optional, (("agg", "COUNT", None, False, None),))
    returns = _returns(random, ontology, scope, namer)
    distinct = random.random() < 0.3
    if random.random() < 0.7:
        return QueryModel(pattern, optional, returns, distinct)
    order = tuple((i, random.random() < 0.5) for i in range(len(returns)))
    limit, offset = random.choice((None, 0, 1, 3, 5)), random.choice((None, 0, 1, 2))
    return QueryModel(pattern, optional, returns, distinct, order, limit, offset)


def _returns(random: Random, ontology: OntologyModel, scope: Scope, namer: _Namer) -> tuple[Expression, ...]:
    match random.choice(("keys", "keys", "values", "aggregates")):
        case "keys":
            return tuple(("attr", v, "k") for v in sorted(scope))
        case "values":
            return tuple(_operand(random, scope) for _ in range(random.randint(1, 3)))
    groups = [_operand(random, scope) for _ in range(random.randint(0, 2))]
    return (*groups, *(_aggregate(random, ontology, scope, namer) for _ in range(random.randint(1, 3))))


def _aggregate(random: Random, ontology: OntologyModel, scope: Scope, namer: _Namer) -> Expression:
    if random.random() < 0.4:
        return ("agg", "COUNT", None, False, None)
    name = random.choice(("COUNT", "SUM", "MIN", "MAX", "AVG"))
    where = _condition(random, ontology, scope, namer, 1) if random.random() < 0.25 else None
    return ("agg", name, _operand(random, scope), random.random() < 0.5, where)
