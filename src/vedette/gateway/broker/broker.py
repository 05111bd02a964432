"""Executes gateway requests and publishes events. Engine thread only, except `mark_ready`.

Theory of operation. Requests arrive in batches. Each request is executed without waiting for the disk, and its replies
and events are queued. One flush then makes the whole batch durable, and only after it are replies, snapshots, errors
and events sent. Requests of one connection are executed in order. A long read continues in a thread; later requests of
its connection are deferred until it finishes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from vedette.clock import Clock
from vedette.engine.commit.lock import LockScope
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.errors import PolicyError, SourceError, StoreError, VedetteError, WatchError
from vedette.gateway.broker.requests import Requests
from vedette.gateway.broker.subscribe import GraphSubscriber
from vedette.gateway.broker.window_file import SavedStream, restore_collections, restore_windows, save_windows
from vedette.gateway.collections.broker import CollectionBroker
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.audit import audit
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.stream import NodeTypeWatch, Stream, WatchStream
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import Port
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.messages import MessageError, encode_message, error_payload
from vedette.gateway.wire.resume_token import TokenSigner

__all__ = ["Broker", "Client"]

log = logging.getLogger(__name__)
REPLAY_CHUNK_BYTES = 262_144
SEND_THRESHOLD_BYTES = 8_388_608
"""Queued payload bytes above which a batch is flushed and sent before it ends."""
MAX_IDLE_STREAMS = 200_000
"""Limit on idle streams kept for clients that may resume; further ones are closed at once."""


class Broker:
    """Serves the clients of all databases of one data directory."""

    def __init__(
        self,
        home: Vedette,
        *,
        signer: TokenSigner,
        limits: GatewayLimits,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        windows: Path | None = None,
    ) -> None:
        """`windows`: file that stores replay windows across restarts; None disables it."""
        self.home = home
        self._windows = windows
        self.limits = limits
        self.clock = clock
        self.signer = signer
        self.graph_subscriber = GraphSubscriber(self)
        self._requests = Requests(self, wake)
        self.collections: CollectionBroker | None = None
        """External collections; None without a data directory."""
        self.saved_collection_streams: list[tuple[Tenant, SavedStream, float]] = []
        """Collection streams of the previous server that are still to be restored, with the time it stopped."""
        self.clients: dict[tuple[Port, int], Client] = {}
        self.tenants: dict[str, Tenant] = {}
        self.streams = 0
        self.subscriptions = 0
        self.events = 0
        self._wake = wake
        self._ready: deque[WatchStream | NodeTypeWatch] = deque()
        self._queued: list[tuple[Port, Any, Tenant | None, str | None]] = []
        """Records held until the next flush: port, record, tenant whose flush it depends on, id of the message it
        answers.
        """
        self._queued_bytes = 0
        self._touched: set[Tenant] = set()
        """Tenants with replies queued since the last flush."""
        self._idle_streams: deque[Stream] = deque()
        self._ready_since: float | None = None
        """Monotonic time of the oldest event that is not yet numbered."""
        self._detected_at: float | None = None
        """Monotonic time of the oldest event in the group being numbered now."""

    # --- batches ------------------------------------------------------------------------------------------------

    def process(self, requests: Iterable[tuple[Port, Any]]) -> None:
        """Execute a batch of requests, make it durable, and send the replies and events."""
        self._requests.finish_threaded()
        for port, record in requests:
            try:
                self._dispatch(port, record)
            except Exception:  # a failing request must not stop the batch
                extra = {"action": "broker.take_failed", "conn": getattr(record, "conn", None)}
                log.exception("A request could not be processed", extra=extra)
            if self.is_over_threshold:
                self.flush()
                self.drain()
        self.flush()
        self.drain()

    @property
    def is_over_threshold(self) -> bool:
        """True if enough bytes are queued that they should be sent before the batch ends."""
        return self._queued_bytes >= SEND_THRESHOLD_BYTES

    def flush(self) -> None:
        """Make executed requests durable, then number and queue the events that are ready."""
        self._detected_at, self._ready_since = self._ready_since, None
        touched, self._touched = self._touched, set()
        for tenant in touched:
            self._flush(tenant)
        while self._ready:
            source = self._ready.popleft()
            try:
                self.publish_ready(source)
            except VedetteError as refusal:
                self.end_for(_streams_of(source), "cancelled", [error_payload(refusal)])
            except Exception:
                log.exception("A stream failed and was ended", extra={"action": "broker.pump_failed"})
                error = {"code": "internal", "message": "internal error; see the server log"}
                self.end_for(_streams_of(source), "internal", [error])
        self._detected_at = None

    def _flush(self, tenant: Tenant) -> None:
        database = tenant.database
        if database.log_writer.durable_sequence >= database.log_writer.submitted_sequence:
            return
        try:
            database.wait_durable(LockScope(database).observe())
        except StoreError as error:
            self.fail_replies(tenant, error)

    def fail_replies(self, tenant: Tenant, error: StoreError) -> None:
        """Replace queued replies about a tenant by errors after its flush failed: the batch's writes did not happen."""
        payload = error_payload(error)
        for number, (port, record, about, id) in enumerate(self._queued):
            if about is tenant and isinstance(record, link.Reply | link.Subscribed | link.ConnectionOpened):
                self._queued[number] = (
                    port,
                    link.RequestFailed(conn=record.conn, id=id, payload=payload),
                    None,
                    None,
                )

    def publish_ready(self, source: WatchStream | NodeTypeWatch) -> None:
        """Number and queue the ready events of a watch."""
        for stream, seq, suffix in source.take_ready():
            self.publish(stream, seq, suffix)
        if isinstance(source, WatchStream) and source.owner is not None:
            self._notify(source, *source.owner)
        if source.feed.ended:
            self._end(source)

    def _notify(self, stream: WatchStream, client: Client, name: str) -> None:
        """Send the owner of a watch its timeouts, withdrawals and failed dead letters."""
        if stream.feed.ended:
            return  # the end record carries the errors
        for record in stream.feed.errors():
            payload = {"status": "notice", "subIds": [name], "errors": [error_payload(record)]}
            data = encode_message("status", payload)
            self._queued.append((client.port, link.Notice(conn=client.conn, data=data), None, None))

    def publish(self, stream: Stream, seq: int, suffix: bytes) -> None:
        self.events += 1
        self._queued_bytes += len(suffix)
        if len(suffix) > self.limits.max_answer_bytes:
            text = "An event is larger than the message limit: RETURN fewer or smaller values"
            error = {"code": "too_large", "message": text, "fields": {"limit": self.limits.max_answer_bytes}}
            self.end_for([stream], "too_large", [error])
            return
        at = self._detected_at if self._detected_at is not None else self.clock.monotonic()
        for port in stream.subscribers_by_port:
            event = link.StreamEvent(stream=stream.stream_id, seq=seq, suffix=suffix, committed_at=at)
            self._queued.append((port, event, None, None))

    def _end(self, source: WatchStream | NodeTypeWatch) -> None:
        """End the streams of a watch that was cancelled or failed."""
        errors = [error_payload(error) for error in source.feed.errors()]
        self.end_for(_streams_of(source), "cancelled", errors)

    def end_for(self, streams: Sequence[Stream], reason: str, errors: list[dict[str, Any]]) -> None:
        self.end_streams(streams, {"status": "ended", "reason": reason, "errors": errors})

    def end_streams(self, streams: Sequence[Stream], payload: dict[str, Any]) -> None:
        """Notify all subscribers that the streams ended, with the reason, and remove their subscriptions."""
        ended = {id(stream) for stream in streams if stream.subscriber_count}
        for stream in streams:
            for port in stream.subscribers_by_port:
                self._queued.append(
                    (port, link.StreamEnded(stream=stream.stream_id, payload=payload), None, None)
                )
        owners = [s.owner[0] for s in streams if isinstance(s, WatchStream) and s.owner is not None]
        alone = len(owners) == len(streams)
        for client in owners if alone or not ended else list(self.clients.values()):
            for name in [n for n, s in client.subscriptions.items() if id(s) in ended]:
                self.remove_subscription(client, name)

    def drain(self) -> None:
        queued, self._queued, self._queued_bytes = self._queued, [], 0
        batches: dict[Port, list[Any]] = {}
        for port, record, _, _ in queued:
            batches.setdefault(port, []).append(record)
        for port, records in batches.items():
            port.send(records)

    def mark_ready(self, source: Any) -> None:
        """Schedule a watch that may have events. Called from any thread, possibly with locks held."""
        if self._ready_since is None:
            self._ready_since = self.clock.monotonic()
        self._ready.append(source)
        self._wake()

    def reply(self, client: Client, record: Any, id: str | None = None) -> None:
        """Queue a record for one client until the next flush. `id`: the message that it answers."""
        self._touched.add(client.tenant)
        self._queued.append((client.port, record, client.tenant, id))
        self._queued_bytes += link.payload_bytes(record)

    # --- requests -----------------------------------------------------------------------------------------------

    def _dispatch(self, port: Port, record: Any) -> None:
        if isinstance(record, link.OpenConnection):
            self._open(port, record)
            return
        client = self.clients.get((port, record.conn))
        if client is None:
            return  # the client disconnected; no reply is needed
        if isinstance(record, link.CloseConnection):
            self._close_connection(client, clean=record.clean, may_resume=record.may_resume)
        elif client.busy:
            client.defer(record)
        else:
            self._requests.handle(client, record)

    def _open(self, port: Port, record: link.OpenConnection) -> None:
        refusal: dict[str, Any] | None = None
        close = 0
        try:
            tenant = self.tenant(record.tenant)
            if not record.system:
                tenant.database.session(record.actor or "").close()
            if tenant.connections >= self.limits.max_connections_per_tenant and not record.local:
                text = "the database has reached its connection limit: try again later"
                raise MessageError("too_many_connections", text)
            tenant.connections += 1
            self.clients[port, record.conn] = client = Client(port, record, tenant)
            self.reply(client, link.ConnectionOpened(conn=record.conn, id=record.id), record.id)
        except VedetteError as error:
            refusal = error_payload(error)
            close = CloseCode.AUTH_REFUSED if isinstance(error, PolicyError) else 0
        except MessageError as error:
            refusal = {"code": error.code, "message": error.text, "retryable": True}
            close = CloseCode.TRY_LATER
        except Exception:
            log.exception(
                "A connection could not be opened",
                extra={"action": "broker.open_failed", "conn": record.conn},
            )
            refusal = {"code": "internal", "message": "internal error"}
        if refusal is not None:
            failed = link.RequestFailed(conn=record.conn, id=record.id, payload=refusal, close=close)
            self._queued.append((port, failed, None, None))

    def tenant(self, name: str) -> Tenant:
        known = self.tenants.get(name)
        if known is None:
            known = self.tenants[name] = Tenant(
                self.home.database(name),
                signer=self.signer,
                limits=self.limits.window,
                clock=self.clock,
                mark_ready=self.mark_ready,
            )
        return known

    def collection_broker(self) -> CollectionBroker:
        """Return the collection broker; raise E6103 on a server without a data directory."""
        if self.collections is None:
            text = "this server has no data directory and therefore no sources: start it with --data DIR"
            raise SourceError("E6103", text)
        return self.collections

    def session_of(self, client: Client) -> Session:
        """Return the connection's own session, which holds its transaction, names and exclusive watches."""
        if client.session is None:
            settings = self.home.settings
            session = client.tenant.database.session(None if client.system else client.actor)
            session.allow_long_reads = False
            session.watch_limits = (settings.max_watches_per_session, settings.max_watches_total)
            client.session = session
        return client.session

    # --- subscriptions ------------------------------------------------------------------------------------------

    def check_quotas(self, client: Client, name: str) -> None:
        """Raise E8006 if one more subscription would exceed a quota. A name in use replaces its subscription."""
        if name in client.subscriptions:
            return
        checks = (
            (len(client.subscriptions), self.limits.max_subscriptions_per_connection),
            (client.tenant.subscriptions, self.limits.max_subscriptions_per_tenant),
            (self.subscriptions, self.limits.max_subscriptions_total),
        )
        for current, limit in checks:
            if current >= limit:
                fields = {"current": current, "limit": limit}
                raise WatchError("E8006", f"Too many watches: {current} of {limit}", fields=fields)

    def add_subscription(self, client: Client, name: str, stream: Stream) -> None:
        """Count a new subscriber of a stream. The caller sends the first messages."""
        audit(client, "subscription.created", name, stream=stream.stream_id)
        client.subscriptions[name] = stream
        client.tenant.subscriptions += 1
        self.subscriptions += 1
        stream.add_subscriber(client.port, checksum=client.checksum)

    def remove_subscription(self, client: Client, name: str, *, may_resume: bool = False) -> None:
        """Remove a subscriber. A stream without subscribers is closed, or kept idle if a client may resume it."""
        stream = client.subscriptions.pop(name, None)
        if stream is None:
            return
        audit(client, "subscription.ended", name, stream=stream.stream_id)
        client.tenant.subscriptions -= 1
        self.subscriptions -= 1
        stream.remove_subscriber(client.port, (client.port, client.conn, name), checksum=client.checksum)
        now = self.clock.monotonic()
        seconds = client.tenant.window.limits.seconds
        if may_resume and stream.stream_key is not None:
            stream.resumable_until = now + seconds
        if stream.subscriber_count:
            return
        if stream.resumable_until > now and len(self._idle_streams) < MAX_IDLE_STREAMS:
            stream.kept_until = stream.resumable_until
            self.keep_idle(stream)
        else:
            self._close(client, stream)

    def keep_idle(self, stream: Stream) -> None:
        """Keep a stream without subscribers until `kept_until`, so that clients can resume."""
        self._idle_streams.append(stream)

    def close_stream(self, stream: Stream) -> None:
        """Close a stream without subscribers."""
        stream.tenant.close_stream(stream)
        self.streams -= 1

    def _close(self, client: Client, stream: Stream) -> None:
        if isinstance(stream, WatchStream) and not stream.shared and not stream.feed.lasts:
            stream.feed.cancel()
        client.tenant.close_stream(stream)
        self.streams -= 1

    def replay(self, client: Client, name: str, stream: Stream, seq: int) -> None:
        """Queue the events after `seq`, up to about REPLAY_CHUNK_BYTES; the gateway requests the rest."""
        events: list[tuple[int, bytes]] = []
        size = 0
        missed = stream.history.events_after(seq)
        for event in missed:
            events.append((event.seq, event.suffix))
            size += len(event.suffix)
            if size >= REPLAY_CHUNK_BYTES:
                break
        more = len(events) < len(missed)
        self.reply(client, link.ReplayedEvents(conn=client.conn, sub_id=name, events=events, more=more))

    # --- end of connections -------------------------------------------------------------------------------------

    def _close_connection(self, client: Client, *, clean: bool, may_resume: bool) -> None:
        del self.clients[client.port, client.conn]
        client.tenant.connections -= 1
        if (
            client.session is not None and not client.busy
        ):  # close the session first: its watches report how they ended
            client.session.close(
                lost=not clean
            )  # after an unclean disconnect, held deliveries count as failed
        for name in list(client.subscriptions):
            self.remove_subscription(client, name, may_resume=may_resume)

    def on_gateway_lost(self, port: Port) -> None:
        """Close all connections of a gateway whose link broke."""
        for client in [c for c in self.clients.values() if c.port is port]:
            self._close_connection(client, clean=False, may_resume=True)

    def evict_expired(self) -> None:
        """Drop expired events and idle streams. Called periodically."""
        now = self.clock.monotonic()
        for tenant in self.tenants.values():
            tenant.window.expire(now)
        while self._idle_streams:
            stream = self._idle_streams[0]
            if stream.kept_until is not None and stream.kept_until > now:
                break
            self._idle_streams.popleft()
            if stream.kept_until is not None and not stream.subscriber_count:
                stream.kept_until = None
                self.close_stream(stream)

    def restore_streams(self) -> None:
        """Restore the streams of the previous server if it stopped gracefully. Call before the first request."""
        if self._windows is not None:
            restored = restore_windows(self._windows, self)
            if restored:
                log.info("Restored %d streams", restored, extra={"action": "window.restored"})

    def restore_collection_streams(self) -> None:
        """Restore saved collection streams. Call once the collection broker exists."""
        restored = restore_collections(self)
        if restored:
            log.info("Restored %d streams over collections", restored, extra={"action": "window.restored"})

    def close(self) -> None:
        for client in list(self.clients.values()):
            self._close_connection(client, clean=True, may_resume=self._windows is not None)
        self.flush()
        if self.collections is not None:
            self.collections.save()
        if self._windows is not None:
            save_windows(self._windows, list(self.tenants.values()), self.clock.monotonic())
        self._requests.close()


def _streams_of(source: WatchStream | NodeTypeWatch) -> list[Stream]:
    return list(source.streams.values()) if isinstance(source, NodeTypeWatch) else [source]
