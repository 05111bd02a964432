"""Windows over a collection and windows in the engine send the same events for the same changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import vedette
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterInput
from vedette.subscriptions.collection_watch import CollectionWatch, parse_collection_watch
from vedette.subscriptions.windows.state_codec import decode_state, encode_state
from vedette.subscriptions.windows.windowed_watch import (
    WindowChange,
    WindowedWatch,
    WindowEvent,
    window_ends_between,
)
from vedette.testing import ManualClock
from vedette.values import timestamp_from_ms, timestamp_to_ms

KEYS = ("x", "y", "z")
STATEMENTS = (
    "WATCH n: N [window: tumbling(10s), initial: none] RETURN n.k, n.a",
    "WATCH n: N WHERE n.a > 1 [window: sliding(10s, 4s), initial: none] RETURN n.k, n.a",
    "WATCH n: N [window: sliding(2s, 5s), initial: none] RETURN n.k",
    "WATCH n: N WHERE n.a > 0 [window: tumbling(5s)] RETURN COUNT(*) AS n, SUM(n.a) AS total, MIN(n.a), AVG(n.a)",
    "WATCH n: N [window: tumbling(5s)] RETURN n.g, COUNT(n WHERE n.a > 1) AS large, MAX(n.a), COUNT(DISTINCT n.a)",
    "WATCH n: N [window: sliding(10s, 3s)] RETURN COUNT(*) AS recent, SUM(n.a) AS total",
    "WATCH n: N [window: sliding(7s, 3s)] RETURN n.g, COUNT(n.a)",
    "WATCH n: N [window: sliding(7s, 3s)] RETURN COUNT(n) AS n, COUNT(n WHERE n.a > 1) AS large",
    "WATCH n: N [window: sliding(7s, 3s)] RETURN COUNT(n WHERE n.a > 1) AS large, SUM(n.a WHERE n.a > 0) AS total",
    "WATCH n: N | M [window: tumbling(5s), initial: none] RETURN n.k, n.a",
    "WATCH n: N | M WHERE n.a > 0 [window: tumbling(5s)] RETURN n.g, COUNT(*) AS n, COLLECT(n.k)[limit: 5] AS keys",
    "WATCH n: N | M [window: sliding(10s, 3s)] RETURN SUM(n.a) AS total, COLLECT(DISTINCT n.a)[limit: 9] AS values",
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from(KEYS), st.none() | st.integers(0, 3), st.sampled_from(["g", "h"])
        ),
        st.tuples(st.just("drop"), st.sampled_from(KEYS)),
        st.tuples(st.just("wait"), st.sampled_from([1, 2, 5, 11])),
    ),
    max_size=25,
)


class BothHosts:
    """An engine and a windowed watch of the pipeline on one clock."""

    def __init__(
        self, db: vedette.Vedette, clock: ManualClock, statement: str, first: dict[str, dict[str, Any]]
    ):
        self.clock, self.offset = clock, 0
        self.union = " | M" in statement
        self.documents: dict[str, dict[str, Any]] = {}
        self.session = db.session()
        for key, document in first.items():
            self.put(key, document)
        self.form = parse_collection_watch(statement)
        self.watch = self.session.watch(statement)
        self.engine: list[dict[str, Any]] = []
        self.pipeline: list[WindowEvent] = []
        self.condition = compile_filter(self.form.condition)
        self.windowed = WindowedWatch(self.form, clock.now())
        if self.form.aggregates:
            for name in ("N", "M"):
                held = [
                    (key, document)
                    for key, document in self.documents.items()
                    if self.type(key) == name and self.matches(key, document)
                ]
                self.windowed.load_snapshot(name, self.offset, held)

    def type(self, key: str) -> str:
        """For a union, the last key is in the other collection."""
        return "M" if self.union and key == KEYS[-1] else "N"

    def matches(self, key: str, document: dict[str, Any] | None) -> bool:
        return document is not None and self.condition.matches(FilterInput(doc=document, id=key))

    def put(self, key: str, document: dict[str, Any]) -> None:
        if key in self.documents:
            self.session.execute(
                f"MATCH n: {self.type(key)} WHERE n.k = $k SET n.a = $a SET n.g = $g", document
            )
        else:
            self.session.execute(f"SPAWN n: {self.type(key)} {{ k = $k, a = $a, g = $g }}", document)
        self.documents[key] = document

    def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("put", key, a, g):
                before, after = self.documents.get(key), {"k": key, "a": a, "g": g}
                self.put(key, after)
                self.change(key, before, after)
            case ("drop", key) if key in self.documents:
                self.session.execute(f"MATCH n: {self.type(key)} WHERE n.k = $k KILL n", {"k": key})
                self.change(key, self.documents.pop(key), None)
            case ("wait", seconds):
                self.clock.advance(seconds)
                self.collect()

    def change(self, key: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        self.offset += 1
        now = timestamp_to_ms(self.clock.now())
        matched = [doc if self.matches(key, doc) else None for doc in (before, after)]
        if before != after and (matched[0] is not None or matched[1] is not None):
            place = (self.offset, KEYS.index(key), now, now)
            self.windowed.apply(WindowChange(*place, self.type(key), key, *matched))

    def collect(self) -> None:
        self.engine += [event.to_dict() for event in self.watch.poll()]
        state = decode_state(encode_state(self.windowed.state), self.form, self.clock.now())
        self.windowed = WindowedWatch(self.form, self.clock.now(), state)
        self.pipeline += self.windowed.advance(self.clock.now())


def unordered(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Sort COLLECT results: the engine returns them in plan order, the pipeline in key order."""
    if row is None:
        return None
    return {
        name: sorted(map(repr, value)) if isinstance(value, list) else value for name, value in row.items()
    }


def shown(event: WindowEvent) -> tuple[Any, ...]:
    rows = sorted(repr(unordered(row)) for row in event.matches or [])
    inner = [(e["type"], e["match"], e.get("prev")) for e in event.events or []]
    return event.type, event.start, event.end, unordered(event.match), unordered(event.prev), rows, inner


def engine_shown(event: dict[str, Any]) -> tuple[Any, ...]:
    rows = sorted(repr(unordered(row)) for row in event.get("matches") or [])
    inner = [(e["type"], e["match"], e.get("prev")) for e in event.get("events") or []]
    start, end = event["window_start"], event["window_end"]
    return event["type"], start, end, unordered(event.get("match")), unordered(event.get("prev")), rows, inner


@pytest.mark.parametrize("statement", STATEMENTS)
@settings(max_examples=20)
@given(first=st.sets(st.sampled_from(KEYS)), steps=STEPS)
@example(first={"x"}, steps=[("put", "x", 2, "h"), ("wait", 11), ("drop", "x"), ("wait", 11), ("wait", 11)])
@example(first=set(), steps=[("wait", 1), ("put", "y", 0, "h"), ("wait", 1), ("put", "y", 0, "g")])
def test_engine_and_pipeline_send_the_same_window_events(
    statement: str, first: set[str], steps: list[tuple[Any, ...]]
):
    clock = ManualClock()
    with vedette.open(":memory:", clock=clock, settings=vedette.Settings(manage_gc=False)) as db:
        db.define("node N { k: String, a: Int?, g: String } node M { k: String, a: Int?, g: String }")
        hosts = BothHosts(db, clock, statement, {key: {"k": key, "a": 1, "g": "g"} for key in sorted(first)})
        for step in [*steps, ("wait", 11)]:
            hosts.do(step)
    ours = sorted(repr(shown(event)) for event in hosts.pipeline)
    theirs = sorted(repr(engine_shown(event)) for event in hosts.engine)
    assert ours == theirs
    positions = [event.position for event in hosts.pipeline]
    assert positions == list(range(1, len(positions) + 1))
    assert hosts.windowed.late == 0


# Sources with their own clocks


def tumbling() -> tuple[CollectionWatch, WindowedWatch]:
    form = parse_collection_watch("WATCH n: N [window: tumbling(10s), initial: none] RETURN n.a")
    return form, WindowedWatch(form, moment(0))


def moment(seconds: float) -> datetime:
    return timestamp_from_ms(round(seconds * 1000))


def change(offset: int, at: float, *, partition: int = 1, appended: float | None = None) -> WindowChange:
    written = at if appended is None else appended
    return WindowChange(
        offset, partition, round(at * 1000), round(written * 1000), "N", f"k{offset}", None, {"a": offset}
    )


def window_contents(events: list[WindowEvent]) -> list[tuple[float, list[int]]]:
    return [
        (timestamp_to_ms(event.end) / 1000, [inner["match"]["n.a"] for inner in event.events or []])
        for event in events
    ]


def test_late_change_is_counted_in_the_next_window():
    _, watch = tumbling()
    watch.apply(change(1, 5))
    assert window_contents(watch.advance(moment(10))) == [(10, [1])]
    watch.apply(change(2, 9, partition=2, appended=12))
    assert watch.late == 1
    assert window_contents(watch.advance(moment(20))) == [(20, [2])]


def test_early_change_waits_for_its_window():
    _, watch = tumbling()
    watch.apply(change(1, 15))
    watch.apply(change(2, 5, partition=2))
    assert window_contents(watch.advance(moment(12))) == [(10, [2])]
    assert window_contents(watch.advance(moment(30))) == [(20, [1])]
    assert watch.late == 0


def test_source_clock_jumps_do_not_reorder_changes():
    _, watch = tumbling()
    watch.apply(change(1, 1000, appended=3))  # one hour ahead: it was recorded at 3
    watch.apply(change(2, 1, appended=4))  # back again: not earlier than the previous change
    assert window_contents(watch.advance(moment(10))) == [(10, [1, 2])]


@given(st.integers(0, 50), st.integers(0, 50), st.sampled_from([3, 7, 10]))
def test_watch_is_due_when_a_window_ends(before: int, more: int, interval: int):
    form = parse_collection_watch(f"WATCH n: N [window: tumbling({interval}s)] RETURN n.a")
    created, now = moment(5), before + more
    ends = [5 + interval * count for count in range(1, 40)]
    due = any(before < end <= now for end in ends)
    assert window_ends_between(form, created, before * 1000, now * 1000) is due
    assert timedelta(0) < form.options.window.interval
