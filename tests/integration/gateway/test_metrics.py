"""What gateways count, and that `/metrics` shows it (docs/reference/metrics.md)."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gateway_server import Serving
from tests.support.gateway_wire import Client, Wire
from tests.support.paths import DOCS
from vedette.client.session import connect
from vedette.clock import SystemClock
from vedette.console import http_server as timely_module
from vedette.console.metrics import metrics_text, service_metrics
from vedette.gateway.limits import GatewayLimits, ReplayLimits
from vedette.gateway.server.auth import LoopbackAuthenticator
from vedette.gateway.wire.counters import DELAY_BOUNDS, LatencyHistogram
from vedette.gateway.worker import GatewayWorker

WATCH = "WATCH t: Task [initial: none] RETURN t.n"


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire(limits=GatewayLimits(window=ReplayLimits(events=3)))
    wire.client().define("node Task { n: Int = 0, kind: String? }")
    yield wire
    wire.close()


def listening(wire: Wire, **asked: object) -> Client:
    client = wire.client()
    client.send("subscribe", {"watch": WATCH, **asked} if "collection" not in asked else asked, id="s")
    assert client.take()["type"] == "subscribe_ack"
    return client


# Delays


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1_000)), max_size=30))
def test_each_latency_is_counted_in_one_bucket(given: list[tuple[float, int]]):
    whole, halves = LatencyHistogram(), (LatencyHistogram(), LatencyHistogram())
    for number, (seconds, times) in enumerate(given):
        whole.add(seconds, times)
        halves[number % 2].add(seconds, times)
    for place, end in enumerate(DELAY_BOUNDS):
        assert sum(whole.counts[: place + 1]) == sum(times for seconds, times in given if seconds <= end)
    assert sum(whole.counts) == sum(times for _, times in given)
    halves[0].merge(halves[1])
    assert halves[0].counts == whole.counts
    assert halves[0].seconds == pytest.approx(whole.seconds)


def test_latency_is_measured_from_commit_to_receivers(wire: Wire):
    for _ in range(3):
        listening(wire)
    with wire.vedette.session() as session:
        session.execute("SPAWN t: Task")
        wire.clock.advance(0.05)
        wire.run()
    delays = wire.routers[0].counters.delays["default"]
    assert delays.counts[DELAY_BOUNDS.index(0.064)] == 3, "one event, three receivers"
    assert delays.seconds == pytest.approx(0.15)
    assert wire.routers[0].counters.delivered == 3


def test_each_event_of_a_batch_is_counted_per_receiver(wire: Wire):
    """Told at once or one by one: the same numbers."""
    several = wire.client(version=1)
    for name in ("a", "b"):
        several.send("subscribe", {"watch": WATCH}, id=name)
    listening(wire)
    with wire.vedette.session() as session:
        for n in range(3):
            session.execute("SPAWN t: Task { n = $n }", n=n)
    counted = wire.routers[0].counters
    received = [m for m in several.all() if m["type"] == "event"]
    assert counted.delivered == sum(counted.delays["default"].counts) == 6
    assert len(received) == 3


# Counters


def test_resyncs_closes_and_refusals_are_counted_by_reason(wire: Wire):
    tally = wire.routers[0].counters
    held = listening(wire, maxUnacked=1)
    writer = wire.client()
    for n in range(8):
        writer.execute("SPAWN t: Task { n = $n }", n=n)
    first = held.take()["payload"]
    held.send("ack", {"seq": first["seq"]})
    assert held.take()["payload"]["reason"] == "window"
    assert (tally.replays, tally.resyncs) == (1, {"window": 1})
    held.send("nonsense")
    held.send("manage", {"subId": "nobody", "operation": "pause"})
    assert {"unknown_type", "unknown_subscription"} <= tally.refused.keys()
    wire.routers[0].drain()
    assert tally.closed == {4000: len(wire.routers[0].connections)}
    assert tally.opened == 3


def test_filter_candidates_and_matches_are_counted(wire: Wire):
    for kind in ("a", "b", "c"):
        listening(wire, collection="Task", filter=f'doc.kind == "{kind}"')
    listening(wire, collection="Task", filter="doc.n + 1 > 100")
    wire.client().execute('SPAWN t: Task { kind = "a" }')
    counters = wire.broker.tenants["default"].filter_counters
    assert (counters.candidates, counters.matches) == (2, 1), "the index leaves two of four"


# As Prometheus sees it


def sample(text: str, name: str) -> float:
    (found,) = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found)


async def through_a_worker(server: Serving, path: Path) -> str:
    """What `/metrics` of the engine says while a client listens and writes at a worker."""
    worker = GatewayWorker(
        socket=path,
        secret=server.service.secret,
        authenticator=LoopbackAuthenticator(),
        limits=GatewayLimits(),
        clock=SystemClock(),
        name="worker-0",
    )
    port = await worker.start("127.0.0.1", 0)
    async with connect(f"ws://127.0.0.1:{port}") as client:
        await client.define("node Task { n: Int = 0 }")
        watch = await client.watch(WATCH).ready()
        await client.execute("SPAWN t: Task")
        assert await watch.next(timeout=60) is not None
        shown = ""
        while 'vedette_delivered_events_total{gateway="worker-0"} 1.0' not in shown:
            await asyncio.sleep(0.05)
            shown = metrics_text(service_metrics(server.service)).decode()
    await worker.stop(drain_seconds=1)
    return shown


def test_metrics_of_the_engine_include_its_workers(tmp_path: Path):
    with Serving(tmp_path / "data") as server:
        path = tmp_path / "e.sock"
        asyncio.run_coroutine_threadsafe(server.service.links.start(path), server.loop).result(60)
        shown = asyncio.run(asyncio.wait_for(through_a_worker(server, path), 240))
    assert sample(shown, 'vedette_connections{gateway="worker-0"}') == 1
    assert sample(shown, 'vedette_connections{gateway="engine"}') == 0
    assert sample(shown, 'vedette_delivery_seconds_count{gateway="worker-0"}') == 1
    assert 0 < sample(shown, 'vedette_delivery_seconds_sum{gateway="worker-0"}') < 20, "one scale of time"
    assert sample(shown, 'vedette_database_delivery_seconds_bucket{database="default",le="+Inf"}') == 1
    assert sample(shown, 'vedette_lag_commits{database="default"}') == 0


def test_alert_rules_and_dashboard_use_existing_metrics(tmp_path: Path):
    docs = DOCS / "operations"
    with Serving(tmp_path / "data") as server:
        shown = metrics_text(service_metrics(server.service)).decode()
    names = {line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE")}
    for file in ("alerts.yml", "dashboard.json"):
        asked = set(re.findall(r"\bvedette_\w+", (docs / file).read_text()))
        gateway = {name.removesuffix("_bucket") for name in asked if not name.startswith("vedette_pipeline_")}
        assert gateway
        assert gateway <= names, file


# Unread server-sent events


def test_a_stalled_sse_reader_is_bounded_and_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It holds its mark and the socket's own buffers; the others go on; in the end it is closed."""
    monkeypatch.setattr(timely_module, "STALL_SECONDS", 0.3)
    size = 20_000
    with Serving(tmp_path / "data") as server, server.vedette.session() as session:
        server.vedette.define("node Task { text: String }")
        router = server.service.router
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.connect(("127.0.0.1", server.http_port))
            stuck.sendall(
                b"GET /realtime/sse?database=default&collection=Task HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
            assert b"200 OK" in stuck.recv(1_024)
            limit = 0
            while server.on_loop(lambda: len(router.connections)):
                session.execute("SPAWN t: Task { text = $text }", text="x" * size)
                limit = max(limit, server.on_loop(lambda: router.in_process_outbox_bytes))
            high = router.limits.stream_outbox_bytes
            assert high <= limit < high + 2 * size, "full, and no further event was queued"
        assert server.on_loop(lambda: router.in_process_outbox_bytes) == 0
