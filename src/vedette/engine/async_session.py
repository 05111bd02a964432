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
from vedette.engine.state import Commit
from vedette.engine.turn import Turn
from vedette.errors import StoreError
from vedette.storage.group_commit import CommitGate

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["AsyncSession", "DurableWaiters"]

_Gate = CommitGate[Commit]
_Place = tuple["asyncio.AbstractEventLoop", _Gate]
_Waiting = tuple[int, "asyncio.Future[None]"]


class DurableWaiters:
    """Futures that wait for commits to become durable, by event loop and gate; each is woken once per flush."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._places: dict[_Place, list[_Waiting]] = {}

    async def wait(self, turn: Turn) -> None:
        """Return when everything that was seen in the turn is durable; `Database.wait` for asyncio."""
        if turn.gate.durable_tick >= turn.seen:
            return
        loop = asyncio.get_running_loop()
        place = (loop, turn.gate)
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            waiting = self._places.setdefault(place, [])
            waiting.append((turn.seen, future))
        if len(waiting) == 1:
            self._ask(place, turn.seen)
        try:
            await future
        except StoreError as error:
            self._database.fail(error, turn)
            raise

    def _ask(self, place: _Place, sequence: int) -> None:
        """Have the loop called when this commit is durable; one question at a time for each place."""
        loop, gate = place

        def answered(error: StoreError | None) -> None:
            try:
                loop.call_soon_threadsafe(self._release, place, sequence, error)
            except RuntimeError:  # the loop was closed, and nobody waits there any more
                with self._lock:
                    self._places.pop(place, None)

        gate.notify(sequence, answered)

    def _release(self, place: _Place, reached: int, error: StoreError | None) -> None:
        """Wake all whom the answer concerns; ask again for the others. Runs in the loop."""
        reached = max(reached, place[1].durable_tick)
        with self._lock:
            waiting = self._places.pop(place, [])
            left = [item for item in waiting if item[0] > reached] if error is None else []
            if left:
                self._places[place] = left
        for sequence, future in waiting:
            if future.done() or (error is None and sequence > reached):
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(StoreError(error.code, error.text, fields=error.fields))
        if left:
            self._ask(place, max(sequence for sequence, _ in left))


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
                await self._database.waiters.wait(self._session.turn)

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
                await self._database.waiters.wait(self._session.turn)

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
