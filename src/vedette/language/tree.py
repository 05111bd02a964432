"""Walking syntax trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["walk"]


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
