"""What a document must have for a filter to be true of it: the keys under which the filter stands in the index.

A filter is read as alternatives, one of which must hold (ruling 13). Of each alternative the equalities with constants
make a composite key, and one range condition a bound. `a == 1 && b > 2 || a in [3, 4]` stands under (a = 1, b > 2),
(a = 3) and (a = 4). An alternative without any stands under nothing and is looked at for every change.

Too few conditions in a key cost time, too many would lose events: only what a true filter *implies* may be here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from vedette.language.syntax.expressions import Binary, Call
from vedette.subscriptions.shape import FieldPath, ListSlot, Shape, Slot, as_path

__all__ = ["Equality", "KeyAlternative", "Range", "key_alternatives"]

MAX_ALTERNATIVES = 16
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Equality:
    """The field equals the constant, or one item of the list."""

    path: FieldPath
    constant: Slot | ListSlot | bool
    """True for a field that is itself the condition: `doc.active`."""


@dataclass(frozen=True, slots=True)
class Range:
    path: FieldPath
    is_lower_bound: bool
    """The field is greater than or equal to the constant; otherwise less or equal."""
    constant: Slot


@dataclass(frozen=True, slots=True)
class KeyAlternative:
    equalities: tuple[Equality, ...] = ()
    """By path, each path once."""
    range: Range | None = None


_Atom: TypeAlias = Equality | Range
_NO_CONDITION: tuple[frozenset[_Atom], ...] = (frozenset(),)


def key_alternatives(shape: Shape) -> tuple[KeyAlternative, ...]:
    """At least one; an empty one means that the filter is evaluated for every change."""
    return tuple(dict.fromkeys(map(_alternative, _implied(shape.tree))))


def _alternative(atoms: frozenset[_Atom]) -> KeyAlternative:
    equalities: dict[FieldPath, Equality] = {}
    lists = 0
    for atom in sorted((a for a in atoms if isinstance(a, Equality)), key=_preference):
        is_list = isinstance(atom.constant, ListSlot)
        if atom.path not in equalities and not (is_list and lists):  # two lists would multiply
            equalities[atom.path] = atom
            lists += is_list
    ranges = sorted((a for a in atoms if isinstance(a, Range) and a.path not in equalities), key=repr)
    ordered = tuple(equalities[path] for path in sorted(equalities))
    return KeyAlternative(ordered, ranges[0] if ranges else None)


def _preference(atom: Equality) -> tuple[bool, str]:
    return isinstance(atom.constant, ListSlot), repr(atom)


def _implied(node: Any) -> tuple[frozenset[_Atom], ...]:
    """Alternatives as sets of atoms: if the node is true, all atoms of one set hold."""
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
    """Both must hold. If there would be too many alternatives, those of one side alone are still implied."""
    if len(left) * len(right) <= MAX_ALTERNATIVES:
        return tuple(one | other for one in left for other in right)
    return max(left, right, key=_selectivity)


def _selectivity(side: tuple[frozenset[_Atom], ...]) -> tuple[bool, int]:
    return all(side), -len(side)


def _atoms(node: Any) -> Iterable[_Atom]:
    match node:
        case Binary(op="==", left=left, right=Slot() as slot) if (path := as_path(left)) is not None:
            yield Equality(path, slot)
        case Binary(op="==", left=Slot() as slot, right=right) if (path := as_path(right)) is not None:
            yield Equality(path, slot)
        case Binary(op="IN", left=left, right=ListSlot(long=False) as items) if (
            path := as_path(left)
        ) is not None:
            yield Equality(path, items)
        case Binary(op="<" | "<=" | ">" | ">=" as op, left=left, right=Slot() as slot) if (
            path := as_path(left)
        ) is not None:
            yield Range(path, op in (">", ">="), slot)
        case Binary(op="<" | "<=" | ">" | ">=" as op, left=Slot() as slot, right=right) if (
            path := as_path(right)
        ) is not None:
            yield Range(path, _FLIPPED[op] in (">", ">="), slot)
        case _ if (path := as_path(node)) is not None:
            yield Equality(path, True)
