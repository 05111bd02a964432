"""The synchronous client: `with vedette.connect_sync("ws://localhost:7707") as c: …`.

It runs the asyncio client on an event loop in its own thread and waits for the results. Thread-safe.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from threading import Thread
from typing import Any, Self, TypeVar

from vedette.change import Event
from vedette.client.connection import Token
from vedette.client.decode import session_closed
from vedette.client.jobs import DeliveredJob, JobFeed
from vedette.client.session import RemoteSession, connect
from vedette.client.watch import RemoteWatch
from vedette.engine.context.result import Result
from vedette.errors import VedetteError

__all__ = ["BlockingJob", "BlockingSession", "BlockingWatch", "connect_sync"]

T = TypeVar("T")


def connect_sync(
    url: str = "ws://127.0.0.1:7707",
    *,
    database: str = "default",
    token: Token = "",
    timeout: float = 30.0,
    tls: ssl.SSLContext | None = None,
    random: Random | None = None,
    local_socket: str | None = None,
) -> BlockingSession:
    """Connect and return a session. Close it, or use it as a context manager."""

    def make() -> RemoteSession:
        return connect(
            url,
            database=database,
            token=token,
            timeout=timeout,
            tls=tls,
            random=random,
            local_socket=local_socket,
        )

    return BlockingSession(make)


class BlockingSession:
    """Synchronous session with a server."""

    def __init__(self, make: Callable[[], RemoteSession]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="vedette-client", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self._session = self._wait(self._enter(make))
        except BaseException:
            self._end()
            raise

    @staticmethod
    async def _enter(make: Callable[[], RemoteSession]) -> RemoteSession:
        return await make().__aenter__()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise session_closed()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # on Ctrl-C, stop the request: no caller waits for it
            raise

    def execute(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> Result:
        return self._wait(self._session.execute(text, params, **named))

    def run(self, script: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> list[Result]:
        return self._wait(self._session.run(script, params, **named))

    def define(self, ontology: str) -> dict[str, Any]:
        return self._wait(self._session.define(ontology))

    def watch(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> BlockingWatch:
        """Watch. Returns when the server has acknowledged the watch."""
        return BlockingWatch(
            self, self._wait(self._wait_ready(lambda: self._session.watch(text, params, **named)))
        )

    def documents(self, collection: str, **query: Any) -> BlockingWatch:
        return BlockingWatch(
            self, self._wait(self._wait_ready(lambda: self._session.documents(collection, **query)))
        )

    def attach(self, handle_or_name: str, *, prefetch: int | None = None) -> BlockingWatch:
        return BlockingWatch(
            self,
            self._wait(self._wait_ready(lambda: self._session.attach(handle_or_name, prefetch=prefetch))),
        )

    def consume(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        prefetch: int = 10,
        timeout: float | None = None,
        **named: Any,
    ) -> Iterator[BlockingJob]:
        """`for job in c.consume("WATCH …"): with job: …`. Ends if no job arrives for `timeout` seconds."""
        watch = self._wait(
            self._wait_ready(lambda: self._session.consume_watch(text, params, prefetch=prefetch, **named))
        )
        jobs = JobFeed(watch, timeout)
        try:
            while (event := self._wait(jobs.next())) is not None:
                yield BlockingJob(BlockingWatch(self, watch), event)
        finally:
            if not self._closed:
                self._wait(jobs.close())

    def errors(self) -> list[Any]:
        return self._session.errors()

    @property
    def reconnects(self) -> int:
        return self._session.reconnects

    @staticmethod
    async def _wait_ready(make: Callable[[], RemoteWatch]) -> RemoteWatch:
        return await make().ready()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. For the session's watches."""
        return self._wait(work)

    def close(self) -> None:
        """Close the session. Later calls have no effect."""
        if not self._closed:
            self._wait(self._session.close())
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class BlockingWatch:
    """`for event in watch`, `watch.next(timeout=5)`, `watch.poll()`."""

    def __init__(self, session: BlockingSession, watch: RemoteWatch) -> None:
        self._session = session
        self._watch = watch

    @property
    def id(self) -> str:
        return self._watch.id

    @property
    def handle(self) -> str | None:
        return self._watch.handle

    @property
    def name(self) -> str | None:
        return self._watch.name

    @property
    def status(self) -> str:
        return self._watch.status

    def next(self, timeout: float | None = None) -> Event | None:
        return self._session.wait(self._watch.next(timeout))

    def poll(self, limit: int | None = None) -> list[Event]:
        async def taken() -> list[Event]:
            return self._watch.poll(limit)

        return self._session.wait(taken())

    def pull(self, limit: int | None = None) -> list[Event]:
        """Request the events that are ready. For a watch with `prefetch=0`, which is sent no events otherwise."""
        return self._session.wait(self._watch.pull(limit))

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def errors(self) -> list[Any]:
        return self._watch.errors()

    def ack(self, event: Event) -> None:
        self._session.wait(self._watch.ack(event))

    def nack(
        self, event: Event, *, retry: bool = True, delay: float | None = None, cause: str | None = None
    ) -> None:
        self._session.wait(self._watch.nack(event, retry=retry, delay=delay, cause=cause))

    def release(self, event: Event) -> None:
        """Requeue a delivery without counting an attempt."""

        async def given_back() -> None:
            self._watch.release(event)

        self._session.wait(given_back())

    def extend(self, event: Event, by: float | None = None) -> None:
        self._session.wait(self._watch.extend(event, by))

    def pause(self) -> None:
        self._session.wait(self._watch.pause())

    def resume(self) -> None:
        self._session.wait(self._watch.resume())

    def cancel(self) -> None:
        self._session.wait(self._watch.cancel())

    def alter(self, options: str) -> None:
        self._session.wait(self._watch.alter(options))


class BlockingJob(DeliveredJob):
    """One delivery of a consume loop. `with job:` ACKs if the block succeeds and NACKs if it raises."""

    def __init__(self, watch: BlockingWatch, event: Event) -> None:
        super().__init__(event)
        self._watch = watch

    def ack(self) -> None:
        self.ended = True
        self._watch.ack(self.event)

    def nack(self, *, retry: bool = True, delay: float | None = None, cause: str | None = None) -> None:
        self.ended = True
        self._watch.nack(self.event, retry=retry, delay=delay, cause=cause)

    def reject(self, reason: str | None = None) -> None:
        """Reject without retry: the job becomes a dead letter."""
        self.nack(retry=False, cause=reason)

    def extend(self, by: float | None = None) -> None:
        self._watch.extend(self.event, by)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is not None and not isinstance(error, Exception):
            if not self.ended:
                self._watch.release(self.event)
            return False
        try:
            if error is not None and not self.ended:
                self.nack(cause=self.log_failure(error))
            elif not self.ended:
                self.ack()
        except VedetteError as problem:
            self.log_lease_expired(problem)
        return error is not None
