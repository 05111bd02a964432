"""Normalizes WATCH statements, so that statements that differ only in constants share a shape.

Statements are equal up to literals, element references, their name and white space. A reference such as
`#project_1` is a constant of the watch like any literal, so the normalized form uses numbered placeholders, in the
order of the text. References keep their names where they are visible: in the columns of RETURN.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import IdReference, Literal
from vedette.language.syntax.visit import transform, walk
from vedette.watch.shapes.resolver import SessionValue

if TYPE_CHECKING:
    from vedette.engine.context.prepared import PreparedStatement
    from vedette.engine.context.request import StatementRequest

__all__ = ["NormalizedWatch", "Reference", "is_placeholder", "placeholder_index"]

Reference = tuple[str, bool]
"""The name of an element reference, and whether it is quoted."""
_PLACEHOLDER = "\0"
"""No name in a statement begins with this character."""
_OPTIONS_WITH_REFERENCES = frozenset({"filter", "ordering"})
"""Options whose references become constants of the watch. References in other options stay as written."""


class _Key:
    """A syntax tree with a cached hash."""

    __slots__ = ("_hash", "_tree")

    def __init__(self, tree: Hashable) -> None:
        self._tree, self._hash = tree, hash(tree)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._tree == other._tree


class NormalizedWatch:
    """The normalized form of one statement, and the references that its placeholders replace."""

    __slots__ = ("key", "prepared", "references", "statement")

    def __init__(self, prepared: PreparedStatement) -> None:
        statement = prepared.statement
        assert isinstance(statement, ast.Watch)
        self.prepared = prepared
        shown = {_reference(node) for node in walk(statement.returns) if _is_reference(node)}
        numbers: dict[Reference, int] = {}

        def numbered(node: Any) -> Any:
            if not _is_reference(node) or _reference(node) in shown:
                return None
            number = numbers.setdefault(_reference(node), len(numbers))
            return IdReference(f"{_PLACEHOLDER}{number}", span=node.span)

        self.statement = replace(
            statement,
            pattern=transform(statement.pattern, numbered),
            where=transform(statement.where, numbered),
            options=tuple(
                transform(o, numbered) if o.name in _OPTIONS_WITH_REFERENCES else o for o in statement.options
            ),
            actions=transform(statement.actions, numbered),
            name=None,
        )
        self.references = tuple(numbers)
        self.key = _Key((transform(self.statement, _literal_slot), prepared.literals))

    def rewrite(self, request: StatementRequest) -> StatementRequest:
        """The request with the normalized statement in place of the written one."""
        return request.for_inner(self.statement)


def _is_reference(node: Any) -> bool:
    """True if the node refers to an element by name: not `#self` and not a parameter `#$p`."""
    return (
        isinstance(node, IdReference) and isinstance(node.name, str) and _reference(node) != ("self", False)
    )


def _reference(node: IdReference) -> Reference:
    assert isinstance(node.name, str)
    return node.name, node.quoted


def _literal_slot(node: Any) -> Any:
    """Replace lifted literals by their slot, and others by type and value: 1 is not true."""
    if not isinstance(node, Literal):
        return None
    typed_value = f"{type(node.value).__name__} {node.value!r}"
    return Literal(f"{_PLACEHOLDER}{node.literal_index}" if node.literal_index is not None else typed_value)


def is_placeholder(reference: IdReference | SessionValue) -> bool:
    """True if the name is a placeholder."""
    return isinstance(reference.name, str) and reference.name.startswith(_PLACEHOLDER)


def placeholder_index(reference: IdReference | SessionValue) -> int:
    """The number of the placeholder, in the order of the text."""
    assert isinstance(reference.name, str)
    return int(reference.name.removeprefix(_PLACEHOLDER))
