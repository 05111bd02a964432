"""A filter split into its shape, which many subscriptions share, and its constants.

    doc.status == 'paid' && doc.total > 100      doc.status == ①  && doc.total > ②      ('paid', 100)

A shape is compiled and indexed once for all its subscriptions. A list of scalars is one constant.
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
    "ConstantSlot",
    "FieldPath",
    "ListSlot",
    "Shape",
    "as_path",
    "bind",
    "bind_tree",
    "extract_constants",
]

MAX_LIST_KEYS = 16
"""A list with more items is not expanded into keys."""

Constant: TypeAlias = "Value | list[Value]"
FieldPath: TypeAlias = tuple[str, ...]
"""Path of a value, for example ("doc", "address", "city"), ("id",) or ("op",)."""


@dataclass(frozen=True, slots=True)
class ConstantSlot(Parameter):
    """Placeholder of a scalar constant. Its parameter name is the number of the constant."""

    @property
    def index(self) -> int:
        return int(self.name)

    def canonical_form(self) -> list[Any]:
        return ["constant", self.name]


@dataclass(frozen=True, slots=True)
class ListSlot(Parameter):
    """Placeholder of a list of scalars."""

    is_too_long_for_keys: bool = False
    """True if the list has too many items to be expanded into keys."""

    @property
    def index(self) -> int:
        return int(self.name)

    def canonical_form(self) -> list[Any]:
        return ["constant_list", self.name, self.is_too_long_for_keys]


@dataclass(frozen=True)
class Shape:
    """A filter with placeholders for its constants. Filters with the same fingerprint have the same shape."""

    tree: Any
    constants: int
    """Number of constants."""
    columns: tuple[tuple[str, FieldPath], ...] | None = None
    """Columns of a WATCH; they decide which updates are visible."""
    window: str = ""
    """Window and aggregates of a WATCH as text; part of the shape, because the events differ."""
    attribute_masks: tuple[tuple[str, Any], ...] = ()
    """Attributes with the conditions under which policies hide them.

    The constants of these conditions follow those of the filter.
    """

    @cached_property
    def fingerprint(self) -> str:
        """The canonical text of the shape. It is stored in the registry, and segments group subscriptions by it."""
        return canonical_text((self.tree, self.columns, self.window, self.attribute_masks))

    @cached_property
    def depends_on_change(self) -> bool:
        """True if the filter reads `op` or `before`. Such a filter is evaluated on a change, not on a document."""
        return any(isinstance(node, Variable) and node.name in ("op", "before") for node in _walk(self.tree))


def extract_constants(
    expression: Expression, hidden: Sequence[tuple[str, Expression]] = ()
) -> tuple[Shape, tuple[Constant, ...]]:
    """Replace the constants of a filter and of its masks by placeholders. Returns the shape and the constants."""
    found: list[Constant] = []

    def replaced(node: Any) -> Any:
        match node:
            case Literal(value=value) if _is_scalar(value):
                found.append(value)
                return ConstantSlot(str(len(found) - 1))
            case ListLiteral(items=items) if all(
                isinstance(i, Literal) and _is_scalar(i.value) for i in items
            ):
                found.append([item.value for item in items if isinstance(item, Literal)])
                return ListSlot(str(len(found) - 1), is_too_long_for_keys=len(items) > MAX_LIST_KEYS)
        return _rebuilt(node, replaced)

    tree = replaced(expression)
    masks = tuple((name, replaced(condition)) for name, condition in hidden)
    return Shape(tree, len(found), attribute_masks=masks), tuple(found)


def bind(shape: Shape, constants: tuple[Constant, ...]) -> Expression:
    """Restore the filter from its shape and constants."""
    return bind_tree(shape.tree, constants)


def bind_tree(tree: Any, constants: tuple[Constant, ...]) -> Expression:
    """Restore one tree of a shape."""

    def replaced(node: Any) -> Any:
        match node:
            case ConstantSlot(index=index):
                return Literal(constants[index])
            case ListSlot(index=index):
                items = constants[index]
                assert isinstance(items, list)
                return ListLiteral(tuple(Literal(item) for item in items))
        return _rebuilt(node, replaced)

    expression: Expression = replaced(tree)
    return expression


def as_path(node: Any) -> FieldPath | None:
    """Return the path of a node that is a field of `doc` or `before`, or one of the variables id, collection and op;
    else None.
    """
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
