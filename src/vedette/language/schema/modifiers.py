"""Normalize the modifiers of attributes and aliases, and combine those of an alias with those of its use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from vedette.language.diagnostics import Span
from vedette.language.schema.constant_expressions import constant_value
from vedette.language.syntax.declarations import Modifier

__all__ = ["Report", "is_same_or_looser", "modifier_group", "normalize_modifiers", "override_modifiers"]

Report: TypeAlias = Callable[[str, str, Span], None]
_BOUNDS = {">=": "lower bound", ">": "lower bound", "<=": "upper bound", "<": "upper bound"}


def modifier_group(modifier: Modifier) -> str:
    """Return the property that the modifier sets. Only one modifier of a group can apply."""
    return _BOUNDS.get(modifier.name, modifier.name)


def normalize_modifiers(modifiers: tuple[Modifier, ...], report: Report) -> tuple[Modifier, ...]:
    """Split `a..b` into two bounds and keep one modifier per group; report duplicates."""
    by_group: dict[str, Modifier] = {}
    for modifier in modifiers:
        for part in _parts(modifier):
            if modifier_group(part) in by_group:
                report("E2005", f"the modifier '{modifier_group(part)}' is given twice", modifier.span)
            by_group.setdefault(modifier_group(part), part)
    return tuple(by_group.values())


def _parts(modifier: Modifier) -> tuple[Modifier, ...]:
    if modifier.name != "range":
        return (modifier,)
    low, high = cast("tuple[Any, Any]", modifier.value)
    return (Modifier(">=", low, span=modifier.span), Modifier("<=", high, span=modifier.span))


def override_modifiers(base: tuple[Modifier, ...], over: tuple[Modifier, ...]) -> tuple[Modifier, ...]:
    """Return the modifiers of both; within one group, `over` replaces `base`."""
    by_group = {modifier_group(modifier): modifier for modifier in base}
    by_group.update({modifier_group(modifier): modifier for modifier in over})
    return tuple(by_group.values())


def is_same_or_looser(new: Modifier, old: tuple[Modifier, ...]) -> bool:
    """True if every value that satisfies `old` also satisfies `new`."""
    return any(_implies(modifier, new) for modifier in old if modifier_group(modifier) == modifier_group(new))


def _implies(old: Modifier, new: Modifier) -> bool:
    before, after = cast(Any, old.value), cast(Any, new.value)
    match new.name:
        case ">=":
            return bool(before >= after)
        case ">":
            return bool(before > after or (old.name == ">" and before == after))
        case "<=":
            return bool(before <= after)
        case "<":
            return bool(before < after or (old.name == "<" and before == after))
        case "in":
            return {constant_value(item) for item in before} <= {constant_value(item) for item in after}
        case "length":
            return bool(after[0] <= before[0] and before[1] <= after[1])
        case _:
            return bool(before == after)
