"""Functions over strings (spec/language.md §2.4). A string is a sequence of code points."""

from __future__ import annotations

from typing import Any

from vedette.errors import QueryError

__all__ = [
    "contains",
    "ends_with",
    "length",
    "lower",
    "replace",
    "split",
    "starts_with",
    "substring",
    "trim",
    "upper",
]

_MAX_REPLACE_CHARACTERS = 16_777_216
"""Code points that `replace` may produce: nested calls multiply, and a statement is short."""


def length(text: Any) -> int:
    """Code points of a string, items of a list."""
    return len(text)


def lower(text: str) -> str:
    return text.lower()


def upper(text: str) -> str:
    return text.upper()


def trim(text: str) -> str:
    return text.strip()


def contains(text: str, part: str) -> bool:
    return part in text


def starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


def ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


def substring(text: str, start: int, size: int | None = None) -> str:
    """From `start`, 0-based; a negative start is 0, a start past the end or a negative size gives the empty string."""
    start = max(start, 0)
    if size is None:
        return text[start:]
    return text[start : start + size] if size > 0 else ""


def replace(text: str, old: str, new: str) -> str:
    """All occurrences; an empty `old` is an error because it would be found everywhere."""
    if not old:
        raise QueryError(
            "E2102", "replace() cannot look for the empty string: its second argument must not be empty"
        )
    if len(new) > len(old) and len(text) + text.count(old) * (len(new) - len(old)) > _MAX_REPLACE_CHARACTERS:
        raise QueryError("E2103", f"replace() would produce more than {_MAX_REPLACE_CHARACTERS} characters")
    return text.replace(old, new)


def split(text: str, delimiter: str) -> list[str]:
    """The parts between delimiters; an empty delimiter gives the single characters."""
    return text.split(delimiter) if delimiter else list(text)
