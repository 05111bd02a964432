"""Sort keys as tuples that compare natively, so that a million of them are sorted in C."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import total_ordering
from typing import Any

from vedette.values import is_nan

__all__ = ["SortKey", "sort_key"]

SortKey = tuple[Any, ...]

_MILLISECOND = timedelta(milliseconds=1)
_MOMENTS, _NUMBERS, _NO_NUMBERS, _TEXTS, _SPANS, _OTHERS, _NULLS = range(7)
"""Values of different kinds (in a union) sort by kind."""


@total_ordering
class _ReversedText:
    """Text in reverse order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ReversedText) and self.text == other.text

    def __lt__(self, other: _ReversedText) -> bool:
        return other.text < self.text

    def __hash__(self) -> int:
        return hash(self.text)


def sort_key(values: Sequence[Any], descending: Sequence[bool]) -> SortKey:
    """The sort key of `attribute(…)`: nulls last when ascending, first when descending, like ORDER BY."""
    parts: list[Any] = []
    for value, down in zip(values, descending, strict=True):
        if type(value) is int:  # the most frequent case
            parts += (-_NUMBERS, -value) if down else (_NUMBERS, value)
        else:
            parts += _part(value, down)
    return tuple(parts)


def _part(value: Any, down: bool) -> tuple[Any, ...]:
    """The kind of the value, then the key among values of that kind."""
    if value is None:
        return (-_NULLS if down else _NULLS, 0)
    kind, number = _kind_and_number(value)
    if number is None:
        text = value if isinstance(value, str) else repr(value)
        return (-kind, _ReversedText(text)) if down else (kind, text)
    return (-kind, -number) if down else (kind, number)


def _kind_and_number(value: Any) -> tuple[int, float | None]:
    """The kind of a value and, if it has one, the number it is compared by. NaN sorts above numbers."""
    if isinstance(value, (int, float)):
        return (_NO_NUMBERS, 0) if is_nan(value) else (_NUMBERS, value)
    if isinstance(value, datetime):
        return _MOMENTS, value.timestamp()
    if isinstance(value, timedelta):
        return _SPANS, value / _MILLISECOND
    return (_TEXTS if isinstance(value, str) else _OTHERS), None
