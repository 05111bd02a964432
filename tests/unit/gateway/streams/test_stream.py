"""Streams: numbering, encoding, checksums, acknowledgements and subscriber counts."""

from __future__ import annotations

import google_crc32c
import msgspec
import pytest

from tests.support.gateway_streams import StreamBench
from vedette.gateway.streams.stream import EncodedEvent


@pytest.fixture
def bench() -> StreamBench:
    return StreamBench()


def decoded(bench: StreamBench, event: EncodedEvent) -> dict[str, object]:
    """Return the payload of an event as the receiver `s` gets it."""
    data = bench.tenant.event_log.event_prefix + b'"s"' + event.suffix
    payload: dict[str, object] = msgspec.json.decode(data)["payload"]
    return payload


def test_each_event_names_the_seq_before_it(bench: StreamBench):
    stream = bench.stream()
    start = stream.history.last_seq
    first, second = (stream.append(b'"payload"', {"n": n}, 5) for n in range(2))
    assert start < first.seq < second.seq
    assert [decoded(bench, event)["prevSeq"] for event in (first, second)] == [start, first.seq]
    assert decoded(bench, first)["payload"] == {"n": 0}
    assert [event.seq for event in stream.history.events_after(start)] == [first.seq, second.seq]


def test_the_token_of_an_event_is_its_position(bench: StreamBench):
    stream = bench.stream()
    event = stream.append(b'"payload"', {}, 5)
    token = bench.tenant.event_log.verify_token(str(decoded(bench, event)["resumeToken"]))
    assert token is not None
    assert (token.stream_key, token.seqs) == (stream.stream_key, {0: event.seq})


def test_a_checksum_is_added_while_a_subscriber_wants_one(bench: StreamBench):
    stream, client = bench.stream(), bench.client(checksum=True)
    bench.subscriptions.add(client, "s", stream)
    with_checksum = decoded(bench, stream.append(b'"payload"', {"b": 1, "a": 2}, 5))
    canonical = b'{"a":2,"b":1}'
    assert with_checksum["checksum"] == f"{google_crc32c.value(canonical):08x}"
    bench.subscriptions.remove(client, "s", may_resume=True)
    assert "checksum" not in decoded(bench, stream.append(b'"payload"', {}, 5))


def test_the_checksum_is_crc32c():
    assert google_crc32c.value(b"123456789") == 0xE3069283


def test_events_that_all_subscribers_have_are_dropped(bench: StreamBench):
    stream, one, other = bench.stream(), bench.client(1), bench.client(2)
    bench.subscriptions.add(one, "s", stream)
    bench.subscriptions.add(other, "s", stream)
    events = [stream.append(b'"payload"', {}, 5) for _ in range(3)]
    stream.acknowledge(one.address("s"), events[2].seq, 0.0)
    assert len(stream.history.events) == 3, "the other subscriber has not acknowledged"
    stream.acknowledge(other.address("s"), events[1].seq, 0.0)
    assert [event.seq for event in stream.history.events] == [events[2].seq]


def test_acknowledged_events_stay_while_a_client_may_resume(bench: StreamBench):
    stream, client = bench.stream(), bench.client()
    bench.subscriptions.add(client, "s", stream)
    stream.resumable_until = 10.0
    event = stream.append(b'"payload"', {}, 5)
    stream.acknowledge(client.address("s"), event.seq, now=9.0)
    assert len(stream.history.events) == 1
    stream.acknowledge(client.address("s"), event.seq, now=10.0)
    assert not stream.history.events


def test_subscribers_are_counted_by_gateway(bench: StreamBench):
    stream, one, other = bench.stream(), bench.client(1), bench.client(2)
    stream.add_subscriber(one.port, checksum=False)
    stream.add_subscriber(other.port, checksum=False)
    assert (stream.subscriber_count, stream.subscribers_by_port) == (2, {bench.port: 2})
    stream.remove_subscriber(one.address("s"), checksum=False)
    stream.remove_subscriber(other.address("s"), checksum=False)
    assert (stream.subscriber_count, stream.subscribers_by_port) == (0, {})
