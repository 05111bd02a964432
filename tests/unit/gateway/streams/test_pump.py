"""The stream pump: events of ready watches reach the send queue; a watch that ends or fails ends its streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateway_streams import StreamBench
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.watch_stream import WatchStream
from vedette.gateway.wire import broker_link as link

WATCH = "WATCH t: Task [initial: none] RETURN t.n"


def subscribed(bench: StreamBench) -> WatchStream:
    """Open a shared stream with one subscriber."""
    bench.catalog.define("node Task { n: Int, text: String? }")
    stream_id = bench.subscriptions.new_stream_id()
    stream = bench.tenant.open_shared_stream(stream_id, b"k" * 16, None, WATCH, {})
    stream.feed.take()
    stream.feed.listen(stream.mark_ready)
    bench.subscriptions.add(bench.client(), "s", stream)
    return stream


def written(bench: StreamBench, n: int) -> None:
    with bench.catalog.session() as session:
        session.execute("SPAWN t: Task { n = $n }", n=n)


def sent(bench: StreamBench) -> list[Any]:
    return bench.send_queue.drain().get(bench.port, [])


def test_a_commit_wakes_the_engine_thread_and_its_event_is_published():
    bench = StreamBench()
    stream = subscribed(bench)
    written(bench, 1)
    assert bench.woken == 1
    bench.pump.flush()
    (event,) = sent(bench)
    assert isinstance(event, link.StreamEvent)
    assert (event.stream, event.seq, bench.pump.events) == (stream.stream_id, stream.history.last_seq, 1)
    bench.pump.flush()
    assert sent(bench) == []


def test_a_cancelled_watch_ends_its_stream():
    bench = StreamBench()
    stream = subscribed(bench)
    stream.feed.cancel()
    stream.mark_ready()
    bench.pump.flush()
    (ended,) = sent(bench)
    assert isinstance(ended, link.StreamEnded)
    assert (ended.payload["status"], ended.payload["reason"]) == ("ended", "cancelled")
    assert bench.subscriptions.count == bench.subscriptions.stream_count == 0


def test_a_failing_stream_is_ended_and_others_continue(monkeypatch: pytest.MonkeyPatch):
    bench = StreamBench()
    subscribed(bench)

    def fail(*_: object) -> None:
        raise RuntimeError("secret internals")

    written(bench, 1)
    monkeypatch.setattr(WatchStream, "append_event", fail)
    bench.pump.flush()
    (ended,) = sent(bench)
    assert ended.payload["reason"] == "internal"
    assert "secret" not in str(ended)


def test_an_event_above_the_message_limit_ends_its_stream():
    bench = StreamBench(GatewayLimits(max_answer_bytes=100))
    subscribed(bench)
    written(bench, 1)
    bench.pump.flush()
    (ended,) = sent(bench)
    assert ended.payload["reason"] == "too_large"
    assert ended.payload["errors"][0]["fields"] == {"limit": 100}
