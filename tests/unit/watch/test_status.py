"""The life of a watch, as a table: nothing comes back from cancelled."""

from __future__ import annotations

import pytest

from vedette.watch.status import TRANSITIONS, StatusEvent, WatchStatus, next_status

LIFE = [
    ("active", "pause", "paused"),
    ("paused", "pause", "paused"),
    ("paused", "resume", "active"),
    ("active", "resume", "active"),
    ("active", "alter", "active"),
    ("paused", "alter", "paused"),
    ("active", "cancel", "cancelled"),
    ("paused", "cancel", "cancelled"),
    ("cancelled", "cancel", "cancelled"),
    ("active", "overflow", "cancelled"),
    ("paused", "overflow", "cancelled"),
    ("active", "fail", "cancelled"),
    ("paused", "fail", "cancelled"),
    ("cancelled", "pause", None),
    ("cancelled", "resume", None),
    ("cancelled", "alter", None),
    ("cancelled", "overflow", None),
    ("cancelled", "fail", None),
]


@pytest.mark.parametrize(("status", "event", "expected"), LIFE)
def test_where_events_lead(status: str, event: str, expected: str | None):
    assert next_status(WatchStatus(status), StatusEvent(event)) == expected


def test_every_pair_is_accounted_for():
    told = {(status, event) for status, event, _ in LIFE}
    assert told == {(str(status), str(event)) for status in WatchStatus for event in StatusEvent}
    assert {(s, e) for s, e, to in LIFE if to is not None} == {(str(s), str(e)) for s, e in TRANSITIONS}
