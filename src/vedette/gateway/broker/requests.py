"""Executes client requests by type: statements, subscriptions, deliveries, watches. Engine thread only.

No request waits for the disk. Replies go to `Broker.reply`, which holds them until they are durable. A failing request
affects only its own reply.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from vedette.engine.session.session import Session
from vedette.engine.statements.execution import SliceExceeded
from vedette.errors import PolicyError, VedetteError
from vedette.gateway.collections.stream import CollectionStream
from vedette.gateway.streams.stream import WatchStream
from vedette.gateway.streams.stream_key import claims_hash
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import MessageError, encode_message, error_payload
from vedette.gateway.wire.replies import is_larger_than, manage_reply, result_message, settle_statement
from vedette.transport.sampled_log import log_sampled
from vedette.values import duration_from_ms

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker
    from vedette.gateway.streams.client import Client

__all__ = ["Requests"]

log = logging.getLogger(__name__)
MAX_INLINE_REPLY_BYTES = 262_144
"""Size limit of a reply that is encoded on the engine thread; a larger one is encoded in a thread pool."""


class Requests:
    """Executes the requests of all clients of one broker."""

    def __init__(self, broker: Broker, wake: Callable[[], None]) -> None:
        self._broker = broker
        self._wake = wake
        self._finished: deque[Callable[[], None]] = deque()
        """Finished thread-pool reads, to be answered in the next batch."""
        self._waiting_for_port: list[tuple[Client, Callable[[], None]]] = []
        """Reads that start when their client's gateway is no longer congested."""
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="vedette-long-read")

    def finish_threaded(self) -> None:
        """Answer finished thread-pool reads and start those that were waiting for a congested gateway."""
        while self._finished:
            self._finished.popleft()()
        waiting, self._waiting_for_port = self._waiting_for_port, []
        for client, begin in waiting:
            if client.port.congested and (client.port, client.conn) in self._broker.clients:
                self._waiting_for_port.append((client, begin))
            else:
                begin()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def handle(self, client: Client, record: Any) -> None:
        try:
            _REQUESTS[type(record)](self, client, record)
        except Exception as error:
            payload = self._error_payload(client, error)
            if isinstance(record, link.SubscribeRequest) and not isinstance(error, MessageError):
                payload["message"] = f"Subscribe failed: {payload['message']}"
            self._refuse(client, record, payload)

    def _error_payload(self, client: Client, error: BaseException) -> dict[str, Any]:
        """Return the error payload for a failed request. An unexpected error is logged under a reference id."""
        if isinstance(error, VedetteError):
            return error_payload(error)
        if isinstance(error, MessageError):
            return {"code": error.code, "message": error.text}
        reference = f"{client.conn:x}-{self._broker.clock.now():%H%M%S%f}"
        ids = {"tenant": client.tenant.name, "conn": client.conn, "reference": reference}
        log.error("A request failed", exc_info=error, extra={"action": "broker.request_failed", **ids})
        return {"code": "internal", "message": f"internal error; see the server log, reference {reference}"}

    def _refuse(self, client: Client, record: Any, payload: dict[str, Any]) -> None:
        """Send an error for a request. A failed replay request becomes resync-required."""
        if isinstance(record, link.ReplayRequest):
            self._broker.reply(
                client, link.ResyncRequired(conn=client.conn, sub_id=record.sub_id, reason="overflow")
            )
        elif not isinstance(record, link.AckEvents | link.UpdateClaims):  # these get no reply
            id = record.sub_id if isinstance(record, link.SubscribeRequest) else getattr(record, "id", None)
            self._broker.reply(client, link.RequestFailed(conn=client.conn, id=id, payload=payload))

    # --- statements ---------------------------------------------------------------------------------------------

    def _execute(self, client: Client, record: link.ExecuteRequest) -> None:
        if record.kind == "define":
            if record.text.strip():
                client.tenant.database.define(record.text)
            data = encode_message("define_ack", self._defined(client), record.id)
            self._broker.reply(client, link.Reply(conn=client.conn, data=data), record.id)
            return
        self._check_actor_exists(client)
        session = self._broker.session_of(client)
        watch_service = client.tenant.database.watching
        if watch_service.blocking_watches:  # a full watch that blocks writers may be published here
            self._broker.flush()
        id, text, params = record.id, record.text, record.params
        max_bytes = self._broker.limits.max_answer_bytes
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
        self._broker.reply(
            client, link.Reply(conn=client.conn, data=result_message(result, id, max_bytes)), id
        )

    def _check_actor_exists(self, client: Client) -> None:
        """Raise E7003 if the actor was deleted after the connection was opened. Its watches have ended as well."""
        actor = client.token_actor
        if actor is not None and client.tenant.database.state.graph.get(actor) is None:
            raise PolicyError("E7003", "The actor of this connection no longer exists")

    def _defined(self, client: Client) -> dict[str, Any]:
        """Return the database's ontology. Local command lines also get the list of databases."""
        payload: dict[str, Any] = {"status": "ok", "definitions": client.tenant.database.definitions()}
        if client.local:
            payload["databases"] = self._broker.home.databases()
        return payload

    def _run_in_thread(
        self, client: Client, session: Session, id: str | None, work: Callable[[], bytes]
    ) -> None:
        """Run a script, a read that exceeded its time slice, or the encoding of a large reply in the thread pool."""
        client.busy = True
        session.allow_long_reads = True

        def finish(done: Future[bytes]) -> None:
            self._finished.append(lambda: self._finish_in_thread(client, session, id, done))
            self._wake()

        def begin() -> None:
            self._pool.submit(work).add_done_callback(finish)

        if client.port.congested:
            self._waiting_for_port.append((client, begin))
        else:
            begin()

    def _finish_in_thread(
        self, client: Client, session: Session, id: str | None, done: Future[bytes]
    ) -> None:
        session.allow_long_reads = False
        client.busy = False
        error = done.exception()
        if (client.port, client.conn) not in self._broker.clients:
            session.close()
            return
        if error is None:
            self._broker.reply(client, link.Reply(conn=client.conn, data=done.result()), id)
        else:
            failed = link.RequestFailed(conn=client.conn, id=id, payload=self._error_payload(client, error))
            self._broker.reply(client, failed)
        for ack in client.take_deferred_acks():
            self.handle(client, ack)
        while client.deferred_requests and not client.busy:
            self.handle(client, client.deferred_requests.popleft())

    # --- subscriptions ------------------------------------------------------------------------------------------

    def _subscribe(self, client: Client, record: link.SubscribeRequest) -> None:
        self._broker.check_quotas(client, record.sub_id)
        self._broker.remove_subscription(client, record.sub_id)
        self._broker.graph_subscriber.subscribe(client, record)

    def _resume(self, client: Client, record: link.ResumeRequest) -> None:
        self._broker.check_quotas(client, record.sub_id)
        self._broker.graph_subscriber.resume(client, record)

    def _unsubscribe(self, client: Client, record: link.UnsubscribeRequest) -> None:
        stream = client.subscriptions.get(record.sub_id)
        if isinstance(stream, WatchStream) and stream.feed.lasts:
            stream.feed.detach()
        self._broker.remove_subscription(client, record.sub_id)
        data = encode_message("unsubscribe_ack", None, record.id)
        self._broker.reply(client, link.Unsubscribed(conn=client.conn, sub_id=record.sub_id, data=data))

    def _update_claims(self, client: Client, record: link.UpdateClaims) -> None:
        """Update the claims. Filters that depend on the token are bound when subscribed, so their clients must
        resubscribe.
        """
        client.update_claims(record.claims)
        claims = claims_hash(client)
        for name, stream in list(client.subscriptions.items()):
            if stream.claims_hash not in (None, claims):
                self._broker.remove_subscription(client, name)
                self._broker.reply(client, link.ResyncRequired(conn=client.conn, sub_id=name, reason="auth"))

    def _replay(self, client: Client, record: link.ReplayRequest) -> None:
        stream = client.subscriptions.get(record.sub_id)
        if stream is None:
            return
        tenant = client.tenant.name
        log_sampled(
            "subscription.replay",
            tenant,
            f"A subscription of {tenant} lags and is replayed",
            conn=client.conn,
        )
        self._broker.flush()
        if not stream.history.can_replay_from(record.seq):
            self._broker.reply(
                client, link.ResyncRequired(conn=client.conn, sub_id=record.sub_id, reason="window")
            )
            return
        self._broker.replay(client, record.sub_id, stream, record.seq)

    def _ack_events(self, client: Client, record: link.AckEvents) -> None:
        names = [record.sub_id] if record.sub_id is not None else list(client.subscriptions)
        for name in names:
            stream = client.subscriptions.get(name)
            if stream is not None:
                member = (client.port, client.conn, name)
                stream.acknowledge(member, record.seq, self._broker.clock.monotonic())

    def _manage(self, client: Client, record: link.ManageRequest) -> None:
        stream = client.subscriptions.get(record.sub_id)
        if isinstance(stream, CollectionStream) and record.operation == "cancel":
            self._broker.remove_subscription(client, record.sub_id)
            self._broker.reply(
                client, link.Unsubscribed(conn=client.conn, sub_id=record.sub_id, data=manage_reply(record))
            )
            return
        if not isinstance(stream, WatchStream) or (stream.shared and record.operation == "alter"):
            text = "only an exclusive watch can be altered: subscribe with exclusive: true"
            raise MessageError("not_exclusive", text)
        if record.operation == "cancel":
            if not stream.shared:
                stream.feed.cancel()
            self._broker.remove_subscription(client, record.sub_id)
            self._broker.reply(
                client, link.Unsubscribed(conn=client.conn, sub_id=record.sub_id, data=manage_reply(record))
            )
            return
        if record.operation == "pull":
            self._pull(client, stream, record)
            return
        if record.operation == "alter":
            stream.feed.alter(record.options or "")
        elif record.operation == "pause":
            stream.feed.pause()
        else:
            stream.feed.resume()
        self._broker.reply(client, link.Reply(conn=client.conn, data=manage_reply(record)), record.id)

    def _pull(self, client: Client, stream: WatchStream, record: link.ManageRequest) -> None:
        """Publish the events that are ready, then reply."""
        if stream.credit != 0:
            raise MessageError("invalid_payload", "pull requires a subscription with prefetch: 0")
        self._broker.flush()
        pulled = stream.pull(record.limit)
        for seq, suffix in pulled:
            self._broker.publish(stream, seq, suffix)
        self._broker.reply(
            client, link.Reply(conn=client.conn, data=manage_reply(record, count=len(pulled))), record.id
        )

    def _settle_delivery(self, client: Client, record: link.SettleDelivery) -> None:
        session = self._broker.session_of(client)
        if record.release:
            session.release(record.delivery)
        elif record.cause is not None:
            span = duration_from_ms(record.milliseconds) if record.milliseconds is not None else None
            session.nack(record.delivery, retry=record.retry, delay=span, cause=record.cause)
        else:
            text, params = settle_statement(record)
            session.execute_without_waiting(text, params)
        for stream in client.subscriptions.values():
            if isinstance(stream, WatchStream) and stream.credit is not None:
                stream.mark_ready()  # credit may be available again
        data = encode_message(f"{record.operation}_ack", {"deliveryId": record.delivery}, record.id)
        self._broker.reply(client, link.Reply(conn=client.conn, data=data), record.id)


_REQUESTS: dict[type[Any], Callable[[Requests, Client, Any], None]] = {
    link.ExecuteRequest: Requests._execute,
    link.SubscribeRequest: Requests._subscribe,
    link.UnsubscribeRequest: Requests._unsubscribe,
    link.ResumeRequest: Requests._resume,
    link.UpdateClaims: Requests._update_claims,
    link.ReplayRequest: Requests._replay,
    link.AckEvents: Requests._ack_events,
    link.SettleDelivery: Requests._settle_delivery,
    link.ManageRequest: Requests._manage,
}
