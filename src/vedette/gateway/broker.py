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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vedette.clock import Clock
from vedette.engine.execution import LongReadError
from vedette.engine.home import Vedette
from vedette.engine.result import Result
from vedette.engine.session import Session
from vedette.engine.turn import Turn
from vedette.errors import PolicyError, SourceError, StoreError, VedetteError, WatchError
from vedette.gateway import link
from vedette.gateway.answers import managed, result_payload, settling_statement
from vedette.gateway.audit import audit
from vedette.gateway.broker_client import Client
from vedette.gateway.collection_desk import CollectionDesk
from vedette.gateway.collection_streams import CollectionStream
from vedette.gateway.desk import Desk
from vedette.gateway.frames import FrameError, engine_error, message
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.ports import Port
from vedette.gateway.streams import CollectionTap, Stream, WatchStream
from vedette.gateway.subscribing import Subscribing, claims_hash
from vedette.gateway.tokens import TokenSeal
from vedette.gateway.window_file import restore_windows, save_windows
from vedette.values import duration_from_ms

__all__ = ["Broker", "Client"]

log = logging.getLogger(__name__)
REPLAY_CHUNK_BYTES = 262_144
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
        self.collections: CollectionDesk | None = None
        """External collections; none where there is no data directory."""
        self.clients: dict[tuple[Port, int], Client] = {}
        self.desks: dict[str, Desk] = {}
        self.streams = 0
        self.subscriptions = 0
        self.events = 0
        self._wake = wake
        self._ready: deque[WatchStream | CollectionTap] = deque()
        self._finished: deque[Callable[[], None]] = deque()
        self._told: list[tuple[Port, Any, Desk | None, str | None]] = []
        """What is told when it is durable: to whom, what, about which database, in answer to which message."""
        self._touched: set[Desk] = set()
        """Databases that this batch concerned: what it did there is to be made durable."""
        self._lingering: deque[Stream] = deque()
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="vedette-long-read")

    # --- a batch ------------------------------------------------------------------------------------------------

    def process(self, requests: Iterable[tuple[Port, Any]]) -> None:
        """Carry out a batch, make it durable, tell everyone."""
        while self._finished:
            self._finished.popleft()()
        for port, record in requests:
            try:
                self._take(port, record)
            except Exception:  # what one request does wrong keeps no other from being carried out
                log.exception("A request could not be taken", extra={"action": "broker.take_failed"})
        self.settle()
        self._release()

    def settle(self) -> None:
        """Make durable what was done, and number what came of it."""
        touched, self._touched = self._touched, set()
        for desk in touched:
            self._flush(desk)
        while self._ready:
            source = self._ready.popleft()
            try:
                self.pump(source)
            except Exception:
                log.exception("A stream could not go on", extra={"action": "broker.pump_failed"})

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
        for port in stream.ports:
            self._told.append((port, link.Told(stream=stream.number, seq=seq, tail=tail), None, None))

    def _end(self, source: WatchStream | CollectionTap) -> None:
        """The watch was cancelled, or could not be evaluated any more."""
        errors = [engine_error(error) for error in source.feed.errors()]
        payload = {"status": "ended", "reason": "cancelled", "errors": errors}
        self.end_streams(
            list(source.streams.values()) if isinstance(source, CollectionTap) else [source], payload
        )

    def end_streams(self, streams: Sequence[Stream], payload: dict[str, Any]) -> None:
        """Tell everyone who follows them that this is the end, and why."""
        ended = {id(stream) for stream in streams}
        for stream in streams:
            for port in stream.ports:
                self._told.append((port, link.Ended(stream=stream.number, payload=payload), None, None))
        for client in self.clients.values():
            for name in [n for n, s in client.subs.items() if id(s) in ended]:
                self.part(client, name)

    def _release(self) -> None:
        told, self._told = self._told, []
        batches: dict[Port, list[Any]] = {}
        for port, record, _, _ in told:
            batches.setdefault(port, []).append(record)
        for port, records in batches.items():
            port.say(records)

    def ring(self, source: Any) -> None:
        """From any thread, with locks held: there may be events."""
        self._ready.append(source)
        self._wake()

    def say(self, client: Client, record: Any, id: str | None = None) -> None:
        """When it is durable; `id` is the message that it answers."""
        self._touched.add(client.desk)
        self._told.append((client.port, record, client.desk, id))

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
            self._carry_out(client, record)

    def _carry_out(self, client: Client, record: Any) -> None:
        id = record.sub if isinstance(record, link.SubscribeTo) else getattr(record, "id", None)
        try:
            _REQUESTS[type(record)](self, client, record)
        except VedetteError as error:
            payload = engine_error(error)
            if isinstance(record, link.SubscribeTo):
                payload["message"] = f"Subscribe failed: {payload['message']}"
            self.say(client, link.Failed(conn=client.conn, id=id, payload=payload))
        except FrameError as error:
            payload = {"code": error.code, "message": error.text}
            self.say(client, link.Failed(conn=client.conn, id=id, payload=payload))
        except Exception:
            reference = f"{client.conn:x}-{self.clock.now():%H%M%S%f}"
            log.exception(
                "A request failed", extra={"action": "broker.request_failed", "reference": reference}
            )
            payload = {"code": "internal", "message": f"internal error; the log has it under {reference}"}
            if not isinstance(record, link.Trim | link.Replay | link.Renew):
                self.say(client, link.Failed(conn=client.conn, id=id, payload=payload))

    def _open(self, port: Port, record: link.Open) -> None:
        refusal: dict[str, Any] | None = None
        fatal = False
        try:
            desk = self.desk(record.tenant)
            if not record.system:
                desk.database.session(record.actor or "").close()
            self.clients[port, record.conn] = client = Client(port, record, desk)
            self.say(client, link.Opened(conn=record.conn, id=record.id), record.id)
        except VedetteError as error:
            refusal = engine_error(error)
            fatal = isinstance(error, PolicyError)
        except Exception:
            log.exception("A connection could not be opened", extra={"action": "broker.open_failed"})
            refusal = {"code": "internal", "message": "internal error"}
        if refusal is not None:
            failed = link.Failed(conn=record.conn, id=record.id, payload=refusal, fatal=fatal)
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

    def _asked(self, client: Client, record: link.Asked) -> None:
        if record.kind == "define":
            if record.text.strip():
                client.desk.database.define(record.text)
            data = message("define_ack", self._defined(client), record.id)
            self.say(client, link.Answer(conn=client.conn, data=data), record.id)
            return
        session = self.session_of(client)
        watching = client.desk.database.watching
        if watching.full:  # a full watch that holds writers back may be one that is read here
            self.settle()
        if record.kind == "run":
            self._read_elsewhere(client, session, record)
            return
        try:
            result = session.execute_undurably(record.text, record.params)
        except LongReadError:
            self._read_elsewhere(client, session, record)
            return
        self._answer(client, record.id, result)

    def _defined(self, client: Client) -> dict[str, Any]:
        """What the database's ontology is now; command lines of this machine also learn what else there is."""
        payload: dict[str, Any] = {"status": "ok", "definitions": client.desk.database.definitions()}
        if client.local:
            payload["databases"] = self.home.databases()
        return payload

    def _answer(self, client: Client, id: str | None, result: Result | list[Result]) -> None:
        if isinstance(result, list):
            payload: dict[str, Any] = {"results": [result_payload(each) for each in result]}
        else:
            payload = result_payload(result)
        data = message("result", payload, id)
        self.say(client, link.Answer(conn=client.conn, data=data), id)

    def _read_elsewhere(self, client: Client, session: Session, record: link.Asked) -> None:
        """A script, or a read that outgrew its slice: it goes on in a thread while others are served."""
        client.busy = True
        session.patient = True
        work: Callable[..., Any] = session.run if record.kind == "run" else session.execute
        future: Future[Any] = self._pool.submit(work, record.text, record.params)

        def finish(done: Future[Any]) -> None:
            self._finished.append(lambda: self._long_read_ended(client, session, record.id, done))
            self._wake()

        future.add_done_callback(finish)

    def _long_read_ended(self, client: Client, session: Session, id: str | None, done: Future[Any]) -> None:
        session.patient = False
        client.busy = False
        error = done.exception()
        if (client.port, client.conn) not in self.clients:
            session.close()
            return
        if error is None:
            self._answer(client, id, done.result())
        else:
            known = isinstance(error, VedetteError)
            payload = engine_error(error) if known else {"code": "internal", "message": "internal error"}  # type: ignore[arg-type]
            self.say(client, link.Failed(conn=client.conn, id=id, payload=payload))
        for trim in client.postponed():
            self._carry_out(client, trim)
        while client.queue and not client.busy:
            self._carry_out(client, client.queue.popleft())

    # --- subscriptions ------------------------------------------------------------------------------------------

    def _subscribe(self, client: Client, record: link.SubscribeTo) -> None:
        self._check_quotas(client)
        self.part(client, record.sub)
        self.subscribing.subscribe(client, record)

    def _check_quotas(self, client: Client) -> None:
        checks = (
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

    def _drop(self, client: Client, record: link.Drop) -> None:
        stream = client.subs.get(record.sub)
        if isinstance(stream, WatchStream) and stream.feed.lasts:
            stream.feed.detach()
        self.part(client, record.sub)
        data = message("unsubscribe_ack", None, record.id)
        self.say(client, link.Unsubscribed(conn=client.conn, sub=record.sub, data=data))

    def _renew(self, client: Client, record: link.Renew) -> None:
        """Filters that ask about the token are bound anew (spec/pipeline.md §3, ruling 16): by subscribing again."""
        client.renew(record.claims)
        bound_to = claims_hash(client)
        for name, stream in list(client.subs.items()):
            if stream.bound_to not in (None, bound_to):
                self.part(client, name)
                self.say(client, link.Stale(conn=client.conn, sub=name, reason="auth"))

    def _replay(self, client: Client, record: link.Replay) -> None:
        stream = client.subs.get(record.sub)
        if stream is None:
            return
        self.settle()
        if not stream.history.reaches(record.seq):
            self.say(client, link.Stale(conn=client.conn, sub=record.sub, reason="window"))
            return
        self.replay(client, record.sub, stream, record.seq)

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

    def _trim(self, client: Client, record: link.Trim) -> None:
        names = [record.sub] if record.sub is not None else list(client.subs)
        for name in names:
            stream = client.subs.get(name)
            if stream is not None:
                member = (client.port, client.conn, name)
                stream.acknowledge(member, record.seq, self.clock.monotonic())

    def _steer(self, client: Client, record: link.Steer) -> None:
        stream = client.subs.get(record.sub)
        if isinstance(stream, CollectionStream) and record.operation == "cancel":
            self.part(client, record.sub)
            self.say(client, link.Unsubscribed(conn=client.conn, sub=record.sub, data=managed(record)))
            return
        if not isinstance(stream, WatchStream) or (stream.shared and record.operation == "alter"):
            text = "only a watch of one's own can be altered: subscribe with exclusive: true"
            raise FrameError("not_exclusive", text)
        if record.operation == "cancel":
            if not stream.shared:
                stream.feed.cancel()
            self.part(client, record.sub)
            self.say(client, link.Unsubscribed(conn=client.conn, sub=record.sub, data=managed(record)))
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
        self.say(client, link.Answer(conn=client.conn, data=managed(record)), record.id)

    def _pull(self, client: Client, stream: WatchStream, record: link.Steer) -> None:
        """What is ready now, and then the answer."""
        if stream.credit != 0:
            raise FrameError("invalid_payload", "pull is for what was subscribed to with prefetch: 0")
        self.settle()
        pulled = stream.pull(record.limit)
        for seq, tail in pulled:
            self.tell(stream, seq, tail)
        self.say(client, link.Answer(conn=client.conn, data=managed(record, count=len(pulled))), record.id)

    def _settle(self, client: Client, record: link.Settle) -> None:
        session = self.session_of(client)
        if record.release:
            session.release(record.delivery)
        elif record.cause is not None:
            span = duration_from_ms(record.milliseconds) if record.milliseconds is not None else None
            session.nack(record.delivery, retry=record.retry, delay=span, cause=record.cause)
        else:
            text, params = settling_statement(record)
            session.execute_undurably(text, params)
        for stream in client.subs.values():
            if isinstance(stream, WatchStream) and stream.credit is not None:
                stream.ring()  # there may be room for another
        data = message(f"{record.operation}_ack", {"deliveryId": record.delivery}, record.id)
        self.say(client, link.Answer(conn=client.conn, data=data), record.id)

    # --- connections end ----------------------------------------------------------------------------------------

    def _shut(self, client: Client, *, orderly: bool, returns: bool) -> None:
        del self.clients[client.port, client.conn]
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
                log.info("%d streams go on", restored, extra={"action": "window.restored"})

    def close(self) -> None:
        for client in list(self.clients.values()):
            self._shut(client, orderly=True, returns=self._windows is not None)
        self.settle()
        if self._windows is not None:
            save_windows(self._windows, list(self.desks.values()), self.clock.monotonic())
        self._pool.shutdown(wait=True, cancel_futures=True)


_REQUESTS: dict[type[Any], Callable[[Broker, Client, Any], None]] = {
    link.Asked: Broker._asked,
    link.SubscribeTo: Broker._subscribe,
    link.Drop: Broker._drop,
    link.Take: lambda broker, client, record: broker.subscribing.resume(client, record),
    link.Renew: Broker._renew,
    link.Replay: Broker._replay,
    link.Trim: Broker._trim,
    link.Settle: Broker._settle,
    link.Steer: Broker._steer,
}
