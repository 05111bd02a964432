"""The Python clients against a real server, over a connection that breaks."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.breaking_proxy import BreakingLine
from tests.support.gateway_server import Serving
from vedette.change import Event
from vedette.client import session
from vedette.client.blocking import connect_sync
from vedette.client.session import connect
from vedette.client.watch import RemoteWatch
from vedette.errors import AnalysisError, ConstraintViolation, FilterError, GatewayError, TransactionError
from vedette.gateway.limits import GatewayLimits, ReplayLimits

ONTOLOGY = "node Task { n: Int = 0, at: Timestamp?, span: Duration? }"
WATCH = "WATCH t: Task WHERE t.n > 0 RETURN t.n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data") as server:
        server.vedette.define(ONTOLOGY)
        yield server


async def take(watch: RemoteWatch, count: int) -> list[Event]:
    events = []
    for _ in range(count):
        event = await watch.next(timeout=60)
        assert event is not None
        events.append(event)
    return events


async def verbs(server: Serving) -> None:
    async with connect(server.url) as c:
        watch = await c.watch(WATCH).ready()
        assert (await take(watch, 1))[0].matches == ()
        moment = datetime(2026, 1, 2, tzinfo=UTC)
        text = "SPAWN t: Task { n = $n, at = $at, span = $span }"
        result = await c.execute(text, n=3, at=moment, span=timedelta(seconds=2))
        assert result.created == 1
        (event,) = await take(watch, 1)
        assert (event.type, event.match) == ("added", {"t.n": 3})
        result = await c.execute("MATCH t: Task RETURN t.n, t.at, t.span")
        assert result.columns == ("t.n", "t.at", "t.span")
        assert result.rows == [(3, "2026-01-02T00:00:00.000Z", 2000)]
        results = await c.run("SPAWN t: Task { n = 4 }; MATCH t: Task RETURN COUNT(*)")
        assert results[1].rows == [(2,)]
        with pytest.raises(AnalysisError) as unknown:
            await c.execute("MATCH x: Nothing RETURN x")
        assert unknown.value.code == "E2001"
        with pytest.raises(AnalysisError):
            await c.watch("WATCH x: Nothing RETURN x").ready()
        await watch.cancel()
        assert watch.status == "cancelled"


def run(body: Any, *arguments: Any) -> None:
    asyncio.run(asyncio.wait_for(body(*arguments), 240))


def test_verbs(server: Serving):
    run(verbs, server)


async def documents(server: Serving) -> None:
    async with connect(server.url) as c:
        await c.execute("SPAWN t: Task { n = 1 }")
        with pytest.raises(FilterError, match="unknown field 'filtres'"):
            c.documents("Task", filtres=[])
        watch = await c.documents("Task", filter="doc.n > 0").ready()
        await c.execute("MATCH t: Task SET t.n = 2")
        await c.execute("MATCH t: Task SET t.n = 0")
        initial, update, leave = await take(watch, 3)
        assert [d["n"] for d in initial.matches or ()] == [1]
        assert update.match is not None
        assert (update.type, update.match["n"]) == ("update", 2)
        assert (leave.type, leave.attributes["delta"]["reason"]) == ("delete", "leave")


def test_documents(server: Serving):
    run(documents, server)


async def too_many_documents(server: Serving) -> None:
    with server.vedette.session() as session:
        session.run("BEGIN; " + "SPAWN t: Task { n = 1 }; " * 1001 + "COMMIT")
    async with connect(server.url) as c:
        watch = c.documents("Task")
        with pytest.raises(GatewayError, match="snapshot_limit"):
            await watch.next(timeout=60)
        assert (await c.execute("MATCH t: Task RETURN COUNT(*)")).rows == [(1001,)]
        assert server.on_loop(lambda: server.service.router.subscriptions) == 0, (
            "and nothing is sent any more"
        )


def test_a_watch_whose_snapshot_fails_is_ended(server: Serving):
    run(too_many_documents, server)


async def over_a_breaking_line(server: Serving, seed: int) -> None:
    """The connection breaks at any byte: each event arrives once, in order, and without resync within the window."""
    random = Random(seed)
    async with (
        connect(server.url) as writer,
        BreakingLine(server.port) as line,
        connect(line.url, random=Random(seed)) as c,
    ):
        watch = await c.watch(WATCH).ready()
        seen: list[Any] = []
        for n in range(1, 61):
            await writer.execute("SPAWN t: Task { n = $n }", n=n)
            if random.random() < 0.15:
                line.budget = random.randrange(1, 900)
        while len(seen) < 61:
            seen += await take(watch, 1)
        assert c.reconnects > 0
    assert seen[0].type == "initial"
    assert [event.match["t.n"] for event in seen[1:]] == list(range(1, 61))


@pytest.mark.parametrize("seed", range(6))
def test_broken_connections_lose_and_repeat_no_event(server: Serving, seed: int):
    run(over_a_breaking_line, server, seed)


async def beyond_the_window(server: Serving) -> None:
    async with (
        connect(server.url) as writer,
        BreakingLine(server.port) as line,
        connect(line.url, random=Random(1)) as c,
    ):
        watch = await c.watch(WATCH).ready()
        await take(watch, 1)
        line.target, port = 1, line.target  # no server listens there
        line.cut()
        for n in range(1, 21):
            await writer.execute("SPAWN t: Task { n = $n }", n=n)
        line.target = port
        resync, initial = await take(watch, 2)
        assert (resync.type, resync.attributes["reason"]) == ("resync", "window")
        assert sorted(row["t.n"] for row in initial.matches or ()) == list(range(1, 21))


def test_a_gap_is_reported_as_a_resync_event(tmp_path: Path):
    with Serving(tmp_path / "data", limits=GatewayLimits(window=ReplayLimits(events=5))) as server:
        server.vedette.define(ONTOLOGY)
        run(beyond_the_window, server)


async def nothing_told_yet(server: Serving, options: dict[str, Any], reason: str) -> None:
    """The connection breaks before the first event: missed changes are a gap, too."""
    async with (
        connect(server.url) as writer,
        BreakingLine(server.port) as line,
        connect(line.url, random=Random(1)) as c,
    ):
        watch = await c.watch("WATCH t: Task [initial: none] RETURN t.n", **options).ready()
        line.target, port = 1, line.target
        line.cut()
        for n in range(1, 21):
            await writer.execute("SPAWN t: Task { n = $n }", n=n)
        line.target = port
        (resync,) = await take(watch, 1)
        assert (resync.type, resync.attributes["reason"]) == ("resync", reason)
        await writer.execute("SPAWN t: Task { n = 99 }")
        (event,) = await take(watch, 1)
        assert event.match == {"t.n": 99}


@pytest.mark.parametrize(("options", "reason"), [({}, "window"), ({"exclusive": True}, "connection")])
def test_a_gap_before_the_first_event_is_reported(tmp_path: Path, options: dict[str, Any], reason: str):
    with Serving(tmp_path / "data", limits=GatewayLimits(window=ReplayLimits(events=5))) as server:
        server.vedette.define(ONTOLOGY)
        run(nothing_told_yet, server, options, reason)


async def lost_answers(server: Serving) -> None:
    async with BreakingLine(server.port) as line, connect(line.url) as c:
        line.budget = 10
        with pytest.raises(GatewayError) as lost:
            await c.execute("MATCH t: Task RETURN t")
        assert lost.value.code == "E4002"
        assert (await c.execute("MATCH t: Task RETURN t")).rows == []


def test_a_lost_reply_is_an_error(server: Serving):
    run(lost_answers, server)


async def lost_while_sending(server: Serving, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Returns what the loop reports when the connection breaks while a request is being sent."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    async with connect(server.url) as c:

        async def send_message(*_: object) -> None:
            c._on_disconnect()
            raise GatewayError("E4002", "The connection broke before the message was sent")

        with monkeypatch.context() as patched:
            patched.setattr(session, "send_message", send_message)
            with pytest.raises(GatewayError, match="before the message was sent"):
                await c.execute("MATCH t: Task RETURN t")
        gc.collect()
    return reports


def test_a_connection_that_breaks_while_sending_leaves_no_pending_future(
    server: Serving, monkeypatch: pytest.MonkeyPatch
):
    assert asyncio.run(lost_while_sending(server, monkeypatch)) == []


async def reliable(directory: Path) -> None:
    """Events of a reliable watch across a broken connection and a restart of the server."""
    with Serving(directory) as server:
        server.vedette.define(ONTOLOGY)
        async with connect(server.url) as writer, BreakingLine(server.port) as line:
            async with connect(line.url) as c:
                text = "WATCH t: Task [delivery: reliable] RETURN t.n"
                watch = await c.watch(text).ready()
                handle = watch.handle
                assert handle is not None
                await take(watch, 1)
                for n in range(1, 6):
                    await writer.execute("SPAWN t: Task { n = $n }", n=n)
                first = await take(watch, 3)
                line.cut()
                rest = await take(watch, 2)
                assert [e.match["t.n"] for e in (*first, *rest) if e.match] == [1, 2, 3, 4, 5]
                await watch.ack(rest[0])
                (kept,) = server.vedette.default.watching.committed_index.watches.values()
                while kept.details.cursor is None or kept.details.cursor["confirmed"] < rest[0].position:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # the acks go out again on the new connection
            await writer.execute("SPAWN t: Task { n = 6 }")
    with Serving(directory) as server:
        async with connect(server.url) as c:
            again = await c.attach(handle).ready()
            left: list[int] = []
            while not left or left[-1] != 6:
                left += [e.match["t.n"] for e in await take(again, 1) if e.match]
            assert left == [5, 6], "what was confirmed is gone, the rest is all here"


def test_reliable_watches_survive_breaks_and_restarts(tmp_path: Path):
    run(reliable, tmp_path / "data")


async def slow_reader(server: Serving) -> None:
    """A program that does not read its events does not block other watches."""
    async with connect(server.url) as c:
        watch = await c.watch(WATCH).ready()
        await c.run("BEGIN; " + "SPAWN t: Task { n = 1 }; " * 300 + "COMMIT")
        assert (await c.execute("MATCH t: Task RETURN COUNT(*)")).rows == [(300,)]
        assert len(await take(watch, 301)) == 301


def test_a_slow_reader(server: Serving):
    run(slow_reader, server)


async def refused(port: int) -> None:
    with pytest.raises(GatewayError) as error:
        async with connect(f"ws://127.0.0.1:{port}", timeout=0.3):
            pass
    assert error.value.code == "E4002"
    assert "ConnectionRefusedError" in str(error.value), "it says why"
    with pytest.raises(GatewayError) as wrong:
        connect("http://127.0.0.1")
    assert wrong.value.code == "E4003"


def test_connecting_to_a_missing_server_times_out_with_the_reason():
    run(refused, 1)


async def bad_token(server: Serving) -> None:
    with pytest.raises(GatewayError) as error:
        async with connect(server.url, token="nonsense"):
            pass
    assert error.value.code == "E4001"


def test_a_bad_token_is_final(tmp_path: Path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"kty": "oct", "k": "A" * 43}]}))
    with Serving(tmp_path / "data", auth_keys=str(keys)) as server:
        run(bad_token, server)


def test_the_blocking_client(server: Serving):
    with connect_sync(server.url) as c:
        watch = c.watch(WATCH)
        assert c.execute("SPAWN t: Task { n = 1 }").created == 1
        first, second = watch.next(timeout=60), watch.next(timeout=60)
        assert first is not None
        assert second is not None
        assert (first.type, second.match) == ("initial", {"t.n": 1})
        assert watch.next(timeout=0.05) is None
        with pytest.raises(AnalysisError):
            c.watch("WATCH x: Nothing RETURN x")
        c.define("node Named { name: String [required] }")
        with pytest.raises(ConstraintViolation):
            c.execute("SPAWN x: Named { }")
        watch.cancel()
        assert watch.next(timeout=1) is None
    with pytest.raises(TransactionError, match="E5007"):  # as inside a program
        c.execute("MATCH t: Task RETURN t")
