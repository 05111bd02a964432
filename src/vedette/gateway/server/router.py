"""A gateway's connections and who of them listens to which stream; without I/O.

What the broker says is spread here. An event is put together once for each name that receivers know it by, which is
mostly once, and handed to all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from typing import Any

from vedette.clock import Clock
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import Authority
from vedette.gateway.server.backpressure import Intake, Load, Watermarks
from vedette.gateway.server.connection import Connection, Sink
from vedette.gateway.server.outbound import Bundle, Parcel
from vedette.gateway.server.subscription import Hold, Subscription
from vedette.gateway.server.write_batcher import Cork
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.counters import Delays, Tally
from vedette.gateway.wire.messages import message

__all__ = ["Switchboard"]

log = logging.getLogger(__name__)
FEW_RUNS = 8
"""A batch with more runs than that is gathered by receiver. One event to many, and its answer, is not."""

_Member = tuple[Connection, list[Subscription]]


def _run(record: Any) -> Any:
    """What records of a batch are taken together by: events of one stream, else those of a kind."""
    return record.stream if type(record) is link.Told else type(record)


class _Audience:
    """Who listens to one stream here."""

    __slots__ = ("delays", "head", "members")

    def __init__(self, head: bytes, delays: Delays) -> None:
        self.head = head
        self.delays = delays
        self.members: dict[int, _Member] = {}


class Switchboard:
    def __init__(
        self, *, limits: GatewayLimits, authority: Authority, clock: Clock, ask: Callable[[Any], bool]
    ) -> None:
        self.limits = limits
        self.authority = authority
        self.connections: dict[int, Connection] = {}
        self.subscriptions = 0
        self.intake = Intake(limits.gateway_pending_bytes)
        self.tally = Tally()
        self.bridged_bytes = 0
        """What waits for clients that are no sockets of a `GatewayServer`: readers of server-sent events."""
        self.watermarks = Watermarks(limits.gateway_outbox_bytes)
        self.cork = Cork()
        self.now = clock.now
        self._monotonic = clock.monotonic
        self._ask = ask
        self._last_number = 0
        self._audiences: dict[int, _Audience] = {}
        self._untimed: list[tuple[Delays, float, int]] = []
        """Events of a corked batch that nobody was written to yet: since when, to how many."""

    # --- connections come and go --------------------------------------------------------------------------------

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
            intake=self.intake,
            tally=self.tally,
        )
        self.connections[number] = connection
        return connection

    def _asked(self, record: Any) -> bool:
        """A request of a connection; what would be one subscription too many is not even asked."""
        more = isinstance(record, link.SubscribeTo | link.Take)
        if more and self.subscriptions >= self.limits.max_subscriptions_per_gateway:
            return False
        return self._ask(record)

    def disconnect(self, connection: Connection, *, orderly: bool, returns: bool | None = None) -> None:
        """The client has gone; `returns` (by default: when it did not say goodbye) it may resume. Twice is nothing."""
        if self.connections.pop(connection.number, None) is None:
            return
        for sub in list(connection.subscriptions.values()):
            self._leave(connection, sub)
        connection.subscriptions.clear()
        if connection.grant is not None:
            back = not orderly if returns is None else returns
            self._ask(link.Shut(conn=connection.number, orderly=orderly, returns=back))
        connection.gone()

    def received(self, connection: Connection, data: bytes | str) -> None:
        """One message of a client."""
        connection.received(data)

    # --- what the broker says -----------------------------------------------------------------------------------

    def said(self, records: Iterable[Any]) -> None:
        """Spread a batch. What one record does wrong keeps no other from its receivers."""
        runs = [(kind, list(group)) for kind, group in groupby(records, _run)]
        if len(runs) <= FEW_RUNS:
            self._spread(runs)
            return
        with self.cork:
            self._spread(runs)
        untimed, self._untimed = self._untimed, []
        now = self._monotonic()
        for delays, at, times in untimed:
            delays.add(max(0.0, now - at), times)

    def _spread(self, runs: list[tuple[Any, list[Any]]]) -> None:
        for kind, run in runs:
            if isinstance(kind, int):
                self._guarded(Switchboard._told, run)
                continue
            for record in run:
                self._guarded(_SAID.get(kind, Switchboard._unknown), record)

    def _guarded(self, spread: Callable[[Switchboard, Any], None], said: Any) -> None:
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
        raise TypeError(f"{type(record).__name__} is no record of ours")

    def _told(self, run: list[link.Told]) -> None:
        """Events of one stream. Whoever takes them as they come is told all of them at once: one write, not many."""
        audience = self._audiences.get(run[0].stream)
        if audience is None:
            return
        rest: Collection[_Member] = audience.members.values()
        if len(run) == 1:
            self._count(audience, run[0], self._tell(audience.head, rest, run[0]))
            return
        at_once = 0
        if self.watermarks.load is Load.NORMAL:
            rest = self._tell_at_once(audience, run)
            at_once = len(audience.members) - len(rest)
        receivers = [at_once + self._tell(audience.head, rest, record) for record in run]
        for record, times in zip(run, receivers, strict=True):
            self._count(audience, record, times)

    def _count(self, audience: _Audience, record: link.Told, times: int) -> None:
        self.tally.delivered += times
        if self.cork.on:
            self._untimed.append((audience.delays, record.at, times))
        else:
            audience.delays.add(max(0.0, self._monotonic() - record.at), times)

    def _tell_at_once(self, audience: _Audience, run: list[link.Told]) -> list[_Member]:
        """Returns those who have to be looked at event by event."""
        first, last, rest = run[0].seq, run[-1].seq, list[_Member]()
        bundles: dict[bytes, Bundle] = {}
        for member in audience.members.values():
            connection, subs = member
            if len(subs) > 1 or not subs[0].offer_all(first, last):
                rest.append(member)
                continue
            key = subs[0].key
            bundle = bundles.get(key)
            if bundle is None:
                bundle = bundles[key] = Bundle([audience.head + key + record.tail for record in run])
            connection.sink.send_all(bundle)
        return rest

    def _tell(self, head: bytes, members: Iterable[_Member], record: link.Told) -> int:
        """The one place that is run for every receiver of every event: what need not be done for each is not."""
        seq, tail, load = record.seq, record.tail, self.watermarks.load
        parcels: dict[bytes, Parcel] = {}
        delivered = 0
        for connection, subs in members:
            if load is not Load.NORMAL:
                self._shed(connection, subs, load)
            if len(subs) > 1:
                delivered += self._tell_several(connection, subs, seq, parcels, head, tail)
                continue
            sub = subs[0]
            if sub.offer(seq):
                parcel = parcels.get(sub.key)
                if parcel is None:
                    parcel = parcels[sub.key] = Parcel(head + sub.key + tail)
                connection.sink.send(parcel)
                delivered += 1
        return delivered

    def _tell_several(
        self,
        connection: Connection,
        subs: list[Subscription],
        seq: int,
        parcels: dict[bytes, Parcel],
        head: bytes,
        tail: bytes,
    ) -> int:
        """One connection listens under several names: one message for all of them, or, to old clients, one each."""
        due = [sub for sub in subs if sub.offer(seq)]
        keys = [sub.key for sub in due]
        if due and connection.version >= 1:
            keys = [connection.key_of(tuple(sub.id for sub in due))]
        for key in keys:
            parcel = parcels.get(key)
            if parcel is None:
                parcel = parcels[key] = Parcel(head + key + tail)
            connection.sink.send(parcel)
        return len(keys)

    def _shed(self, connection: Connection, subs: list[Subscription], load: Load) -> None:
        for sub in subs:
            if (sub.low or load is Load.HARD) and not sub.credited:
                connection.spoil(sub, "overflow")

    def _caught_up(self, record: link.CaughtUp) -> None:
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
                sub.sent(seq)
                connection.sink.send(Parcel(head + sub.key + tail))
                self.tally.delivered += 1
        if sub.caught_up(more=more):
            connection.ask_replay(sub)

    def _find(self, number: int, sub: str) -> tuple[Connection, Subscription] | None:
        connection = self.connections.get(number)
        found = connection.subscriptions.get(sub) if connection is not None else None
        return (connection, found) if connection is not None and found is not None else None

    def _opened(self, record: link.Opened) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.opened(record)

    def _failed(self, record: link.Failed) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.refused(record)

    def _answered(self, record: link.Answer) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.answered(record.data)

    def _subscribed(self, record: link.Subscribed) -> None:
        connection = self.connections.get(record.conn)
        if connection is None:
            return  # its Shut is on the way
        former = connection.subscriptions.pop(record.sub, None)
        if former is not None:
            self._leave(connection, former)
        sub = connection.subscribed(record)
        if record.replay:
            sub.await_replay()
        if connection.clogged:
            sub.hold(Hold.CLOGGED)
        audience = self._audiences.get(record.stream)
        if audience is None:
            assert connection.grant is not None
            delays = self.tally.delays_of(connection.grant.tenant)
            audience = self._audiences[record.stream] = _Audience(record.head, delays)
        audience.members.setdefault(connection.number, (connection, []))[1].append(sub)
        self.subscriptions += 1

    def _notice(self, record: link.Notice) -> None:
        connection = self.connections.get(record.conn)
        if connection is not None:
            connection.say(record.data)

    def _unsubscribed(self, record: link.Unsubscribed) -> None:
        connection = self.connections.get(record.conn)
        if connection is None:
            return
        sub = connection.subscriptions.pop(record.sub, None)
        if sub is not None:
            self._leave(connection, sub)
        if record.data is not None:
            connection.answered(record.data)

    def _stale(self, record: link.Stale) -> None:
        found = self._find(record.conn, record.sub)
        if found is not None:
            found[0].spoil(found[1], record.reason)

    def _ended(self, record: link.Ended) -> None:
        audience = self._audiences.pop(record.stream, None)
        for connection, subs in audience.members.values() if audience is not None else ():
            names = [sub.id for sub in subs]
            for name in names:
                connection.subscriptions.pop(name, None)
            self.subscriptions -= len(names)
            connection.say(message("status", {**record.payload, "subIds": names}))

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

    # --- marks and time -----------------------------------------------------------------------------------------

    def clogged(self, connection: Connection) -> None:
        """The client takes no more: its subscriptions fall behind."""
        connection.clogged = True
        for sub in connection.subscriptions.values():
            sub.hold(Hold.CLOGGED)

    def freed(self, connection: Connection) -> None:
        """The client takes again: bring its subscriptions up."""
        connection.clogged = False
        for sub in connection.subscriptions.values():
            if sub.release(Hold.CLOGGED):
                connection.ask_replay(sub)

    def drain(self) -> None:
        """Tell every client to come back elsewhere."""
        for connection in list(self.connections.values()):
            connection.end(CloseCode.DRAINING, "this server is about to stop: connect again")

    def engine_lost(self) -> None:
        """Nothing can be promised any more: no false health."""
        for connection in list(self.connections.values()):
            connection.end(CloseCode.ENGINE_LOST, "the engine is not there: connect again")


_SAID: dict[type[Any], Callable[[Switchboard, Any], None]] = {
    link.CaughtUp: Switchboard._caught_up,
    link.Opened: Switchboard._opened,
    link.Failed: Switchboard._failed,
    link.Answer: Switchboard._answered,
    link.Subscribed: Switchboard._subscribed,
    link.Notice: Switchboard._notice,
    link.Unsubscribed: Switchboard._unsubscribed,
    link.Stale: Switchboard._stale,
    link.Ended: Switchboard._ended,
    link.Drain: Switchboard._drain,
}
