"""Reference model of queries: trees that print themselves, evaluated by trying every assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.properties.models.graph import ModelGraph
from tests.properties.models.ontology import CONCRETE

__all__ = [
    "ConstraintModel",
    "EdgePart",
    "Expression",
    "PatternModel",
    "QueryModel",
    "answer",
    "edge_name",
    "matches",
    "same_rows",
    "text_of",
    "value_of",
]

Environment = dict[str, int]
Expression = tuple[Any, ...]
"""("attr", v, a) ("lit", x) ("null",) ("cmp", op, l, r) ("and", l, r) ("or", l, r) ("not", e) ("isnull", e)
("add", l, r) ("same", v, v) ("is", v, Type) ("exists", pattern) ("count", v, Type, pattern)"""

DEFAULT_DEPTH = 100


@dataclass(frozen=True)
class EdgePart:
    edge: str
    targets: tuple[str | None, ...]
    """Names of variables, None for `_`."""
    alias: str | None = None
    repeat: str = ""
    """`+`, `*`, or empty for one stored edge."""
    depth: tuple[int, int] | None = None
    place: str = "<0>"
    """The internal name of an edge without an alias. It is unique within the query."""

    def text(self) -> str:
        targets = ", ".join(target or "_" for target in self.targets)
        alias = f" AS {self.alias}" if self.alias else ""
        depth = f" [depth: {self.depth[0]}..{self.depth[1]}]" if self.depth else ""
        return f"{self.edge}{self.repeat}({targets}){alias}{depth}"

    @property
    def bounds(self) -> tuple[int, int]:
        return self.depth or ((0 if self.repeat == "*" else 1), DEFAULT_DEPTH)


@dataclass(frozen=True)
class PatternModel:
    nodes: tuple[tuple[str, str], ...] = ()
    """(variable, type) of the declared variables."""
    edges: tuple[EdgePart, ...] = ()
    where: Expression | None = None
    turned: bool = field(default=False, compare=False)
    """Write edges before nodes. The result must not depend on this order."""

    def text(self) -> str:
        parts = [f"{v}: {t}" for v, t in self.nodes], [edge.text() for edge in self.edges]
        both = [*parts[1], *parts[0]] if self.turned else [*parts[0], *parts[1]]
        where = f" WHERE {text_of(self.where)}" if self.where is not None else ""
        return f"{', '.join(both) or '()'}{where}"

    @property
    def variables(self) -> list[str]:
        """Return every variable that the pattern binds, including names of edges, in the written order."""
        found = [v for v, _ in self.nodes]
        found += [t for edge in self.edges for t in edge.targets if t is not None]
        found += [edge.alias for edge in self.edges if edge.alias]
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class QueryModel:
    pattern: PatternModel
    optional: tuple[PatternModel, ...] = ()
    returns: tuple[Expression, ...] = ()
    """Expressions, or ("agg", name, expression or None, distinct, where)."""
    distinct: bool = False
    order: tuple[tuple[int, bool], ...] = ()
    """(index of a projection, descending)."""
    limit: int | None = None
    offset: int | None = None

    def text(self) -> str:
        optional = "".join(f" OPTIONAL MATCH {part.text()}" for part in self.optional)
        columns = ", ".join(f"{_projection(e)} AS c{i}" for i, e in enumerate(self.returns))
        order = ", ".join(f"c{i}{' DESC' if down else ''}" for i, down in self.order)
        return (
            f"MATCH {self.pattern.text()}{optional} RETURN {'DISTINCT ' if self.distinct else ''}{columns}"
            + (f" ORDER BY {order}" if order else "")
            + (f" LIMIT {self.limit}" if self.limit is not None else "")
            + (f" OFFSET {self.offset}" if self.offset is not None else "")
        )


@dataclass(frozen=True)
class ConstraintModel:
    """The condition must be true for every match of the pattern."""

    pattern: PatternModel
    condition: Expression

    def text(self, name: str) -> str:
        return f"constraint {name}: {self.pattern.text()} => {text_of(self.condition)}"

    def holds(self, graph: ModelGraph) -> bool:
        found = matches(self.pattern, {}, graph)
        return all(value_of(self.condition, match, graph) is True for match in found)


# Printing


def text_of(expression: Expression) -> str:
    match expression:
        case ("attr", variable, name):
            return f"{variable}.{name}"
        case ("lit", value):
            return str(value)
        case ("null",):
            return "null"
        case ("cmp", op, left, right) | ("add" as op, left, right):
            return f"({text_of(left)} {'+' if op == 'add' else op} {text_of(right)})"
        case ("and" | "or" as op, left, right):
            return f"({text_of(left)} {op.upper()} {text_of(right)})"
        case ("not", inner):
            return f"(NOT {text_of(inner)})"
        case ("isnull", inner):
            return f"({text_of(inner)} IS NULL)"
        case ("same", left, right):
            return f"({left} = {right})"
        case ("is", variable, type_name):
            return f"({variable}:{type_name})"
        case ("exists", pattern):
            return f"EXISTS({pattern.text()})"
        case ("count", variable, type_name, pattern):
            rest = pattern.text()
            return f"COUNT({variable}: {type_name}, {rest})"
    raise AssertionError(expression)


def _projection(expression: Expression) -> str:
    if expression[0] != "agg":
        return text_of(expression)
    _, name, operand, distinct, where = expression
    inside = "*" if operand is None else ("DISTINCT " if distinct else "") + text_of(operand)
    return f"{name}({inside}{f' WHERE {text_of(where)}' if where is not None else ''})"


# Evaluating


def value_of(expression: Expression, env: dict[str, int | None], graph: ModelGraph) -> Any:
    match expression:
        case ("attr", variable, name):
            key = env[variable]
            return None if key is None else graph.items[key].values.get(name)
        case ("lit", value):
            return value
        case ("null",):
            return None
        case ("cmp", op, left, right):
            return _compare(op, value_of(left, env, graph), value_of(right, env, graph))
        case ("add", left, right):
            a, b = value_of(left, env, graph), value_of(right, env, graph)
            return None if a is None or b is None else a + b
        case ("and", left, right):
            return _kleene_and(value_of(left, env, graph), value_of(right, env, graph))
        case ("or", left, right):
            return _kleene_not(
                _kleene_and(_kleene_not(value_of(left, env, graph)), _kleene_not(value_of(right, env, graph)))
            )
        case ("not", inner):
            return _kleene_not(value_of(inner, env, graph))
        case ("isnull", inner):
            return value_of(inner, env, graph) is None
        case ("same", left, right):
            return env[left] == env[right]
        case ("is", variable, type_name):
            key = env[variable]
            return key is not None and graph.items[key].type in CONCRETE[type_name]
        case ("exists", pattern):
            return bool(matches(pattern, env, graph))
        case ("count", variable, type_name, pattern):
            whole = PatternModel(((variable, type_name), *pattern.nodes), pattern.edges, pattern.where)
            return len(matches(whole, env, graph))
    raise AssertionError(expression)


def _compare(op: str, left: Any, right: Any) -> bool | None:
    if op == "=":
        return bool(left == right)
    if op == "!=":
        return bool(left != right)
    if left is None or right is None:
        return None
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])


def _kleene_and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _kleene_not(value: bool | None) -> bool | None:
    return None if value is None else not value


# Matching

Assignment = dict[str, int | None]


def matches(pattern: PatternModel, env: dict[str, int | None], graph: ModelGraph) -> list[Assignment]:
    """Yield every assignment that extends `env`. Edges without a name are bound to internal names."""
    found = [
        assignment
        for nodes in _node_assignments(list(pattern.nodes), dict(env), graph)
        for assignment in _edge_assignments(list(pattern.edges), nodes, graph)
        if pattern.where is None or value_of(pattern.where, assignment, graph) is True
    ]
    return _canonical(pattern, env, found, graph)


def _node_assignments(
    rest: list[tuple[str, str]], env: Assignment, graph: ModelGraph
) -> Iterator[Assignment]:
    if not rest:
        yield env
        return
    (variable, type_name), *others = rest
    if variable in env:
        key = env[variable]
        if key is not None and graph.items[key].type in CONCRETE[type_name]:
            yield from _node_assignments(others, env, graph)
        return
    for item in graph.nodes(type_name):
        yield from _node_assignments(others, {**env, variable: item.key}, graph)


def _edge_assignments(rest: list[EdgePart], env: Assignment, graph: ModelGraph) -> Iterator[Assignment]:
    if not rest:
        yield env
        return
    part, *others = rest
    for extended in _path(part, env, graph) if part.repeat else _edge(part, env, graph):
        yield from _edge_assignments(others, extended, graph)


def edge_name(part: EdgePart) -> str:
    return part.alias or part.place


def _edge(part: EdgePart, env: Assignment, graph: ModelGraph) -> Iterator[Assignment]:
    for edge in graph.edges(part.edge):
        orders = graph.orders(edge) if any(t is not None for t in part.targets) else [edge.targets or ()]
        for order in orders:
            extended = _bound(part.targets, order, {**env, edge_name(part): edge.key})
            known = env.get(edge_name(part), edge.key)
            if extended is not None and known == edge.key:
                yield extended


def _bound(names: tuple[str | None, ...], keys: tuple[int, ...], env: Assignment) -> Assignment | None:
    for name, key in zip(names, keys, strict=True):
        if name is None:
            continue
        if env.get(name, key) != key:
            return None
        env[name] = key
    return env


def _path(part: EdgePart, env: Assignment, graph: ModelGraph) -> Iterator[Assignment]:
    for pair in sorted(_pairs(part, graph)):
        extended = _bound(part.targets, pair, dict(env))
        if extended is not None:
            yield extended


def _pairs(part: EdgePart, graph: ModelGraph) -> set[tuple[int, int]]:
    """Yield start and end of every path of an allowed length. Both ends must have the types that the edge joins."""
    low, high = part.bounds
    steps = {order for edge in graph.edges(part.edge) for order in graph.orders(edge)}
    first, second = graph.ontology.edges[part.edge].ends
    pairs: set[tuple[int, int]] = set()
    for start in (item.key for item in graph.nodes(first)):
        level = {start}
        for length in range(min(high, 2 * len(graph.items) + low) + 1):
            if length >= low:
                pairs |= {(start, end) for end in level if graph.fits(end, second)}
            level = {b for a, b in steps if a in level}
    return pairs


def _canonical(
    pattern: PatternModel, env: dict[str, int | None], found: list[Assignment], graph: ModelGraph
) -> list[Assignment]:
    """Keep one row per stored symmetric edge. Of two rows that differ only in its order, the stored order is kept."""
    pairs: dict[frozenset[str], tuple[str, str, str]] = {}
    for part in pattern.edges:
        first, second = (*part.targets, None)[:2]
        if part.repeat or not graph.ontology.edges[part.edge].symmetric or first is None or second is None:
            continue
        if first != second and first not in env and second not in env:
            pairs.setdefault(frozenset((first, second)), (edge_name(part), first, second))
    known = {frozenset(a.items()) for a in found}
    return [a for a in found if not any(_is_turned(a, *pair, known, graph) for pair in pairs.values())]


def _is_turned(
    a: Assignment, edge: str, first: str, second: str, known: set[frozenset[Any]], graph: ModelGraph
) -> bool:
    key = a[edge]
    assert key is not None
    stored = graph.items[key].targets
    if a[first] == a[second] or (stored is not None and stored[0] == a[first]):
        return False
    return frozenset({**a, first: a[second], second: a[first]}.items()) in known


# Answers


def answer(query: QueryModel, graph: ModelGraph) -> list[tuple[Any, ...]]:
    """Return the rows, in order if the query has ORDER BY, otherwise in any order."""
    rows: list[Assignment] = matches(query.pattern, {}, graph)
    for part in query.optional:
        rows = [extended for row in rows for extended in _optional(part, row, graph)]
    if any(e[0] == "agg" for e in query.returns):
        table = _grouped(query, rows, graph)
    else:
        table = [tuple(value_of(e, row, graph) for e in query.returns) for row in rows]
    if query.distinct:
        table = list(dict.fromkeys(table))
    for index, descending in reversed(query.order):
        table.sort(key=lambda r, i=index: (r[i] is None, r[i]), reverse=descending)  # type: ignore[misc]
    start = query.offset or 0
    return table[start : start + query.limit] if query.limit is not None else table[start:]


def _optional(part: PatternModel, row: Assignment, graph: ModelGraph) -> list[Assignment]:
    found = matches(part, row, graph)
    return found or [{**dict.fromkeys(part.variables), **row}]


def _grouped(query: QueryModel, rows: list[Assignment], graph: ModelGraph) -> list[tuple[Any, ...]]:
    keys = [e for e in query.returns if e[0] != "agg"]
    groups: dict[tuple[Any, ...], list[Assignment]] = {}
    for row in rows:
        groups.setdefault(tuple(value_of(e, row, graph) for e in keys), []).append(row)
    if not keys and not groups:
        groups[()] = []
    table = []
    for key, members in groups.items():
        parts = iter(key)
        table.append(
            tuple(next(parts) if e[0] != "agg" else _aggregate(e, members, graph) for e in query.returns)
        )
    return table


def _aggregate(expression: Expression, rows: list[Assignment], graph: ModelGraph) -> Any:
    _, name, operand, distinct, where = expression
    kept = [row for row in rows if where is None or value_of(where, row, graph) is True]
    if operand is None:
        return len(kept)
    values = [v for v in (value_of(operand, row, graph) for row in kept) if v is not None]
    if distinct:
        values = list(dict.fromkeys(values))
    functions: dict[str, Callable[[list[Any]], Any]] = {
        "COUNT": len,
        "SUM": lambda v: sum(v) if v else None,
        "AVG": lambda v: float(sum(v)) / len(v) if v else None,
        "MIN": lambda v: min(v, default=None),
        "MAX": lambda v: max(v, default=None),
    }
    return functions[name](values)


def same_rows(query: QueryModel, left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    return left == right if query.order else Counter(left) == Counter(right)
