"""Connections of the benchmarks that a server refuses, closes or never answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from socket import create_server
from typing import Any

import pytest

from benchmarks.gateway import swarm
from benchmarks.gateway.connections import ConnectionProcess
from benchmarks.gateway.load import Load
from benchmarks.gateway.swarm import ConnectionRefused, closed_by_server, connect_swarm
from benchmarks.waiting import WaitTimeoutError

ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
CLOSE = bytes((0x88, 6)) + (4503).to_bytes(2, "big") + b"full"


@asynccontextmanager
async def server(answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> Any:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            writer.close()
            handled.set()

    handled = asyncio.Event()
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]
        await asyncio.wait_for(handled.wait(), 60)
        await asyncio.sleep(0)


async def refuse(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def close_later(writer: asyncio.StreamWriter) -> None:
    writer.write(ACCEPTED + CLOSE)


async def say_nothing(writer: asyncio.StreamWriter) -> None:
    pass


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(refuse, "answered 'HTTP/1.1 503 Service Unavailable'"), (hang_up, "the connection was closed")],
)
def test_a_refused_connection_is_an_error(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]], reason: str
) -> None:
    async def run() -> None:
        async with server(answer) as port:
            with pytest.raises(ConnectionRefused, match=reason):
                await connect_swarm(port, 3, lambda *_: None)

    asyncio.run(run())


def test_a_port_without_a_server_is_an_error() -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionRefused, match=r"connection 0: .*Connect"):
        asyncio.run(connect_swarm(port, 1, lambda *_: None))


def test_a_server_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "JOIN_SECONDS", 0.1)

    async def run() -> None:
        async with server(say_nothing) as port:
            with pytest.raises(WaitTimeoutError, match="connection 0: not within"):
                await connect_swarm(port, 1, lambda *_: None)

    asyncio.run(run())


def test_a_connection_that_is_closed_later_fails_the_subscriptions() -> None:
    async def run() -> None:
        async with server(close_later) as port:
            load = Load(port=port, pids=[], connections=2, events_per_second=0, seconds=0)
            clients = await connect_swarm(port, 2, load.heard)
            with pytest.raises(ConnectionRefused, match=r"0 of 2 subscribed; .* with code 4503 full"):
                await load.subscribe(clients, own=True)
            assert closed_by_server(clients).startswith("2 connections ended; connection 0:")

    asyncio.run(run())


def test_a_process_reports_the_refused_connection() -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.gateway.connection_child", str(port), "0", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    assert "ConnectionRefused: connection 0" in json.loads(done.stdout)["problem"]


def test_the_case_ends_with_the_reason_of_the_process() -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    member = ConnectionProcess(port, 100, 2)
    with pytest.raises(RuntimeError, match="connections 100 to 101: ConnectionRefused: connection 10"):
        asyncio.run(member.hear("the connections", 60))
    member.process.communicate(timeout=200)
