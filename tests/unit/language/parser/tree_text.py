"""Expression trees as short texts: `a + b * c` is `(+ a (* b c))`. Apart from the printer, to check the parser."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from vedette.language.syntax.expressions import (
    Aggregate,
    Attribute,
    Binary,
    Call,
    EdgePattern,
    EdgeTarget,
    Exists,
    Expression,
    IdReference,
    ListLiteral,
    Literal,
    NamedType,
    NodePattern,
    Parameter,
    Pattern,
    PatternAggregate,
    TypeTest,
    Unary,
    Variable,
    Wildcard,
)
from vedette.values import Value, duration_to_text, timestamp_to_text

__all__ = ["shape"]


def shape(node: Expression) -> str:
    match node:
        case Literal():
            return _value(node.value)
        case Variable():
            return node.name
        case Parameter():
            return f"${node.name}{'?' * node.optional}"
        case IdReference(name=Parameter() as parameter):
            return f"#{shape(parameter)}"
        case IdReference():
            return f'#"{node.name}"' if node.quoted else f"#{node.name}"
        case Attribute():
            return f"{shape(node.base)}.{node.name}"
        case TypeTest():
            return f"(is {shape(node.base)} {node.type})"
        case Unary():
            return f"({'neg' if node.op == '-' else node.op} {shape(node.operand)})"
        case Binary():
            return f"({node.op} {shape(node.left)} {shape(node.right)})"
        case ListLiteral():
            return f"({' '.join(['list', *map(shape, node.items)])})"
        case Call():
            return f"({' '.join(['call', node.name, *map(shape, node.arguments)])})"
        case Aggregate():
            operand = "*" if node.operand is None else shape(node.operand)
            return f"({node.name} {'distinct ' * node.distinct}{operand}{_where(node.where)}{_limit(node.limit)})"
        case PatternAggregate():
            return f"({node.name} ({_pattern(node.pattern)}){_where(node.where)}{_limit(node.limit)})"
        case Exists():
            return f"(exists ({_pattern(node.pattern)}){_where(node.where)})"
        case _:
            raise AssertionError(f"the parser makes no {type(node).__name__}")


def _value(value: Value) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case datetime():
            return f"@{timestamp_to_text(value)}"
        case timedelta():
            return duration_to_text(value)
        case bool() | None:
            return str(value).upper().replace("NONE", "NULL")
        case _:
            return repr(value)


def _where(condition: Expression | None) -> str:
    return "" if condition is None else f" where {shape(condition)}"


def _limit(limit: int | None) -> str:
    return "" if limit is None else f" limit {'none' if limit == -1 else limit}"


def _pattern(pattern: Pattern) -> str:
    return ", ".join(map(_element, pattern.elements)) or "()"


def _element(element: NodePattern | EdgePattern) -> str:
    if isinstance(element, EdgePattern):
        return f"{element.edge}({', '.join(map(_target, element.targets))})"
    assert isinstance(element.type, NamedType)
    return f"{element.variable}: {element.type.name}"


def _target(target: EdgeTarget) -> str:
    return "_" if isinstance(target, Wildcard) else shape(target)
