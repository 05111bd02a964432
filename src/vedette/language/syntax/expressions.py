"""Expressions and patterns as a tree.

Three front ends build this tree: the parser, CEL (`filters/cel_parser.py`) and filter lists (`filters/filter_list.py`).
Trees are equal if their structure is equal; `span` and `literal_index` are not compared.
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
    """The name of a scalar, a node type, an edge type or an alias; qualified as in `shop::orders`."""

    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class AnyType:
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EdgeReferenceType:
    """`edge<causes>`; `edge` is None for `edge<any>`."""

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
    """A constant.

    `literal_index` is its position among the literals of the text, or None if the constant is not a literal token
    (TRUE, NULL) or does not come from a text. The statement cache replaces values by this index (`parser/template.py`).
    """

    value: Value
    literal_index: int | None = field(default=None, compare=False, repr=False, kw_only=True)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ListLiteral:
    items: tuple[Expression, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name`, or `$name?`: an optional parameter, which is null if the caller does not give it."""

    name: str
    optional: bool = False
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class IdReference:
    """`#name`, `#"text"`, `#7`, or `#$p` (then `name` is a Parameter).

    A quoted id is never the name of a session binding.
    """

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
    """A function call, or a test for an edge if `name` is an edge type. The name is stored as written."""

    name: str
    arguments: tuple[Expression, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of a group; `operand` is None for `COUNT(*)`."""

    name: str
    """As written; compare it in upper case."""
    operand: Expression | None
    distinct: bool = False
    where: Expression | None = None
    limit: int | None = None
    """COLLECT only: `[limit: n]`. -1 means `[limit: none]`, None the default limit."""
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class PatternAggregate:
    """`COUNT(p: Person, assigned_to(t, p) WHERE …)`: evaluated for each row, over the pattern's first variable.

    The grammar accepts any aggregate name. The resolver allows only COUNT and COLLECT (E2009), because the syntax gives
    the others no operand.
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
    """`_`, or `*` in UNLINK: any element."""

    span: Span = span_field()


EdgeTarget: TypeAlias = Variable | IdReference | Parameter | Call | Wildcard


@dataclass(frozen=True, slots=True)
class NodePattern:
    """`v: Type`. The variable binds edges if the type is an edge type."""

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
    """`+` for paths of one or more edges, `*` for paths of zero or more."""
    min_depth: int | None = None
    max_depth: int | None = None
    written_as_reference: bool = False
    """True if the text is `alias: edge<…>(…)`."""
    span: Span = span_field()


PatternPart: TypeAlias = NodePattern | EdgePattern


@dataclass(frozen=True, slots=True)
class Pattern:
    """The parts of a pattern, all of which must match. The empty pattern `()` matches once."""

    elements: tuple[PatternPart, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Projection:
    """One item of RETURN; `expression` is None for `*`."""

    expression: Expression | None
    alias: str | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class OrderTerm:
    expression: Expression
    descending: bool = False
    span: Span = span_field()
