"""Workers of a real server are stopped or killed repeatedly, or its engine is killed, while clients watch.

Each client has its own watch. At the end it has received every event that was acknowledged to the writer, in order and
once, or a reset: only best-effort watches are reset, and only when the engine was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from benchmarks.gateway.served import served
from vedette.client.session import RemoteSession, connect
from vedette.errors import GatewayError

CLIENTS = 20
Strike = Callable[[Random, Path], bool]


def strike_worker(random: Random, directory: Path) -> bool:
    """Return True if there was a process to kill."""
    marks = sorted(directory.glob("gateway-*.pid"))
    if not marks:
        return False
    with suppress(
        ProcessLookupError, ValueError
    ):  # it has ended already, or has not written its process id yet
        os.kill(int(random.choice(marks).read_text()), random.choice((signal.SIGKILL, signal.SIGTERM)))
        return True
    return False


def strike_engine(_: Random, directory: Path) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(json.loads((directory / "server.json").read_text())["pid"], signal.SIGKILL)
        return True
    return False


class Storm:
    def __init__(self, url: str, directory: Path, seed: int, delivery: str) -> None:
        self._url, self._directory, self._random = url, directory, Random(seed)
        self._text = f"WATCH t: Task WHERE t.k = $k [initial: none, delivery: {delivery}] RETURN t.n"
        self.written: list[list[int]] = [[] for _ in range(CLIENTS)]
        self.received: list[list[int]] = [[] for _ in range(CLIENTS)]
        self.resyncs: list[str] = []
        self.unsure: set[int] = set()
        """Statements whose reply was cut off."""

    async def run(self, strike: Strike, kills: int) -> None:
        async with connect(self._url, random=Random(0)) as writer:
            await writer.define("node Task { k: Int, n: Int }")
            standing = [asyncio.Event() for _ in range(CLIENTS)]
            listening = [asyncio.create_task(self._listen(k, standing[k])) for k in range(CLIENTS)]
            await asyncio.gather(*(each.wait() for each in standing))
            await self._write(writer, strike, kills)
            while not self._settled():  # noqa: ASYNC110 - events arrive from many places
                await asyncio.sleep(0.1)
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)

    def _settled(self) -> bool:
        missing = [k for k in range(CLIENTS) if not set(self.written[k]) <= set(self.received[k])]
        return not missing or bool(self.resyncs)

    async def _listen(self, k: int, standing: asyncio.Event) -> None:
        async with connect(self._url, random=Random(k)) as session:
            watch = await session.watch(self._text, k=k).ready()
            standing.set()
            while (event := await watch.next()) is not None:
                if event.type == "resync":
                    self.resyncs.append(event.attributes["reason"])
                else:
                    assert event.match is not None
                    self.received[k].append(event.match["t.n"])

    async def _write(self, writer: RemoteSession, strike: Strike, kills: int) -> None:
        number = 0
        while kills:
            for _ in range(self._random.randrange(20, 80)):
                number += 1
                k = self._random.randrange(CLIENTS)
                try:
                    await writer.execute("SPAWN t: Task { k = $k, n = $n }", k=k, n=number)
                    self.written[k].append(number)
                except GatewayError:
                    self.unsure.add(number)
            kills -= strike(self._random, self._directory)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("strike", "kills", "delivery", "may_restart"),
    [
        (strike_worker, 8, "best_effort", False),
        (strike_worker, 8, "reliable", False),
        (strike_engine, 3, "reliable", False),
        (strike_engine, 3, "best_effort", True),
    ],
)
def test_clients_receive_every_event_once_or_a_reset(
    tmp_path: Path, strike: Strike, kills: int, delivery: str, may_restart: bool, seed: int
):
    with served(tmp_path / "data", workers=2) as (port, _):
        storm = Storm(f"ws://127.0.0.1:{port}", tmp_path / "data", seed, delivery)
        asyncio.run(asyncio.wait_for(storm.run(strike, kills), 500))
    if may_restart:
        assert set(storm.resyncs) == {"window"}
    else:
        assert storm.resyncs == []
    for written, received in zip(storm.written, storm.received, strict=True):
        sure = [n for n in received if n not in storm.unsure]
        assert len(set(received)) == len(received), "once"
        assert sure == (sorted(set(sure)) if may_restart else written)
