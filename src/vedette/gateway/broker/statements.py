"""Executes statements, scripts and definitions of clients. Engine thread, except long reads.

A statement runs on the engine thread without waiting for the disk. A script, a read that exceeds its time slice, and
the encoding of a large reply run in a thread pool. While one of them runs, its client is busy: the client's later
requests are deferred and run afterwards, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.engine.statements.execution import SliceExceeded
from vedette.errors import PolicyError
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import encode_message
from vedette.gateway.wire.replies import is_larger_than, result_message

__all__ = ["FinishedRead", "StatementExecutor"]

MAX_INLINE_REPLY_BYTES = 262_144
"""Size limit of a reply that is encoded on the engine thread; a larger one is encoded in the thread pool."""
_POOL_THREADS = 2


class FinishedRead(NamedTuple):
    """A request that ran in the thread pool, to be answered on the engine thread."""

    client: Client
    session: Session
    request_id: str | None
    reply: Future[bytes]


class StatementExecutor:
    def __init__(
        self,
        catalog: Vedette,
        send_queue: SendQueue,
        subscriptions: SubscriptionTable,
        pump: StreamPump,
        *,
        limits: GatewayLimits,
        wake: Callable[[], None],
    ) -> None:
        """`wake` makes the engine thread run a batch; the thread pool calls it."""
        self._catalog, self._limits, self._wake = catalog, limits, wake
        self._send_queue, self._subscriptions, self._pump = send_queue, subscriptions, pump
        self._finished: deque[FinishedRead] = deque()
        """Appended by the thread pool, taken by the engine thread."""
        self._waiting_for_port: list[tuple[Client, Callable[[], None]]] = []
        """Reads that start when their client's gateway is no longer congested."""
        self._pool = ThreadPoolExecutor(max_workers=_POOL_THREADS, thread_name_prefix="vedette-long-read")

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def execute(self, client: Client, record: link.ExecuteRequest) -> None:
        """Execute `execute`, `run` or `define`, and reply now or when the thread pool has finished."""
        if record.kind == "define":
            self._define(client, record)
            return
        self._check_actor_exists(client)
        session = client.own_session()
        if client.tenant.database.watching.blocking_watches:
            self._pump.flush()  # the statement may wait for a full watch that is published here
        id, text, params = record.id, record.text, record.params
        max_bytes = self._limits.max_answer_bytes
        if record.kind == "run":
            self._run_in_thread(
                client, session, id, lambda: result_message(session.run(text, params), id, max_bytes)
            )
            return
        try:
            result = session.execute_without_waiting(text, params)
        except SliceExceeded:
            self._run_in_thread(
                client, session, id, lambda: result_message(session.execute(text, params), id, max_bytes)
            )
            return
        if result.tick is None and is_larger_than(result, MAX_INLINE_REPLY_BYTES):
            self._run_in_thread(client, session, id, lambda: result_message(result, id, max_bytes))
            return
        data = result_message(result, id, max_bytes)
        self._send_queue.reply(client, link.Reply(conn=client.conn, data=data), id)

    def _define(self, client: Client, record: link.ExecuteRequest) -> None:
        """Add declarations, and reply with the ontology. Local command lines also get the list of databases."""
        database = client.tenant.database
        if record.text.strip():
            database.define(record.text)
        payload: dict[str, Any] = {"status": "ok", "definitions": database.definitions()}
        if client.local:
            payload["databases"] = self._catalog.databases()
        data = encode_message("define_ack", payload, record.id)
        self._send_queue.reply(client, link.Reply(conn=client.conn, data=data), record.id)

    def _check_actor_exists(self, client: Client) -> None:
        """Raise E7003 if the actor was deleted after the connection was opened. Its watches have ended as well."""
        actor = client.token_actor
        if actor is not None and client.tenant.database.state.graph.get(actor) is None:
            raise PolicyError("E7003", "The actor of this connection no longer exists")

    # --- thread pool --------------------------------------------------------------------------------------------

    def _run_in_thread(
        self, client: Client, session: Session, id: str | None, work: Callable[[], bytes]
    ) -> None:
        """Run `work` in the thread pool, now or when the client's gateway is no longer congested."""
        client.busy = True
        session.allow_long_reads = True

        def finish(reply: Future[bytes]) -> None:
            self._finished.append(FinishedRead(client, session, id, reply))
            self._wake()

        def begin() -> None:
            self._pool.submit(work).add_done_callback(finish)

        if client.port.congested:
            self._waiting_for_port.append((client, begin))
        else:
            begin()

    def start_waiting(self) -> None:
        """Start the reads that waited for a congested gateway."""
        waiting, self._waiting_for_port = self._waiting_for_port, []
        for client, begin in waiting:
            if client.port.congested and self._subscriptions.is_connected(client):
                self._waiting_for_port.append((client, begin))
            else:
                begin()

    def next_finished(self) -> FinishedRead | None:
        """Return a finished read whose client is no longer busy; None if there is none."""
        if not self._finished:
            return None
        finished = self._finished.popleft()
        finished.session.allow_long_reads = False
        finished.client.busy = False
        return finished
