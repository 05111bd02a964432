"""Client messages: valid ones are decoded, all others are errors with a code."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from vedette.gateway.server.outbound import text_frame
from vedette.gateway.wire.broker_link import StreamEvent, decode_batch, encode_batch
from vedette.gateway.wire.messages import (
    MESSAGE_TYPES,
    MessageError,
    decode_message,
    decode_params,
    encode_message,
    to_wire,
)

SAMPLES: dict[str, dict[str, Any]] = {
    "auth": {"token": "t", "database": "d", "version": 1},
    "subscribe": {"watch": "WATCH t: T RETURN t", "params": {"k": [1, "x", None]}},
    "unsubscribe": {"id": "s"},
    "resume": {"token": "t", "lastSeq": {"0": 7}},
    "execute": {"statement": "MATCH t: T RETURN t"},
    "define": {"ontology": "node T { n: Int }"},
    "ack": {"partition": 0, "seq": 3},
    "nack": {"deliveryId": "d", "retry": False},
    "extend": {"deliveryId": "d", "by": 1000},
    "manage": {"subId": "s", "operation": "pause"},
    "heartbeat": {},
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def test_every_type_has_a_sample():
    assert set(SAMPLES) == set(MESSAGE_TYPES)


@pytest.mark.parametrize("type", sorted(SAMPLES))
def test_extra_keys_are_ignored_and_fields_arrive(type: str):
    payload = SAMPLES[type]
    text = json.dumps({"type": type, "id": "7", "new": 1, "payload": {**payload, "later": {"x": [1]}}})
    found = decode_message(text)
    assert (found.type, found.id) == (type, "7")
    assert msgspec.to_builtins(found.payload) | payload == msgspec.to_builtins(found.payload)


def test_a_resume_has_its_fields_beside_its_type_or_inside():
    beside = decode_message('{"type": "resume", "token": "t", "lastSeq": 12345}').payload
    inside = decode_message('{"type": "resume", "payload": {"token": "t", "lastSeq": 12345}}').payload
    assert beside == inside
    assert beside.lastSeq == 12345


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_frame"),
        ("[]", "invalid_frame"),
        ("{}", "invalid_frame"),
        ('{"type": 3}', "invalid_frame"),
        ('{"type": "auth", "id": 3}', "invalid_frame"),
        ('{"type": "auth", "id": "%s"}' % ("x" * 300), "invalid_frame"),
        ('{"type": "Auth"}', "unknown_type"),
        ('{"type": "auth", "payload": 3}', "invalid_auth"),
        ('{"type": "execute"}', "invalid_payload"),
        ('{"type": "manage", "payload": {"subId": "s", "operation": "fly"}}', "invalid_payload"),
        ("[" * 100_000, "invalid_frame"),
        ('{"type": "execute", "payload": {"statement": "x", "params": {"a":' + "[" * 5000, "invalid_frame"),
    ],
)
def test_invalid_messages_have_an_error_code(text: str, code: str):
    with pytest.raises(MessageError) as error:
        decode_message(text)
    assert error.value.code == code
    assert len(error.value.text) < 400


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_frame_error(data: bytes):
    with contextlib.suppress(MessageError):
        decode_message(data)


@given(st.sampled_from(sorted(MESSAGE_TYPES)) | st.text(max_size=10), json_values, json_values)
def test_any_json_is_a_message_or_a_frame_error(type: str, payload: Any, id: Any):
    try:
        decode_message(json.dumps({"type": type, "payload": payload, "id": id}))
    except MessageError as error:
        if error.code not in ("invalid_frame", "unknown_type", "invalid_payload", "invalid_auth"):
            raise


@given(st.text(min_size=1, max_size=20), json_values, st.none() | st.text(max_size=10))
def test_messages_are_json_with_the_envelope(type: str, payload: Any, id: str | None):
    found = json.loads(encode_message(type, payload, id))
    assert found["type"] == type
    assert found.get("id") == id
    assert found.get("payload") == payload


def test_timestamps_and_durations_on_the_wire():
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    assert to_wire({"a": [moment], "b": (timedelta(seconds=1.5),)}) == {
        "a": ["2026-01-02T03:04:05.678Z"],
        "b": [1500],
    }
    given = {
        "t": {"type": "timestamp", "value": "2026-01-02T03:04:05.678Z"},
        "d": {"type": "duration", "value": 1500},
    }
    assert decode_params(given) == {"t": moment, "d": timedelta(seconds=1.5)}


@pytest.mark.parametrize(
    "value", [{}, {"type": "timestamp", "value": "soon"}, {"type": "duration", "value": 10**30}]
)
def test_parameters_that_are_objects_are_refused(value: Any):
    with pytest.raises(MessageError):
        decode_params({"p": value})


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 70_000])
def test_text_frames_equal_those_of_websockets(size: int):
    data = b"x" * size
    assert text_frame(data) == Frame(Opcode.TEXT, data).serialize(mask=False)


@given(st.lists(st.tuples(st.integers(0, 2**53), st.binary(max_size=20)), max_size=5))
def test_link_batches_are_decoded_as_encoded(items: list[tuple[int, bytes]]):
    records = [StreamEvent(stream=1, seq=seq, suffix=tail, committed_at=1.5) for seq, tail in items]
    data = encode_batch(records)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert decode_batch(data[4:], from_gateway=False) == records


@given(st.binary(max_size=100), st.booleans())
def test_invalid_link_batches_raise_one_error(data: bytes, from_gateway: bool):
    with contextlib.suppress(msgspec.MsgspecError):
        decode_batch(data, from_gateway=from_gateway)
