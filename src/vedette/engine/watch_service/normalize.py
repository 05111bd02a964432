"""What makes two WATCH statements one: the same text but for constants, the elements it names, its own name and blanks.

Such watches share a shape. What a statement calls `#project_1` is a constant of the watch like any literal, so in the
form that is compiled elements have numbers in place of names, in the order of the text. They keep their names where
these can be seen: in the columns of RETURN.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import IdReference, Literal
from vedette.language.syntax.visit import exchange, walk
from vedette.watch.shapes.resolver import Capture

if TYPE_CHECKING:
    from vedette.engine.context.prepared import Prepared
    from vedette.engine.context.request import Request

__all__ = ["Reference", "WatchForm", "is_numbered", "number_of"]

Reference = tuple[str, bool]
"""How a statement names an element, and whether in quotes."""
_MARK = "\0"
"""No name in a text begins so."""
_CAPTURED = frozenset({"filter", "ordering"})
"""Options whose elements are constants of the watch; others are the engine's business, and stay as they are."""


class _Key:
    """A tree whose hash is worked out once."""

    __slots__ = ("_hash", "_tree")

    def __init__(self, tree: Hashable) -> None:
        self._tree, self._hash = tree, hash(tree)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._tree == other._tree


class WatchForm:
    """One statement as it is compiled, and what it calls the elements that have numbers there."""

    __slots__ = ("key", "prepared", "references", "statement")

    def __init__(self, prepared: Prepared) -> None:
        statement = prepared.statement
        assert isinstance(statement, ast.Watch)
        self.prepared = prepared
        shown = {_reference(node) for node in walk(statement.returns) if _names(node)}
        numbers: dict[Reference, int] = {}

        def numbered(node: Any) -> Any:
            if not _names(node) or _reference(node) in shown:
                return None
            number = numbers.setdefault(_reference(node), len(numbers))
            return IdReference(f"{_MARK}{number}", span=node.span)

        self.statement = replace(
            statement,
            pattern=exchange(statement.pattern, numbered),
            where=exchange(statement.where, numbered),
            options=tuple(exchange(o, numbered) if o.name in _CAPTURED else o for o in statement.options),
            actions=exchange(statement.actions, numbered),
            name=None,
        )
        self.references = tuple(numbers)
        self.key = _Key((exchange(self.statement, _by_place), prepared.literals))

    def of(self, request: Request) -> Request:
        """The request for the form in place of the statement as it was written."""
        return request.about(self.statement)


def _names(node: Any) -> bool:
    """Whether it names an element: `#self` is whoever watches, `#$p` a parameter."""
    return (
        isinstance(node, IdReference) and isinstance(node.name, str) and _reference(node) != ("self", False)
    )


def _reference(node: IdReference) -> Reference:
    assert isinstance(node.name, str)
    return node.name, node.quoted


def _by_place(node: Any) -> Any:
    """Literals that were lifted out count by their place, the others by their value: 1 is not true."""
    if not isinstance(node, Literal):
        return None
    said = f"{type(node.value).__name__} {node.value!r}"
    return Literal(f"{_MARK}{node.slot}" if node.slot is not None else said)


def is_numbered(reference: IdReference | Capture) -> bool:
    """Whether a name stands for an element that the statement's own form calls otherwise."""
    return isinstance(reference.name, str) and reference.name.startswith(_MARK)


def number_of(reference: IdReference | Capture) -> int:
    """Which one, in the order of the text."""
    assert isinstance(reference.name, str)
    return int(reference.name.removeprefix(_MARK))
