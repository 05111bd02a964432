"""WATCH over one external collection, as a document filter and a projection.

    WATCH o: shop::orders WHERE o.total > 100 AND o.coupon = null RETURN o.id, o.total

In MEW a missing attribute is null, equality with null is true or false, and an ordering comparison with null is
unknown. In CEL these operations fail. `holds` turns a failure into false, so MEW conditions become trees of the
language that both share, and one matcher serves both:

    a = c            holds(a == c)                  a != c           NOT holds(a == c)
    a = null         NOT holds(a != null)           a IN [c, null]   holds(a IN [c]) OR NOT holds(a != null)
    a < c            a < c: unknown if a is null, missing or of another family

The option `filter` is one more condition. Statements that need several documents at once (several elements, EXISTS),
triggers and consume mode are refused with E6204: only the engine can answer them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial, reduce
from typing import Any

from vedette.errors import SubscriptionError
from vedette.language.functions.aggregates import DEFAULT_COLLECT_LIMIT
from vedette.language.parser import parse_statement
from vedette.language.resolve.queries import column_name
from vedette.language.syntax.canonical import canonical_form
from vedette.language.syntax.expressions import (
    Aggregate,
    Attribute,
    Binary,
    Call,
    Expression,
    IdReference,
    ListLiteral,
    Literal,
    NamedType,
    NodePattern,
    Parameter,
    TypeExpression,
    Unary,
    UnionType,
    Variable,
)
from vedette.language.syntax.statements import Return, Watch, WatchOption
from vedette.subscriptions.shape import FieldPath
from vedette.values import Value, to_canonical
from vedette.watch.aggregates import INCREMENTAL_AGGREGATES
from vedette.watch.options import WatchOptions, read_options

__all__ = [
    "AggregateColumn",
    "CollectionWatch",
    "field_value",
    "parse_collection_watch",
    "translate_condition",
]

WHOLE_DOCUMENT: FieldPath = ()
_ORDER = frozenset({"<", "<=", ">", ">="})
_TEXT_TESTS = frozenset({"CONTAINS", "STARTS WITH", "ENDS WITH"})
_NULL = Literal(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateColumn:
    """`SUM(o.total) AS sum`: an aggregate over the documents of a group, computed at the end of a window."""

    column: str
    name: str
    """Name of the aggregate function in upper case."""
    distinct: bool
    operand: FieldPath | None
    """The aggregated field; None for COUNT(*) and COUNT(o)."""
    where: Expression | None
    whole: bool = False
    """True for COUNT(o): any change of a document counts as a change in a sliding window."""
    limit: int | None = None

    def canonical_form(self) -> list[Any]:
        """Return the canonical form, which is a part of the shape of a windowed watch."""
        fields = (self.column, self.name, self.distinct, self.operand, self.where, self.whole, self.limit)
        return ["aggregate", *map(canonical_form, fields)]

    """For COLLECT: maximum number of values of a group in an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionWatch:
    """A WATCH that the pipeline can answer."""

    collections: tuple[str, ...]
    """One collection, or the members of a union."""
    condition: Expression
    columns: tuple[tuple[str, FieldPath], ...]
    """Column names with their paths, as in `shape.py`. The empty path is the whole document."""
    aggregates: tuple[AggregateColumn, ...] = ()
    """Aggregates at the end of windows; `columns` is then the group key."""
    column_order: tuple[str, ...] = ()
    """Names of all columns in the order they were written, if there are aggregates."""
    options: WatchOptions
    """Checked options. The pipeline handles windows; the gateway handles `initial`, `ordering`, `buffer` and
    `on_full`."""

    @property
    def windowed(self) -> bool:
        return self.options.window.kind != "none"

    @property
    def collection(self) -> str:
        return self.collections[0]

    def row(self, key: str, document: Mapping[str, Any], collection: str | None = None) -> dict[str, Any]:
        """Return the row of a document. `collection` may be omitted if the watch has only one."""
        collection = collection or self.collection
        return {name: field_value(path, key, document, collection) for name, path in self.columns}


_parse_cached = lru_cache(maxsize=256)(parse_statement)
"""Cached, because many clients subscribe with the same text."""


def parse_collection_watch(source: str, params: Mapping[str, Value] | None = None) -> CollectionWatch:
    """Parse a WATCH statement.

    Raises ParseError if it is invalid, SubscriptionError E6204 if the pipeline cannot answer it.
    """
    statement = _parse_cached(source)
    if not isinstance(statement, Watch):
        raise _unsupported("a statement other than WATCH")
    if statement.actions:
        raise _unsupported("ON MATCH DO")
    match statement.pattern.elements:
        case (NodePattern(variable=variable, type=type_),):
            translator, collections = _Translator(variable, params or {}), _collections(type_)
        case _:
            raise _unsupported("a pattern of several elements")
    options = _options(statement.options, translator)
    conditions = [
        translator.condition(part) for part in (statement.where, options.filter) if part is not None
    ]
    condition = reduce(partial(Binary, "AND"), conditions) if conditions else Literal(True)
    aggregates = translator.aggregates(statement.returns)
    if aggregates and options.window.kind == "none":
        raise _unsupported("an aggregate without a window")
    return CollectionWatch(
        collections=collections,
        condition=Call("holds", (condition,)),
        columns=translator.columns(statement.returns),
        aggregates=aggregates,
        column_order=translator.names(statement.returns) if aggregates else (),
        options=options,
    )


def translate_condition(condition: Expression, variable: str) -> Expression:
    """Convert a MEW condition over one document, without parameters, to a document filter.

    Raises E6204 if that is impossible.
    """
    return _Translator(variable, {}).condition(condition)


def _collections(type_: TypeExpression | None) -> tuple[str, ...]:
    match type_:
        case NamedType(name=name):
            return (name,)
        case UnionType(members=members):
            return tuple(dict.fromkeys(name for member in members for name in _collections(member)))
    raise _unsupported("an element without the name of a collection")


_ENGINE_ONLY = {
    "mode": ("consume",),
    "visibility": ("immediate",),
    "deliver_on": ("tick",),
    "delivery": ("reliable",),
}


def _options(given: tuple[WatchOption, ...], translator: _Translator) -> WatchOptions:
    """Read the options. Raises E8009 for an invalid option, as the engine does, and E6204 for one that only the engine
    supports.
    """
    options = read_options(given, translator.constant)
    for name, values in _ENGINE_ONLY.items():
        if getattr(options, name) in values:
            raise _unsupported(f"the option {name}: {getattr(options, name)}")
    if options.ordering.kind == "attribute":
        raise _unsupported("the option ordering: attribute")
    if options.initial.kind == "since":
        raise _unsupported("the option initial: since")
    return options


class _Translator:
    """Translates the parts of a WATCH over one document variable to the tree of document filters."""

    def __init__(self, variable: str, params: Mapping[str, Value]) -> None:
        self._variable = variable
        self._params = params

    def constant(self, node: Expression) -> Any:
        """Return the value of an expression without variables, as in options and parameters."""
        match node:
            case Binary(op="*", left=left, right=right):
                factors = self.constant(left), self.constant(right)
                if all(isinstance(factor, int | float | timedelta) for factor in factors):
                    return factors[0] * factors[1]
                raise _unsupported("a computed value of an option")
            case _:
                operand = self._operand(node)
        if not isinstance(operand, Literal):
            raise _unsupported("a computed value of an option")
        return operand.value

    # --- conditions

    def condition(self, node: Expression) -> Expression:
        match node:
            case Binary(op="AND" | "OR" as op, left=left, right=right):
                return Binary(op, self.condition(left), self.condition(right))
            case Unary(op="NOT", operand=operand):
                return Unary("NOT", self.condition(operand))
            case Unary(op="IS NULL", operand=operand):
                return _is_null(self._operand(operand))
            case Unary(op="IS NOT NULL", operand=operand):
                return Unary("NOT", _is_null(self._operand(operand)))
            case Binary(op="=", left=left, right=right):
                return self._equality(left, right)
            case Binary(op="!=", left=left, right=right):
                return Unary("NOT", self._equality(left, right))
            case Binary(op="IN", left=left, right=ListLiteral(items=items)):
                return self._membership(left, items)
            case Binary(op="IN", left=left, right=Parameter() as parameter):
                given = self.constant(parameter)
                if not isinstance(given, list):
                    raise _unsupported("IN with a parameter that is not a list")
                return self._membership(left, tuple(Literal(item) for item in given))
            case Binary(op=op, left=left, right=right) if op in _ORDER or op in _TEXT_TESTS:
                return Binary(op, self._operand(left), self._operand(right))
        return self._operand(node)

    def _equality(self, left: Expression, right: Expression) -> Expression:
        one, other = self._operand(left), self._operand(right)
        if isinstance(one, Literal):
            one, other = other, one
        if other == _NULL:
            return _is_null(one)
        same = Call("holds", (Binary("==", one, other),))
        if isinstance(other, Literal):
            return same
        both_null = Binary("AND", _is_null(one), _is_null(other))
        return Binary("OR", same, both_null)

    def _membership(self, left: Expression, items: tuple[Expression, ...]) -> Expression:
        item = self._operand(left)
        constants = [self._operand(part) for part in items]
        if not all(isinstance(constant, Literal) for constant in constants):
            raise _unsupported("a list with values that are not constants")
        known = ListLiteral(tuple(constant for constant in constants if constant != _NULL))
        found: Expression = Call("holds", (Binary("IN", item, known),))
        return Binary("OR", found, _is_null(item)) if _NULL in constants else found

    def _operand(self, node: Expression) -> Expression:
        match node:
            case Literal(value=value):
                return Literal(value)
            case Unary(op="-", operand=Literal(value=int() | float() | timedelta() as value)) if (
                not isinstance(value, bool)
            ):
                return Literal(-value)
            case Parameter(name=name, optional=optional):
                if name not in self._params and not optional:
                    raise SubscriptionError(
                        "E6204", f"the parameter ${name} is missing: pass it with the subscription"
                    )
                return Literal(to_canonical(self._params.get(name)))
            case IdReference(name=str() as name):
                return Literal(name)
            case Variable(name=name) if name == self._variable:
                return Variable("id")
            case Attribute(base=Variable(name=name), name=field) if name == self._variable:
                return Attribute(Variable("doc"), field)
            case Attribute(base=base, name=field):
                return Attribute(self._operand(base), field)
        raise _unsupported(f"an expression of the kind {type(node).__name__}")

    # --- projections

    def columns(self, returns: Return | None) -> tuple[tuple[str, FieldPath], ...]:
        if returns is None:
            return ((self._variable, WHOLE_DOCUMENT),)
        if returns.distinct or returns.order or returns.limit is not None or returns.offset is not None:
            raise _unsupported("DISTINCT, ORDER BY, LIMIT and OFFSET")
        return tuple(
            (part.alias or column_name(part.expression), self._path(part.expression))
            if part.expression is not None
            else (self._variable, WHOLE_DOCUMENT)
            for part in returns.projections
            if not isinstance(part.expression, Aggregate)
        )

    def names(self, returns: Return | None) -> tuple[str, ...]:
        parts = returns.projections if returns is not None else ()
        return tuple(p.alias or column_name(p.expression) for p in parts if p.expression is not None)

    def aggregates(self, returns: Return | None) -> tuple[AggregateColumn, ...]:
        parts = returns.projections if returns is not None else ()
        return tuple(
            self._aggregate(part.alias or column_name(part.expression), part.expression)
            for part in parts
            if isinstance(part.expression, Aggregate)
        )

    def _aggregate(self, column: str, node: Aggregate) -> AggregateColumn:
        name = node.name.upper()
        if name not in (*INCREMENTAL_AGGREGATES, "COLLECT"):
            raise _unsupported(f"the aggregate {name}")
        if name == "COLLECT" and not 0 < (node.limit or 0) <= DEFAULT_COLLECT_LIMIT:
            text = (
                f"COLLECT over an external collection needs a limit of at most {DEFAULT_COLLECT_LIMIT:,}, because an "
                "event that is too large would be lost: write COLLECT(…)[limit: n]"
            )
            raise SubscriptionError("E6204", text)
        counted = node.operand is None or (name == "COUNT" and node.operand == Variable(self._variable))
        return AggregateColumn(
            column=column,
            name=name,
            distinct=node.distinct,
            operand=None if counted or node.operand is None else self._path(node.operand),
            whole=counted and node.operand is not None,
            where=self.condition(node.where) if node.where is not None else None,
            limit=node.limit,
        )

    def _path(self, node: Expression) -> FieldPath:
        if node == Variable(self._variable):
            return WHOLE_DOCUMENT
        match self._operand(node):
            case Variable(name="id"):
                return ("id",)
            case Attribute(base=base, name=name):
                return (*self._prefix(base), name)
        raise _unsupported("a constant in RETURN")

    def _prefix(self, node: Expression) -> FieldPath:
        match node:
            case Attribute(base=base, name=name):
                return (*self._prefix(base), name)
            case Variable(name=name):
                return (name,)
        raise _unsupported("a computed value in RETURN")


_ID: FieldPath = ("doc", "id")
"""Return the field `id` of a document, or its key if it has no such field."""


def _is_null(operand: Expression) -> Expression:
    return Unary("NOT", Call("holds", (Binary("!=", operand, _NULL),)))


def field_value(path: FieldPath, key: str, document: Mapping[str, Any], collection: str) -> Any:
    """Return the value at a path of a document; null if it is missing."""
    if len(path) == 2 and path != _ID:
        return document.get(path[1])  # the most frequent case
    if path == WHOLE_DOCUMENT:
        return {"id": key, "_type": collection, **document}
    if path == ("id",) or (path == _ID and "id" not in document):
        return key
    value: Any = document
    for name in path[1:]:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _unsupported(feature: str) -> SubscriptionError:
    text = (
        f"{feature} is not supported over an external collection, where each document is evaluated alone: "
        "watch one collection with a condition on its attributes, or import the data into the graph"
    )
    return SubscriptionError("E6204", text)
