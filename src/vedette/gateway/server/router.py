"""Routes broker records to connections and client requests to the broker. No I/O.

An event is assembled once per receiver name, usually once in total, and the same frame is sent to all receivers of a
stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from typing import Any

from vedette.clock import Clock
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import Authenticator
from vedette.gateway.server.backpressure import Load, LoadMonitor, RequestBudget
from vedette.gateway.server.connection import Connection, Sink
from vedette.gateway.server.outbound import FrameBatch, OutboundFrame, WriteBatcher
from vedette.gateway.server.subscription import HoldReason, Subscription
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.counters import Counters, LatencyHistogram
from vedette.gateway.wire.messages import encode_message

__all__ = ["ConnectionRouter"]

log = logging.getLogger(__name__)
MAX_UNBATCHED_RUNS = 8
"""A batch with more runs than this is written once per socket. A single event and its replies are not batched."""

_Member = tuple[Connection, list[Subscription]]


def _run_key(record: Any) -> Any:
    """Return the key by which consecutive records are grouped: the stream of an event, else the record type."""
    return record.stream if type(record) is link.StreamEvent else type(record)


class _Receivers:
    """The receivers of one stream on this gateway."""

    __slots__ = ("event_prefix", "latency", "members")

    def __init__(self, event_prefix: bytes, latency: LatencyHistogram) -> None:
        self.event_prefix = event_prefix
        self.latency = latency
        self.members: dict[int, _Member] = {}


class ConnectionRouter:
    def __init__(
        self,
        *,
        limits: GatewayLimits,
        authenticator: Authenticator,
        clock: Clock,
        submit: Callable[[Any], bool],
    ) -> None:
        self.limits = limits
        self.authenticator = authenticator
        self.connections: dict[int, Connection] = {}
        self.subscriptions = 0
        self.request_budget = RequestBudget(limits.gateway_pending_bytes)
        self.counters = Counters()
        self.in_process_outbox_bytes = 0
        """Outbox bytes of clients without a socket of this server: readers of server-sent events."""
        self.load_monitor = LoadMonitor(limits.gateway_outbox_bytes)
        self.write_batcher = WriteBatcher()
        self.now = clock.now
        self._monotonic = clock.monotonic
        self._submit = submit
        self._last_connection_id = 0
        self._receivers: dict[int, _Receivers] = {}
        self._unrecorded_latencies: list[tuple[LatencyHistogram, float, int]] = []
        """Events of a batched write, not yet written: histogram, commit time, number of receivers."""

    # --- connections --------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return len(self.connections) >= self.limits.max_connections

    def connect(self, sink: Sink) -> Connection:
        self._last_connection_id += 1
        connection_id = self._last_connection_id
        connection = Connection(
            connection_id,
            sink,
            authenticator=self.authenticator,
            limits=self.limits,
            submit=self._submit_checked,
            now=self.now,
            request_budget=self.request_budget,
            counters=self.counters,
        )
        self.connections[connection_id] = connection
        return connection

    def _submit_checked(self, record: Any) -> bool:
        """Submit a request of a connection. Reject a subscription that would exceed the gateway's limit."""
        more = isinstance(record, link.SubscribeRequest | link.ResumeRequest)
        if more and self.subscriptions >= self.limits.max_subscriptions_per_gateway:
            return False
        return self._submit(record)

    def disconnect(self, connection: Connection, *, clean: bool, may_resume: bool | None = None) -> None:
        """Remove a connection. `may_resume`: the client may resume; default: if the close was not clean. Idempotent."""
        if self.connections.pop(connection.connection_id, None) is None:
            return
        for sub in list(connection.subscriptions.values()):
            self._remove_receiver(connection, sub)
        connection.subscriptions.clear()
        if connection.grant is not None:
            resumable = not clean if may_resume is None else may_resume
            self._submit(
                link.CloseConnection(conn=connection.connection_id, clean=clean, may_resume=resumable)
            )
        connection.on_disconnect()

    # --- broker records -----------------------------------------------------------------------------------------

    def deliver(self, records: Iterable[Any]) -> None:
        """Deliver a batch of broker records. A failing record does not affect the others."""
        runs = [(kind, list(group)) for kind, group in groupby(records, _run_key)]
        if len(runs) <= MAX_UNBATCHED_RUNS:
            self._deliver_runs(runs)
            return
        with self.write_batcher:
            self._deliver_runs(runs)
        written, self._unrecorded_latencies = self._unrecorded_latencies, []
        now = self._monotonic()
        for latency, committed_at, receivers in written:
            latency.add(max(0.0, now - committed_at), receivers)

    def _deliver_runs(self, runs: list[tuple[Any, list[Any]]]) -> None:
        for kind, run in runs:
            if isinstance(kind, int):
                self._guarded(ConnectionRouter._deliver_events, run)
                continue
            for record in run:
                self._guarded(_HANDLERS.get(kind, ConnectionRouter._unknown), record)

    def _guarded(self, handler: Callable[[ConnectionRouter, Any], None], record: Any) -> None:
        try:
            handler(self, record)
        except Exception:
            log.exception(
                "A record of the broker could not be processed",
                extra={
                    "action": "gateway.record_failed",
                    "record": type(record).__name__,
                    "conn": getattr(record, "conn", None),
                },
            )

    def _unknown(self, record: Any) -> None:
        raise TypeError(f"{type(record).__name__} is not a broker record")

    def _deliver_events(self, run: list[link.StreamEvent]) -> None:
        """Deliver consecutive events of one stream. A receiver that can take all of them gets a single write."""
        receivers = self._receivers.get(run[0].stream)
        if receivers is None:
            return
        rest: Collection[_Member] = receivers.members.values()
        if len(run) == 1:
            self._count(receivers, run[0], self._send_event(receivers.event_prefix, rest, run[0]))
            return
        at_once = 0
        if self.load_monitor.load is Load.NORMAL:
            rest = self._send_run(receivers, run)
            at_once = len(receivers.members) - len(rest)
        counts = [at_once + self._send_event(receivers.event_prefix, rest, record) for record in run]
        for record, times in zip(run, counts, strict=True):
            self._count(receivers, record, times)

    def _count(self, receivers: _Receivers, record: link.StreamEvent, times: int) -> None:
        self.counters.delivered += times
        if self.write_batcher.active:
            self._unrecorded_latencies.append((receivers.latency, record.committed_at, times))
        else:
            receivers.latency.add(max(0.0, self._monotonic() - record.committed_at), times)

    def _send_run(self, receivers: _Receivers, run: list[link.StreamEvent]) -> list[_Member]:
        """Send a run of events as one block. Return the receivers that must be handled event by event."""
        first, last, rest = run[0].seq, run[-1].seq, list[_Member]()
        batches: dict[bytes, FrameBatch] = {}
        for member in receivers.members.values():
            connection, subs = member
            if len(subs) > 1 or not subs[0].try_send_range(first, last):
                rest.append(member)
                continue
            key = subs[0].recipient_json
            batch = batches.get(key)
            if batch is None:
                batch = batches[key] = FrameBatch(
                    [receivers.event_prefix + key + record.suffix for record in run]
                )
            connection.sink.send_batch(batch)
        return rest

    def _send_event(self, prefix: bytes, members: Iterable[_Member], record: link.StreamEvent) -> int:
        """Send one event to its receivers and return their number. Hot path: runs for every receiver of every event."""
        seq, suffix, load = record.seq, record.suffix, self.load_monitor.load
        frames: dict[bytes, OutboundFrame] = {}
        delivered = 0
        for connection, subs in members:
            if load is not Load.NORMAL:
                self._shed(connection, subs, load)
            if len(subs) > 1:
                delivered += self._send_grouped(connection, subs, seq, frames, prefix, suffix)
                continue
            sub = subs[0]
            if sub.try_send(seq):
                frame = frames.get(sub.recipient_json)
                if frame is None:
                    frame = frames[sub.recipient_json] = OutboundFrame(prefix + sub.recipient_json + suffix)
                connection.sink.send(frame)
                delivered += 1
        return delivered

    def _send_grouped(
        self,
        connection: Connection,
        subs: list[Subscription],
        seq: int,
        frames: dict[bytes, OutboundFrame],
        prefix: bytes,
        suffix: bytes,
    ) -> int:
        """Send an event to a connection with several subscriptions to the stream: one message that names all of them,
        or one message each for clients before version 1.
        """
        due = [sub for sub in subs if sub.try_send(seq)]
        keys = [sub.recipient_json for sub in due]
        if due and connection.version >= 1:
            keys = [connection.recipient_json(tuple(sub.id for sub in due))]
        for key in keys:
            frame = frames.get(key)
            if frame is None:
                frame = frames[key] = OutboundFrame(prefix + key + suffix)
            connection.sink.send(frame)
        return len(keys)

    def _shed(self, connection: Connection, subs: list[Subscription], load: Load) -> None:
        for sub in subs:
            if (sub.low_priority or load is Load.SHED_ALL) and not sub.credit_based:
                connection.require_resync(sub, "overflow")

    def _on_replayed(self, record: link.ReplayedEvents) -> None:
        found = self._find(record.conn, record.sub_id)
        if found is None:
            return
        connection, sub = found
        prefix, more = self._receivers[sub.stream].event_prefix, record.more
        for seq, suffix in record.events:
            if sub.holds:
                more = True
                break
            if seq > sub.seq:
                sub.mark_sent(seq)
                connection.sink.send(OutboundFrame(prefix + sub.recipient_json + suffix))
                self.counters.delivered += 1
        if sub.on_replay(more=more):
            connection.request_replay(sub)

    def _find(self, connection_id: int, sub_id: str) -> tuple[Connection, Subscription] | None:
        connection = self.connections.get(connection_id)
        found = connection.subscriptions.get(sub_id) if connection is not None else None
        return (connection, found) if connection is not None and found is not None else None

    def _on_opened(self, record: link.ConnectionOpened) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.on_opened(record)

    def _on_failed(self, record: link.RequestFailed) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.on_failed(record)

    def _on_reply(self, record: link.Reply) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.on_reply(record.data)

    def _on_subscribed(self, record: link.Subscribed) -> None:
        connection = self.connections.get(record.conn)
        if connection is None:
            return  # its CloseConnection is on the way to the broker
        previous = connection.subscriptions.pop(record.sub_id, None)
        if previous is not None:
            self._remove_receiver(connection, previous)
        sub = connection.on_subscribed(record)
        if record.replay_follows:
            sub.await_replay()
        if connection.outbox_full:
            sub.hold(HoldReason.OUTBOX_FULL)
        receivers = self._receivers.get(record.stream)
        if receivers is None:
            assert connection.grant is not None
            delays = self.counters.delays_of(connection.grant.tenant)
            receivers = self._receivers[record.stream] = _Receivers(record.event_prefix, delays)
        receivers.members.setdefault(connection.connection_id, (connection, []))[1].append(sub)
        self.subscriptions += 1

    def _on_notice(self, record: link.Notice) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.send(record.data)

    def _on_unsubscribed(self, record: link.Unsubscribed) -> None:
        connection = self.connections.get(record.conn)
        if connection is None:
            return
        sub = connection.subscriptions.pop(record.sub_id, None)
        if sub is not None:
            self._remove_receiver(connection, sub)
        if record.data is not None:
            connection.on_reply(record.data)

    def _on_resync_required(self, record: link.ResyncRequired) -> None:
        found = self._find(record.conn, record.sub_id)
        if found is not None:
            found[0].require_resync(found[1], record.reason)

    def _on_stream_ended(self, record: link.StreamEnded) -> None:
        receivers = self._receivers.pop(record.stream, None)
        for connection, subs in receivers.members.values() if receivers is not None else ():
            sub_ids = [sub.id for sub in subs]
            for sub_id in sub_ids:
                connection.subscriptions.pop(sub_id, None)
            self.subscriptions -= len(sub_ids)
            connection.send(encode_message("status", {**record.payload, "subIds": sub_ids}))

    def _remove_receiver(self, connection: Connection, sub: Subscription) -> None:
        receivers = self._receivers.get(sub.stream)
        member = receivers.members.get(connection.connection_id) if receivers is not None else None
        if receivers is None or member is None or sub not in member[1]:
            return
        member[1].remove(sub)
        self.subscriptions -= 1
        if not member[1]:
            del receivers.members[connection.connection_id]
        if not receivers.members:
            del self._receivers[sub.stream]

    def _on_drain(self, _: link.Drain) -> None:
        self.drain()

    # --- backpressure and shutdown ------------------------------------------------------------------------------

    def outbox_filled(self, connection: Connection) -> None:
        """Hold the subscriptions of a client whose outbox is above its high mark."""
        connection.outbox_full = True
        for sub in connection.subscriptions.values():
            sub.hold(HoldReason.OUTBOX_FULL)

    def outbox_drained(self, connection: Connection) -> None:
        """Release the subscriptions of a client whose outbox has drained, and request what they missed."""
        connection.outbox_full = False
        for sub in connection.subscriptions.values():
            if sub.release(HoldReason.OUTBOX_FULL):
                connection.request_replay(sub)

    def drain(self) -> None:
        """Ask every client to reconnect to another server."""
        for connection in list(self.connections.values()):
            connection.close(CloseCode.DRAINING, "the server is stopping: reconnect")

    def engine_lost(self) -> None:
        """Close all connections after the link to the engine broke."""
        for connection in list(self.connections.values()):
            connection.close(CloseCode.ENGINE_LOST, "the engine is unreachable: reconnect")


_HANDLERS: dict[type[Any], Callable[[ConnectionRouter, Any], None]] = {
    link.ReplayedEvents: ConnectionRouter._on_replayed,
    link.ConnectionOpened: ConnectionRouter._on_opened,
    link.RequestFailed: ConnectionRouter._on_failed,
    link.Reply: ConnectionRouter._on_reply,
    link.Subscribed: ConnectionRouter._on_subscribed,
    link.Notice: ConnectionRouter._on_notice,
    link.Unsubscribed: ConnectionRouter._on_unsubscribed,
    link.ResyncRequired: ConnectionRouter._on_resync_required,
    link.StreamEnded: ConnectionRouter._on_stream_ended,
    link.Drain: ConnectionRouter._on_drain,
}
