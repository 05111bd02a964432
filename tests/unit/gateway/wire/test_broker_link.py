"""Records between gateways and the broker: their bytes are pinned, and batches are split by size."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.counters import Counters

REQUESTS: list[Any] = [
    link.Hello(version=link.LINK_VERSION, secret=b"s", name="worker-1"),
    link.OpenConnection(
        conn=1, id="a", tenant="shop", actor="u1", system=False, claims={"roles": ["x"]}, checksum=True, local=True
    ),
    link.UpdateClaims(conn=1, claims={"level": 3}),
    link.CloseConnection(conn=1, clean=True, may_resume=False),
    link.ExecuteRequest(conn=1, id="e", kind="execute", text="MATCH t: Task RETURN t", params={"n": 1.5}),
    link.SubscribeRequest(conn=1, sub_id="s", payload={"watch": "WATCH t: Task RETURN t", "maxUnacked": 5}),
    link.UnsubscribeRequest(conn=1, id=None, sub_id="s"),
    link.ResumeRequest(conn=1, id="r", sub_id="s", token="t", last_seq={0: 7}),
    link.ReplayRequest(conn=1, sub_id="s", seq=2**40),
    link.AckEvents(conn=1, sub_id=None, seq=9),
    link.SettleDelivery(
        conn=1, id="n", operation="nack", delivery="d1", retry=False, milliseconds=50, cause="c", release=True
    ),
    link.ManageRequest(conn=1, id="m", sub_id="s", operation="alter", options="[buffer: 5]", limit=3),
    link.GatewayStats(
        connections=1, subscriptions=2, outbox_bytes=3, outbox_limit_bytes=4, load=1,
        counters=Counters(opened=5, delivered=6, replays=7, resyncs={"gap": 1}, closed={4000: 2}, refused={"busy": 3}),
    ),
]  # fmt: skip
RECORDS: list[Any] = [
    link.Welcome(version=link.LINK_VERSION),
    link.LinkRejected(reason="no"),
    link.Drain(seconds=5.0),
    link.ConnectionOpened(conn=1, id="a"),
    link.RequestFailed(conn=1, id="e", payload={"code": "E1101"}, close=4102),
    link.Reply(conn=1, data=b"{}"),
    link.Subscribed(
        conn=1, sub_id="s", stream=3, seq=8, messages=[b"a", b"b"], event_prefix=b"p", credit_based=True,
        replay_follows=True,
    ),
    link.Notice(conn=1, data=b"n"),
    link.Unsubscribed(conn=1, sub_id="s", data=None),
    link.StreamEvent(stream=3, seq=9, suffix=b"x", committed_at=1.5),
    link.ReplayedEvents(conn=1, sub_id="s", events=[(9, b"x")], more=True),
    link.ResyncRequired(conn=1, sub_id="s", reason="window"),
    link.StreamEnded(stream=3, payload={"status": "ended"}),
]  # fmt: skip
GOLDEN_REQUESTS = (
    b"\x00\x00\x01\xbc\x9d\x94\xa5hello\x04\xc4\x01s\xa8worker-1\x99\xafopen_connection\x01"
    b"\xa1a\xa4shop\xa2u1\xc2\x81\xa5roles\x91\xa1x\xc3\xc3\x93\xadupdate_claims\x01\x81\xa5l"
    b"evel\x03\x94\xb0close_connection\x01\xc3\xc2\x96\xafexecute_request\x01\xa1e\xa7execute"
    b"\xb6MATCH t: Task RETURN t\x81\xa1n\xcb?\xf8\x00\x00\x00\x00\x00\x00\x94\xb1subscribe_r"
    b"equest\x01\xa1s\x82\xa5watch\xb6WATCH t: Task RETURN t\xaamaxUnacked\x05\x94\xb3unsubsc"
    b"ribe_request\x01\xc0\xa1s\x96\xaeresume_request\x01\xa1r\xa1s\xa1t\x81\x00\x07\x94\xaer"
    b"eplay_request\x01\xa1s\xcf\x00\x00\x01\x00\x00\x00\x00\x00\x94\xaaack_events\x01\xc0\t"
    b"\x99\xafsettle_delivery\x01\xa1n\xa4nack\xa2d1\xc22\xa1c\xc3\x97\xaemanage_request\x01"
    b"\xa1m\xa1s\xa5alter\xab[buffer: 5]\x03\x97\xadgateway_stats\x01\x02\x03\x04\x01\x97\x05"
    b"\x06\x07\x81\xa3gap\x01\x81\xcd\x0f\xa0\x02\x81\xa4busy\x03\x80"
)
GOLDEN_RECORDS = (
    b"\x00\x00\x01\x1b\x9d\x92\xa7welcome\x04\x92\xadlink_rejected\xa2no\x92\xa5drain\xcb@"
    b"\x14\x00\x00\x00\x00\x00\x00\x93\xb1connection_opened\x01\xa1a\x95\xaerequest_failed"
    b"\x01\xa1e\x81\xa4code\xa5E1101\xcd\x10\x06\x93\xa5reply\x01\xc4\x02{}\x99\xaasubscribed"
    b"\x01\xa1s\x03\x08\x92\xc4\x01a\xc4\x01b\xc4\x01p\xc3\xc3\x93\xa6notice\x01\xc4\x01n\x94"
    b"\xacunsubscribed\x01\xa1s\xc0\x95\xacstream_event\x03\t\xc4\x01x\xcb?\xf8\x00\x00\x00"
    b"\x00\x00\x00\x95\xafreplayed_events\x01\xa1s\x91\x92\t\xc4\x01x\xc3\x94\xafresync_requi"
    b"red\x01\xa1s\xa6window\x93\xacstream_ended\x03\x81\xa6status\xa5ended"
)


@pytest.mark.parametrize(
    ("records", "golden", "from_gateway"),
    [(REQUESTS, GOLDEN_REQUESTS, True), (RECORDS, GOLDEN_RECORDS, False)],
)
def test_the_format_is_pinned(records: list[Any], golden: bytes, from_gateway: bool):
    """An engine and its workers may be of different builds. A change of these bytes needs a new LINK_VERSION."""
    frame = link.encode_batch(records)
    assert link.LINK_VERSION == 4
    assert frame == golden
    assert link.decode_batch(frame[4:], from_gateway=from_gateway) == records


def test_the_pinned_examples_contain_every_record():
    assert {type(record) for record in REQUESTS} == {
        link.Hello,
        link.GatewayStats,
        *link.GatewayRequest.__args__,
    }
    assert {type(record) for record in RECORDS} == set(link.BrokerRecord.__args__)


def test_a_batch_above_the_limit_is_split_in_order():
    records = [link.Reply(conn=n, data=b"x" * 100) for n in range(10)]
    frames = link.encode_frames(records, max_bytes=300)
    assert len(frames) > 1
    assert [r for frame in frames for r in link.decode_batch(frame[4:], from_gateway=False)] == records
    assert len(link.encode_frames([link.Reply(conn=1, data=b"x" * 1000)], max_bytes=300)) == 1


def test_the_reply_to_a_request_without_room_names_its_message():
    busy = link.busy_reply(link.SubscribeRequest(conn=1, sub_id="s", payload={}))
    assert isinstance(busy, link.RequestFailed)
    assert (busy.id, busy.payload["code"], busy.payload["retryable"]) == ("s", "busy", True)
    assert link.busy_reply(link.ReplayRequest(conn=1, sub_id="s", seq=1)) == link.ResyncRequired(
        conn=1, sub_id="s", reason="overflow"
    )
    assert link.request_id(link.AckEvents(conn=1, sub_id="s", seq=1)) is None


def test_records_that_free_resources_are_control_records():
    assert link.is_control(link.CloseConnection(conn=1, clean=True, may_resume=False))
    assert link.is_control(link.UpdateClaims(conn=1, claims={}))
    assert not link.is_control(link.AckEvents(conn=1, sub_id=None, seq=1))
