"""Checks of configuration values. A value that is not allowed raises E4502 and names the field."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from vedette.errors import FolderError

__all__ = [
    "check_collection_name",
    "is_number",
    "is_utf8",
    "require",
    "require_increasing",
    "require_integers",
    "require_positive",
]

_FORBIDDEN_CHARACTERS = frozenset('/\\<>:"|?*')
"""Not allowed in the name of a chunk collection: local collections are folders, and a Qdrant server rejects them."""
_MAX_NAME_BYTES = 255


def require(condition: bool, field_name: str, value: object, expected: str) -> None:
    """Raise E4502 unless `condition` holds. `expected` completes the sentence "it must be …"."""
    if not condition:
        raise FolderError(
            "E4502",
            f"'{field_name}' cannot be {value!r}: it must be {expected}",
            fields={"field": field_name, "value": value},
        )


def require_positive(record: Any, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        require(is_number(value) and value > 0, name, value, "a number greater than 0")


def require_integers(record: Any, *names: str, low: int = 1) -> None:
    for name in names:
        value = getattr(record, name)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        require(is_integer and value >= low, name, value, f"a whole number from {low}")


def require_increasing(record: Any, *names: str) -> None:
    for low, high in pairwise(names):
        smaller, larger = getattr(record, low), getattr(record, high)
        require(smaller < larger, high, larger, f"greater than '{low}', which is {smaller!r}")


def check_collection_name(name: str) -> None:
    """Raise E4502 unless a local vector store and a Qdrant server both accept a collection of this name."""
    valid = name not in (".", "..") and name.isprintable() and _FORBIDDEN_CHARACTERS.isdisjoint(name)
    valid = valid and len(name.encode()) <= _MAX_NAME_BYTES
    forbidden = " ".join(sorted(_FORBIDDEN_CHARACTERS))
    require(
        valid, "collection", name, f"printable, of at most {_MAX_NAME_BYTES} bytes, and without {forbidden}"
    )


def is_utf8(value: str) -> bool:
    """False for a path that is not valid UTF-8. Python represents its bytes as surrogates."""
    return all(not 0xD800 <= ord(each) < 0xE000 for each in value)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
