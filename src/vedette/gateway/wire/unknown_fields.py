"""Unknown keys of a subscribe message: they are ignored, and the acknowledgement lists them.

A client may be newer than the server, so an unknown key is not an error. It may also be a typo: a misspelled `filters`
would match everything. The acknowledgement therefore names every ignored key.
"""

from __future__ import annotations

from typing import Any

import msgspec

from vedette.gateway.wire.messages import Message, Subscribe, encode

__all__ = ["QUERY_KEYS", "add_ignored_fields", "drop_unknown_fields"]

QUERY_KEYS = frozenset({"collection", "filters", "filter", "orderBy", "limit", "startAfter", "showDeleted"})
_ITEM_KEYS = {"filters": frozenset({"field", "op", "value"}), "orderBy": frozenset({"field", "direction"})}
_MAX_NAMES = 16
_MAX_NAME_CHARS = 80
"""Characters of a name that are echoed."""


def drop_unknown_fields(msg: Message) -> tuple[Subscribe, tuple[str, ...]]:
    """Return the subscribe payload without unknown query keys, and the names of all ignored keys."""
    payload: Subscribe = msg.payload
    ignored = list(msg.unknown_fields)
    if payload.query is not None:
        payload = msgspec.structs.replace(
            payload, query=_drop_unknown(payload.query, QUERY_KEYS, "query", ignored)
        )
    return payload, tuple(name[:_MAX_NAME_CHARS] for name in ignored[:_MAX_NAMES])


def _drop_unknown(
    record: dict[str, Any], keys: frozenset[str], where: str, ignored: list[str]
) -> dict[str, Any]:
    ignored += [f"{where}.{name}" for name in record if name not in keys]
    known = {name: value for name, value in record.items() if name in keys}
    for name, inner in _ITEM_KEYS.items() if keys is QUERY_KEYS else ():
        if isinstance(items := known.get(name), list):
            known[name] = [
                _drop_unknown(item, inner, f"{where}.{name}[{number}]", ignored)
                if isinstance(item, dict)
                else item
                for number, item in enumerate(items)
            ]
    return known


def add_ignored_fields(acknowledgement: bytes, ignored: tuple[str, ...]) -> bytes:
    """Add the ignored keys to a `subscribe_ack`."""
    message = msgspec.json.decode(acknowledgement)
    if message["type"] == "subscribe_ack":  # a resume with the same id has no payload for them
        message["payload"]["ignored"] = ignored
    return encode(message)
