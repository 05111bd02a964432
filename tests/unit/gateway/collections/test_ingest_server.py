"""The ingest server: authentication, and when a delivery is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from vedette.gateway.collections.ingest_server import DeliveryReady, FrameReceived, IngestServer
from vedette.transport.ingest_messages import (
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


class EngineQueue:
    """The events that the server posts to the engine thread, and the frames that were processed."""

    def __init__(self) -> None:
        self.processed: list[Any] = []
        self.events: list[DeliveryReady | FrameReceived] = []
        self.connections: Collection[object] = ()
        """Open connections of the server."""

    def handle(self, event: DeliveryReady | FrameReceived) -> None:
        """Process an event as the collection broker does."""
        if isinstance(event, FrameReceived):
            self.processed.append(event.frame)
            return
        delivery = event.connection.next_delivery()
        self.processed.append(delivery)
        if delivery is not None:
            event.connection.accept(delivery.number)

    async def wait_for(self, events: int) -> None:
        while len(self.events) < events:  # noqa: ASYNC110 - the next iterations of the loop
            await asyncio.sleep(0)


async def talk(path: Path, *data: bytes) -> list[Frame]:
    """Send the bytes; return the frames that the server sends until it closes the link."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    for each in data:
        writer.write(each)
    replies: list[Frame] = []
    frames = FrameReader()
    async with asyncio.timeout(60):
        while received := await reader.read(65_536):
            replies.extend(frames.feed(received))
    writer.close()
    return replies


def with_server(tmp_path: Path, body: Callable[[EngineQueue, Path], Any]) -> None:
    async def main() -> None:
        queue, path = EngineQueue(), tmp_path / "in"
        server = IngestServer(SECRET, queue.events.append)
        queue.connections = server.links
        await server.start_local(path)
        assert path.stat().st_mode & 0o777 == 0o600
        try:
            await body(queue, path)
        finally:
            await server.stop()

    asyncio.run(main())


HELLO = encode_frame(Hello(secret=SECRET, sender="test"))
DELIVER = encode_frame(Deliver(number=1, changes=[]))
COMPLETE = Complete(offset=1, share=0, shares=1, index_version=1)


def test_a_delivery_is_accepted_after_it_was_processed(tmp_path: Path):
    async def body(queue: EngineQueue, path: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(HELLO + DELIVER + encode_frame(COMPLETE))
        frames = FrameReader()
        assert list(frames.feed(await reader.read(1000))) == [Welcome(gateway="engine")]
        await queue.wait_for(2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1000), 0.1)
        for event in queue.events:
            await asyncio.to_thread(queue.handle, event)  # as the engine thread does
        assert list(frames.feed(await reader.read(1000))) == [Accepted(number=1)]
        assert queue.processed == [Deliver(number=1), COMPLETE]
        writer.close()

    with_server(tmp_path, body)


def test_unprocessed_deliveries_are_dropped_with_their_connection(tmp_path: Path):
    async def body(queue: EngineQueue, path: Path) -> None:
        _, lost = await asyncio.open_unix_connection(str(path))
        lost.write(HELLO + DELIVER + encode_frame(Deliver(number=2)) + encode_frame(COMPLETE))
        await queue.wait_for(3)
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(HELLO + encode_frame(Deliver(number=7)))
        await queue.wait_for(4)
        queue.handle(queue.events.pop(0))
        lost.close()
        await lost.wait_closed()
        while len(queue.connections) > 1:  # noqa: ASYNC110 - the next rounds of the loop
            await asyncio.sleep(0)
        for event in queue.events:
            queue.handle(event)
        assert queue.processed == [Deliver(number=1), None, COMPLETE, Deliver(number=7)]
        frames = FrameReader()
        replies: list[Frame] = []
        while len(replies) < 2:
            replies += frames.feed(await reader.read(1000))
        assert replies == [Welcome(gateway="engine"), Accepted(number=7)]
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
def test_invalid_frames_and_secrets_are_refused(tmp_path: Path, data: bytes):
    async def body(queue: EngineQueue, path: Path) -> None:
        replies = await talk(path, data)
        assert isinstance(replies[-1], Refused)
        assert not queue.processed

    with_server(tmp_path, body)
