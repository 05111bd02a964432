"""The asyncio client: `async with vedette.connect("ws://localhost:7707") as c: …`.

One task runs the connection: it connects, authenticates, resubscribes or resumes every watch, reads until the
connection breaks, waits for a random time and starts again. Requests wait for a connection. A request whose reply was
lost raises an error, since the client cannot know whether it was executed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any, Self

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from vedette.client.connection import Backoff, Endpoint, Token, send_message
from vedette.client.decode import decode_error, decode_notice, param_to_wire, result_from_wire, session_closed
from vedette.client.jobs import JobFeed, RemoteJob
from vedette.client.sequence import SequenceCheck
from vedette.client.watch import RemoteWatch
from vedette.clock import system_random
from vedette.engine.context.result import Result
from vedette.engine.session.session import merge_parameters
from vedette.errors import FilterError, GatewayError, VedetteError
from vedette.gateway.wire.close_codes import may_reconnect, needs_credentials
from vedette.gateway.wire.messages import QUERY_KEYS

__all__ = ["RemoteSession", "connect"]

log = logging.getLogger(__name__)


def connect(
    url: str = "ws://127.0.0.1:7707",
    *,
    database: str = "default",
    token: Token = "",
    timeout: float = 30.0,
    tls: ssl.SSLContext | None = None,
    random: Random | None = None,
    local_socket: str | None = None,
) -> RemoteSession:
    """Return a session; use it with `async with`. `timeout`: seconds that a request waits for a connection.

    `local_socket`: path of a Unix socket to use instead of the address.
    """
    endpoint = Endpoint(
        url, database=database, token=token, timeout=timeout, tls=tls, local_socket=local_socket
    )
    return RemoteSession(endpoint, timeout=timeout, random=random)


class RemoteSession:
    """Asynchronous session with a server."""

    def __init__(self, endpoint: Endpoint, *, timeout: float, random: Random | None) -> None:
        self._endpoint, self._timeout = endpoint, timeout
        self._backoff = Backoff(random or system_random())
        self._socket: ClientConnection | None = None
        self._open = asyncio.Event()
        self._pending_replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._watches: dict[str, RemoteWatch] = {}
        self._last_id = 0
        self._connection_task: asyncio.Task[None] | None = None
        self._failure: VedetteError | None = None
        self._last_error: Exception | None = None
        """Error of the last connection attempt."""
        self._closed = False
        self._send_tasks: set[asyncio.Task[None]] = set()
        self.reconnects = 0
        """Number of times the connection was lost."""

    # --- methods of a session -----------------------------------------------------------------------------------

    async def execute(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> Result:
        """Execute exactly one statement. Returns when its effects are durable on the server."""
        payload = {"statement": text, "params": _params(params, named)}
        return result_from_wire((await self.request("execute", payload))["payload"])

    async def run(
        self, script: str, params: Mapping[str, Any] | None = None, /, **named: Any
    ) -> list[Result]:
        """Execute a script. It is parsed as a whole before it runs, and stops at the first error."""
        payload = {"statement": script, "params": _params(params, named), "script": True}
        answer = await self.request("execute", payload)
        return [result_from_wire(each) for each in answer["payload"]["results"]]

    async def define(self, ontology: str) -> dict[str, Any]:
        """Add declarations to the database's ontology. Requires an administrator. `definitions` holds the full
        ontology.
        """
        return dict((await self.request("define", {"ontology": ontology}))["payload"])

    def watch(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        exclusive: bool = False,
        priority: str = "normal",
        max_unacked: int | None = None,
        prefetch: int | None = None,
        **named: Any,
    ) -> RemoteWatch:
        """Watch: `async for event in c.watch("WATCH …")`, or `w = await c.watch("WATCH …").ready()`."""
        request: dict[str, Any] = {"watch": text, "params": _params(params, named), "priority": priority}
        request |= {"exclusive": True} if exclusive else {}
        request |= {"maxUnacked": max_unacked} if max_unacked is not None else {}
        request |= {"prefetch": prefetch} if prefetch is not None else {}
        return self._subscribe(request)

    def documents(
        self,
        collection: str,
        *,
        filter: str | None = None,
        filters: list[dict[str, Any]] | None = None,
        data: bool = True,
        snapshot: bool = True,
        **query: Any,
    ) -> RemoteWatch:
        """Watch the documents of a collection, or the nodes of a type, by CEL (`filter`) or a filter list.

        `query`: further query fields such as `orderBy`, `limit`, `startAfter`.
        """
        if unknown := [name for name in query if name not in QUERY_KEYS]:
            known = ", ".join(sorted(QUERY_KEYS))
            raise FilterError("E1201", f"query: unknown field {unknown[0]!r}; known fields: {known}")
        request: dict[str, Any] = {"includeData": data, "sendSnapshot": snapshot}
        if filter is not None:
            request |= {"query": {"collection": collection, "filter": filter, **query}}
        else:
            request |= {"query": {"collection": collection, "filters": filters or [], **query}}
        return self._subscribe(request)

    def attach(self, handle_or_name: str, *, prefetch: int | None = None) -> RemoteWatch:
        """Attach to a reliable or trigger watch."""
        request: dict[str, Any] = {"attach": handle_or_name}
        return self._subscribe(request | ({"prefetch": prefetch} if prefetch is not None else {}))

    async def consume(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        prefetch: int = 10,
        timeout: float | None = None,  # noqa: ASYNC109 - same signature as Session.consume
        **named: Any,
    ) -> AsyncIterator[RemoteJob]:
        """`async for job in c.consume("WATCH …"): async with job: …`. Ends if no job arrives for `timeout` seconds."""
        watch = await self.consume_watch(text, params, prefetch=prefetch, **named).ready()
        jobs = JobFeed(watch, timeout)
        try:
            while (event := await jobs.next()) is not None:
                yield RemoteJob(watch, event)
        finally:
            await jobs.close()

    def consume_watch(
        self, text: str, params: Mapping[str, Any] | None, /, *, prefetch: int, **named: Any
    ) -> RemoteWatch:
        """Open a watch in consume mode, even if its text names no mode."""
        request = {"watch": text, "params": _params(params, named), "consume": True, "prefetch": prefetch}
        return self._subscribe(request)

    @property
    def closed(self) -> bool:
        return self._closed

    def errors(self) -> list[Any]:
        """Return and clear the errors and notices of all watches."""
        return [error for watch in self._watches.values() for error in watch.errors()]

    # --- requests -----------------------------------------------------------------------------------------------

    async def request(self, type: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return its reply. Raise the error that the server replies with."""
        socket = await self._connected()
        self._last_id += 1
        id = f"r{self._last_id}"
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending_replies[id] = future
        try:
            if (
                self._send_tasks
            ):  # keep the order: a watch must reach the server before the statement that it shall see
                await asyncio.gather(*self._send_tasks, return_exceptions=True)
            await send_message(socket, {"type": type, "id": id, "payload": payload})
            answer = await future
        finally:
            self._pending_replies.pop(id, None)
            if future.done() and not future.cancelled():
                future.exception()  # sending failed and `_on_disconnect` failed the future too: asyncio must not log it
        if answer["type"] == "error":
            raise decode_error(answer["payload"])
        return answer

    async def send(self, type: str, payload: dict[str, Any]) -> None:
        """Send a message without a reply. Without a connection it is dropped, because it is not needed then."""
        if self._socket is not None:
            await send_message(self._socket, {"type": type, "payload": payload})

    def send_soon(self, type: str, payload: dict[str, Any]) -> None:
        """Send a message from synchronous code. Its reply is ignored."""

        async def send() -> None:
            try:
                await self.send(type, payload)
            except VedetteError:
                log.debug(
                    "The connection broke before a message was sent", extra={"action": "client.send_failed"}
                )

        task = asyncio.get_running_loop().create_task(send())
        self._send_tasks.add(task)
        task.add_done_callback(self._send_tasks.discard)

    async def _connected(self) -> ClientConnection:
        if self._closed:
            raise session_closed()
        if not self._open.is_set():
            try:
                await asyncio.wait_for(self._open.wait(), self._timeout)
            except TimeoutError:
                text = f"No connection to {self._endpoint.url} within {self._timeout:g} s{self._last_error_text()}"
                raise GatewayError("E4002", text) from None
        if self._failure is not None:
            raise self._failure
        if self._socket is None:
            return await self._connected()
        return self._socket

    def _last_error_text(self) -> str:
        error = self._last_error
        return f"; the last attempt failed with {type(error).__name__}: {error}" if error is not None else ""

    # --- watches ------------------------------------------------------------------------------------------------

    def _subscribe(self, request: dict[str, Any]) -> RemoteWatch:
        if self._closed:
            raise session_closed()
        self._last_id += 1
        watch = RemoteWatch(self, f"s{self._last_id}", request)
        self._watches[watch.id] = watch
        if self._failure is not None:
            watch.on_ended(self._failure)
        elif self._socket is not None and self._open.is_set():
            self._send_subscribe(watch)
        return watch

    def _send_subscribe(self, watch: RemoteWatch) -> None:
        type, payload = watch.subscribe_message()
        message = {"type": type, "id": watch.id, "payload": payload}
        socket = self._socket

        async def send() -> None:
            if socket is None:
                return
            try:
                await send_message(socket, message)
            except GatewayError:
                log.debug(
                    "The connection broke; the request is sent again", extra={"action": "client.send_failed"}
                )

        task = asyncio.get_running_loop().create_task(send())
        self._send_tasks.add(task)
        task.add_done_callback(self._send_tasks.discard)

    def forget(self, watch: RemoteWatch) -> None:
        self._watches.pop(watch.id, None)

    # --- connection ---------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closed:
            try:
                code = await self._run_connection()
            except (OSError, TimeoutError, InvalidHandshake, GatewayError) as error:
                self._last_error = error
                if self._fail_if_permanent(error):
                    return
            except Exception as error:  # a bug of the client: no caller shall wait forever
                log.exception("The client failed", extra={"action": "client.failed"})
                text = f"The client failed: {type(error).__name__}: {error}"
                self._fail(GatewayError("E4003", text))
                return
            else:
                if needs_credentials(code) and not self._endpoint.can_refresh_token:
                    self._fail(GatewayError("E4001", "The token has expired or was rejected"))
                    return
                if not may_reconnect(code) and not needs_credentials(code):
                    self._fail(
                        GatewayError("E4003", f"The server closed the connection permanently ({code})")
                    )
                    return
            self._on_disconnect()
            await asyncio.sleep(self._backoff.next_delay())

    def _fail_if_permanent(self, error: Exception) -> bool:
        """Fail the session if another attempt cannot succeed. Return True if it failed."""
        if isinstance(error, GatewayError) and error.code == "E4001" and not self._endpoint.can_refresh_token:
            self._fail(error)
            return True
        if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403, 404):
            text = f"{self._endpoint.url} responded with status {error.response.status_code}"
            self._fail(GatewayError("E4005" if error.response.status_code == 404 else "E4003", text))
            return True
        return False

    async def _run_connection(self) -> int:
        """Run one connection until it closes. Return its close code."""
        async with self._endpoint.open() as socket:
            await self._endpoint.authenticate(socket)
            self._backoff.reset()
            self._last_error = None
            self._socket = socket
            self._open.set()
            for watch in list(self._watches.values()):
                self._send_subscribe(watch)
            try:
                async for data in socket:
                    self._on_message(msgspec.json.decode(data))
            except ConnectionClosed:
                pass
            self.reconnects += 1
            return socket.close_code or 1006

    def _on_disconnect(self) -> None:
        """Fail all pending requests after the connection broke."""
        self._socket = None
        self._open.clear()
        answers, self._pending_replies = self._pending_replies, {}
        for future in answers.values():
            if not future.done():
                text = "The connection broke before the reply arrived: the request may or may not have been executed"
                future.set_exception(GatewayError("E4002", text))

    def _fail(self, error: VedetteError) -> None:
        self._failure = error
        self._on_disconnect()
        self._open.set()
        for watch in list(self._watches.values()):
            watch.on_ended(error)

    # --- incoming messages --------------------------------------------------------------------------------------

    def _on_message(self, message: dict[str, Any]) -> None:
        type, id = message.get("type"), message.get("id")
        if type == "event":
            self._on_event(message["payload"])
        elif type == "snapshot":
            watch = self._watches.get(message["payload"]["subId"])
            if watch is not None:
                watch.on_snapshot(message["payload"])
        elif type == "subscribe_ack":
            watch = self._watches.get(str(id))
            if watch is not None:
                self._log_ignored(message["payload"].get("ignored"))
                watch.on_subscribed(message["payload"])
        elif type == "resume-ack":
            self._on_resume_ack(message)
        elif type == "status":
            self._on_status(message["payload"])
        elif type == "error" and id in self._watches:
            self._on_watch_error(self._watches[str(id)], message["payload"])
        elif id in self._pending_replies:
            future = self._pending_replies[str(id)]
            if not future.done():
                future.set_result(message)

    def _log_ignored(self, keys: list[str] | None) -> None:
        if keys:
            text = "The server ignored unknown keys: %s"
            log.warning(text, ", ".join(keys), extra={"action": "client.ignored", "keys": keys})

    def _on_event(self, payload: dict[str, Any]) -> None:
        for sub in payload.get("subIds") or [payload["subId"]]:
            watch = self._watches.get(sub)
            if watch is not None and watch.on_event(payload) is SequenceCheck.GAP:
                log.warning(
                    "Events of subscription %s are missing; resuming after the last one received",
                    sub,
                    extra={"action": "client.gap", "sub": sub},
                )
                self._send_subscribe(watch)  # from the last event received

    def _on_resume_ack(self, message: dict[str, Any]) -> None:
        watch = self._watches.get(str(message.get("subId")))
        if watch is None:
            return
        if message["status"] == "ok":
            watch.on_subscribed({})
        else:
            watch.reset(str(message.get("reason")))
            self._send_subscribe(watch)

    def _on_status(self, payload: dict[str, Any]) -> None:
        for sub in payload.get("subIds", ()):
            watch = self._watches.get(sub)
            if watch is None:
                continue
            if payload["status"] == "resync-required":
                # The watch may be resumable after a short wait; if not, it resyncs.
                asyncio.get_running_loop().call_later(self._backoff.next_delay(), self._send_subscribe, watch)
            elif payload["status"] == "notice":
                watch.on_notice([decode_notice(each) for each in payload.get("errors", ())])
            elif payload["status"] == "ended":
                self.forget(watch)
                watch.on_ended(None, [decode_notice(each) for each in payload.get("errors", ())])

    def _on_watch_error(self, watch: RemoteWatch, payload: dict[str, Any]) -> None:
        error = decode_error(payload)
        if error.retryable:
            asyncio.get_running_loop().call_later(self._backoff.next_delay(), self._send_subscribe, watch)
            return
        self.forget(watch)
        if watch.established.done():  # the watch is useless without its snapshot
            self.send_soon("unsubscribe", {"id": watch.id})
        watch.on_ended(error)

    # --- open and close -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._connection_task = asyncio.get_running_loop().create_task(self._run())
        try:
            await self._connected()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session. Later calls have no effect."""
        if self._closed:
            return
        self._closed = True
        socket = self._socket
        if socket is not None:
            await socket.close()
        if self._connection_task is not None:
            self._connection_task.cancel()
            await asyncio.gather(self._connection_task, return_exceptions=True)
        self._on_disconnect()
        for watch in list(self._watches.values()):
            watch.on_ended(None)


def _params(params: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    values = merge_parameters(params, named) if params else dict(named)
    return {name: param_to_wire(value) for name, value in values.items()}
