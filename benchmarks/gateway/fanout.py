"""One message to many readers as fast as possible: the gateway compared with push-only servers.

A message is published when all readers have received all but the last few. Measured are delivered messages per second,
and per second of the server's CPU time, which does not depend on other load of the machine. The other servers do not
store a message; in Vedette each message is a commit with fsync, and an event from which a reader can resume.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from benchmarks.gateway.pushers import PUSHERS, Pusher, pushing
from benchmarks.gateway.swarm import text_frame
from benchmarks.waiting import wait_until_async

__all__ = ["fan_out", "measure_fan_out"]

_TEXT = "x" * 200
_IN_FLIGHT = 4
_JOIN_SECONDS = 60.0


class _Reader(asyncio.Protocol):
    """Counts frames without decoding them."""

    def __init__(self, race: _Race) -> None:
        self._race = race
        self._buffer = b""
        self.frames = 0
        self.open = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        place, size = 0, len(buffer)
        if not self.open:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = buffer
                return
            self.open, place = True, end + 4
        found = 0
        while size - place >= 4:
            length = buffer[place + 1]
            start = place + 2
            if length == 126:
                length, start = buffer[place + 2] << 8 | buffer[place + 3], place + 4
            if size - start < length:
                break
            place = start + length
            found += 1
        self._buffer = buffer[place:]
        if found:
            self.frames += found
            self._race.delivered(found)


class _Race:
    def __init__(self, pusher: Pusher, readers: int) -> None:
        self._readers = readers
        self._frame = text_frame(pusher.wrapped(_TEXT).encode())
        self._writer: asyncio.Transport | None = None
        self.received = 0
        self.published = 0
        self._due = 0

    def delivered(self, count: int) -> None:
        self.received += count
        while self._writer is not None and self.received >= self._due:
            self.publish()

    def publish(self) -> None:
        assert self._writer is not None
        self.published += 1
        self._due = max(0, self.published - _IN_FLIGHT + 1) * self._readers
        self._writer.write(self._frame)

    async def run(self, writer: asyncio.Transport, seconds: float) -> None:
        self.received, self._writer = 0, writer
        for _ in range(_IN_FLIGHT):
            self.publish()
        await asyncio.sleep(seconds)
        self._writer = None


async def _join(port: int, path: str, says: list[bytes], hears: int, race: _Race) -> _Reader:
    reader = _Reader(race)
    await asyncio.get_running_loop().create_connection(lambda: reader, "127.0.0.1", port)
    assert reader.transport is not None
    reader.transport.write(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await wait_until_async(lambda: reader.open, f"the handshake at {path}", _JOIN_SECONDS, pause=0.002)
    for text in says:
        reader.transport.write(text_frame(text))
    what = f"{hears} first messages at {path}"
    await wait_until_async(lambda: reader.frames >= hears, what, _JOIN_SECONDS, pause=0.002)
    return reader


async def measure_fan_out(pusher: Pusher, readers: int, seconds: float) -> dict[str, float]:
    """Return the messages delivered by one server, per second and per second of its CPU time."""
    with TemporaryDirectory(prefix="vedette-push-") as folder, pushing(pusher, Path(folder)) as (port, cpu):
        race = _Race(pusher, readers)
        writer = await _join(
            port, pusher.writes_at, [t.encode() for t in pusher.writer_says], pusher.writer_hears, race
        )
        says = [text.encode() for text in pusher.reader_says]
        for start in range(0, readers, 100):
            batch = range(start, min(readers, start + 100))
            await asyncio.gather(
                *(_join(port, pusher.reads_at, says, pusher.reader_hears, race) for _ in batch)
            )
        assert writer.transport is not None
        await asyncio.sleep(0.3)
        used, begun = cpu(), time.monotonic()
        await race.run(writer.transport, seconds)
        took, used = time.monotonic() - begun, cpu() - used
        return {"per_second": race.received / took, "per_cpu_second": race.received / max(used, 0.01)}


async def fan_out(readers: int, seconds: float) -> dict[str, dict[str, float | str]]:
    """Measure every server in turn, with the ratios of Vedette to each."""
    figures: dict[str, dict[str, float | str]] = {}
    for pusher in PUSHERS:
        missing = pusher.missing()
        if missing is not None:
            figures[pusher.name] = {"left_out": missing}
            continue
        figures[pusher.name] = dict(await measure_fan_out(pusher, readers, seconds))
    ours = figures["vedette"]
    for name, found in figures.items():
        if name != "vedette" and "per_second" in found:
            for figure in ("per_second", "per_cpu_second"):
                found[f"ours_is_{figure}"] = float(ours[figure]) / float(found[figure])
    return figures
