"""Replay windows survive a graceful stop: clients resume at the next server."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.gateway_server import Serving
from tests.support.gateway_wire import Client, Wire
from vedette.client.sequence import SequenceCheck, SequenceTracker
from vedette.client.session import connect
from vedette.engine.data_directory import open_vedette
from vedette.gateway.broker.window_file import FILE
from vedette.testing import ManualClock

ONTOLOGY = "node Task { n: Int = 0 }"
ASKED: dict[str, dict[str, Any]] = {
    "watch": {"watch": "WATCH t: Task WHERE t.n > $low [initial: none] RETURN t.n", "params": {"low": 0}},
    "full": {"watch": "WATCH t: Task RETURN t.n"},
    "count": {"watch": "WATCH t: Task RETURN COUNT(*) AS many"},
    "filter": {"collection": "Task", "filter": "doc.n > 0", "includeData": True},
    "list": {
        "query": {"collection": "Task", "filters": [{"field": "n", "op": ">", "value": 0}]},
        "includeData": True,
    },
}


def opened(place: Path, clock: ManualClock) -> Wire:
    return Wire(str(place), clock=clock)


def events(client: Client) -> list[dict[str, Any]]:
    return [m["payload"] for m in client.all() if m["type"] == "event"]


def write(wire: Wire, *numbers: int) -> None:
    writer = wire.client()
    for n in numbers:
        writer.execute("SPAWN t: Task { n = $n }", n=n)
    writer.leave()


def begun(place: Path, clock: ManualClock, asked: dict[str, Any]) -> tuple[Wire, Client, str]:
    """A server, a client that listens, and the token it begins with."""
    wire = opened(place, clock)
    wire.client().define(ONTOLOGY)
    client = wire.client()
    client.send("subscribe", asked, id="s")
    messages = client.all()
    tokens = [m["payload"]["resumeToken"] for m in messages if "resumeToken" in m.get("payload", {})]
    return wire, client, tokens[-1]


def resumed(wire: Wire, token: str) -> tuple[Client, dict[str, Any]]:
    client = wire.client()
    client.send("resume", {"token": token}, id="s")
    return client, client.take()


@pytest.mark.parametrize("kind", sorted(ASKED))
@pytest.mark.parametrize("cut", range(4))
def test_a_restart_at_any_position_loses_and_repeats_no_event(tmp_path: Path, kind: str, cut: int):
    clock = ManualClock()
    wire, client, token = begun(tmp_path, clock, ASKED[kind])
    write(wire, 1, 2, 3)
    before = events(client)
    had = before[:cut]
    wire.close()
    clock.advance(20)
    wire = opened(tmp_path, clock)
    write(wire, 4)
    back, ack = resumed(wire, had[-1]["resumeToken"] if had else token)
    assert ack["status"] == "ok"
    write(wire, 5)
    came = events(back)
    whole = [*before, *came[3 - cut :]]
    assert [*had, *came] == whole, "the same events as without a restart"
    if "payload" in whole[0]:
        positions = [event["payload"]["position"] for event in whole]
        assert positions == list(range(positions[0], positions[0] + 5))
    chain = SequenceTracker()
    assert [chain.check(event) for event in whole] == [SequenceCheck.NEXT] * 5
    assert not (tmp_path / FILE).exists(), "it was good for one time"
    wire.close()


def altered_file(place: Path, change: Callable[[bytes], bytes]) -> None:
    (place / FILE).write_bytes(change((place / FILE).read_bytes()))


def other_version(data: bytes) -> bytes:
    saved = msgspec.msgpack.decode(data)
    return msgspec.msgpack.encode({**saved, "version": saved["version"] + 1})


def another_program_commits(place: Path, _: ManualClock) -> None:
    with open_vedette(str(place), environment={}, manage_gc=False) as home, home.session() as session:
        session.execute("SPAWN t: Task { n = 9 }")


def another_program_defines(place: Path, _: ManualClock) -> None:
    with open_vedette(str(place), environment={}, manage_gc=False) as home:
        home.define("node Other { n: Int }")


DOUBTS: dict[str, Callable[[Path, ManualClock], None]] = {
    "another program commits": another_program_commits,
    "another program defines": another_program_defines,
    "the file is gone, as after a crash": lambda place, _: (place / FILE).unlink(),
    "the file is damaged": lambda place, _: altered_file(place, lambda data: data[:-3]),
    "the file is garbage": lambda place, _: altered_file(place, lambda _: os.urandom(100)),
    "another version": lambda place, _: altered_file(place, other_version),
    "too late": lambda _, clock: clock.advance(181),
}


@pytest.mark.parametrize("doubt", sorted(DOUBTS))
def test_clients_resync_if_the_saved_window_does_not_match(tmp_path: Path, doubt: str):
    clock = ManualClock()
    wire, client, _ = begun(tmp_path, clock, ASKED["watch"])
    write(wire, 1)
    token = events(client)[-1]["resumeToken"]
    wire.close()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    DOUBTS[doubt](tmp_path, clock)
    wire = opened(tmp_path, clock)
    _, ack = resumed(wire, token)
    assert (ack["status"], ack["reason"]) == ("resync-required", "window")
    wire.close()


def test_a_clean_disconnect_saves_no_stream(tmp_path: Path):
    wire, client, _ = begun(tmp_path, ManualClock(), ASKED["watch"])
    client.leave()
    wire.close()
    assert not (tmp_path / FILE).exists()


def test_a_restored_stream_without_clients_is_closed_at_its_deadline(tmp_path: Path):
    clock = ManualClock()
    wire, _, _ = begun(tmp_path, clock, ASKED["watch"])
    wire.close()
    wire = opened(tmp_path, clock)
    assert wire.broker.subscriptions.stream_count == 1
    wire.advance(200)
    assert wire.broker.subscriptions.stream_count == 0
    wire.close()


def test_a_client_resumes_after_a_restart_of_the_server(tmp_path: Path):
    """With real sockets: asked to reconnect, the client resumes at the next server without gap or resync."""

    async def scenario() -> list[tuple[str, Any]]:
        first = Serving(tmp_path / "data")
        await asyncio.to_thread(first.__enter__)
        first.vedette.define(ONTOLOGY)
        async with connect(first.url) as client:
            watch = await client.watch("WATCH t: Task [initial: none] RETURN t.n").ready()
            await client.execute("SPAWN t: Task { n = 1 }")
            delivered = [await watch.next(timeout=60)]
            await asyncio.to_thread(first.stop)
            second = Serving(tmp_path / "data")
            second.port = first.port
            await asyncio.to_thread(second.__enter__)
            with second.vedette.session() as session:
                await asyncio.to_thread(session.execute, "SPAWN t: Task { n = 2 }")
            delivered += [await watch.next(timeout=60)]
            await client.execute("SPAWN t: Task { n = 3 }")
            delivered += [await watch.next(timeout=60)]
        await asyncio.to_thread(second.stop)
        return [(event.type, event.match) for event in delivered if event is not None]

    delivered = asyncio.run(scenario())
    assert delivered == [("added", {"t.n": 1}), ("added", {"t.n": 2}), ("added", {"t.n": 3})]
