"""Dispatches the requests of clients: statements, subscriptions, deliveries, watches. Engine thread only.

No request waits for the disk. Replies go to the send queue, which holds them until they are durable. A failing request
affects only its own reply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from vedette.clock import Clock
from vedette.engine.statements.queue import as_consumer
from vedette.errors import InvalidStatement, SourceError, VedetteError
from vedette.filters.collection_query import parse_query
from vedette.gateway.broker.resume import StreamResumer
from vedette.gateway.broker.statements import FinishedRead, StatementExecutor
from vedette.gateway.broker.subscribe import GraphSubscriber
from vedette.gateway.collections.broker import CollectionBroker
from vedette.gateway.collections.queries import has_external_type, is_external
from vedette.gateway.collections.stream import CollectionStream
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.stream_key import claims_hash
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.watch_stream import WatchStream
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import (
    MessageError,
    Subscribe,
    decode_params,
    encode_message,
    error_payload,
)
from vedette.gateway.wire.replies import manage_reply, settle_statement
from vedette.language.syntax import statements as ast
from vedette.values import duration_from_ms

__all__ = ["RequestDispatcher"]

log = logging.getLogger(__name__)


class RequestDispatcher:
    """Executes each request with the part that serves it: statements, subscriptions, resumes, deliveries."""

    def __init__(
        self,
        send_queue: SendQueue,
        subscriptions: SubscriptionTable,
        pump: StreamPump,
        *,
        statements: StatementExecutor,
        graph_subscriber: GraphSubscriber,
        resumer: StreamResumer,
        limits: GatewayLimits,
        clock: Clock,
    ) -> None:
        self._send_queue, self._subscriptions, self._pump = send_queue, subscriptions, pump
        self._statements, self._graph_subscriber, self._resumer = statements, graph_subscriber, resumer
        self._limits, self._clock = limits, clock
        self.collections: CollectionBroker | None = None
        """External collections; None on a server without a data directory."""

    def finish_threaded(self) -> None:
        """Answer finished thread-pool reads, and start those that were waiting for a congested gateway."""
        while (finished := self._statements.next_finished()) is not None:
            self._finish_read(finished)
        self._statements.start_waiting()

    def _finish_read(self, finished: FinishedRead) -> None:
        """Send the reply of a long read, then handle the requests that its client sent in the meantime."""
        client, session, request_id, reply = finished
        error = reply.exception()
        if not self._subscriptions.is_connected(client):
            session.close()
            return
        if error is None:
            self._send_queue.reply(client, link.Reply(conn=client.conn, data=reply.result()), request_id)
        else:
            self._send_queue.fail(client, request_id, self._error_payload(client, error))
        for ack in client.take_deferred_acks():
            self.handle(client, ack)
        while client.deferred_requests and not client.busy:
            self.handle(client, client.deferred_requests.popleft())

    def handle(self, client: Client, record: link.GatewayRequest) -> None:
        """Execute one request. An error becomes its reply."""
        try:
            _HANDLERS[type(record)](self, client, record)
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
        reference = f"{client.conn:x}-{self._clock.now():%H%M%S%f}"
        ids = {"tenant": client.tenant.name, "conn": client.conn, "reference": reference}
        log.error("A request failed", exc_info=error, extra={"action": "broker.request_failed", **ids})
        return {"code": "internal", "message": f"internal error; see the server log, reference {reference}"}

    def _refuse(self, client: Client, record: link.GatewayRequest, payload: dict[str, Any]) -> None:
        """Send an error for a request. A failed replay request becomes resync-required."""
        if isinstance(record, link.ReplayRequest):
            self._send_queue.reply(
                client, link.ResyncRequired(conn=client.conn, sub_id=record.sub_id, reason="overflow")
            )
        elif not isinstance(record, link.AckEvents | link.UpdateClaims):  # these get no reply
            self._send_queue.fail(client, link.request_id(record), payload)

    def _execute(self, client: Client, record: link.ExecuteRequest) -> None:
        self._statements.execute(client, record)

    # --- subscriptions ------------------------------------------------------------------------------------------

    def _subscribe(self, client: Client, record: link.SubscribeRequest) -> None:
        """Subscribe. The graph or the pipeline evaluates the request, depending on its types."""
        sub_id, payload = record.sub_id, msgspec.convert(record.payload, Subscribe)
        self._subscriptions.check_quotas(client, sub_id)
        self._subscriptions.remove(client, sub_id)
        if payload.watch is not None:
            self._subscribe_watch(client, sub_id, payload.watch, payload)
        elif payload.attach is not None:
            self._graph_subscriber.attach(client, sub_id, payload)
        else:
            self._subscribe_filter(client, sub_id, payload)

    def _subscribe_watch(self, client: Client, sub_id: str, text: str, payload: Subscribe) -> None:
        if payload.consume:
            text = as_consumer(client.tenant.database, text)
            payload = msgspec.structs.replace(payload, watch=text)
        params = decode_params(payload.params)
        prepared, _ = client.tenant.database.statements.prepare_one(text)
        if not isinstance(prepared.statement, ast.Watch):
            raise InvalidStatement(
                "E1101", "subscribe requires a WATCH statement; use execute for other statements"
            )
        if has_external_type(prepared.statement):
            self._require_collections().subscribe_watch(client, sub_id, text, params, payload)
        else:
            self._graph_subscriber.subscribe_watch(client, sub_id, prepared.statement, params, payload)

    def _subscribe_filter(self, client: Client, sub_id: str, payload: Subscribe) -> None:
        asked = payload.query
        if asked is None:
            asked = {"collection": payload.collection}
            asked |= {"filter": payload.filter} if payload.filter is not None else {}
        query = parse_query(asked, self._limits.filters)
        if is_external(query.collection):
            self._require_collections().subscribe_filter(client, sub_id, asked, query, payload)
        else:
            self._graph_subscriber.subscribe_filter(client, sub_id, asked, query, payload)

    def _require_collections(self) -> CollectionBroker:
        """Return the collection broker; raise E6103 on a server without a data directory."""
        if self.collections is None:
            text = "this server has no data directory and therefore no sources: start it with --data DIR"
            raise SourceError("E6103", text)
        return self.collections

    def _resume(self, client: Client, record: link.ResumeRequest) -> None:
        self._subscriptions.check_quotas(client, record.sub_id)
        self._resumer.resume(client, record)

    def _replay(self, client: Client, record: link.ReplayRequest) -> None:
        self._resumer.replay(client, record)

    def _unsubscribe(self, client: Client, record: link.UnsubscribeRequest) -> None:
        stream = client.subscriptions.get(record.sub_id)
        if isinstance(stream, WatchStream) and stream.feed.lasts:
            stream.feed.detach()
        self._subscriptions.remove(client, record.sub_id)
        data = encode_message("unsubscribe_ack", None, record.id)
        self._send_queue.reply(client, link.Unsubscribed(conn=client.conn, sub_id=record.sub_id, data=data))

    def _update_claims(self, client: Client, record: link.UpdateClaims) -> None:
        """Update the claims. Filters that depend on the token are bound when subscribed, so their clients must
        resubscribe.
        """
        client.update_claims(record.claims)
        claims = claims_hash(client.request_auth())
        for name, stream in list(client.subscriptions.items()):
            if stream.claims_hash not in (None, claims):
                self._subscriptions.remove(client, name)
                self._send_queue.reply(
                    client, link.ResyncRequired(conn=client.conn, sub_id=name, reason="auth")
                )

    def _ack_events(self, client: Client, record: link.AckEvents) -> None:
        names = [record.sub_id] if record.sub_id is not None else list(client.subscriptions)
        for name in names:
            stream = client.subscriptions.get(name)
            if stream is not None:
                stream.acknowledge(client.address(name), record.seq, self._clock.monotonic())

    def _manage(self, client: Client, record: link.ManageRequest) -> None:
        stream = client.subscriptions.get(record.sub_id)
        if isinstance(stream, CollectionStream) and record.operation == "cancel":
            self._subscriptions.remove(client, record.sub_id)
            self._send_queue.reply(
                client, link.Unsubscribed(conn=client.conn, sub_id=record.sub_id, data=manage_reply(record))
            )
            return
        if not isinstance(stream, WatchStream) or (stream.shared and record.operation == "alter"):
            text = "only an exclusive watch can be altered: subscribe with exclusive: true"
            raise MessageError("not_exclusive", text)
        if record.operation == "cancel":
            if not stream.shared:
                stream.feed.cancel()
            self._subscriptions.remove(client, record.sub_id)
            self._send_queue.reply(
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
        self._send_queue.reply(client, link.Reply(conn=client.conn, data=manage_reply(record)), record.id)

    def _pull(self, client: Client, stream: WatchStream, record: link.ManageRequest) -> None:
        """Publish the events that are ready, then reply."""
        if stream.credit != 0:
            raise MessageError("invalid_payload", "pull requires a subscription with prefetch: 0")
        self._pump.flush()
        pulled = stream.pull(record.limit)
        for event in pulled:
            self._pump.publish(stream, event)
        self._send_queue.reply(
            client, link.Reply(conn=client.conn, data=manage_reply(record, count=len(pulled))), record.id
        )

    def _settle_delivery(self, client: Client, record: link.SettleDelivery) -> None:
        session = client.own_session()
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
        self._send_queue.reply(client, link.Reply(conn=client.conn, data=data), record.id)


_HANDLERS: dict[type[Any], Callable[[RequestDispatcher, Client, Any], None]] = {
    link.ExecuteRequest: RequestDispatcher._execute,
    link.SubscribeRequest: RequestDispatcher._subscribe,
    link.UnsubscribeRequest: RequestDispatcher._unsubscribe,
    link.ResumeRequest: RequestDispatcher._resume,
    link.UpdateClaims: RequestDispatcher._update_claims,
    link.ReplayRequest: RequestDispatcher._replay,
    link.AckEvents: RequestDispatcher._ack_events,
    link.SettleDelivery: RequestDispatcher._settle_delivery,
    link.ManageRequest: RequestDispatcher._manage,
}
