"""Sessions for asyncio. Statements run on the event loop because they are short; long reads run in a thread.

Group commit notifies each event loop once per flush, regardless of the number of waiting sessions.
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
    """Futures that wait for durable commits, by event loop and log writer. Each loop is woken once per flush."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._places: dict[_LoopAndWriter, list[_Waiting]] = {}

    async def wait(self, lock_scope: LockScope) -> None:
        """Wait until everything observed in the lock scope is durable; `Database.wait_durable` for asyncio."""
        if lock_scope.log_writer.durable_sequence >= lock_scope.observed_sequence:
            return
        loop = asyncio.get_running_loop()
        position = (loop, lock_scope.log_writer)
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            waiting = self._places.setdefault(position, [])
            waiting.append((lock_scope.observed_sequence, future))
        if len(waiting) == 1:
            self._request_callback(position, lock_scope.observed_sequence)
        try:
            await future
        except StoreError as error:
            self._database.handle_write_failure(error, lock_scope)
            raise

    def _request_callback(self, place: _LoopAndWriter, sequence: int) -> None:
        """Have the loop called when this commit is durable.

        At most one callback is pending per loop and log writer.
        """
        loop, log_writer = place

        def answered(error: StoreError | None) -> None:
            try:
                loop.call_soon_threadsafe(self._resolve_futures, place, sequence, error)
            except RuntimeError:  # the loop was closed, so no future waits there
                with self._lock:
                    self._places.pop(place, None)

        log_writer.call_when_durable(sequence, answered)

    def _resolve_futures(self, place: _LoopAndWriter, reached: int, error: StoreError | None) -> None:
        """Resolve the futures of durable commits and request a callback for the rest. Runs in the loop."""
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
    """A session for asyncio. Statements of one session are executed one at a time."""

    def __init__(self, database: Database, actor: str | None = None) -> None:
        self._database = database
        self._session = Session(database, actor)
        self._session.allow_long_reads = False
        self._statement_lock = asyncio.Lock()

    async def execute(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> Result:
        """Execute exactly one statement. Returns when everything it wrote and read is durable."""
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
        """Execute a script. It is parsed completely before anything runs, and stops at the first error."""
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
        """Create a watch: `w = await s.watch("WATCH …")`, then `async for event in w`."""
        prepared, _ = self._session.prepared(text)
        if not isinstance(prepared.statement, ast.Watch):
            raise InvalidStatement("E1101", "A WATCH statement is required here; use execute() for others")
        result = await self.execute(text, params, **named)
        watch = self._database.watching.management.find_by_id(result.handle or "")
        assert watch is not None
        return AsyncWatch(WatchHandle(self._session, watch))

    async def attach(self, handle_or_name: str) -> AsyncWatch:
        """Attach a durable watch: a reliable one, or a trigger."""
        return AsyncWatch(await asyncio.to_thread(self._session.attach, handle_or_name))

    async def _wait_durable(self, results: Sequence[Result]) -> None:
        """Wait for durability. If it fails, discard the watches that were created, as `Session` does."""
        try:
            await self._database.durable_waiters.wait(self._session.lock_scope)
        except BaseException:
            self._session.discard_created_watches(results)
            raise

    async def _execute(
        self, prepared: PreparedStatement, literals: tuple[Value, ...], values: Mapping[str, Any], text: str
    ) -> Result:
        """Run the statement here. A read that turns out to be long is restarted in a thread."""
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
                future.exception()  # mark the exception as retrieved, in case nothing awaits it any more
            self._session.allow_long_reads = False

    async def _admit_write(self) -> None:
        """Wait, without blocking the loop, while the log queue is full."""
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
