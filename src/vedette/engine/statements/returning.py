"""RETURNING: rows about the elements that an action affected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vedette.errors import AnalysisError
from vedette.graph.actions import AffectedElement
from vedette.language.compile.queries import element_to_dict
from vedette.language.schema.model import Schema
from vedette.language.syntax import statements as ast

__all__ = ["ReturningClause", "compile_returning"]

ColumnReader = Callable[[AffectedElement], Any]


@dataclass(frozen=True, slots=True)
class ReturningClause:
    columns: tuple[str, ...]
    readers: tuple[ColumnReader | None, ...]
    """None counts the affected elements; the result is then a single row."""

    def rows(self, affected: Sequence[AffectedElement]) -> list[tuple[Any, ...]]:
        if None in self.readers:
            first = affected[0] if affected else None
            return [tuple(len(affected) if r is None else r(first) if first else None for r in self.readers)]
        return [tuple(reader(each) for reader in self.readers if reader) for each in affected]


def compile_returning(actions: Sequence[ast.Action], schema: Schema) -> ReturningClause | None:
    """Compile the last RETURNING of the actions. It refers to what its own action affected."""
    returning = [action for action in actions if action.returning is not None]
    if not returning:
        return None
    action = returning[-1]
    clause = action.returning
    assert clause is not None
    own = _variables(action)
    for item in clause.items:
        if item.attribute is not None and item.name not in own:
            text = f"RETURNING refers to what the action affected; '{item.name}' is not its variable"
            raise AnalysisError("E2004", text)
    if not clause.items:
        return ReturningClause(("*",), (lambda each: element_to_dict(each.element, schema),))
    columns = tuple(item.alias or _column(item) for item in clause.items)
    return ReturningClause(columns, tuple(_reader(item, schema) for item in clause.items))


def _variables(action: ast.Action) -> set[str]:
    """The variables by which an action names what it affects."""
    if isinstance(action, ast.Spawn):
        return {item.variable for item in action.items if item.variable is not None}
    if isinstance(action, ast.Link):
        return {action.variable} if action.variable is not None else set()
    target = action.target
    name = getattr(target, "name", None)
    return {name} if isinstance(name, str) else set()


def _column(item: ast.ReturningItem) -> str:
    return item.name if item.attribute is None else f"{item.name}.{item.attribute}"


def _reader(item: ast.ReturningItem, schema: Schema) -> ColumnReader | None:
    name = item.attribute or item.name
    if item.attribute is None and name.lower() == "count(*)":
        return None
    if item.attribute is None and name == "created":
        return lambda each: each.created
    return lambda each: _attribute(each, name, schema)


def _attribute(each: AffectedElement, name: str, schema: Schema) -> Any:
    element = each.element
    holder = schema.nodes.get(element.type) or schema.edges[element.type]
    position = holder.layout.get(name)
    if position is not None:
        return element.values[position]
    if name in ("id", "_id"):
        return element.id
    if name == "_type":
        return element.type
    raise AnalysisError("E2002", f"Unknown attribute '{name}' on type '{element.type}' (RETURNING)")
