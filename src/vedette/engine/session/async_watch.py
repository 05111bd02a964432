"""A watch for asyncio: `async for event in watch`. Waiting needs no thread; a cancelled wait loses no event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from vedette.change import Event
from vedette.engine.session.watch_handle import WatchHandle

__all__ = ["AsyncWatch"]


class AsyncWatch:
    """Belongs to the event loop in which it was created."""

    def __init__(self, handle: WatchHandle) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._wakeup = asyncio.Event()
        handle.set_wakeup(self._on_wakeup)

    def _on_wakeup(self) -> None:
        """There may be events. Called from any thread."""
        with suppress(RuntimeError):  # the loop was closed, so nothing waits there
            self._loop.call_soon_threadsafe(self._wakeup.set)

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        """The handle: the id of the `_Watch` node."""
        return self._handle.id

    @property
    def name(self) -> str | None:
        return self._handle.name

    @property
    def status(self) -> str:
        return self._handle.status

    # --- events -----------------------------------------------------------------------------------------------

    def poll(self, limit: int | None = None) -> list[Event]:
        """All events that are ready now; never waits. The first call includes `initial`."""
        return self._handle.poll(limit)

    async def next(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109 - like WatchHandle.next
        """Wait, in real time, for one event; None on timeout or if the watch has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    self._wakeup.clear()
                    ready = self._handle.poll(limit=1)
                    if ready:
                        return ready[0]
                    if self._handle.ended:
                        return None
                    await self._wakeup.wait()
        return None

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self.next()) is not None:
            yield event

    def errors(self) -> list[Any]:
        """Records for the owner since the last call: overflows, timeouts, withdrawals."""
        return self._handle.errors()

    async def ack(self, *events: Event) -> None:
        """Consume: delete the delivered elements. Reliable watches: confirm the events and all before them."""
        await asyncio.to_thread(self._handle.ack, *events)

    async def nack(
        self,
        event: Event,
        retry: bool = True,
        delay: timedelta | float | None = None,
        cause: str | None = None,
    ) -> None:
        """Return a delivery for another attempt, now or after `delay` (a timedelta, or seconds), or dead-letter it."""
        await asyncio.to_thread(self._handle.nack, event, retry, delay, cause)

    async def extend(self, event: Event, by: timedelta | float | None = None) -> None:
        """Extend the lease of a delivery: `by` from now, or another ack_timeout."""
        await asyncio.to_thread(self._handle.extend, event, by)

    # --- management -------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        await asyncio.to_thread(self._handle.pause)

    async def resume(self) -> None:
        await asyncio.to_thread(self._handle.resume)

    async def cancel(self) -> None:
        await asyncio.to_thread(self._handle.cancel)

    async def alter(self, options: str) -> None:
        """`await w.alter("[buffer: 10]")`: buffer, on_full, delivery and filter can change."""
        await asyncio.to_thread(self._handle.alter, options)
