"""Print expressions, patterns and types, with as few parentheses as possible."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from vedette.language.syntax.expressions import (
    Aggregate,
    AnyType,
    Attribute,
    Binary,
    Call,
    Conditional,
    EdgePattern,
    EdgeReferenceType,
    EdgeTarget,
    Exists,
    Expression,
    IdReference,
    Index,
    ListLiteral,
    Literal,
    NamedType,
    NodePattern,
    OptionalType,
    OrderTerm,
    Parameter,
    Pattern,
    PatternAggregate,
    PatternPart,
    TypeExpression,
    TypeTest,
    Unary,
    UnionType,
    Variable,
    Wildcard,
)
from vedette.language.syntax.grammar import (
    COMPARISON_PRECEDENCE,
    MINUS_PRECEDENCE,
    NOT_PRECEDENCE,
    POSTFIX_PRECEDENCE,
    PRECEDENCE,
)
from vedette.values import Value, duration_to_text, timestamp_to_text

__all__ = [
    "print_expression",
    "print_order_term",
    "print_pattern",
    "print_string",
    "print_target",
    "print_type",
    "print_value",
    "print_where",
]

_LOOKS_LIKE_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*:(?!:)")
_LINE_BREAKING = re.compile("[\x7f-\x9f\u2028\u2029]")
_PRIMARY = POSTFIX_PRECEDENCE + 1


def print_expression(node: Expression) -> str:
    """Return the text of an expression; raises TypeError for `a[b]` and `a ? b : c`, which only CEL has."""
    return _print_in_context(node, 0)


def print_type(node: TypeExpression) -> str:
    match node:
        case NamedType():
            return node.name
        case AnyType():
            return "any"
        case EdgeReferenceType():
            return f"edge<{node.edge or 'any'}>"
        case OptionalType(UnionType() as inner):
            return f"({print_type(inner)})?"
        case OptionalType():
            return f"{print_type(node.inner)}?"
        case UnionType():
            return " | ".join(print_type(member) for member in node.members)


def print_pattern(node: Pattern) -> str:
    return ", ".join(_element(element) for element in node.elements) if node.elements else "()"


def print_where(condition: Expression | None) -> str:
    """Return ` WHERE …` with a leading space, or an empty text."""
    return "" if condition is None else f" WHERE {print_expression(condition)}"


def print_order_term(node: OrderTerm) -> str:
    return print_expression(node.expression) + (" DESC" if node.descending else "")


def print_target(node: EdgeTarget) -> str:
    return "_" if isinstance(node, Wildcard) else print_expression(node)


# --- values -----------------------------------------------------------------------------------------------------


def print_value(value: Value) -> str:
    """Return the value as a literal. The parser reads a negative number as a minus sign and a literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return print_string(value)
        case int() | float():
            return repr(value)
        case datetime():
            return f"@{timestamp_to_text(value)}"
        case timedelta():
            return duration_to_text(value)
        case list():
            return f"[{', '.join(print_value(item) for item in value)}]"
        case _:
            raise TypeError(f"a value of Python type {type(value).__name__} has no literal")


def print_string(text: str) -> str:
    """Return a quoted string on one line. Characters that some programs treat as line breaks are escaped."""
    return _LINE_BREAKING.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


# --- expressions ------------------------------------------------------------------------------------------------


def _print_in_context(node: Expression, min_precedence: int) -> str:
    """Return the text, in parentheses unless the node binds tighter than `min_precedence`."""
    text = _text(node)
    return text if _precedence_of(node) > min_precedence else f"({text})"


def _precedence_of(node: Expression) -> int:
    """Return the precedence of the outermost operator."""
    match node:
        case Binary():
            return PRECEDENCE[node.op.partition(" ")[0]]
        case Unary(op="NOT"):
            return NOT_PRECEDENCE
        case Unary(op="-"):
            return MINUS_PRECEDENCE
        case Unary():
            return COMPARISON_PRECEDENCE
        case Attribute() | TypeTest():
            return POSTFIX_PRECEDENCE
        case Literal(value=int() | float() | timedelta()) if _is_negative(node.value):
            return MINUS_PRECEDENCE
        case _:
            return _PRIMARY


def _is_negative(value: Value) -> bool:
    return print_value(value).startswith("-")


def _text(node: Expression) -> str:
    match node:
        case Literal():
            return print_value(node.value)
        case Variable():
            return node.name
        case Attribute():
            return f"{_base(node.base)}.{node.name}"
        case Binary():
            return _binary(node)
        case Unary():
            return _unary(node)
        case Parameter():
            return f"${node.name}{'?' if node.optional else ''}"
        case IdReference():
            return _reference(node)
        case ListLiteral():
            return f"[{_commas(node.items)}]"
        case TypeTest():
            return f"{_base(node.base)}:{node.type}"
        case Call() | Aggregate() | PatternAggregate() | Exists():
            return _call(node)
        case Conditional() | Index():
            raise TypeError(f"{type(node).__name__} cannot be written in the language; only CEL has it")


def _base(node: Expression) -> str:
    """Return the base of `.name`. A literal is put into parentheses: `1.a` would be read as a number."""
    return (
        f"({_text(node)})" if isinstance(node, Literal) else _print_in_context(node, POSTFIX_PRECEDENCE - 1)
    )


def _binary(node: Binary) -> str:
    own = PRECEDENCE[node.op.partition(" ")[0]]
    left, right = (own, own - 1) if node.op == "??" else (own - 1, own)
    return f"{_print_in_context(node.left, left)} {node.op} {_print_in_context(node.right, right)}"


def _unary(node: Unary) -> str:
    """The operand of a minus sign gets parentheses if it starts with one, because `--` starts a comment."""
    if node.op == "NOT":
        return f"NOT {_print_in_context(node.operand, NOT_PRECEDENCE - 1)}"
    if node.op == "-":
        return f"-{_print_in_context(node.operand, MINUS_PRECEDENCE)}"
    return f"{_print_in_context(node.operand, COMPARISON_PRECEDENCE - 1)} {node.op}"


def _reference(node: IdReference) -> str:
    if isinstance(node.name, Parameter):
        return f"#${node.name.name}"
    return f"#{print_string(node.name)}" if node.quoted else f"#{node.name}"


def _call(node: Call | Aggregate | PatternAggregate | Exists) -> str:
    match node:
        case Call():
            return f"{node.name}({_first_argument(_commas(node.arguments), node.arguments)})"
        case Exists():
            return f"EXISTS({print_pattern(node.pattern)}{print_where(node.where)})"
        case PatternAggregate():
            inside = f"{print_pattern(node.pattern)}{print_where(node.where)}"
            return f"{node.name}({inside}){_limit(node.limit)}"
        case Aggregate():
            return f"{node.name}({_operand(node)}){_limit(node.limit)}"


def _operand(node: Aggregate) -> str:
    if node.operand is None:
        return "*"
    shown = _first_argument(print_expression(node.operand), (node.operand,))
    return f"{'DISTINCT ' if node.distinct else ''}{shown}{print_where(node.where)}"


def _first_argument(text: str, arguments: tuple[Expression, ...]) -> str:
    """Put a first argument such as `x:T` into parentheses: `COUNT(x:T)` would be read as a pattern."""
    if not _LOOKS_LIKE_PATTERN.match(text):
        return text
    first = print_expression(arguments[0])
    return f"({first}){text[len(first) :]}"


def _limit(limit: int | None) -> str:
    if limit is None:
        return ""
    return f"[limit: {'none' if limit < 0 else limit}]"


def _commas(items: Iterable[Expression]) -> str:
    return ", ".join(print_expression(item) for item in items)


# --- patterns ---------------------------------------------------------------------------------------------------


def _element(node: PatternPart) -> str:
    if isinstance(node, NodePattern):
        return f"{node.variable}: {print_type(node.type)}"
    targets = ", ".join(print_target(target) for target in node.targets)
    if node.written_as_reference:
        return f"{node.alias}: edge<{node.edge or 'any'}>({targets})"
    alias = f" AS {node.alias}" if node.alias else ""
    return f"{node.edge}{node.quantifier or ''}({targets}){_depth(node)}{alias}"


def _depth(node: EdgePattern) -> str:
    if node.max_depth is None:
        return ""
    low = "" if node.min_depth is None else f"{node.min_depth}.."
    return f" [depth: {low}{node.max_depth}]"
