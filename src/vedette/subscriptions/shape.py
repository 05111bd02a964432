"""A filter taken apart: its shape, which many subscriptions share, and its constants, which are each one's own.

    doc.status == 'paid' && doc.total > 100      doc.status == ①  && doc.total > ②      ('paid', 100)

A shape is compiled and indexed once, however many subscriptions have it. A list of scalars is one constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

from vedette.language.syntax.canonical import canonical_text
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Conditional,
    Expression,
    Index,
    ListLiteral,
    Literal,
    Parameter,
    Unary,
    Variable,
)
from vedette.values import Value

__all__ = [
    "MAX_LIST_KEYS",
    "Constant",
    "FieldPath",
    "ListSlot",
    "Shape",
    "Slot",
    "as_path",
    "bind",
    "bind_tree",
    "extract_constants",
]

MAX_LIST_KEYS = 16
"""A list with more items is not expanded into keys (ruling 13)."""

Constant: TypeAlias = "Value | list[Value]"
FieldPath: TypeAlias = tuple[str, ...]
"""Where a value stands: ("doc", "address", "city"), ("id",), ("op",) …"""


@dataclass(frozen=True, slots=True)
class Slot(Parameter):
    """The place of a scalar constant: a parameter whose name is its number."""

    @property
    def index(self) -> int:
        return int(self.name)

    def canonical_form(self) -> list[Any]:
        return ["constant", self.name]


@dataclass(frozen=True, slots=True)
class ListSlot(Parameter):
    """The place of a list of scalars."""

    long: bool = False
    """More items than are expanded into keys."""

    @property
    def index(self) -> int:
        return int(self.name)

    def canonical_form(self) -> list[Any]:
        return ["constant_list", self.name, self.long]


@dataclass(frozen=True)
class Shape:
    """The tree with slots for constants. Two filters have one shape if the texts of their shapes are equal."""

    tree: Any
    constants: int
    """How many there are."""
    columns: tuple[tuple[str, FieldPath], ...] | None = None
    """The columns of a WATCH: what they show decides which updates are worth telling."""
    window: str = ""
    """The window and the aggregates of a WATCH as text: what is told is another matter, so it is another shape."""
    attribute_masks: tuple[tuple[str, Any], ...] = ()
    """Attributes and the trees of the conditions under which policies hide them; with constants of the same row."""

    @cached_property
    def fingerprint(self) -> str:
        """The canonical text: stored in the registry, and the key under which shapes are grouped in a segment."""
        return canonical_text((self.tree, self.columns, self.window, self.attribute_masks))

    @cached_property
    def depends_on_change(self) -> bool:
        """Asks about the change itself (`op`, `before`), and so says nothing about a document at rest."""
        return any(isinstance(node, Variable) and node.name in ("op", "before") for node in _walk(self.tree))


def extract_constants(
    expression: Expression, hidden: Sequence[tuple[str, Expression]] = ()
) -> tuple[Shape, tuple[Constant, ...]]:
    """Take the constants out of the tree of a filter, whose request is bound already, and of what policies hide."""
    found: list[Constant] = []

    def replaced(node: Any) -> Any:
        match node:
            case Literal(value=value) if _is_scalar(value):
                found.append(value)
                return Slot(str(len(found) - 1))
            case ListLiteral(items=items) if all(
                isinstance(i, Literal) and _is_scalar(i.value) for i in items
            ):
                found.append([item.value for item in items if isinstance(item, Literal)])
                return ListSlot(str(len(found) - 1), long=len(items) > MAX_LIST_KEYS)
        return _rebuilt(node, replaced)

    tree = replaced(expression)
    masks = tuple((name, replaced(condition)) for name, condition in hidden)
    return Shape(tree, len(found), attribute_masks=masks), tuple(found)


def bind(shape: Shape, constants: tuple[Constant, ...]) -> Expression:
    """The filter that `lift` took apart."""
    return bind_tree(shape.tree, constants)


def bind_tree(tree: Any, constants: tuple[Constant, ...]) -> Expression:
    """One tree of a shape with its constants."""

    def replaced(node: Any) -> Any:
        match node:
            case Slot(index=index):
                return Literal(constants[index])
            case ListSlot(index=index):
                items = constants[index]
                assert isinstance(items, list)
                return ListLiteral(tuple(Literal(item) for item in items))
        return _rebuilt(node, replaced)

    expression: Expression = replaced(tree)
    return expression


def as_path(node: Any) -> FieldPath | None:
    """The path that a node spells, if it is one: fields of `doc` or `before`, or another variable itself."""
    match node:
        case Variable(name="id" | "collection" | "op" as name):
            return (name,)
        case Attribute(base=Variable(name="doc" | "before" as root), name=name):
            return (root, name)
        case Attribute(base=base, name=name):
            path = as_path(base)
            return (*path, name) if path is not None and len(path) > 1 else None
    return None


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | datetime | timedelta)


def _rebuilt(node: Any, change: Any) -> Any:
    changed = {}
    for part in fields(node) if isinstance(node, _INNER) else ():
        value = getattr(node, part.name)
        if isinstance(value, _NODES):
            changed[part.name] = change(value)
        elif isinstance(value, tuple):
            changed[part.name] = tuple(change(item) if isinstance(item, _NODES) else item for item in value)
    return replace(node, **changed) if changed else node


def _walk(node: Any) -> Any:
    yield node
    for part in fields(node) if isinstance(node, _INNER) else ():
        value = getattr(node, part.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, _NODES):
                yield from _walk(item)


_INNER = (Attribute, Binary, Call, Conditional, Index, ListLiteral, Unary)
_NODES = (*_INNER, Literal, Parameter, Variable)
