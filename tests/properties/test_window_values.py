"""Windows over documents with any values close and count correctly."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vedette.sources.images import decode_image, encode_image
from vedette.subscriptions.collection_watch import parse_collection_watch
from vedette.subscriptions.windows import windowed_watch as windowing
from vedette.subscriptions.windows.state_codec import decode_state, encode_state
from vedette.subscriptions.windows.windowed_watch import WindowChange, WindowedWatch, WindowEvent
from vedette.values import timestamp_to_ms

NOW = datetime(2024, 1, 1, tzinfo=UTC)
ODD = [
    0.5, -0.0, float("nan"), float("inf"), 2**63 - 1, -(2**63), 1e308, "x", timedelta(seconds=1),
    timedelta(days=900_000_000), NOW, [1], [{"a": 1}], [{"a": True}], {"a": float("nan")}, {"a": 1}, {},
]  # fmt: skip
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(ODD)
DOCUMENTS = st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2).map(
    lambda document: decode_image(encode_image(document))
)
STEPS = st.lists(
    st.tuples(st.sampled_from("kl"), st.none() | DOCUMENTS, st.integers(0, 4000)), min_size=1, max_size=8
)
RETURNS = st.sampled_from(
    [
        "o", "o.a, o.b", "o.a, COUNT(o)", "o.a, SUM(o.b)", "SUM(o.a), AVG(o.b), MIN(o.a), MAX(o.b)", "o, COUNT(o)",
        "SUM(DISTINCT o.a)", "o.b, COUNT(DISTINCT o.a)", "o.b, COLLECT(o.a)[limit: 3]",
        "COLLECT(DISTINCT o.a)[limit: 3]",
    ]
)  # fmt: skip


def run(returns: str, window: str, steps: list[Any]) -> tuple[list[WindowEvent], dict[str, Any]]:
    """Return the events of the windows and the final state. The state is stored and loaded after each step."""
    form = parse_collection_watch(f"WATCH o: c [window: {window}] RETURN {returns}", {})
    watch, there = WindowedWatch(form, NOW), dict[str, Any]()
    if form.aggregates:
        watch.load_snapshot("c", 0, [])
    events: list[WindowEvent] = []
    for offset, (key, document, ms) in enumerate(steps, 1):
        time = timestamp_to_ms(NOW) + ms
        watch.apply(WindowChange(offset, 0, time, time, "c", key, there.get(key), document))
        there[key] = document
        events += watch.advance(NOW + timedelta(milliseconds=ms))
        watch = WindowedWatch(form, NOW, decode_state(encode_state(watch.state), form, NOW))
    events += watch.advance(NOW + timedelta(seconds=9))
    return events, {key: document for key, document in there.items() if document is not None}


@given(RETURNS, st.sampled_from(["tumbling(1s)", "sliding(3s, 1s)"]), STEPS)
@example("o.a, COUNT(o)", "tumbling(1s)", [("k", {"a": [{"a": 1}]}, 0)])
@example("SUM(o.a)", "tumbling(1s)", [("k", {"a": 1}, 0), ("l", {"a": timedelta(seconds=1)}, 0)])
@example("SUM(o.a)", "tumbling(1s)", [(key, {"a": timedelta(days=900_000_000)}, 0) for key in "kl"])
def test_windows_of_any_values_close(returns: str, window: str, steps: list[Any]):
    for event in run(returns, window, steps)[0]:
        encode_image({"match": event.match, "matches": event.matches, "events": event.events})


@given(STEPS)
@example([("k", {"a": float("nan")}, 0), ("k", None, 1000)])
def test_groups_of_any_values_are_counted(steps: list[Any]):
    events, there = run("o.a, COUNT(o) AS n", "tumbling(1s)", steps)
    end = events[-1].end
    last = [
        row
        for event in events
        if event.end == end and event.type != "removed"
        for row in event.matches or [event.match or {}]
    ]
    counted = {encode_image({"": row["o.a"]}): row["n"] for row in last if row}
    expected = Counter(encode_image({"": _merged(document.get("a"))}) for document in there.values())
    assert {_merged_key(key): count for key, count in counted.items()} == expected


def _merged(value: Any) -> Any:
    """1 and 1.0, 0 and -0.0 are one group."""
    return float(value) + 0.0 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _merged_key(key: bytes) -> bytes:
    return encode_image({"": _merged(decode_image(key)[""])})


def test_sum_uses_numbers_if_present_otherwise_durations():
    steps = [("k", {"a": timedelta(seconds=3)}, 0), ("l", {"a": timedelta(seconds=1)}, 0)]
    (event, *_), _ = run("SUM(o.a) AS s, AVG(o.a) AS m", "tumbling(1s)", steps)
    assert event.matches == [{"s": timedelta(seconds=4), "m": timedelta(seconds=2)}]
    (event, *_), _ = run("SUM(o.a) AS s", "tumbling(1s)", [*steps, ("l", {"a": 5}, 0)])
    assert event.matches == [{"s": 5}]


@pytest.mark.parametrize("window", ["tumbling(1s)", "sliding(3s, 1s)"])
def test_window_event_limit_reports_dropped_count(window: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(windowing, "MAX_WINDOW_EVENTS", 3)
    events, _ = run("o.a", window, [(f"k{n}", {"a": n}, 100) for n in range(5)])
    assert (len(events[0].events or ()), events[0].dropped) == (3, 2)
    assert all(event.dropped == 0 for event in events[1:])


@pytest.mark.parametrize("returns", ["COUNT(o) AS n", "o.a, COLLECT(o.b)[limit: 5]"])
def test_tumbling_aggregate_keeps_no_changes(returns: str):
    """The window may be a day long."""
    form = parse_collection_watch(f"WATCH o: c [window: tumbling(24h)] RETURN {returns}", {})
    watch = WindowedWatch(form, NOW)
    watch.load_snapshot("c", 0, [])
    time = timestamp_to_ms(NOW)
    for offset in range(1, 2_000):
        before = {"a": 1, "b": offset - 1} if offset > 1 else None
        watch.apply(WindowChange(offset, 0, time, time, "c", "k", before, {"a": 1, "b": offset}))
    assert len(encode_state(watch.state)) < 5_000
