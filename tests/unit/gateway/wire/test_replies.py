"""Replies of the broker: results, acknowledgements, snapshots and deltas."""

from __future__ import annotations

import msgspec
import pytest

from vedette.engine.context.result import Result
from vedette.filters.collection_query import parse_query
from vedette.filters.limits import DEFAULT_FILTER_LIMITS
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import MessageError
from vedette.gateway.wire.replies import (
    delta_payload,
    is_larger_than,
    result_message,
    resume_ack,
    settle_statement,
    snapshot_message,
    subscribe_ack,
)

ROWS = Result(columns=("a", "b"), rows=[("x" * 10, 1), ("y" * 10, {"k": ["z" * 10]})])


def test_a_result_above_the_limit_is_refused_with_advice():
    data = result_message(ROWS, "i", 200)
    assert msgspec.json.decode(data)["payload"]["rows"] == [["x" * 10, 1], ["y" * 10, {"k": ["z" * 10]}]]
    with pytest.raises(MessageError, match="has more than 20 bytes: use LIMIT or return fewer columns"):
        result_message(ROWS, "i", 20)
    written = Result(columns=("a",), rows=[("x" * 30,)])
    written.created = 1
    with pytest.raises(MessageError, match="the statement was executed"):
        result_message([written], "i", 20)


def test_the_size_of_a_result_is_estimated_by_its_text():
    assert is_larger_than(ROWS, 20)
    assert not is_larger_than(ROWS, 100)


def test_an_acknowledgement_has_a_token_only_if_the_stream_can_be_resumed():
    with_token = msgspec.json.decode(subscribe_ack("s", 7, "t", host="pipeline"))
    assert with_token["id"] == "s"
    assert with_token["payload"] == {
        "subId": "s",
        "matcherVersion": "mew-1.cel-1",
        "partitions": 1,
        "seq": 7,
        "host": "pipeline",
        "resumeToken": "t",
    }
    assert "resumeToken" not in msgspec.json.decode(subscribe_ack("s", 7, None))["payload"]


def test_a_resume_is_answered_under_the_id_of_its_message():
    assert msgspec.json.decode(resume_ack("s", "i", status="ok", fromSeq=8)) == {
        "id": "i",
        "type": "resume-ack",
        "subId": "s",
        "status": "ok",
        "fromSeq": 8,
    }
    assert "id" not in msgspec.json.decode(resume_ack("s", None, status="ok"))


def test_a_snapshot_that_cannot_be_sent_is_an_error_about_its_subscription():
    query = parse_query({"collection": "T", "filters": []}, DEFAULT_FILTER_LIMITS)
    documents = [{"id": str(n)} for n in range(1001)]
    sent = msgspec.json.decode(snapshot_message("s", query, documents[:2], seq=7, tick=3, token="t"))
    assert (sent["type"], len(sent["payload"]["documents"]), sent["payload"]["lsn"]) == ("snapshot", 2, 3)
    refused = msgspec.json.decode(snapshot_message("s", query, documents, seq=7, tick=3, token="t"))
    assert (refused["type"], refused["payload"]["code"], refused["payload"]["subId"]) == (
        "error",
        "snapshot_limit",
        "s",
    )


def test_a_delta_has_a_document_only_if_one_is_given():
    delta = delta_payload("create", "enter", id="T/1", timestamp_ms=5)
    assert delta == {"type": "create", "reason": "enter", "id": "T/1", "timestamp": 5}
    assert delta_payload("update", "update", id="T/1", timestamp_ms=5, document={})["document"] == {}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (link.SettleDelivery(conn=1, id=None, operation="ack", delivery="d"), "ACK $delivery"),
        (
            link.SettleDelivery(
                conn=1, id=None, operation="nack", delivery="d", retry=False, milliseconds=50
            ),
            "NACK $delivery [no_retry, delay: 50ms]",
        ),
        (
            link.SettleDelivery(conn=1, id=None, operation="extend", delivery="d", milliseconds=9),
            "EXTEND $delivery [by: 9ms]",
        ),
    ],
)
def test_settling_a_delivery_is_a_statement(record: link.SettleDelivery, text: str):
    assert settle_statement(record) == (text, {"delivery": "d"})
