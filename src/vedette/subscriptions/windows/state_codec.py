"""The stored form of a windowed subscription's state: a MessagePack map with explicit names and a version.

Spark's state store keeps these bytes (`pipeline.queries.windows`). Values of documents are stored as MessagePack where
it has them. Every other kind of value is an array whose first item is a tag:

    ["int", text]             an integer beyond 64 bits
    ["time", microseconds]    since 1970, UTC
    ["duration", microseconds]             an integer, or an "int" of its own
    ["fraction", numerator, denominator]   an exact sum of floats, both as texts
    ["list", [item, …]]       ["tuple", [item, …]]       ["map", [[key, value], …]]
    ["hashable", kind, [part, …]]          a map or list inside a group key (`hashable_values`)

The definition of the watch is not stored: window and aggregates come from the subscription.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec

from vedette.errors import PipelineError
from vedette.language.functions.comparison import distinct_key, value_of_distinct_key
from vedette.subscriptions.collection_watch import CollectionWatch
from vedette.subscriptions.windows.hashable_values import HashableValue
from vedette.subscriptions.windows.windowed_watch import WindowChange, WindowedState, new_state

__all__ = ["STATE_VERSION", "decode_state", "encode_state"]

STATE_VERSION = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
"""The range of MessagePack's integers."""


class _StoredState(msgspec.Struct, kw_only=True):
    """The fields in their stored form. Fields of type Any hold tagged values."""

    version: int
    window: Any
    """End, whether it is the first window, latest event time, collected events, touched matches."""
    groups: Any
    """Per group its key values, number of rows and accumulators."""
    snapshot_offsets: dict[str, int]
    pending: list[tuple[Any, Any]]
    """Time and change of each waiting change."""
    latest: dict[int, Any]
    recently_changed: Any
    last_groups: Any
    position: int
    late: int
    carried_events: int
    dropped: int


def encode_state(state: WindowedState) -> bytes:
    """Encode the state of a subscription."""
    stored = _StoredState(
        version=STATE_VERSION,
        window=_pack(state.window.export_state()),
        groups=_pack(state.groups.export_state()),
        snapshot_offsets=state.snapshot_offsets,
        pending=[(_pack(at), _pack(tuple(change))) for at, _, change in state.pending],
        latest={partition: _pack(at) for partition, at in state.latest.items()},
        recently_changed=_pack(list(state.recently_changed.items())),
        last_groups=_pack(
            [
                ([value_of_distinct_key(key) for key in identity], row)
                for identity, row in state.last_groups.items()
            ]
        ),
        position=state.position,
        late=state.late,
        carried_events=state.carried_events,
        dropped=state.dropped,
    )
    return msgspec.msgpack.encode(stored)


def decode_state(data: bytes, watch: CollectionWatch, created: datetime) -> WindowedState:
    """Decode the state of a subscription to this watch. Raise PipelineError E6303 for another version."""
    version = msgspec.msgpack.decode(data, type=_Version).version
    if version != STATE_VERSION:
        text = (
            f"the state of a window has version {version}, but this release reads version {STATE_VERSION}: "
            "stop the pipeline and delete the folder `windows` in the data directory"
        )
        raise PipelineError("E6303", text, fields={"version": version})
    stored = msgspec.msgpack.decode(data, type=_StoredState)
    state = new_state(watch, created)
    state.window.import_state(_unpack(stored.window))
    state.groups.import_state(_unpack(stored.groups))
    state.snapshot_offsets = stored.snapshot_offsets
    for at, packed in stored.pending:
        change = WindowChange(*_unpack(packed))
        state.pending.append((_unpack(at), change.offset, change))
    state.latest = {partition: _unpack(at) for partition, at in stored.latest.items()}
    state.recently_changed = dict(_unpack(stored.recently_changed))
    state.last_groups = {
        tuple(distinct_key(value) for value in identity): row for identity, row in _unpack(stored.last_groups)
    }
    state.position, state.late = stored.position, stored.late
    state.carried_events, state.dropped = stored.carried_events, stored.dropped
    return state


class _Version(msgspec.Struct):
    version: int = 0


def _pack(value: Any) -> Any:
    """Convert a value into MessagePack's kinds and tagged arrays."""
    match value:
        case None | bool() | str() | float() | bytes():
            return value
        case int():
            return value if _MIN_INT <= value <= _MAX_INT else ["int", str(value)]
        case datetime():
            return ["time", (value - _EPOCH) // _MICROSECOND]
        case timedelta():
            return ["duration", _pack(value // _MICROSECOND)]  # may exceed 64 bits
        case Fraction():
            return ["fraction", str(value.numerator), str(value.denominator)]
        case HashableValue():  # a named tuple, so it comes before tuples
            return ["hashable", value.kind, [_pack(part) for part in value.parts]]
        case tuple():
            return ["tuple", [_pack(item) for item in value]]
        case list():
            return ["list", [_pack(item) for item in value]]
        case dict():
            return ["map", [[_pack(key), _pack(item)] for key, item in value.items()]]
    raise TypeError(f"a window's state cannot contain {type(value).__name__}")


def _unpack(packed: Any) -> Any:
    if not isinstance(packed, list):
        return packed
    tag, *content = packed
    match tag:
        case "int":
            return int(content[0])
        case "time":
            return _EPOCH + content[0] * _MICROSECOND
        case "duration":
            return _unpack(content[0]) * _MICROSECOND
        case "fraction":
            return Fraction(int(content[0]), int(content[1]))
        case "hashable":
            return HashableValue(content[0], tuple(map(_unpack, content[1])))
        case "tuple":
            return tuple(map(_unpack, content[0]))
        case "list":
            return list(map(_unpack, content[0]))
        case "map":
            return {_unpack(key): _unpack(item) for key, item in content[0]}
    raise ValueError(f"unknown tag {tag!r} in a window's state")
