"""A proxy between client and server whose connections a test can break."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["BreakingLine"]


class BreakingLine:
    """`async with BreakingLine(port) as line:` listens on `line.port` and forwards to `port`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.budget: int | None = None
        """Number of further bytes to the client before the connection breaks; None never breaks it."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> BreakingLine:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections now."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, here}
        await asyncio.gather(self._pump(reader, here), self._pump(there, writer, to_client=True))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_client: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(4096):
                if to_client and self.budget is not None:
                    if self.budget < len(data):
                        writer.write(data[: self.budget])
                        self.budget = None
                        self.cut()
                        return
                    self.budget -= len(data)
                writer.write(data)
                await writer.drain()
        writer.close()
