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
from vedette.gateway.server.auth import Authority
from vedette.gateway.server.backpressure import Load, LoadMonitor, RequestBudget
from vedette.gateway.server.connection import Connection, Sink
from vedette.gateway.server.outbound import FrameBatch, OutboundFrame
from vedette.gateway.server.subscription import HoldReason, Subscription
from vedette.gateway.server.write_batcher import WriteBatcher
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.counters import Counters, LatencyHistogram
from vedette.gateway.wire.messages import encode_message

__all__ = ["ConnectionRouter"]

log = logging.getLogger(__name__)
FEW_RUNS = 8
"""A batch with more runs than this is written once per socket. A single event and its replies are not batched."""

_Member = tuple[Connection, list[Subscription]]


def _run(record: Any) -> Any:
    """Return the key by which consecutive records are grouped: the stream of an event, else the record type."""
    return record.stream if type(record) is link.StreamEvent else type(record)


class _Receivers:
    """The receivers of one stream on this gateway."""

    __slots__ = ("delays", "head", "members")

    def __init__(self, head: bytes, delays: LatencyHistogram) -> None:
        self.head = head
        self.delays = delays
        self.members: dict[int, _Member] = {}


class ConnectionRouter:
    def __init__(
        self, *, limits: GatewayLimits, authority: Authority, clock: Clock, ask: Callable[[Any], bool]
    ) -> None:
        self.limits = limits
        self.authority = authority
        self.connections: dict[int, Connection] = {}
        self.subscriptions = 0
        self.request_budget = RequestBudget(limits.gateway_pending_bytes)
        self.counters = Counters()
        self.in_process_outbox_bytes = 0
        """Outbox bytes of clients without a socket of this server: readers of server-sent events."""
        self.watermarks = LoadMonitor(limits.gateway_outbox_bytes)
        self.write_batcher = WriteBatcher()
        self.now = clock.now
        self._monotonic = clock.monotonic
        self._ask = ask
        self._last_number = 0
        self._audiences: dict[int, _Receivers] = {}
        self._untimed: list[tuple[LatencyHistogram, float, int]] = []
        """Events of a batched write, not yet written: histogram, commit time, number of receivers."""

    # --- connections --------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return len(self.connections) >= self.limits.max_connections

    def connect(self, sink: Sink) -> Connection:
        self._last_number += 1
        number = self._last_number
        connection = Connection(
            number,
            sink,
            authority=self.authority,
            limits=self.limits,
            ask=self._asked,
            now=self.now,
            intake=self.request_budget,
            tally=self.counters,
        )
        self.connections[number] = connection
        return connection

    def _asked(self, record: Any) -> bool:
        """Submit a request of a connection. Reject a subscription that would exceed the gateway's limit."""
        more = isinstance(record, link.SubscribeRequest | link.ResumeRequest)
        if more and self.subscriptions >= self.limits.max_subscriptions_per_gateway:
            return False
        return self._ask(record)

    def disconnect(self, connection: Connection, *, orderly: bool, returns: bool | None = None) -> None:
        """Remove a connection. `returns`: the client may resume; default: if the close was not clean. Idempotent."""
        if self.connections.pop(connection.number, None) is None:
            return
        for sub in list(connection.subscriptions.values()):
            self._leave(connection, sub)
        connection.subscriptions.clear()
        if connection.grant is not None:
            back = not orderly if returns is None else returns
            self._ask(link.CloseConnection(conn=connection.number, clean=orderly, may_resume=back))
        connection.on_disconnect()

    def received(self, connection: Connection, data: bytes | str) -> None:
        """Handle one message of a client."""
        connection.receive(data)

    # --- broker records -----------------------------------------------------------------------------------------

    def deliver(self, records: Iterable[Any]) -> None:
        """Deliver a batch of broker records. A failing record does not affect the others."""
        runs = [(kind, list(group)) for kind, group in groupby(records, _run)]
        if len(runs) <= FEW_RUNS:
            self._deliver_runs(runs)
            return
        with self.write_batcher:
            self._deliver_runs(runs)
        untimed, self._untimed = self._untimed, []
        now = self._monotonic()
        for delays, at, times in untimed:
            delays.add(max(0.0, now - at), times)

    def _deliver_runs(self, runs: list[tuple[Any, list[Any]]]) -> None:
        for kind, run in runs:
            if isinstance(kind, int):
                self._guarded(ConnectionRouter._deliver_events, run)
                continue
            for record in run:
                self._guarded(_SAID.get(kind, ConnectionRouter._unknown), record)

    def _guarded(self, spread: Callable[[ConnectionRouter, Any], None], said: Any) -> None:
        try:
            spread(self, said)
        except Exception:
            log.exception(
                "A record of the broker could not be processed",
                extra={
                    "action": "gateway.record_failed",
                    "record": type(said).__name__,
                    "conn": getattr(said, "conn", None),
                },
            )

    def _unknown(self, record: Any) -> None:
        raise TypeError(f"{type(record).__name__} is not a broker record")

    def _deliver_events(self, run: list[link.StreamEvent]) -> None:
        """Deliver consecutive events of one stream. A receiver that can take all of them gets a single write."""
        audience = self._audiences.get(run[0].stream)
        if audience is None:
            return
        rest: Collection[_Member] = audience.members.values()
        if len(run) == 1:
            self._count(audience, run[0], self._send_event(audience.head, rest, run[0]))
            return
        at_once = 0
        if self.watermarks.load is Load.NORMAL:
            rest = self._send_run(audience, run)
            at_once = len(audience.members) - len(rest)
        receivers = [at_once + self._send_event(audience.head, rest, record) for record in run]
        for record, times in zip(run, receivers, strict=True):
            self._count(audience, record, times)

    def _count(self, audience: _Receivers, record: link.StreamEvent, times: int) -> None:
        self.counters.delivered += times
        if self.write_batcher.active:
            self._untimed.append((audience.delays, record.committed_at, times))
        else:
            audience.delays.add(max(0.0, self._monotonic() - record.committed_at), times)

    def _send_run(self, audience: _Receivers, run: list[link.StreamEvent]) -> list[_Member]:
        """Send a run of events as one block. Return the receivers that must be handled event by event."""
        first, last, rest = run[0].seq, run[-1].seq, list[_Member]()
        bundles: dict[bytes, FrameBatch] = {}
        for member in audience.members.values():
            connection, subs = member
            if len(subs) > 1 or not subs[0].try_send_range(first, last):
                rest.append(member)
                continue
            key = subs[0].recipient_json
            bundle = bundles.get(key)
            if bundle is None:
                bundle = bundles[key] = FrameBatch([audience.head + key + record.suffix for record in run])
            connection.sink.send_batch(bundle)
        return rest

    def _send_event(self, head: bytes, members: Iterable[_Member], record: link.StreamEvent) -> int:
        """Send one event to its receivers and return their number. Hot path: runs for every receiver of every event."""
        seq, tail, load = record.seq, record.suffix, self.watermarks.load
        parcels: dict[bytes, OutboundFrame] = {}
        delivered = 0
        for connection, subs in members:
            if load is not Load.NORMAL:
                self._shed(connection, subs, load)
            if len(subs) > 1:
                delivered += self._send_grouped(connection, subs, seq, parcels, head, tail)
                continue
            sub = subs[0]
            if sub.try_send(seq):
                parcel = parcels.get(sub.recipient_json)
                if parcel is None:
                    parcel = parcels[sub.recipient_json] = OutboundFrame(head + sub.recipient_json + tail)
                connection.sink.send(parcel)
                delivered += 1
        return delivered

    def _send_grouped(
        self,
        connection: Connection,
        subs: list[Subscription],
        seq: int,
        parcels: dict[bytes, OutboundFrame],
        head: bytes,
        tail: bytes,
    ) -> int:
        """Send an event to a connection with several subscriptions to the stream: one message that names all of them,
        or one message each for clients before version 1.
        """
        due = [sub for sub in subs if sub.try_send(seq)]
        keys = [sub.recipient_json for sub in due]
        if due and connection.version >= 1:
            keys = [connection.recipient_json(tuple(sub.id for sub in due))]
        for key in keys:
            parcel = parcels.get(key)
            if parcel is None:
                parcel = parcels[key] = OutboundFrame(head + key + tail)
            connection.sink.send(parcel)
        return len(keys)

    def _shed(self, connection: Connection, subs: list[Subscription], load: Load) -> None:
        for sub in subs:
            if (sub.low_priority or load is Load.SHED_ALL) and not sub.credit_based:
                connection.require_resync(sub, "overflow")

    def _caught_up(self, record: link.ReplayedEvents) -> None:
        found = self._find(record.conn, record.sub)
        if found is None:
            return
        connection, sub = found
        head, more = self._audiences[sub.stream].head, record.more
        for seq, tail in record.events:
            if sub.holds:
                more = True
                break
            if seq > sub.seq:
                sub.mark_sent(seq)
                connection.sink.send(OutboundFrame(head + sub.recipient_json + tail))
                self.counters.delivered += 1
        if sub.on_replay(more=more):
            connection.request_replay(sub)

    def _find(self, number: int, sub: str) -> tuple[Connection, Subscription] | None:
        connection = self.connections.get(number)
        found = connection.subscriptions.get(sub) if connection is not None else None
        return (connection, found) if connection is not None and found is not None else None

    def _opened(self, record: link.ConnectionOpened) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.on_opened(record)

    def _failed(self, record: link.RequestFailed) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.on_failed(record)

    def _answered(self, record: link.Reply) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.on_reply(record.data)

    def _subscribed(self, record: link.Subscribed) -> None:
        connection = self.connections.get(record.conn)
        if connection is None:
            return  # its CloseConnection is on the way to the broker
        former = connection.subscriptions.pop(record.sub_id, None)
        if former is not None:
            self._leave(connection, former)
        sub = connection.on_subscribed(record)
        if record.replay_follows:
            sub.await_replay()
        if connection.outbox_full:
            sub.hold(HoldReason.OUTBOX_FULL)
        audience = self._audiences.get(record.stream)
        if audience is None:
            assert connection.grant is not None
            delays = self.counters.delays_of(connection.grant.tenant)
            audience = self._audiences[record.stream] = _Receivers(record.event_prefix, delays)
        audience.members.setdefault(connection.number, (connection, []))[1].append(sub)
        self.subscriptions += 1

    def _notice(self, record: link.Notice) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.send(record.data)

    def _unsubscribed(self, record: link.Unsubscribed) -> None:
        connection = self.connections.get(record.conn)
        if connection is None:
            return
        sub = connection.subscriptions.pop(record.sub_id, None)
        if sub is not None:
            self._leave(connection, sub)
        if record.data is not None:
            connection.on_reply(record.data)

    def _stale(self, record: link.ResyncRequired) -> None:
        found = self._find(record.conn, record.sub)
        if found is not None:
            found[0].require_resync(found[1], record.reason)

    def _ended(self, record: link.StreamEnded) -> None:
        audience = self._audiences.pop(record.stream, None)
        for connection, subs in audience.members.values() if audience is not None else ():
            names = [sub.id for sub in subs]
            for name in names:
                connection.subscriptions.pop(name, None)
            self.subscriptions -= len(names)
            connection.send(encode_message("status", {**record.payload, "subIds": names}))

    def _leave(self, connection: Connection, sub: Subscription) -> None:
        audience = self._audiences.get(sub.stream)
        member = audience.members.get(connection.number) if audience is not None else None
        if audience is None or member is None or sub not in member[1]:
            return
        member[1].remove(sub)
        self.subscriptions -= 1
        if not member[1]:
            del audience.members[connection.number]
        if not audience.members:
            del self._audiences[sub.stream]

    def _drain(self, _: link.Drain) -> None:
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


_SAID: dict[type[Any], Callable[[ConnectionRouter, Any], None]] = {
    link.ReplayedEvents: ConnectionRouter._caught_up,
    link.ConnectionOpened: ConnectionRouter._opened,
    link.RequestFailed: ConnectionRouter._failed,
    link.Reply: ConnectionRouter._answered,
    link.Subscribed: ConnectionRouter._subscribed,
    link.Notice: ConnectionRouter._notice,
    link.Unsubscribed: ConnectionRouter._unsubscribed,
    link.ResyncRequired: ConnectionRouter._stale,
    link.StreamEnded: ConnectionRouter._ended,
    link.Drain: ConnectionRouter._drain,
}
