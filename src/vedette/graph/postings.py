"""Short lists of elements under a key: the element itself if there is one, a dict by id if there are several.

Most keys of an index have a single element; a dict for each would take most of the graph's memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from vedette.element import Element

__all__ = ["Postings", "add_posting", "postings", "remove_posting"]

Postings: TypeAlias = "Element | dict[str, Element]"


def postings(held: Postings | None) -> Iterable[Element]:
    if held is None:
        return ()
    if type(held) is dict:
        return held.values()
    return (held,)  # type: ignore[return-value]


def add_posting(table: dict[Any, Postings], key: Any, element: Element) -> None:
    """Add the element, or replace its older version."""
    held = table.get(key)
    if held is None:
        table[key] = element
    elif type(held) is dict:
        held[element.id] = element
    elif held.id == element.id:  # type: ignore[union-attr]
        table[key] = element
    else:
        table[key] = {held.id: held, element.id: element}  # type: ignore[union-attr, dict-item]


def remove_posting(table: dict[Any, Postings], key: Any, element: Element) -> None:
    held = table[key]
    if type(held) is dict:
        del held[element.id]
        if len(held) == 1:
            table[key] = next(iter(held.values()))
    else:
        del table[key]
