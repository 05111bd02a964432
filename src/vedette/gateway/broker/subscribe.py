"""Subscribes clients to the graph: chooses the stream for a watch or filter and sends its first messages.

Equal subscribers share a stream (`streams/stream_key.py`). A watch that depends on its session, such as one in consume
mode, gets a stream of its own, whose events are bounded by credit. Engine thread only.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from vedette.change import Event
from vedette.engine.session.watch_feed import WatchFeed
from vedette.errors import InvalidStatement, WatchError
from vedette.filters.bind_request import bind_request
from vedette.filters.collection_query import CollectionQuery, parse_query
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterRequest
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.filter_stream import FilterStream, NodeTypeWatch
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.stream import Stream
from vedette.gateway.streams.stream_key import (
    claims_hash,
    depends_on_claims,
    filter_key,
    is_shareable,
    watch_key,
)
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.streams.watch_stream import WatchStream
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import Subscribe, encode, error_payload
from vedette.gateway.wire.replies import SMALLER_INITIAL_ADVICE, snapshot_message, subscribe_ack, too_large
from vedette.language.syntax import statements as ast
from vedette.values import duration_to_ms, timestamp_to_ms

__all__ = ["GraphSubscriber"]

DEFAULT_PREFETCH = 10
"""Default limit on unsettled deliveries in consume mode."""
DEFAULT_MAX_UNACKED = 1000
"""Default limit on unacknowledged events of a reliable watch."""
_SNAPSHOT_ATTEMPTS = 8


class GraphSubscriber:
    def __init__(
        self,
        send_queue: SendQueue,
        subscriptions: SubscriptionTable,
        pump: StreamPump,
        limits: GatewayLimits,
    ) -> None:
        self._send_queue, self._subscriptions, self._pump = send_queue, subscriptions, pump
        self._limits = limits

    # --- watches ------------------------------------------------------------------------------------------------

    def subscribe_watch(
        self, client: Client, sub_id: str, statement: ast.Watch, params: dict[str, Any], payload: Subscribe
    ) -> None:
        """Subscribe to a WATCH. `statement`: the parsed text of `payload.watch`; `params`: its decoded parameters."""
        text = payload.watch
        assert text is not None
        if payload.exclusive or payload.prefetch == 0 or not is_shareable(statement, text):
            feed = WatchFeed.create(client.own_session(), text, params)
            self._subscribe_exclusive(client, sub_id, payload, feed)
            return
        tenant, actor = client.tenant, client.effective_actor
        known = tenant.streams.get(watch_key(tenant.name, actor, text, _used_params(tenant, text, params)))
        if isinstance(known, WatchStream):
            self._join_watch(client, sub_id, known, text, params)
        else:
            self._open_watch(client, sub_id, text, params, payload.params)

    def attach(self, client: Client, sub_id: str, payload: Subscribe) -> None:
        """Attach to the durable watch that `payload.attach` names."""
        assert payload.attach is not None
        feed = WatchFeed.attach(client.own_session(), payload.attach)
        self._subscribe_exclusive(client, sub_id, payload, feed)

    def open_watch_stream(
        self,
        tenant: Tenant,
        actor: str | None,
        text: str,
        params: dict[str, Any],
        wire_params: dict[str, Any],
    ) -> WatchStream:
        """Open a stream over a shareable watch. `wire_params`: the parameters in wire form."""
        used_params = _used_params(tenant, text, params)
        key = watch_key(tenant.name, actor, text, used_params)
        stream = tenant.open_shared_stream(self._subscriptions.new_stream_id(), key, actor, text, params)
        stream.restore_spec = encode(
            {"watch": text, "params": {name: wire_params[name] for name in used_params}}
        )
        return stream

    def _open_watch(
        self, client: Client, sub_id: str, text: str, params: dict[str, Any], wire_params: dict[str, Any]
    ) -> None:
        stream = self.open_watch_stream(client.tenant, client.effective_actor, text, params, wire_params)
        self._subscriptions.add(client, sub_id, stream)
        events = stream.feed.take()
        initial = events.pop(0) if events and events[0].type == "initial" else None
        self._acknowledge(client, sub_id, stream, initial)
        for event in events:
            self._pump.publish(stream, stream.append_event(event))
        stream.feed.listen(stream.mark_ready)

    def _join_watch(
        self, client: Client, sub_id: str, stream: WatchStream, text: str, params: dict[str, Any]
    ) -> None:
        session = client.tenant.shared_session(stream.actor)
        stream.feed.check_rights(session, text, params)
        wants_initial = stream.feed.options.initial.kind == "full" and stream.feed.has_columns
        initial = self._consistent_snapshot(stream) if wants_initial else None
        self._subscriptions.add(client, sub_id, stream)
        self._acknowledge(client, sub_id, stream, initial)

    def _consistent_snapshot(self, source: WatchStream | NodeTypeWatch) -> Event:
        """Return a snapshot consistent with the stream: every earlier event is numbered, no later one is."""
        for _ in range(_SNAPSHOT_ATTEMPTS):
            self._pump.flush()
            self._pump.publish_ready(source)
            snapshot = source.feed.snapshot()
            if snapshot is not None:
                return snapshot
        raise InvalidStatement("E1102", "the watch changes too fast for a snapshot: subscribe again")

    def _acknowledge(self, client: Client, sub_id: str, stream: WatchStream, initial: Event | None) -> None:
        """Send the acknowledgement and the `initial` event. Raise `too_large` if that event exceeds the limit."""
        messages = [_subscribe_ack(sub_id, stream, snapshot_pending=initial is not None)]
        if initial is not None:
            prefix = stream.event_log.event_prefix + encode(sub_id)
            messages.append(prefix + stream.encode_initial(initial))
            limit = self._limits.max_answer_bytes
            if len(messages[-1]) > limit:
                self._subscriptions.remove(client, sub_id)
                raise too_large("The initial event of the watch", limit, SMALLER_INITIAL_ADVICE)
        self._send_subscribed(client, sub_id, stream, messages)

    def _send_subscribed(
        self,
        client: Client,
        sub_id: str,
        stream: Stream,
        messages: list[bytes],
        *,
        credit_based: bool = False,
    ) -> None:
        record = link.Subscribed(
            conn=client.conn,
            sub_id=sub_id,
            stream=stream.stream_id,
            seq=stream.history.last_seq,
            messages=messages,
            event_prefix=stream.event_log.event_prefix,
            credit_based=credit_based,
        )
        self._send_queue.reply(client, record, sub_id)

    def _subscribe_exclusive(self, client: Client, sub_id: str, payload: Subscribe, feed: WatchFeed) -> None:
        """Subscribe to a watch in the connection's own session."""
        stream_id = self._subscriptions.new_stream_id()
        stream = client.tenant.open_exclusive_stream(stream_id, client.actor, feed)
        options = feed.options
        if payload.prefetch == 0:
            stream.credit = 0
        elif options.mode == "consume":
            stream.credit = min(options.buffer, payload.prefetch or DEFAULT_PREFETCH)
        elif options.delivery == "reliable":
            stream.credit = payload.max_unacked or DEFAULT_MAX_UNACKED
        stream.owner = client.address(sub_id)
        if feed.lasts:
            self._end_previous_owner(client.tenant, stream)
        self._subscriptions.add(client, sub_id, stream)
        details: dict[str, Any] = {"handle": feed.id, "mode": options.mode, "delivery": options.delivery}
        if feed.name is not None:
            details["name"] = feed.name
        if feed.lasts:
            details["lasts"] = True
        if options.mode == "consume":
            details["leaseMs"] = duration_to_ms(options.ack_timeout)
        messages = [_subscribe_ack(sub_id, stream, snapshot_pending=False, **details)]
        self._send_subscribed(client, sub_id, stream, messages, credit_based=stream.credit is not None)
        feed.listen(stream.mark_ready)
        stream.mark_ready()

    def _end_previous_owner(self, tenant: Tenant, stream: WatchStream) -> None:
        """End the stream of the previous owner of a durable watch, and notify that owner."""
        previous = tenant.durable_streams.get(stream.feed.id)
        if previous is not None:
            text = "Another session has attached to this watch: attach again to take it over"
            self._pump.end_streams([previous], "taken", [error_payload(WatchError("E8010", text))])
        tenant.durable_streams[stream.feed.id] = stream

    # --- filters ------------------------------------------------------------------------------------------------

    def subscribe_filter(
        self, client: Client, sub_id: str, asked: dict[str, Any], query: CollectionQuery, payload: Subscribe
    ) -> None:
        """Subscribe to a filter. `asked`: the query as the client sent it; `query`: the same, parsed."""
        stream = self._filter_stream(client, asked, query, include_data=payload.includeData)
        if depends_on_claims(query, client.tenant.clock.now()):
            stream.claims_hash = claims_hash(client.request_auth())
        snapshot = self._consistent_snapshot(stream.node_type_watch) if payload.sendSnapshot else None
        self._subscriptions.add(client, sub_id, stream)
        messages = [_subscribe_ack(sub_id, stream, snapshot_pending=snapshot is not None)]
        if snapshot is not None:
            messages.append(_filter_snapshot(sub_id, stream, query, snapshot))
        self._send_subscribed(client, sub_id, stream, messages)

    def _filter_stream(
        self, client: Client, asked: dict[str, Any], query: CollectionQuery, *, include_data: bool
    ) -> FilterStream:
        """Return the stream of equal filters, or open one at the current position of the node type's watch."""
        tenant, actor, auth = client.tenant, client.effective_actor, client.request_auth()
        moment = tenant.clock.now()
        key = filter_key(tenant.name, actor, query, auth, moment, include_data=include_data)
        known = tenant.streams.get(key)
        if isinstance(known, FilterStream):
            return known
        watch = tenant.node_type_watch(query.collection, actor)
        self._pump.flush()
        self._pump.publish_ready(watch)  # earlier changes are not for the new subscriber
        try:
            return self.open_filter_stream(tenant, actor, asked, auth, moment, include_data=include_data)
        finally:
            tenant.close_if_unused(watch)

    def open_filter_stream(
        self,
        tenant: Tenant,
        actor: str | None,
        asked: dict[str, Any],
        auth: dict[str, Any] | None,
        moment: datetime,
        *,
        include_data: bool,
    ) -> FilterStream:
        """Open a stream over a filter that equal subscribers share."""
        query = parse_query(asked, self._limits.filters)
        bound = bind_request(query.condition, FilterRequest(auth=auth, time=moment))
        condition = compile_filter(bound, limits=self._limits.filters)
        key = filter_key(tenant.name, actor, query, auth, moment, include_data=include_data)
        watch = tenant.node_type_watch(query.collection, actor)
        stream = FilterStream(
            watch, self._subscriptions.new_stream_id(), key, condition, include_data=include_data
        )
        stream.restore_spec = encode(
            {"query": asked, "auth": auth, "time_ms": timestamp_to_ms(moment), "include_data": include_data}
        )
        tenant.streams[key] = stream
        return stream


def _used_params(tenant: Tenant, text: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that the statement uses."""
    prepared, _ = tenant.database.statements.prepare_one(text)
    return {name: params[name] for name in prepared.parameters if name in params}


def _subscribe_ack(sub_id: str, stream: Stream, *, snapshot_pending: bool, **details: Any) -> bytes:
    seq, token = stream.history.last_seq, None
    if stream.stream_key is not None:
        token = stream.event_log.sign_token(stream.stream_key, seq, snapshot_pending=snapshot_pending)
    return subscribe_ack(sub_id, seq, token, **details)


def _filter_snapshot(sub_id: str, stream: FilterStream, query: CollectionQuery, event: Event) -> bytes:
    documents = [d for d in stream.node_type_watch.documents(event) if stream.matches(d, "create", None)]
    assert stream.stream_key is not None
    seq = stream.history.last_seq
    token = stream.event_log.sign_token(stream.stream_key, seq)
    return snapshot_message(sub_id, query, documents, seq=seq, tick=event.tick, token=token)
