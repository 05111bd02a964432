"""The stored state of windows: pinned bytes, and the refusal of another version.

`tests/properties/test_window_values.py` stores and restores the state of random watches after every step.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from vedette.errors import PipelineError
from vedette.subscriptions.collection_watch import parse_collection_watch
from vedette.subscriptions.windows.state_codec import decode_state, encode_state
from vedette.subscriptions.windows.windowed_watch import WindowChange, WindowedState, WindowedWatch
from vedette.values import timestamp_to_ms

NOW = datetime(2024, 1, 1, tzinfo=UTC)
COLLECT_EVENTS = parse_collection_watch("WATCH o: c [window: sliding(3s, 1s)] RETURN o.a", {})
AGGREGATE = parse_collection_watch(
    "WATCH o: c [window: sliding(3s, 1s)] RETURN o.a, COUNT(o), SUM(o.b), MAX(DISTINCT o.b), COLLECT(o.b)[limit: 2]",
    {},
)


def change(offset: int, ms: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> WindowChange:
    time = timestamp_to_ms(NOW) + ms
    return WindowChange(offset, 0, time, time, "c", "k", before, after)


def collecting() -> WindowedState:
    """Two events of the running window, and a change that waits for the end of its window."""
    watch = WindowedWatch(COLLECT_EVENTS, NOW)
    watch.apply(change(1, 100, None, {"a": [1, {"x": timedelta(seconds=1)}]}))
    watch.apply(change(2, 200, {"a": 1}, {"a": 2**80}))
    watch.advance(NOW + timedelta(seconds=1))
    watch.apply(change(3, 1_500, None, {"a": NOW}))
    return watch.state


def aggregating() -> WindowedState:
    """A snapshot, a change, one ended window."""
    watch = WindowedWatch(AGGREGATE, NOW)
    watch.load_snapshot("c", 5, [("k", {"a": {"x": True}, "b": 0.5}), ("l", {"a": 1, "b": float("nan")})])
    watch.apply(change(6, 100, {"a": {"x": True}, "b": 0.5}, {"a": {"x": True}, "b": 3}))
    watch.advance(NOW + timedelta(seconds=1))
    return watch.state


def readable(data: bytes) -> str:
    return json.dumps(msgspec.msgpack.decode(data))


COLLECTING = (
    '{"version": 1, "window": ["tuple", [["time", 1704067202000000], true, ["time", 1704067200200000], ["list"'
    ', [["tuple", [["time", 1704067200100000], 1, "added", ["map", [["o.a", ["list", [1, ["map", [["x", ["dura'
    'tion", 1000000]]]]]]]]], null, ["tuple", ["c", "k"]]]], ["tuple", [["time", 1704067200200000], 2, "change'
    'd", ["map", [["o.a", ["int", "1208925819614629174706176"]]]], ["map", [["o.a", 1]]], ["tuple", ["c", "k"]'
    ']]]]], ["list", []]]], "groups": ["list", []], "snapshot_offsets": {}, "pending": [[["time", 170406720150'
    '0000], ["tuple", [3, 0, 1704067201500, 1704067201500, "c", "k", null, ["map", [["a", ["time", 17040672000'
    '00000]]]]]]]], "latest": {"0": ["time", 1704067201500000]}, "recently_changed": ["list", []], "last_group'
    's": ["list", []], "position": 1, "late": 0, "carried_events": 2, "dropped": 0}'
)
AGGREGATING = (
    '{"version": 1, "window": ["tuple", [["time", 1704067202000000], false, ["time", 1704067200100000], ["list'
    '", []], ["list", [["tuple", [["tuple", ["c", "k"]], ["time", 1704067200100000]]]]]]], "groups": ["list", '
    '[["tuple", [["tuple", [["hashable", "map", [["tuple", ["x", ["hashable", "bool", [true]]]]]]]], 1, ["list'
    '", [1, ["list", [1, 0, ["fraction", "3", "1"], ["list", []]]], ["list", [0, 0, 0, ["list", []]]], ["list"'
    ', [["list", [["tuple", [3, 1]]]], ["list", [["tuple", [3, 1]]]]]], ["list", [["tuple", [["tuple", ["c", "'
    'k"]], 3]]]]]]]], ["tuple", [["tuple", [1]], 1, ["list", [1, ["list", [1, 1, 0, ["list", [["tuple", ["nan"'
    ', 1]]]]]], ["list", [0, 0, 0, ["list", []]]], ["list", [["list", [["tuple", [NaN, 1]]]], ["list", [["tupl'
    'e", [NaN, 1]]]]]], ["list", [["tuple", [["tuple", ["c", "l"]], NaN]]]]]]]]]], "snapshot_offsets": {"c": 5'
    '}, "pending": [], "latest": {"0": ["time", 1704067200100000]}, "recently_changed": ["list", [["tuple", [['
    '"tuple", ["c", "k"]], ["tuple", [["tuple", [["hashable", "map", [["tuple", ["x", ["hashable", "bool", [tr'
    'ue]]]]]]]], ["list", [["tuple", [true, null]], ["tuple", [true, 3]], ["tuple", [false, null]], ["tuple", '
    '[true, 3]], ["tuple", [true, ["tuple", [["tuple", ["c", "k"]], 3]]]]]]]]]]]], "last_groups": ["list", [["'
    'tuple", [["list", [["hashable", "map", [["tuple", ["x", ["hashable", "bool", [true]]]]]]]], ["map", [["o.'
    'a", ["map", [["x", true]]]], ["COUNT", 1], ["SUM", 3], ["MAX", 3], ["COLLECT", ["list", [3]]]]]]]]], "pos'
    'ition": 1, "late": 0, "carried_events": 0, "dropped": 0}'
)


def test_the_stored_form_of_collected_events():
    """A change of it needs a new STATE_VERSION."""
    assert readable(encode_state(collecting())) == COLLECTING


def test_the_stored_form_of_aggregates():
    """A change of it needs a new STATE_VERSION."""
    assert readable(encode_state(aggregating())) == AGGREGATING


@pytest.mark.parametrize(
    ("state", "spec"),
    [(collecting(), COLLECT_EVENTS), (aggregating(), AGGREGATE)],
    ids=["events", "aggregates"],
)
def test_a_restored_state_is_stored_in_the_same_form(state: WindowedState, spec: Any):
    stored = encode_state(state)
    assert encode_state(decode_state(stored, spec, NOW)) == stored


def test_other_version_is_rejected():
    stored = msgspec.msgpack.decode(encode_state(collecting()))
    with pytest.raises(PipelineError, match="version 7, but this release reads version 1") as caught:
        decode_state(msgspec.msgpack.encode({**stored, "version": 7}), COLLECT_EVENTS, NOW)
    assert caught.value.code == "E6303"


def test_a_value_without_a_stored_form_is_an_error():
    state = collecting()
    state.last_groups = {(): {"a": object()}}
    with pytest.raises(TypeError, match="cannot contain object"):
        encode_state(state)
