"""Walk and rewrite syntax trees.

A tree consists of frozen dataclasses and of tuples of them. Every field except `span` counts as a child; children that
are plain values (names, numbers) are leaves without a node of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from vedette.language.diagnostics import Span

__all__ = ["field_names", "find_node_below", "transform", "walk"]

_FIELD_NAMES: dict[type, tuple[str, ...]] = {}
"""By node class. Reading a dataclass's fields takes longer than visiting the node, so the names are kept."""


def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of a node class's fields except `span`; empty for a class that is not a node."""
    names = _FIELD_NAMES.get(kind)
    if names is None:
        found = fields(kind) if is_dataclass(kind) else ()
        names = _FIELD_NAMES[kind] = tuple(field.name for field in found if field.name != "span")
    return names


def walk(tree: Any) -> Iterator[Any]:
    """Yield the nodes of the tree in the order of the text, a parent before its children. Does not recurse."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(reversed(node))
        elif is_dataclass(node):
            yield node
            pending.extend(reversed([getattr(node, name) for name in field_names(type(node))]))


def transform(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return the tree with nodes replaced, from the root down.

    `change` returns the replacement of a node, or None to keep the node and visit its children. A replacement is not
    visited again. A subtree without a replacement is returned as the same object. Recurses once per level of the tree,
    which the parser limits (`ParserLimits.max_depth`).
    """
    if isinstance(tree, tuple):
        items = [transform(item, change) for item in tree]
        return tree if all(new is old for new, old in zip(items, tree, strict=True)) else tuple(items)
    names = field_names(type(tree))
    if not names and not is_dataclass(tree):
        return tree
    changed = change(tree)
    if changed is not None:
        return changed
    replaced = {}
    for name in names:
        old = getattr(tree, name)
        new = transform(old, change)
        if new is not old:
            replaced[name] = new
    return replace(tree, **replaced) if replaced else tree


def find_node_below(tree: object, levels: int) -> Span | None:
    """Return the span of a node more than `levels` levels deep, or None. Does not recurse."""
    pending: list[tuple[object, int]] = [(tree, 1)]
    while pending:
        node, level = pending.pop()
        if isinstance(node, tuple):
            pending.extend((item, level) for item in node)
            continue
        names = field_names(type(node))
        if names and level > levels:
            return node.span  # type: ignore[attr-defined, no-any-return]
        pending.extend((getattr(node, name), level + 1) for name in names)
    return None
