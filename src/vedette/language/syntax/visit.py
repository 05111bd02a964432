"""Walking syntax trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

__all__ = ["transform", "walk"]


def transform(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with nodes exchanged: where `change` yields something, that; elsewhere its parts, exchanged."""
    if isinstance(tree, tuple):
        return tuple(transform(part, change) for part in tree)
    if not is_dataclass(tree) or isinstance(tree, type):
        return tree
    changed = change(tree)
    if changed is not None:
        return changed
    parts = {f.name: transform(getattr(tree, f.name), change) for f in fields(tree) if f.name != "span"}
    return replace(tree, **parts)


def walk(tree: Any) -> Iterator[Any]:
    """The tree's nodes, the root first, in the order of the text."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(reversed(node))
        elif is_dataclass(node):
            yield node
            pending.extend(reversed([getattr(node, f.name) for f in fields(node) if f.name != "span"]))
