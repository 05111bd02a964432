"""Who may deliver, and when a delivery is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vedette.gateway.ingest_server import IngestServer
from vedette.pipeline.ingest_frames import (
    Accepted,
    Complete,
    Deliver,
    Frame,
    FrameReader,
    Hello,
    Refused,
    Welcome,
    encode_frame,
)

SECRET = "the secret"


class Desk:
    """Takes frames, and says when it is asked to that they are taken."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.waiting: list[Callable[[], None]] = []

    def take(self, frame: Any, done: Callable[[], None]) -> None:
        self.taken.append(frame)
        self.waiting.append(done)


async def talk(path: Path, *data: bytes) -> tuple[list[Frame], bool]:
    """What the server says to these bytes, and whether it closes the link by itself."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    for each in data:
        writer.write(each)
    heard: list[Frame] = []
    frames, closed = FrameReader(), False
    try:
        async with asyncio.timeout(0.3):
            while received := await reader.read(65_536):
                heard.extend(frames.feed(received))
            closed = True
    except TimeoutError:
        pass
    writer.close()
    return heard, closed


def with_server(tmp_path: Path, body: Callable[[Desk, Path], Any]) -> None:
    async def main() -> None:
        desk, path = Desk(), tmp_path / "in"
        server = IngestServer(SECRET, desk.take)
        await server.start_local(path)
        assert path.stat().st_mode & 0o777 == 0o600
        try:
            await body(desk, path)
        finally:
            await server.stop()

    asyncio.run(main())


HELLO = encode_frame(Hello(secret=SECRET, sender="test"))
DELIVER = encode_frame(Deliver(number=1, changes=[]))


def test_a_delivery_is_accepted_when_it_is_taken_and_not_before(tmp_path: Path):
    async def body(desk: Desk, path: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(HELLO + DELIVER + encode_frame(Complete(offset=1, share=0, shares=1, version=1)))
        frames = FrameReader()
        assert list(frames.feed(await reader.read(1000))) == [Welcome(gateway="engine")]
        while len(desk.taken) < 2:  # noqa: ASYNC110 - the next rounds of the loop
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1000), 0.1)
        for done in desk.waiting:
            await asyncio.to_thread(done)  # as the engine's thread does
        assert list(frames.feed(await reader.read(1000))) == [Accepted(number=1)]
        writer.close()

    with_server(tmp_path, body)


@pytest.mark.parametrize(
    "data",
    [
        encode_frame(Hello(secret="another", sender="test")),
        DELIVER,
        encode_frame(Hello(secret="x" * 10_000, sender="test")),
        b"\x00\x00\x00\x02\x09\x80",
        b"\xff\xff\xff\xff",
        HELLO + HELLO,
        HELLO + encode_frame(Welcome(gateway="me")),
    ],
)
def test_who_does_not_know_how_to_speak_is_refused(tmp_path: Path, data: bytes):
    async def body(desk: Desk, path: Path) -> None:
        heard, closed = await talk(path, data)
        assert isinstance(heard[-1], Refused)
        assert closed
        assert not desk.taken

    with_server(tmp_path, body)
