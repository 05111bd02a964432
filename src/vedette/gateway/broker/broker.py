"""The engine's side of the gateways: requests in, answers and events out. Runs on the engine's thread alone.

Requests come in batches. Each is carried out without waiting for the disk; then one flush makes the whole batch
durable, and only then is anything of it told: answers, snapshots, errors, and the events that the batch led to. Each
connection's requests are carried out in order; a read that turns out to be long goes on in a thread, and what its
connection asks meanwhile waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from vedette.clock import Clock
from vedette.engine.commit.lock import Turn
from vedette.engine.data_directory import Vedette
from vedette.engine.session.session import Session
from vedette.errors import PolicyError, SourceError, StoreError, VedetteError, WatchError
from vedette.gateway.broker.requests import Requests
from vedette.gateway.broker.subscribe import Subscribing
from vedette.gateway.broker.window_file import SavedStream, restore_collections, restore_windows, save_windows
from vedette.gateway.collections.broker import CollectionDesk
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.audit import audit
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.stream import CollectionTap, Stream, WatchStream
from vedette.gateway.streams.tenant import Desk
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.messages import FrameError, engine_error, message
from vedette.gateway.wire.port import Port
from vedette.gateway.wire.resume_token import TokenSeal

__all__ = ["Broker", "Client"]

log = logging.getLogger(__name__)
REPLAY_CHUNK_BYTES = 262_144
RELEASE_BYTES = 8_388_608
"""What a batch may lead to before it is told in parts."""
MOST_LINGERING = 200_000
"""Streams that wait for somebody to come back; more are not kept."""


class Broker:
    """Speaks for all databases of a home."""

    def __init__(
        self,
        home: Vedette,
        *,
        seal: TokenSeal,
        limits: GatewayLimits,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        windows: Path | None = None,
    ) -> None:
        """`windows`: where replay windows are kept from one server to the next."""
        self.home = home
        self._windows = windows
        self.limits = limits
        self.clock = clock
        self.seal = seal
        self.subscribing = Subscribing(self)
        self._requests = Requests(self, wake)
        self.collections: CollectionDesk | None = None
        """External collections; none where there is no data directory."""
        self.left_behind: list[tuple[Desk, SavedStream, float]] = []
        """Streams over them of the server before, and when it ended."""
        self.clients: dict[tuple[Port, int], Client] = {}
        self.desks: dict[str, Desk] = {}
        self.streams = 0
        self.subscriptions = 0
        self.events = 0
        self._wake = wake
        self._ready: deque[WatchStream | CollectionTap] = deque()
        self._told: list[tuple[Port, Any, Desk | None, str | None]] = []
        """What is told when it is durable: to whom, what, about which database, in answer to which message."""
        self._told_bytes = 0
        self._touched: set[Desk] = set()
        """Databases that this batch concerned: what it did there is to be made durable."""
        self._lingering: deque[Stream] = deque()
        self._rung_at: float | None = None
        """When the first of the events came about that are not numbered yet."""
        self._detected_at: float | None = None
        """The same of those that are being numbered."""

    # --- a batch ------------------------------------------------------------------------------------------------

    def process(self, requests: Iterable[tuple[Port, Any]]) -> None:
        """Carry out a batch, make it durable, tell everyone."""
        self._requests.finish_reads()
        for port, record in requests:
            try:
                self._take(port, record)
            except Exception:  # what one request does wrong keeps no other from being carried out
                extra = {"action": "broker.take_failed", "conn": getattr(record, "conn", None)}
                log.exception("A request could not be processed", extra=extra)
            if self.much_to_tell:
                self.settle()
                self._release()
        self.settle()
        self._release()

    @property
    def much_to_tell(self) -> bool:
        """Whether it is time to tell what there is, although more could be done before."""
        return self._told_bytes >= RELEASE_BYTES

    def settle(self) -> None:
        """Make durable what was done, and number what came of it."""
        self._detected_at, self._rung_at = self._rung_at, None
        touched, self._touched = self._touched, set()
        for desk in touched:
            self._flush(desk)
        while self._ready:
            source = self._ready.popleft()
            try:
                self.pump(source)
            except VedetteError as refusal:
                self.end_for(_streams_of(source), "cancelled", [engine_error(refusal)])
            except Exception:
                log.exception("A stream failed and was ended", extra={"action": "broker.pump_failed"})
                error = {"code": "internal", "message": "internal error; the server's log has it"}
                self.end_for(_streams_of(source), "internal", [error])
        self._detected_at = None

    def _flush(self, desk: Desk) -> None:
        database = desk.database
        if database.gate.durable_tick >= database.gate.submitted_tick:
            return
        try:
            database.wait(Turn(database).taken())
        except StoreError as error:
            self._disown(desk, error)

    def _disown(self, desk: Desk, error: StoreError) -> None:
        """A flush failed: nothing that this batch did with the database happened, and nobody is told it did."""
        payload = engine_error(error)
        for number, (port, record, about, id) in enumerate(self._told):
            if about is desk and isinstance(record, link.Answer | link.Subscribed | link.Opened):
                self._told[number] = (port, link.Failed(conn=record.conn, id=id, payload=payload), None, None)

    def pump(self, source: WatchStream | CollectionTap) -> None:
        """Number what is ready, for everyone who listens."""
        for stream, seq, tail in source.pump():
            self.tell(stream, seq, tail)
        if isinstance(source, WatchStream) and source.owner is not None:
            self._notify(source, *source.owner)
        if source.feed.ended:
            self._end(source)

    def _notify(self, stream: WatchStream, client: Client, name: str) -> None:
        """Timeouts, withdrawals, dead letters that failed: what the owner of a watch should know."""
        if stream.feed.ended:
            return  # its errors say why, and go with the end
        for record in stream.feed.errors():
            payload = {"status": "notice", "subIds": [name], "errors": [engine_error(record)]}
            data = message("status", payload)
            self._told.append((client.port, link.Notice(conn=client.conn, data=data), None, None))

    def tell(self, stream: Stream, seq: int, tail: bytes) -> None:
        self.events += 1
        self._told_bytes += len(tail)
        if len(tail) > self.limits.max_answer_bytes:
            text = "An event has more bytes than a message may have: RETURN less of what is matched"
            error = {"code": "too_large", "message": text, "fields": {"limit": self.limits.max_answer_bytes}}
            self.end_for([stream], "too_large", [error])
            return
        at = self._detected_at if self._detected_at is not None else self.clock.monotonic()
        for port in stream.ports:
            told = link.Told(stream=stream.number, seq=seq, tail=tail, at=at)
            self._told.append((port, told, None, None))

    def _end(self, source: WatchStream | CollectionTap) -> None:
        """The watch was cancelled, or could not be evaluated any more."""
        errors = [engine_error(error) for error in source.feed.errors()]
        self.end_for(_streams_of(source), "cancelled", errors)

    def end_for(self, streams: Sequence[Stream], reason: str, errors: list[dict[str, Any]]) -> None:
        self.end_streams(streams, {"status": "ended", "reason": reason, "errors": errors})

    def end_streams(self, streams: Sequence[Stream], payload: dict[str, Any]) -> None:
        """Tell everyone who follows them that this is the end, and why."""
        ended = {id(stream) for stream in streams if stream.members}
        for stream in streams:
            for port in stream.ports:
                self._told.append((port, link.Ended(stream=stream.number, payload=payload), None, None))
        owners = [s.owner[0] for s in streams if isinstance(s, WatchStream) and s.owner is not None]
        alone = len(owners) == len(streams)
        for client in owners if alone or not ended else list(self.clients.values()):
            for name in [n for n, s in client.subs.items() if id(s) in ended]:
                self.part(client, name)

    def _release(self) -> None:
        told, self._told, self._told_bytes = self._told, [], 0
        batches: dict[Port, list[Any]] = {}
        for port, record, _, _ in told:
            batches.setdefault(port, []).append(record)
        for port, records in batches.items():
            port.say(records)

    def ring(self, source: Any) -> None:
        """From any thread, with locks held: there may be events."""
        if self._rung_at is None:
            self._rung_at = self.clock.monotonic()
        self._ready.append(source)
        self._wake()

    def say(self, client: Client, record: Any, id: str | None = None) -> None:
        """When it is durable; `id` is the message that it answers."""
        self._touched.add(client.desk)
        self._told.append((client.port, record, client.desk, id))
        self._told_bytes += link.weight(record)

    # --- requests -----------------------------------------------------------------------------------------------

    def _take(self, port: Port, record: Any) -> None:
        if isinstance(record, link.Open):
            self._open(port, record)
            return
        client = self.clients.get((port, record.conn))
        if client is None:
            return  # it has gone, and nobody waits for an answer
        if isinstance(record, link.Shut):
            self._shut(client, orderly=record.orderly, returns=record.returns)
        elif client.busy:
            client.postpone(record)
        else:
            self._requests.carry_out(client, record)

    def _open(self, port: Port, record: link.Open) -> None:
        refusal: dict[str, Any] | None = None
        close = 0
        try:
            desk = self.desk(record.tenant)
            if not record.system:
                desk.database.session(record.actor or "").close()
            if desk.connections >= self.limits.max_connections_per_tenant and not record.local:
                text = "this database has as many connections as it may: try again later"
                raise FrameError("too_many_connections", text)
            desk.connections += 1
            self.clients[port, record.conn] = client = Client(port, record, desk)
            self.say(client, link.Opened(conn=record.conn, id=record.id), record.id)
        except VedetteError as error:
            refusal = engine_error(error)
            close = CloseCode.AUTH_REFUSED if isinstance(error, PolicyError) else 0
        except FrameError as error:
            refusal = {"code": error.code, "message": error.text, "retryable": True}
            close = CloseCode.TRY_LATER
        except Exception:
            log.exception(
                "A connection could not be opened",
                extra={"action": "broker.open_failed", "conn": record.conn},
            )
            refusal = {"code": "internal", "message": "internal error"}
        if refusal is not None:
            failed = link.Failed(conn=record.conn, id=record.id, payload=refusal, close=close)
            self._told.append((port, failed, None, None))

    def desk(self, tenant: str) -> Desk:
        known = self.desks.get(tenant)
        if known is None:
            known = self.desks[tenant] = Desk(
                self.home.database(tenant),
                seal=self.seal,
                bounds=self.limits.window,
                clock=self.clock,
                ring=self.ring,
            )
        return known

    def collection_desk(self) -> CollectionDesk:
        """E6103 where there can be no sources."""
        if self.collections is None:
            text = "this server keeps no data directory, so it has no sources: serve one with --data DIR"
            raise SourceError("E6103", text)
        return self.collections

    def session_of(self, client: Client) -> Session:
        """The connection's own session: its transaction, its names, its private watches."""
        if client.session is None:
            settings = self.home.settings
            session = client.desk.database.session(None if client.system else client.actor)
            session.patient = False
            session.watch_limits = (settings.max_watches_per_session, settings.max_watches_total)
            client.session = session
        return client.session

    # --- subscriptions ------------------------------------------------------------------------------------------

    def check_quotas(self, client: Client, name: str) -> None:
        """Whether there may be one more subscription, unless the name is one that it has already."""
        if name in client.subs:
            return
        checks = (
            (len(client.subs), self.limits.max_subscriptions_per_connection),
            (client.desk.subscriptions, self.limits.max_subscriptions_per_tenant),
            (self.subscriptions, self.limits.max_subscriptions_total),
        )
        for current, limit in checks:
            if current >= limit:
                fields = {"current": current, "limit": limit}
                raise WatchError("E8006", f"Too many watches: {current} of {limit}", fields=fields)

    def join(self, client: Client, name: str, stream: Stream) -> None:
        """The subscriber is counted; what it is told first is the caller's business."""
        audit(client, "subscription.created", name, stream=stream.number)
        client.subs[name] = stream
        client.desk.subscriptions += 1
        self.subscriptions += 1
        stream.enter(client.port, checksum=client.checksum)

    def part(self, client: Client, name: str, *, returns: bool = False) -> None:
        """A subscriber less. The last one's stream ends, or waits for one who was cut off."""
        stream = client.subs.pop(name, None)
        if stream is None:
            return
        audit(client, "subscription.ended", name, stream=stream.number)
        client.desk.subscriptions -= 1
        self.subscriptions -= 1
        stream.leave(client.port, (client.port, client.conn, name), checksum=client.checksum)
        now = self.clock.monotonic()
        seconds = client.desk.window.bounds.seconds
        if returns and stream.key is not None:
            stream.promised_until = now + seconds
        if stream.members:
            return
        if stream.promised_until > now and len(self._lingering) < MOST_LINGERING:
            stream.linger_until = stream.promised_until
            self.linger(stream)
        else:
            self._close(client, stream)

    def linger(self, stream: Stream) -> None:
        """Keep a stream that nobody listens to, for those who come back."""
        self._lingering.append(stream)

    def give_up(self, stream: Stream) -> None:
        """End a stream that nobody listens to."""
        stream.desk.close_stream(stream)
        self.streams -= 1

    def _close(self, client: Client, stream: Stream) -> None:
        if isinstance(stream, WatchStream) and not stream.shared and not stream.feed.lasts:
            stream.feed.cancel()
        client.desk.close_stream(stream)
        self.streams -= 1

    def replay(self, client: Client, name: str, stream: Stream, seq: int) -> None:
        """What came after `seq`, as much as is good at a time."""
        events: list[tuple[int, bytes]] = []
        size = 0
        missed = stream.history.after(seq)
        for event in missed:
            events.append((event.seq, event.tail))
            size += len(event.tail)
            if size >= REPLAY_CHUNK_BYTES:
                break
        more = len(events) < len(missed)
        self.say(client, link.CaughtUp(conn=client.conn, sub=name, events=events, more=more))

    # --- connections end ----------------------------------------------------------------------------------------

    def _shut(self, client: Client, *, orderly: bool, returns: bool) -> None:
        del self.clients[client.port, client.conn]
        client.desk.connections -= 1
        if client.session is not None and not client.busy:  # first: it says how its watches ended
            client.session.close(lost=not orderly)  # who was cut off has failed at what it held
        for name in list(client.subs):
            self.part(client, name, returns=returns)

    def lost(self, port: Port) -> None:
        """A whole gateway has gone, and its connections with it."""
        for client in [c for c in self.clients.values() if c.port is port]:
            self._shut(client, orderly=False, returns=True)

    def housekeep(self) -> None:
        """Once in a while: let go of what is past its time."""
        now = self.clock.monotonic()
        for desk in self.desks.values():
            desk.window.expire(now)
        while self._lingering:
            stream = self._lingering[0]
            if stream.linger_until is not None and stream.linger_until > now:
                break
            self._lingering.popleft()
            if stream.linger_until is not None and not stream.members:
                stream.linger_until = None
                self.give_up(stream)

    def take_up(self) -> None:
        """Before the first request: streams of the server before this one, if it stopped in good order."""
        if self._windows is not None:
            restored = restore_windows(self._windows, self)
            if restored:
                log.info("Restored %d streams", restored, extra={"action": "window.restored"})

    def take_up_collections(self) -> None:
        """The same for streams over external collections, when there is somebody to ask about them."""
        restored = restore_collections(self)
        if restored:
            log.info("Restored %d streams over collections", restored, extra={"action": "window.restored"})

    def close(self) -> None:
        for client in list(self.clients.values()):
            self._shut(client, orderly=True, returns=self._windows is not None)
        self.settle()
        if self.collections is not None:
            self.collections.leave_behind()
        if self._windows is not None:
            save_windows(self._windows, list(self.desks.values()), self.clock.monotonic())
        self._requests.close()


def _streams_of(source: WatchStream | CollectionTap) -> list[Stream]:
    return list(source.streams.values()) if isinstance(source, CollectionTap) else [source]
