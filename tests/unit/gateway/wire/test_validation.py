"""Client messages as broker requests: what the types of the messages cannot express."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from vedette.gateway.wire import validation
from vedette.gateway.wire.messages import Message, MessageError, decode_message


def message(type: str, payload: dict[str, Any], id: str | None = "i") -> Message:
    return decode_message(json.dumps({"type": type, "id": id, "payload": payload}))


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({}, "exactly one of watch, attach, query and collection is required"),
        ({"watch": "WATCH t: T RETURN t", "collection": "T"}, "exactly one of"),
        ({"collection": "T", "prefetch": -1}, "prefetch must be between 0 and 100000"),
        ({"collection": "T", "maxUnacked": 0}, "maxUnacked must be between 1 and 100000"),
    ],
)
def test_a_subscription_has_one_target_and_sensible_numbers(payload: dict[str, Any], text: str):
    with pytest.raises(MessageError, match=text) as failed:
        validation.check_subscribe(message("subscribe", payload))
    assert failed.value.code == "invalid_payload"


def test_a_subscription_needs_an_id():
    with pytest.raises(MessageError, match="the message needs an id"):
        validation.check_subscribe(message("subscribe", {"collection": "T"}, id=None))


def test_unknown_keys_are_dropped_and_named():
    query = {"collection": "T", "filers": [], "filters": [{"field": "n", "op": "==", "value": 1, "x": 2}]}
    payload, ignored = validation.check_subscribe(message("subscribe", {"query": query, "prority": "low"}))
    assert payload.query == {"collection": "T", "filters": [{"field": "n", "op": "==", "value": 1}]}
    assert ignored == ("prority", "query.filers", "query.filters[0].x")


def test_ignored_keys_are_added_to_the_acknowledgement():
    ack = b'{"type":"subscribe_ack","payload":{"subId":"s"}}'
    added = msgspec.json.decode(validation.add_ignored_fields(ack, ("x",)))
    assert added["payload"] == {"subId": "s", "ignored": ["x"]}
    resumed = b'{"type":"resume-ack","subId":"s"}'
    assert msgspec.json.decode(validation.add_ignored_fields(resumed, ("x",))) == msgspec.json.decode(resumed)


@pytest.mark.parametrize(
    ("last_seq", "expected"), [(None, None), (7, {0: 7}), ({"0": 7, "3": 9}, {0: 7, 3: 9})]
)
def test_the_position_of_a_resume_is_by_partition(last_seq: Any, expected: dict[int, int] | None):
    request = validation.resume_request(5, message("resume", {"token": "t", "lastSeq": last_seq}))
    assert (request.conn, request.sub_id, request.last_seq) == (5, "i", expected)


@pytest.mark.parametrize("last_seq", [2**63, {"x": 1}, {"-1": 1}, {"0": 2**63}])
def test_an_impossible_position_is_refused(last_seq: Any):
    with pytest.raises(MessageError):
        validation.resume_request(5, message("resume", {"token": "t", "lastSeq": last_seq}))


def test_a_delivery_is_settled_with_its_span():
    nack = validation.settle_request(5, message("nack", {"deliveryId": "d", "delay": 50, "retry": False}))
    assert (nack.operation, nack.milliseconds, nack.retry) == ("nack", 50, False)
    extend = validation.settle_request(5, message("extend", {"deliveryId": "d", "by": 9}))
    assert (extend.operation, extend.milliseconds) == ("extend", 9)
    with pytest.raises(MessageError, match="the duration is out of range"):
        validation.settle_request(5, message("nack", {"deliveryId": "d", "delay": -1}))


def test_a_pull_has_a_positive_limit():
    pull = {"subId": "s", "operation": "pull"}
    assert validation.manage_request(5, message("manage", {**pull, "limit": 3})).limit == 3
    with pytest.raises(MessageError, match="limit must be between 1 and 100000"):
        validation.manage_request(5, message("manage", {**pull, "limit": 0}))
