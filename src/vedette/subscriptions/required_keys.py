"""Conditions that a true filter implies: the keys under which the index finds the filter.

A filter is split into alternatives; a true filter implies at least one of them. The equalities with constants of an
alternative form a composite key, and one range condition adds a bound. The filter
`a == 1 && b > 2 || a in [3, 4]` has the keys (a = 1, b > 2), (a = 3) and (a = 4). An alternative without conditions has
an empty key, and the filter is evaluated for every change.

A key with too few conditions costs time. A key with a condition that the filter does not imply would lose events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from vedette.language.syntax.expressions import Binary, Call
from vedette.subscriptions.shape import ConstantSlot, FieldPath, ListSlot, Shape, as_path

__all__ = ["Equality", "KeyAlternative", "Range", "key_alternatives"]

MAX_ALTERNATIVES = 16
"""Maximum number of alternatives of one filter; beyond it, conditions are dropped."""
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Equality:
    """The field equals the constant, or one item of the list."""

    path: FieldPath
    constant: ConstantSlot | ListSlot | bool
    """True if the field itself is the condition, as in `doc.active`."""


@dataclass(frozen=True, slots=True)
class Range:
    """The field is on one side of the constant."""

    path: FieldPath
    is_lower_bound: bool
    """True if the field must be greater than or equal to the constant; otherwise less than or equal."""
    constant: ConstantSlot


@dataclass(frozen=True, slots=True)
class KeyAlternative:
    """Conditions that all hold if the filter is true by this alternative."""

    equalities: tuple[Equality, ...] = ()
    """Sorted by path, each path once."""
    range: Range | None = None


_Atom: TypeAlias = Equality | Range
_NO_CONDITION: tuple[frozenset[_Atom], ...] = (frozenset(),)


def key_alternatives(shape: Shape) -> tuple[KeyAlternative, ...]:
    """Return at least one alternative. An empty one means that the filter is evaluated for every change."""
    return tuple(dict.fromkeys(map(_alternative, _implied(shape.tree))))


def _alternative(atoms: frozenset[_Atom]) -> KeyAlternative:
    equalities: dict[FieldPath, Equality] = {}
    lists = 0
    for atom in sorted((atom for atom in atoms if isinstance(atom, Equality)), key=_preference):
        is_list = isinstance(atom.constant, ListSlot)
        if atom.path not in equalities and not (is_list and lists):  # a second list would multiply the keys
            equalities[atom.path] = atom
            lists += is_list
    ranges = sorted(
        (atom for atom in atoms if isinstance(atom, Range) and atom.path not in equalities), key=_range_order
    )
    ordered = tuple(equalities[path] for path in sorted(equalities))
    return KeyAlternative(ordered, ranges[0] if ranges else None)


def _preference(atom: Equality) -> tuple[bool, FieldPath, int]:
    """Scalars before lists, then by path and slot: atoms come from a set, and every process must choose the same."""
    slot = -1 if isinstance(atom.constant, bool) else atom.constant.index
    return isinstance(atom.constant, ListSlot), atom.path, slot


def _range_order(atom: Range) -> tuple[FieldPath, bool, int]:
    return atom.path, atom.is_lower_bound, atom.constant.index


def _implied(node: Any) -> tuple[frozenset[_Atom], ...]:
    """Return alternatives as sets of atoms: if the node is true, all atoms of at least one set hold."""
    match node:
        case Call(name="holds", arguments=(condition,)):
            return _implied(condition)
        case Binary(op="AND", left=left, right=right):
            return _product(_implied(left), _implied(right))
        case Binary(op="OR", left=left, right=right):
            union = (*_implied(left), *_implied(right))
            return union if len(union) <= MAX_ALTERNATIVES else _NO_CONDITION
        case _:
            return (frozenset(_atoms(node)),)


def _product(
    left: tuple[frozenset[_Atom], ...], right: tuple[frozenset[_Atom], ...]
) -> tuple[frozenset[_Atom], ...]:
    """Combine the alternatives of two conditions that must both hold.

    If that would give too many, return those of the more selective side: they are implied as well.
    """
    if len(left) * len(right) <= MAX_ALTERNATIVES:
        return tuple(one | other for one in left for other in right)
    return max(left, right, key=_selectivity)


def _selectivity(side: tuple[frozenset[_Atom], ...]) -> tuple[bool, int]:
    """Rank a side without empty alternatives above one with them, then fewer alternatives above more."""
    return all(side), -len(side)


def _atoms(node: Any) -> Iterable[_Atom]:
    match node:
        case Binary(op="==", left=left, right=ConstantSlot() as slot) if (path := as_path(left)) is not None:
            yield Equality(path, slot)
        case Binary(op="==", left=ConstantSlot() as slot, right=right) if (
            path := as_path(right)
        ) is not None:
            yield Equality(path, slot)
        case Binary(op="IN", left=left, right=ListSlot(is_too_long_for_keys=False) as items) if (
            path := as_path(left)
        ) is not None:
            yield Equality(path, items)
        case Binary(op="<" | "<=" | ">" | ">=" as op, left=left, right=ConstantSlot() as slot) if (
            path := as_path(left)
        ) is not None:
            yield Range(path, op in (">", ">="), slot)
        case Binary(op="<" | "<=" | ">" | ">=" as op, left=ConstantSlot() as slot, right=right) if (
            path := as_path(right)
        ) is not None:
            yield Range(path, _FLIPPED[op] in (">", ">="), slot)
        case _ if (path := as_path(node)) is not None:
            yield Equality(path, True)
