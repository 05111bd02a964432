"""Sessions for asyncio: statements run on the loop (they are short), what they wait for is the disk.

Group commit tells each event loop once per flush, however many sessions wait on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vedette.engine.result import Result
from vedette.engine.session import Session
from vedette.errors import StoreError

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["AsyncSession", "DurableWaiters"]

_Waiting = tuple[int, "asyncio.Future[None]"]


class DurableWaiters:
    """Futures that wait for commits to become durable, by event loop; each loop is woken once per flush."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._loops: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}

    async def wait(self, sequence: int) -> None:
        """Return when everything up to this commit is durable."""
        if self._database.gate.durable_tick >= sequence:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            waiting = self._loops.get(loop)
            first = waiting is None
            if waiting is None:
                waiting = self._loops[loop] = []
            waiting.append((sequence, future))
        if first:
            self._ask(loop, sequence)
        try:
            await future
        except StoreError as error:
            self._database.fail(error)
            raise

    def _ask(self, loop: asyncio.AbstractEventLoop, sequence: int) -> None:
        """Have the loop called when this commit is durable; one question at a time for each loop."""

        def answered(error: StoreError | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._release, loop, error)

        self._database.gate.notify(sequence, answered)

    def _release(self, loop: asyncio.AbstractEventLoop, error: StoreError | None) -> None:
        durable = self._database.gate.durable_tick
        with self._lock:
            waiting = self._loops.pop(loop, [])
            left = [item for item in waiting if item[0] > durable] if error is None else []
            if left:
                self._loops[loop] = left
        for sequence, future in waiting:
            if future.done() or (error is None and sequence > durable):
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)
        if left:
            self._ask(loop, max(sequence for sequence, _ in left))


class AsyncSession:
    """One user's conversation with a database, from asyncio. Statements of one session wait for each other."""

    def __init__(self, database: Database, actor: str | None = None) -> None:
        self._database = database
        self._session = Session(database, actor)
        self._one_at_a_time = asyncio.Lock()

    async def execute(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> Result:
        """Execute exactly one statement; returns when what it did and saw is durable."""
        if params:
            named = {**params, **named}
        async with self._one_at_a_time:
            await self._room()
            try:
                return self._session.execute_undurably(text, named)
            finally:
                await self._database.waiters.wait(self._session.turn.seen)

    async def run(
        self, script: str, params: Mapping[str, Any] | None = None, /, **named: Any
    ) -> list[Result]:
        """Execute a script: parsed whole before anything runs, stops at the first error."""
        if params:
            named = {**params, **named}
        async with self._one_at_a_time:
            await self._room()
            try:
                return self._session.run_undurably(script, named)
            finally:
                await self._database.waiters.wait(self._session.turn.seen)

    async def _room(self) -> None:
        """Wait, without stopping the loop, while the queue to the disk is full."""
        try:
            self._database.gate.admit(timeout=0)
        except TimeoutError:
            await asyncio.to_thread(self._database.gate.admit)

    async def close(self) -> None:
        self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
