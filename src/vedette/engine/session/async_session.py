"""Sessions for asyncio: statements run on the loop (they are short; long reads go to a thread), and wait for the disk.

Group commit tells each event loop once per flush, however many sessions wait on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vedette.engine.commit.lock import LockScope
from vedette.engine.context.prepared import PreparedStatement
from vedette.engine.context.result import Result
from vedette.engine.session.async_watch import AsyncWatch
from vedette.engine.session.session import Session, merge_parameters
from vedette.engine.session.watch_handle import WatchHandle
from vedette.engine.state.graph_state import Commit
from vedette.engine.statements.execution import SliceExceeded
from vedette.errors import InvalidStatement, StoreError
from vedette.language.syntax import statements as ast
from vedette.storage.group_commit import LogWriter
from vedette.values import Value

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["AsyncSession", "DurableWaiters"]

_Gate = LogWriter[Commit]
_LoopAndWriter = tuple["asyncio.AbstractEventLoop", _Gate]
_Waiting = tuple[int, "asyncio.Future[None]"]


class DurableWaiters:
    """Futures that wait for commits to become durable, by event loop and gate; each is woken once per flush."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._places: dict[_LoopAndWriter, list[_Waiting]] = {}

    async def wait(self, turn: LockScope) -> None:
        """Return when everything that was seen in the turn is durable; `Database.wait` for asyncio."""
        if turn.log_writer.durable_sequence >= turn.observed_sequence:
            return
        loop = asyncio.get_running_loop()
        place = (loop, turn.log_writer)
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            waiting = self._places.setdefault(place, [])
            waiting.append((turn.observed_sequence, future))
        if len(waiting) == 1:
            self._request_callback(place, turn.observed_sequence)
        try:
            await future
        except StoreError as error:
            self._database.handle_write_failure(error, turn)
            raise

    def _request_callback(self, place: _LoopAndWriter, sequence: int) -> None:
        """Have the loop called when this commit is durable; one question at a time for each place."""
        loop, gate = place

        def answered(error: StoreError | None) -> None:
            try:
                loop.call_soon_threadsafe(self._resolve_futures, place, sequence, error)
            except RuntimeError:  # the loop was closed, and nobody waits there any more
                with self._lock:
                    self._places.pop(place, None)

        gate.call_when_durable(sequence, answered)

    def _resolve_futures(self, place: _LoopAndWriter, reached: int, error: StoreError | None) -> None:
        """Wake all whom the answer concerns; ask again for the others. Runs in the loop."""
        reached = max(reached, place[1].durable_sequence)
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
            self._request_callback(place, max(sequence for sequence, _ in left))


class AsyncSession:
    """One user's conversation with a database, from asyncio. Statements of one session wait for each other."""

    def __init__(self, database: Database, actor: str | None = None) -> None:
        self._database = database
        self._session = Session(database, actor)
        self._session.allow_long_reads = False
        self._statement_lock = asyncio.Lock()

    async def execute(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> Result:
        """Execute exactly one statement; returns when what it did and saw is durable."""
        if params:
            named = merge_parameters(params, named)
        async with self._statement_lock:
            await self._admit_write()
            results: list[Result] = []
            try:
                prepared, literals = self._session.prepared(text)
                results.append(await self._execute(prepared, literals, named, text))
                return results[0]
            finally:
                await self._wait_durable(results)

    async def run(
        self, script: str, params: Mapping[str, Any] | None = None, /, **named: Any
    ) -> list[Result]:
        """Execute a script: parsed whole before anything runs, stops at the first error."""
        if params:
            named = merge_parameters(params, named)
        async with self._statement_lock:
            await self._admit_write()
            results: list[Result] = []
            try:
                statements, literals = self._session.prepared_script(script)
                for prepared in statements:
                    results.append(await self._execute(prepared, literals, named, script))  # noqa: PERF401
                return results
            finally:
                await self._wait_durable(results)

    async def watch(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> AsyncWatch:
        """Create a watch and hold it: `w = await s.watch("WATCH …")`, then `async for event in w`."""
        prepared, _ = self._session.prepared(text)
        if not isinstance(prepared.statement, ast.Watch):
            raise InvalidStatement("E1101", "A WATCH statement is needed here; others go through execute()")
        result = await self.execute(text, params, **named)
        watch = self._database.watching.management.find_by_id(result.handle or "")
        assert watch is not None
        return AsyncWatch(WatchHandle(self._session, watch))

    async def attach(self, handle_or_name: str) -> AsyncWatch:
        """Take up a watch again that lasts: a reliable one, or a trigger."""
        return AsyncWatch(await asyncio.to_thread(self._session.attach, handle_or_name))

    async def _wait_durable(self, results: Sequence[Result]) -> None:
        """Wait for what was seen; watches whose handles are never told are ended, as `Session` does."""
        try:
            await self._database.durable_waiters.wait(self._session.lock_scope)
        except BaseException:
            self._session.discard_created_watches(results)
            raise

    async def _execute(
        self, prepared: PreparedStatement, literals: tuple[Value, ...], values: Mapping[str, Any], text: str
    ) -> Result:
        """Statements are short and run here; a read that turns out to be long begins again in a thread."""
        try:
            return self._session.execute_prepared(prepared, literals, values, text)
        except SliceExceeded:
            pass
        work = partial(self._session.execute_prepared, prepared, literals, values, text)
        self._session.allow_long_reads = True
        future = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(future)
        finally:
            while not future.done():  # cancelled: the session is free when the statement has ended
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # heard, also when nobody waits for it any more
            self._session.allow_long_reads = False

    async def _admit_write(self) -> None:
        """Wait, without stopping the loop, while the queue to the disk is full."""
        try:
            self._database.log_writer.wait_for_room(timeout=0)
        except TimeoutError:
            await asyncio.to_thread(self._database.log_writer.wait_for_room)

    async def close(self) -> None:
        self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
