"""Resolved expressions as text for EXPLAIN. Constants are shown as `?1`, `?2` …"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.analysis import walk_expression
from vedette.language.resolve.tree import ResolvedExpression

__all__ = ["explain_expression", "explain_target", "variable_names"]


def explain_target(target: int | ResolvedExpression | None, names: Mapping[int, str]) -> str:
    """Return the target of an edge as text: a variable, `_` for a wildcard, or an expression."""
    if target is None:
        return "_"
    return names.get(target, "_") if isinstance(target, int) else explain_expression(target)


def variable_names(pattern: resolved.ResolvedPattern) -> dict[int, str]:
    """Return the variable of each register, for the pattern and for the variables of outer patterns that it reads."""
    names = {
        part.register: part.name
        for part in walk_expression(resolved.ResolvedExists(pattern))
        if isinstance(part, resolved.VariableRef)
    }
    for element in pattern.elements:
        if not isinstance(element, resolved.ResolvedPath) and element.name is not None:
            names[element.register] = element.name
    return names


def explain_expression(expression: ResolvedExpression) -> str:
    match expression:
        case resolved.ConstantRef(index=index):
            return f"?{index + 1}"
        case resolved.FixedValue(value=value):
            return _literal(value)
        case resolved.VariableRef(name=name):
            return name
        case resolved.ElementReference(name=name):
            return f"#{name if isinstance(name, str) else explain_expression(name)}"
        case (
            resolved.AttributeAccess(base=base, name=name)
            | resolved.DynamicAttributeAccess(base=base, name=name)
        ):
            return f"{explain_expression(base)}.{name}"
        case resolved.IdOf(base=base):
            return f"{explain_expression(base)}.id"
        case resolved.TypeOf(base=base):
            return f"{explain_expression(base)}._type"
        case resolved.TargetsOf(base=base):
            return f"{explain_expression(base)}._targets"
        case resolved.TypeIs(base=base, names=names):
            return f"{explain_expression(base)}:{'|'.join(sorted(names))}"
        case resolved.Not(operand=operand):
            return f"NOT {explain_expression(operand)}"
        case resolved.Negate(operand=operand):
            return f"-{explain_expression(operand)}"
        case resolved.IsNull(operand=operand, negated=negated):
            return f"{explain_expression(operand)} IS {'NOT ' if negated else ''}NULL"
        case _:
            return _compound(expression)


def _compound(expression: ResolvedExpression) -> str:
    match expression:
        case resolved.BinaryOperation(op=op, left=left, right=right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case resolved.InList(item=item, items=items):
            return f"{_operand(item)} IN {explain_expression(items)}"
        case resolved.ListValue(items=items):
            return f"[{', '.join(map(explain_expression, items))}]"
        case resolved.FunctionCall(name=name, arguments=arguments):
            return f"{name}({', '.join(map(explain_expression, arguments))})"
        case resolved.ContextFunction(name=name):
            return f"{name}()" if name != "self" else "#self"
        case resolved.ResolvedExists(pattern=pattern):
            return f"EXISTS({_pattern(pattern)})"
        case resolved.ResolvedPatternAggregate(name=name, pattern=pattern):
            return f"{name}({_pattern(pattern)})"
        case resolved.AggregateCall(name=name, operand=operand):
            return f"{name}({'*' if operand is None else explain_expression(operand)})"
    return "…"


def _operand(expression: ResolvedExpression) -> str:
    text = explain_expression(expression)
    return f"({text})" if isinstance(expression, resolved.BinaryOperation) else text


def _pattern(pattern: resolved.ResolvedPattern) -> str:
    parts = []
    for element in pattern.elements:
        match element:
            case resolved.ResolvedNode(name=name, type=type_, implicit=False):
                parts.append(f"{name}: {type_}")
            case resolved.ResolvedEdge(edge_types=edges):
                parts.append(f"{'|'.join(edges)}(…)")
            case resolved.ResolvedPath(edge=edge):
                parts.append(f"{edge}+(…)")
    where = " AND ".join(map(_operand, pattern.where))
    return ", ".join(parts) + (f" WHERE {where}" if where else "")


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return repr(value)
