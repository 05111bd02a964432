"""The send queue: records in order, errors for replies whose flush failed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateway_streams import StreamBench
from vedette.errors import StoreError
from vedette.gateway.streams import send_queue
from vedette.gateway.wire import broker_link as link


@pytest.fixture
def bench() -> StreamBench:
    return StreamBench()


def drained(bench: StreamBench) -> list[Any]:
    return bench.send_queue.drain().get(bench.port, [])


def test_records_leave_the_queue_once_and_in_order(bench: StreamBench):
    client, stream = bench.client(), bench.stream()
    bench.subscriptions.add(client, "s", stream)
    bench.send_queue.reply(client, link.Reply(conn=1, data=b"a"))
    bench.send_queue.publish(stream, stream.append(b'"payload"', {}, 1), committed_at=2.0)
    bench.send_queue.notify(bench.port, link.Notice(conn=1, data=b"n"))
    assert [type(record) for record in drained(bench)] == [link.Reply, link.StreamEvent, link.Notice]
    assert drained(bench) == []


def test_an_event_is_queued_once_per_gateway(bench: StreamBench):
    stream = bench.stream()
    for conn in (1, 2, 3):
        bench.subscriptions.add(bench.client(conn), "s", stream)
    bench.send_queue.publish(stream, stream.append(b'"payload"', {}, 1), committed_at=2.0)
    assert len(drained(bench)) == 1


def test_replies_mark_their_database_for_the_next_flush(bench: StreamBench):
    client = bench.client()
    bench.send_queue.notify(bench.port, link.Notice(conn=1, data=b"n"))
    assert bench.send_queue.take_touched() == set()
    bench.send_queue.reply(client, link.Reply(conn=1, data=b"a"))
    assert bench.send_queue.take_touched() == {bench.tenant}
    assert bench.send_queue.take_touched() == set()


def test_replies_of_a_database_whose_flush_failed_become_errors(bench: StreamBench):
    client = bench.client()
    bench.send_queue.reply(client, link.Reply(conn=1, data=b"a"), "request")
    bench.send_queue.notify(bench.port, link.Notice(conn=1, data=b"n"))
    bench.send_queue.fail_replies(bench.tenant, StoreError("E6002", "disk full"))
    failed, notice = drained(bench)
    assert isinstance(failed, link.RequestFailed)
    assert (failed.id, failed.payload["code"]) == ("request", "E6002")
    assert isinstance(notice, link.Notice)


def test_a_long_replay_is_sent_in_chunks(bench: StreamBench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(send_queue, "REPLAY_CHUNK_BYTES", 300)
    client, stream = bench.client(), bench.stream()
    start = stream.history.last_seq
    seqs = [stream.append(b'"payload"', {"text": "x" * 100}, 1).seq for _ in range(4)]
    bench.send_queue.replay(client, "s", stream, start)
    (chunk,) = drained(bench)
    assert chunk.more
    bench.send_queue.replay(client, "s", stream, chunk.events[-1][0])
    (rest,) = drained(bench)
    found = [seq for seq, _ in (*chunk.events, *rest.events)]
    assert found == seqs[: len(found)]
    assert len(found) > len(chunk.events)


def test_many_bytes_are_sent_before_the_batch_ends(bench: StreamBench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(send_queue, "SEND_THRESHOLD_BYTES", 10)
    client = bench.client()
    found = []
    for size in (9, 1):
        bench.send_queue.reply(client, link.Reply(conn=1, data=b"x" * size))
        found.append(bench.send_queue.is_over_threshold)
    bench.send_queue.drain()
    assert [*found, bench.send_queue.is_over_threshold] == [False, True, False]
