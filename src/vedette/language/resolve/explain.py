"""Resolved conditions as text a person can read, for EXPLAIN. Constants show as `?1`, `?2` …"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette.language.resolve import tree as resolved
from vedette.language.resolve.tree import Condition

__all__ = ["condition_text", "target_text", "variable_names"]


def target_text(target: int | Condition | None, names: Mapping[int, str]) -> str:
    """A target of an edge as it was written: a variable, a wildcard, or an expression."""
    if target is None:
        return "_"
    return names.get(target, "_") if isinstance(target, int) else condition_text(target)


def variable_names(pattern: resolved.ResolvedPattern) -> dict[int, str]:
    """Register ▸ variable, for the pattern and for every variable of an outer pattern that it mentions."""
    names = {
        part.slot: part.name
        for part in resolved.subexpressions(resolved.ExistsIn(pattern))
        if isinstance(part, resolved.Slot)
    }
    for element in pattern.elements:
        if not isinstance(element, resolved.PathElement) and element.name is not None:
            names[element.slot] = element.name
    return names


def condition_text(condition: Condition) -> str:
    match condition:
        case resolved.Constant(index=index):
            return f"?{index + 1}"
        case resolved.Fixed(value=value):
            return _literal(value)
        case resolved.Slot(name=name):
            return name
        case resolved.Reference(name=name):
            return f"#{name if isinstance(name, str) else condition_text(name)}"
        case resolved.AttributeOf(base=base, name=name) | resolved.DynamicAttribute(base=base, name=name):
            return f"{condition_text(base)}.{name}"
        case resolved.IdOf(base=base):
            return f"{condition_text(base)}.id"
        case resolved.TypeOf(base=base):
            return f"{condition_text(base)}._type"
        case resolved.TargetsOf(base=base):
            return f"{condition_text(base)}._targets"
        case resolved.TypeIs(base=base, names=names):
            return f"{condition_text(base)}:{'|'.join(sorted(names))}"
        case resolved.Not(operand=operand):
            return f"NOT {condition_text(operand)}"
        case resolved.Negate(operand=operand):
            return f"-{condition_text(operand)}"
        case resolved.IsNull(operand=operand, negated=negated):
            return f"{condition_text(operand)} IS {'NOT ' if negated else ''}NULL"
        case _:
            return _compound(condition)


def _compound(condition: Condition) -> str:
    match condition:
        case resolved.Operation(op=op, left=left, right=right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case resolved.InList(item=item, items=items):
            return f"{_operand(item)} IN {condition_text(items)}"
        case resolved.ListOf(items=items):
            return f"[{', '.join(map(condition_text, items))}]"
        case resolved.FunctionCall(name=name, arguments=arguments):
            return f"{name}({', '.join(map(condition_text, arguments))})"
        case resolved.ContextValue(name=name):
            return f"{name}()" if name != "self" else "#self"
        case resolved.ExistsIn(pattern=pattern):
            return f"EXISTS({_pattern(pattern)})"
        case resolved.PatternFold(name=name, pattern=pattern):
            return f"{name}({_pattern(pattern)})"
        case resolved.AggregateCall(name=name, operand=operand):
            return f"{name}({'*' if operand is None else condition_text(operand)})"
    return "…"


def _operand(condition: Condition) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, resolved.Operation) else text


def _pattern(pattern: resolved.ResolvedPattern) -> str:
    parts = []
    for element in pattern.elements:
        match element:
            case resolved.NodeElement(name=name, type=type_, implicit=False):
                parts.append(f"{name}: {type_}")
            case resolved.EdgeElement(edges=edges):
                parts.append(f"{'|'.join(edges)}(…)")
            case resolved.PathElement(edge=edge):
                parts.append(f"{edge}+(…)")
    where = " AND ".join(map(_operand, pattern.where))
    return ", ".join(parts) + (f" WHERE {where}" if where else "")


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return repr(value)
