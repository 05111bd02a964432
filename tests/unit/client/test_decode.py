"""Messages of a server as the records and exceptions of an embedded session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from vedette.client.decode import (
    decode_error,
    decode_event,
    decode_notice,
    param_to_wire,
    result_from_wire,
)
from vedette.errors import AnalysisError, FilterError, GatewayError, VedetteError
from vedette.gateway.wire.messages import error_payload
from vedette.queue.reports import Withdrawal


@pytest.mark.parametrize(
    "error",
    [
        AnalysisError("E2001", "Unknown type 'X': try Y", fields={"type": "X"}),
        FilterError("E1201", "filters[0]: no", fields={"index": 0}),
    ],
)
def test_an_error_of_the_engine_keeps_its_class_code_text_and_fields(error: VedetteError):
    found = decode_error(error_payload(error))
    assert (type(found), found.code, found.text, found.fields) == (
        type(error),
        error.code,
        error.text,
        error.fields,
    )


def test_an_error_of_the_gateway_has_a_code_of_its_own():
    refused = decode_error({"code": "unauthorized", "message": "invalid token"})
    assert (type(refused), refused.code) == (GatewayError, "E4001")
    assert decode_error({"code": "busy", "message": "x"}).retryable
    assert decode_error({"code": "anything", "message": "x"}).code == "E4003"


def test_a_withdrawn_delivery_is_a_notice():
    notice = decode_notice(error_payload(Withdrawal("d1", "t1")))
    assert isinstance(notice, Withdrawal)
    assert notice.delivery_id == "d1"


def test_an_event_of_a_filter_has_the_document_as_its_match():
    delta = {"type": "create", "reason": "enter", "id": "T/1", "document": {"n": 1}}
    event = decode_event({"seq": 7, "prevSeq": 6, "lsn": 3, "delta": delta}, now=0.0)
    assert (event.type, event.tick, event.position, event.match) == ("create", 3, 7, {"n": 1})
    assert event.attributes["delta"] == delta


def test_a_delivery_has_its_attempt_and_its_arrival():
    payload = {"type": "added", "tick": 3, "position": 1, "match": {}, "delivery_id": "d", "attempt": 2}
    event = decode_event({"seq": 7, "lsn": 3, "payload": payload}, now=12.5)
    assert (event.delivery_id, event.attributes["attempt"], event.attributes["arrived"]) == ("d", 2, 12.5)


def test_a_window_has_its_bounds_and_inner_events():
    inner = {"type": "added", "tick": 3, "position": 1, "match": {"n": 1}}
    payload = {
        "type": "window",
        "tick": 3,
        "position": 2,
        "window_start": "2026-01-02T03:04:05.000Z",
        "window_end": "2026-01-02T03:04:06.000Z",
        "events": [inner],
        "dropped": 4,
    }
    event = decode_event({"seq": 7, "lsn": 3, "payload": payload}, now=0.0)
    assert event.window_start == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert event.events is not None
    assert (event.events[0].match, event.dropped) == ({"n": 1}, 4)


def test_a_result_keeps_its_rows_and_counts():
    counts = {"created": 1, "modified": 2, "deleted": 3, "linked": 4, "unlinked": 5}
    payload: dict[str, Any] = {"columns": ["a"], "rows": [[1]], "warnings": ["w"], "tick": 9, **counts}
    result = result_from_wire(payload)
    assert (result.columns, result.rows, result.warnings, result.tick) == (("a",), [(1,)], ("w",), 9)
    assert {name: getattr(result, name) for name in counts} == counts


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            {"type": "timestamp", "value": "2026-01-02T03:04:05.000Z"},
        ),
        (timedelta(seconds=2), {"type": "duration", "value": 2000}),
        ((1, [timedelta(0)]), [1, [{"type": "duration", "value": 0}]]),
    ],
)
def test_timestamps_and_durations_keep_their_type_as_parameters(value: object, expected: object):
    assert param_to_wire(value) == expected
