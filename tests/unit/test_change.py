"""The payload of an event."""

from __future__ import annotations

from datetime import UTC, datetime

from vedette.change import Event


def test_payload_has_only_the_fields_of_the_event_type() -> None:
    assert Event(type="added", tick=3, position=7, match={"n": 1}).to_dict() == {
        "type": "added",
        "tick": 3,
        "position": 7,
        "match": {"n": 1},
    }


def test_payload_of_a_window() -> None:
    end = datetime(2026, 1, 1, tzinfo=UTC)
    inner = Event(type="added", tick=1, position=0, match={"n": 1})
    payload = Event(type="window", tick=2, position=5, window_end=end, events=(inner,), dropped=4).to_dict()
    assert payload == {
        "type": "window",
        "tick": 2,
        "position": 5,
        "window_end": end,
        "events": [{"type": "added", "tick": 1, "position": 0, "match": {"n": 1}}],
        "dropped": 4,
    }


def test_additional_attributes_are_not_part_of_the_payload() -> None:
    assert "attempt" not in Event(type="consumed", tick=1, position=1, attributes={"attempt": 2}).to_dict()
