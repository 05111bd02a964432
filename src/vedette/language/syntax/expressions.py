"""Expressions and patterns as a tree.

Three front ends build this tree: MEW conditions, the CEL subset (`cel.py`) and filter lists (`filters.py`).
Trees compare by structure: spans and the lifted position of a literal do not take part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from vedette.language.diagnostics import NO_SPAN, Span
from vedette.values import Value

__all__ = [
    "AGGREGATE_FUNCTIONS",
    "Aggregate",
    "AnyType",
    "Attribute",
    "Binary",
    "Call",
    "Conditional",
    "EdgePattern",
    "EdgeReferenceType",
    "EdgeTarget",
    "Exists",
    "Expression",
    "IdReference",
    "Index",
    "ListLiteral",
    "Literal",
    "NamedType",
    "NodePattern",
    "OptionalType",
    "OrderTerm",
    "Parameter",
    "Pattern",
    "PatternAggregate",
    "PatternPart",
    "Projection",
    "TypeExpression",
    "TypeTest",
    "Unary",
    "UnionType",
    "Variable",
    "Wildcard",
    "span_field",
]

AGGREGATE_FUNCTIONS = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "COLLECT"})


def span_field() -> Span:
    """Declare the field `span` of a node: keyword-only, and left out of comparison and `repr`."""
    return field(default=NO_SPAN, compare=False, repr=False, kw_only=True)


# --- type expressions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedType:
    """A scalar, a node type, an edge type or an alias; `shop::orders` when qualified."""

    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class AnyType:
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EdgeReferenceType:
    """`edge<causes>`; `edge<any>` has the edge None."""

    edge: str | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class OptionalType:
    inner: TypeExpression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class UnionType:
    members: tuple[TypeExpression, ...]
    span: Span = span_field()


TypeExpression: TypeAlias = NamedType | AnyType | EdgeReferenceType | OptionalType | UnionType


# --- expressions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `slot` is its ordinal among the literals of the text, when it was lifted out (`lifting.py`)."""

    value: Value
    literal_index: int | None = field(default=None, compare=False, repr=False, kw_only=True)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ListLiteral:
    items: tuple[Expression, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name`; `$name?` is optional: null when it is not given."""

    name: str
    optional: bool = False
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class IdReference:
    """`#name`, `#"text"`, `#7`, or `#$p` (then `name` is a Parameter). `quoted` never names a session binding."""

    name: str | Parameter
    quoted: bool = False
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Attribute:
    """`base.name`."""

    base: Expression
    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Index:
    """`base[key]`; CEL only."""

    base: Expression
    key: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class TypeTest:
    """`base:Type`."""

    base: Expression
    type: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Unary:
    """`op` is `NOT`, `-`, `IS NULL` or `IS NOT NULL`."""

    op: str
    operand: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Binary:
    """`op` is upper-case: OR AND = != < <= > >= + - ++ * / % ?? IN CONTAINS, STARTS WITH, ENDS WITH."""

    op: str
    left: Expression
    right: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Conditional:
    """`test ? then : otherwise`; CEL only."""

    test: Expression
    then: Expression
    otherwise: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or a Boolean edge test when `name` is an edge type. The name is kept as written."""

    name: str
    arguments: tuple[Expression, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of a group. `operand` None is `COUNT(*)`."""

    name: str
    """As written; compare upper-cased."""
    operand: Expression | None
    distinct: bool = False
    where: Expression | None = None
    limit: int | None = None
    """COLLECT only: `[limit: n]`; -1 is `[limit: none]`, None the default limit."""
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class PatternAggregate:
    """`COUNT(p: Person, assigned_to(t, p) WHERE …)`: correlated, per row; aggregates its first variable.

    The seeds only count; the other aggregates take the attribute after the pattern's first variable in no grammar,
    so any name but COUNT and COLLECT is refused by the resolver.
    """

    name: str
    pattern: Pattern
    where: Expression | None = None
    limit: int | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Exists:
    pattern: Pattern
    where: Expression | None = None
    span: Span = span_field()


Expression: TypeAlias = (
    Literal
    | ListLiteral
    | Parameter
    | IdReference
    | Variable
    | Attribute
    | Index
    | TypeTest
    | Unary
    | Binary
    | Conditional
    | Call
    | Aggregate
    | PatternAggregate
    | Exists
)


# --- patterns ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`_`, or `*` in UNLINK: any one element."""

    span: Span = span_field()


EdgeTarget: TypeAlias = Variable | IdReference | Parameter | Call | Wildcard


@dataclass(frozen=True, slots=True)
class NodePattern:
    """`v: Type`; binds edges when the type names an edge type."""

    variable: str
    type: TypeExpression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EdgePattern:
    """`edge(t1, …) AS alias`, `edge+(a, b) [depth: 1..5]`, or `v: edge<any>(a, b)` (then `edge` is None)."""

    edge: str | None
    """The edge type; None for `edge<any>`."""
    targets: tuple[EdgeTarget, ...]
    alias: str | None = None
    quantifier: str | None = None
    """`+` for paths of one or more edges, `*` for zero or more."""
    min_depth: int | None = None
    max_depth: int | None = None
    written_as_reference: bool = False
    """Written as `alias: edge<…>(…)`."""
    span: Span = span_field()


PatternPart: TypeAlias = NodePattern | EdgePattern


@dataclass(frozen=True, slots=True)
class Pattern:
    """Elements that must hold together; none at all (`()`) matches once."""

    elements: tuple[PatternPart, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Projection:
    """One item of RETURN; `expression` None is `*`."""

    expression: Expression | None
    alias: str | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class OrderTerm:
    expression: Expression
    descending: bool = False
    span: Span = span_field()
