"""Names of databases (= tenants), and the same names as parts of a file name: safe, reversible, bounded.

Lower-case letters, digits, `-` and `_` stand for themselves; every other character is written as the bytes of its
UTF-8 form, `%2f` for `/`. Capitals too, because some file systems take `Acme` and `acme` for one file. So no name
can leave its directory, and no two names meet in one file.
"""

from __future__ import annotations

import re

from vedette.errors import StoreError

__all__ = [
    "DEFAULT_DATABASE",
    "MAX_NAME_BYTES",
    "decode_name",
    "encode_name",
    "listing_order",
    "validate_name",
]

DEFAULT_DATABASE = "default"
MAX_NAME_BYTES = 200
"""Of the encoded name: file systems allow 255, and SQLite adds an ending of its own."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_ENCODED = re.compile(r"(?:[a-z0-9_-]|%[0-9a-f]{2})+", re.ASCII)


def encode_name(name: str) -> str:
    """The name as part of a file name; E6007 when it is empty, too long or no text."""
    try:
        encoded = "".join(c if c in _PLAIN else "".join(f"%{b:02x}" for b in c.encode()) for c in name)
    except UnicodeEncodeError as problem:
        raise _invalid(name, "it holds half a character (a lone surrogate)") from problem
    if not encoded:
        raise _invalid(name, "it is empty")
    if "\0" in name:
        raise _invalid(name, "it holds a NUL character")
    if len(encoded) > MAX_NAME_BYTES:
        length = f"{len(encoded)} bytes long as a file name, {MAX_NAME_BYTES} is the most"
        raise _invalid(name, f"it is {length} (each character beyond a-z, 0-9, - and _ takes 3 or more)")
    return encoded


def decode_name(encoded: str) -> str | None:
    """The name behind an encoded one; None for a text that `encode_name` would never give."""
    if not _ENCODED.fullmatch(encoded):
        return None
    try:
        name = re.sub(rb"%(..)", lambda hex: bytes.fromhex(hex[1].decode()), encoded.encode()).decode()
        return name if encode_name(name) == encoded else None
    except (UnicodeDecodeError, StoreError):
        return None


def validate_name(name: str) -> None:
    """E6007 unless a database may be called so, wherever it is kept."""
    encode_name(name)


def listing_order(name: str) -> tuple[bool, str]:
    """The order in which databases are listed: the default one first."""
    return name != DEFAULT_DATABASE, name


def _invalid(name: str, why: str) -> StoreError:
    return StoreError(
        "E6007",
        f"no database can be called {name[:80]!r}: {why}; choose another name",
        fields={"name": name[:80]},
    )
