"""Names of databases (tenants) as file names: safe, reversible, bounded.

Lower-case letters, digits, `-` and `_` are kept; every other character is written as the bytes of its UTF-8 form,
`%2f` for `/`. Capitals too, because some file systems treat `Acme` and `acme` as one file. So no name can leave its
directory, and no two names share a file.
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
"""Maximum bytes of the encoded name: file systems allow 255, and SQLite appends a suffix."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_ENCODED = re.compile(r"(?:[a-z0-9_-]|%[0-9a-f]{2})+", re.ASCII)


def encode_name(name: str) -> str:
    """Encode the name as part of a file name. Raises E6007 if it is empty, too long or not a string."""
    try:
        encoded = "".join(c if c in _PLAIN else "".join(f"%{b:02x}" for b in c.encode()) for c in name)
    except UnicodeEncodeError as problem:
        raise _invalid(name, "it contains a lone surrogate") from problem
    if not encoded:
        raise _invalid(name, "it is empty")
    if "\0" in name:
        raise _invalid(name, "it holds a NUL character")
    if len(encoded) > MAX_NAME_BYTES:
        length = f"{len(encoded)} bytes long as a file name, {MAX_NAME_BYTES} is the most"
        raise _invalid(
            name, f"it is {length} (each character other than a-z, 0-9, - and _ takes 3 bytes or more)"
        )
    return encoded


def decode_name(encoded: str) -> str | None:
    """Decode a name; None for a text that `encode_name` never returns."""
    if not _ENCODED.fullmatch(encoded):
        return None
    try:
        name = re.sub(rb"%(..)", lambda hex: bytes.fromhex(hex[1].decode()), encoded.encode()).decode()
        return name if encode_name(name) == encoded else None
    except (UnicodeDecodeError, StoreError):
        return None


def validate_name(name: str) -> None:
    """Raise E6007 if a database may not have this name, in any store."""
    encode_name(name)


def listing_order(name: str) -> tuple[bool, str]:
    """Sort key for listing databases: the default one first."""
    return name != DEFAULT_DATABASE, name


def _invalid(name: str, why: str) -> StoreError:
    return StoreError(
        "E6007",
        f"a database cannot be named {name[:80]!r}: {why}; choose another name",
        fields={"name": name[:80]},
    )
