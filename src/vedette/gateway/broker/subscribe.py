"""Subscribe and resume over the graph: choose the stream for a request and send its first messages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.change import Event
from vedette.engine.session.watch_feed import WatchFeed
from vedette.engine.statements.queue import as_consumer
from vedette.errors import FilterError, InvalidStatement, WatchError
from vedette.filters.bind_request import bind_request
from vedette.filters.collection_query import CollectionQuery, parse_query
from vedette.filters.document_filter import compile_filter
from vedette.filters.inputs import FilterRequest
from vedette.gateway.collections.queries import (
    has_external_type,
    is_external,
    query_from_filter,
    query_from_watch,
    request_auth,
)
from vedette.gateway.collections.stream import CollectionRequest, CollectionStream, SavedCollectionStream
from vedette.gateway.streams.audit import audit
from vedette.gateway.streams.stream import FilterStream, NodeTypeWatch, Stream, WatchStream
from vedette.gateway.streams.stream_key import claims_hash, filter_key, is_shareable, watch_key
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import (
    Subscribe,
    decode_params,
    encode,
    encode_message,
    error_payload,
    to_wire,
)
from vedette.gateway.wire.replies import too_large
from vedette.gateway.wire.resume_token import ResumeToken
from vedette.gateway.wire.snapshot_page import MAX_SNAPSHOT_BYTES, snapshot_page
from vedette.language.syntax import statements as ast
from vedette.values import duration_to_ms, timestamp_to_ms

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker, Client
    from vedette.gateway.streams.tenant import Tenant

__all__ = ["MATCHER_VERSION", "GraphSubscriber"]

MATCHER_VERSION = "mew-1.cel-1"
DEFAULT_PREFETCH = 10
DEFAULT_MAX_UNACKED = 1000
"""Default limit on unacknowledged events of a reliable watch."""

SMALLER_ADVICE = (
    "watch with [initial: none] and read existing matches in pages (MATCH … ORDER BY … LIMIT), or RETURN less"
)
_ATTEMPTS = 8


class GraphSubscriber:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._last_stream_id = 0
        self.resumes: dict[str, int] = {}
        """Number of resumes by outcome: "ok", or the reason for refusal."""

    def subscribe(self, client: Client, record: link.SubscribeRequest) -> None:
        payload = msgspec.convert({_WIRE.get(k, k): v for k, v in record.payload.items()}, Subscribe)
        if payload.watch is not None:
            if payload.consume:
                text = as_consumer(client.tenant.database, payload.watch)
                payload = msgspec.structs.replace(payload, watch=text)
            self._subscribe_watch(client, record.sub_id, payload)
        elif payload.attach is not None:
            feed = WatchFeed.attach(self._broker.session_of(client), payload.attach)
            self._subscribe_exclusive(client, record.sub_id, payload, feed)
        else:
            self._subscribe_filter(client, record.sub_id, payload)

    def resubscribe(self, client: Client, sub_id: str, request: CollectionRequest) -> None:
        """Subscribe again after a collection stream was lost before its subscriber got a reply."""
        self._broker.collection_broker().subscribe(client, sub_id, request, self._next_stream_id)

    def _next_stream_id(self) -> int:
        self._last_stream_id += 1
        self._broker.streams += 1
        return self._last_stream_id

    # --- watches ------------------------------------------------------------------------------------------------

    def _subscribe_watch(self, client: Client, sub: str, payload: Subscribe) -> None:
        assert payload.watch is not None
        tenant, params = client.tenant, decode_params(payload.params)
        prepared, _ = tenant.database.statements.prepare_one(payload.watch)
        statement = prepared.statement
        if not isinstance(statement, ast.Watch):
            raise InvalidStatement(
                "E1101", "subscribe requires a WATCH statement; use execute for other statements"
            )
        if has_external_type(statement):
            request = query_from_watch(client, payload.watch, params, payload, self._broker.limits.filters)
            self._broker.collection_broker().subscribe(client, sub, request, self._next_stream_id)
            return
        if payload.exclusive or payload.prefetch == 0 or not is_shareable(statement, payload.watch):
            feed = WatchFeed.create(self._broker.session_of(client), payload.watch, params)
            self._subscribe_exclusive(client, sub, payload, feed)
            return
        actor = None if client.system else client.actor
        used_params = {name: params[name] for name in prepared.parameters if name in params}
        key = watch_key(tenant, actor, payload.watch, used_params)
        known = tenant.streams.get(key)
        if isinstance(known, WatchStream):
            self._join_watch(client, sub, known, payload.watch, params)
        else:
            self._open_watch(client, sub, payload.watch, params, payload.params)

    def restore_collection_stream(
        self, tenant: Tenant, key: bytes, actor: str | None, saved: SavedCollectionStream, position: int
    ) -> CollectionStream:
        """Continue a collection stream of the previous server."""
        collections = self._broker.collection_broker()
        return collections.restore_stream(tenant, key, actor, saved, position, self._next_stream_id())

    def open_watch_stream(
        self,
        tenant: Tenant,
        actor: str | None,
        text: str,
        params: dict[str, Any],
        wire_params: dict[str, Any],
    ) -> WatchStream:
        """Open a stream over a shareable watch. `wire_params`: the parameters in wire form."""
        prepared, _ = tenant.database.statements.prepare_one(text)
        used_params = {name: params[name] for name in prepared.parameters if name in params}
        feed = tenant.create_shared_watch(actor, text, params)
        key = watch_key(tenant, actor, text, used_params)
        stream = WatchStream(tenant, self._next_stream_id(), key, actor, feed, shared=True)
        stream.restore_spec = encode(
            {"watch": text, "params": {name: wire_params[name] for name in used_params}}
        )
        tenant.streams[key] = stream
        return stream

    def _open_watch(
        self, client: Client, sub: str, text: str, params: dict[str, Any], wire_params: dict[str, Any]
    ) -> None:
        actor = None if client.system else client.actor
        stream = self.open_watch_stream(client.tenant, actor, text, params, wire_params)
        feed = stream.feed
        self._broker.add_subscription(client, sub, stream)
        events = feed.take()
        initial = events.pop(0) if events and events[0].type == "initial" else None
        self._acknowledge(client, sub, stream, initial)
        for event in events:
            seq, suffix = stream.append_event(event)
            self._broker.publish(stream, seq, suffix)
        feed.listen(stream.mark_ready)

    def _join_watch(
        self, client: Client, sub: str, stream: WatchStream, text: str, params: dict[str, Any]
    ) -> None:
        session = client.tenant.shared_session(stream.actor)
        stream.feed.check_rights(session, text, params)
        wants = stream.feed.options.initial.kind == "full" and stream.feed.has_columns
        initial = self._consistent_snapshot(stream) if wants else None
        self._broker.add_subscription(client, sub, stream)
        self._acknowledge(client, sub, stream, initial)

    def _consistent_snapshot(self, source: WatchStream | NodeTypeWatch) -> Event:
        """Return a snapshot consistent with the stream: every earlier event is numbered, no later one is."""
        for _ in range(_ATTEMPTS):
            self._broker.flush()
            self._broker.publish_ready(source)
            snapshot = source.feed.snapshot()
            if snapshot is not None:
                return snapshot
        raise InvalidStatement("E1102", "the watch changes too fast for a snapshot: subscribe again")

    def _acknowledge(self, client: Client, sub: str, stream: WatchStream, initial: Event | None) -> None:
        messages = [self._ack(sub, stream, pending=initial is not None)]
        if initial is not None:
            prefix = client.tenant.event_prefix + encode(sub)
            messages.append(prefix + stream.encode_initial(initial))
            self._check_size(client, sub, messages[-1])
        self._subscribed(client, sub, stream, messages)

    def _check_size(self, client: Client, sub: str, initial: bytes) -> None:
        """Raise `too_large` if the initial event, which is a single message, exceeds the limit."""
        if len(initial) > self._broker.limits.max_answer_bytes:
            self._broker.remove_subscription(client, sub)
            raise too_large(
                "The initial event of the watch", self._broker.limits.max_answer_bytes, SMALLER_ADVICE
            )

    def _ack(self, sub: str, stream: Stream, *, pending: bool, **more: Any) -> bytes:
        payload: dict[str, Any] = {
            "subId": sub,
            "matcherVersion": MATCHER_VERSION,
            "partitions": 1,
            "seq": stream.history.last_seq,
            **more,
        }
        if stream.stream_key is not None:
            payload["resumeToken"] = stream.tenant.sign_token(
                stream, stream.history.last_seq, snapshot_pending=pending
            )
        return encode_message("subscribe_ack", payload, sub)

    def _subscribed(
        self, client: Client, sub: str, stream: Stream, messages: list[bytes], **more: Any
    ) -> None:
        record = link.Subscribed(
            conn=client.conn,
            sub_id=sub,
            stream=stream.stream_id,
            seq=stream.history.last_seq,
            messages=messages,
            event_prefix=client.tenant.event_prefix,
            **more,
        )
        self._broker.reply(client, record, sub)

    def _subscribe_exclusive(self, client: Client, sub: str, payload: Subscribe, feed: WatchFeed) -> None:
        """Subscribe to a watch in the connection's own session."""
        stream = WatchStream(client.tenant, self._next_stream_id(), None, client.actor, feed, shared=False)
        options = feed.options
        if payload.prefetch == 0:
            stream.credit = 0
        elif options.mode == "consume":
            stream.credit = min(options.buffer, payload.prefetch or DEFAULT_PREFETCH)
        elif options.delivery == "reliable":
            stream.credit = payload.max_unacked or DEFAULT_MAX_UNACKED
        stream.owner = (client, sub)
        if feed.lasts:
            self._end_previous_owner(client.tenant, stream)
        self._broker.add_subscription(client, sub, stream)
        details: dict[str, Any] = {"handle": feed.id, "mode": options.mode, "delivery": options.delivery}
        if feed.name is not None:
            details["name"] = feed.name
        if feed.lasts:
            details["lasts"] = True
        if options.mode == "consume":
            details["leaseMs"] = duration_to_ms(options.ack_timeout)
        messages = [self._ack(sub, stream, pending=False, **details)]
        self._subscribed(client, sub, stream, messages, credit_based=stream.credit is not None)
        feed.listen(stream.mark_ready)
        stream.mark_ready()

    def _end_previous_owner(self, tenant: Tenant, stream: WatchStream) -> None:
        """End the stream of the previous owner of a durable watch, and notify that owner."""
        previous = tenant.durable_streams.get(stream.feed.id)
        if previous is not None:
            text = "Another session has attached to this watch: attach again to take it over"
            self._broker.end_for([previous], "taken", [error_payload(WatchError("E8010", text))])
        tenant.durable_streams[stream.feed.id] = stream

    # --- filters ------------------------------------------------------------------------------------------------

    def _subscribe_filter(self, client: Client, sub: str, payload: Subscribe) -> None:
        asked = payload.query
        if asked is None:
            asked = {"collection": payload.collection}
            asked |= {"filter": payload.filter} if payload.filter is not None else {}
        query = parse_query(asked, self._broker.limits.filters)
        if is_external(query.collection):
            request = query_from_filter(client, asked, query, payload, self._broker.limits.filters)
            self._broker.collection_broker().subscribe(client, sub, request, self._next_stream_id)
            self._bind_to_claims(client, client.subscriptions[sub], query)
            return
        stream = self._filter_stream(client, asked, query, include_data=payload.includeData)
        self._bind_to_claims(client, stream, query)
        snapshot = self._consistent_snapshot(stream.node_type_watch) if payload.sendSnapshot else None
        self._broker.add_subscription(client, sub, stream)
        messages = [self._ack(sub, stream, pending=snapshot is not None)]
        if snapshot is not None:
            messages.append(self._snapshot(sub, stream, query, snapshot))
        self._subscribed(client, sub, stream, messages)

    def _bind_to_claims(self, client: Client, stream: Stream, query: CollectionQuery) -> None:
        """Store the claims hash if the filter depends on the token; the stream is then valid for these claims only."""
        if (
            bind_request(query.condition, FilterRequest(auth=None, time=client.tenant.clock.now()))
            != query.condition
        ):
            stream.claims_hash = claims_hash(client)

    def _filter_stream(
        self, client: Client, asked: dict[str, Any], query: CollectionQuery, *, include_data: bool
    ) -> FilterStream:
        tenant, actor, moment = (
            client.tenant,
            None if client.system else client.actor,
            client.tenant.clock.now(),
        )
        auth = request_auth(client)
        known = tenant.streams.get(filter_key(tenant, actor, query, auth, moment, include_data=include_data))
        if isinstance(known, FilterStream):
            return known
        watch = tenant.node_type_watch(query.collection, actor)
        self._broker.flush()
        self._broker.publish_ready(watch)  # earlier changes are not for the new subscriber
        try:
            return self.open_filter_stream(tenant, actor, asked, auth, moment, include_data=include_data)
        finally:
            watch.close_unused()

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
        query = parse_query(asked, self._broker.limits.filters)
        bound = bind_request(query.condition, FilterRequest(auth=auth, time=moment))
        condition = compile_filter(bound, limits=self._broker.limits.filters)
        key = filter_key(tenant, actor, query, auth, moment, include_data=include_data)
        watch = tenant.node_type_watch(query.collection, actor)
        stream = FilterStream(watch, self._next_stream_id(), key, condition, include_data=include_data)
        stream.restore_spec = encode(
            {"query": asked, "auth": auth, "time": timestamp_to_ms(moment), "data": include_data}
        )
        tenant.streams[key] = stream
        return stream

    def _snapshot(self, sub: str, stream: FilterStream, query: CollectionQuery, event: Event) -> bytes:
        """Encode the snapshot, or an error if it cannot be sent. The subscription stays active either way."""
        documents = [d for d in stream.node_type_watch.documents(event) if stream.matches(d, "create", None)]
        seq = stream.history.last_seq
        try:
            page = snapshot_page(query, documents)
        except FilterError as error:
            code = "snapshot_limit" if error.code == "E1202" else "snapshot_failed"
            return encode_message("error", {"code": code, "message": error.text, "subId": sub}, sub)
        token = stream.tenant.sign_token(stream, seq)
        payload = {"subId": sub, **page, "partition": 0, "seq": seq, "lsn": event.tick, "resumeToken": token}
        data = encode_message("snapshot", to_wire(payload), sub)
        if len(data) > MAX_SNAPSHOT_BYTES:
            text = "the snapshot is larger than 16 MiB: request pages with limit and startAfter"
            return encode_message("error", {"code": "snapshot_limit", "message": text, "subId": sub}, sub)
        return data

    # --- resuming -----------------------------------------------------------------------------------------------

    def resume(self, client: Client, record: link.ResumeRequest) -> None:
        """Resume a stream: replay every event after the token's seq, or reply resync-required with a reason."""
        broker, tenant = self._broker, client.tenant
        broker.flush()
        token = tenant.verify_token(record.token)
        stream = tenant.streams.get(token.stream_key) if token is not None else None
        reason = self.refusal_reason(client, record, token, stream)
        self.resumes[reason or "ok"] = self.resumes.get(reason or "ok", 0) + 1
        if reason is not None or token is None or stream is None:
            audit(client, "resume.refused", record.sub_id, reason=reason)
            refusal = {
                "type": "resume-ack",
                "subId": record.sub_id,
                "status": "resync-required",
                "reason": reason,
            }
            data = encode(refusal if record.id is None else {"id": record.id, **refusal})
            broker.reply(client, link.Reply(conn=client.conn, data=data), record.id)
            return
        seq = _resume_seq(token, record)
        if client.subscriptions.get(record.sub_id) is not stream:
            broker.remove_subscription(client, record.sub_id)
            broker.add_subscription(client, record.sub_id, stream)
        answer = {"type": "resume-ack", "subId": record.sub_id, "status": "ok", "fromSeq": seq + 1}
        subscribed = link.Subscribed(
            conn=client.conn,
            sub_id=record.sub_id,
            stream=stream.stream_id,
            seq=seq,
            messages=[encode(answer if record.id is None else {"id": record.id, **answer})],
            event_prefix=tenant.event_prefix,
            replay_follows=True,
        )
        broker.reply(client, subscribed, record.id)
        broker.replay(client, record.sub_id, stream, seq)

    def refusal_reason(
        self, client: Client, record: link.ResumeRequest, token: ResumeToken | None, stream: Stream | None
    ) -> str | None:
        """Return why the subscription cannot be resumed; None if it can."""
        if token is None or token.epoch != client.tenant.database.epoch:
            return "generation"
        if token.snapshot_pending or set(token.seqs) != {0}:
            return "snapshot"
        held = client.subscriptions.get(record.sub_id)
        if held is not None and held.stream_key != token.stream_key:
            return "query-changed"
        if stream is None:
            return "window"
        if stream.actor != (None if client.system else client.actor):
            return "auth"
        if stream.claims_hash not in (None, claims_hash(client)):
            return "auth"
        seq = _resume_seq(token, record)
        ahead = record.last_seq is not None and record.last_seq.get(0, 0) > stream.history.last_seq
        if seq > stream.history.last_seq or ahead:
            return "gap"
        return None if stream.history.can_replay_from(seq) else "window"


def _resume_seq(token: ResumeToken, record: link.ResumeRequest) -> int:
    """Return the seq to resume after. A client's `lastSeq` can only move it back: duplicates are harmless, gaps are
    not.
    """
    last_seq = record.last_seq.get(0) if record.last_seq is not None else None
    return token.seqs[0] if last_seq is None else min(token.seqs[0], last_seq)


_WIRE = {"max_unacked": "maxUnacked"}
"""Field names that differ on the wire."""
