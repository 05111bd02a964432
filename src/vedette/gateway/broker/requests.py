"""What a connection asks of the broker, request by request: statements, subscriptions, deliveries, watches.

Each is carried out on the engine's thread without waiting for the disk; what it is answered goes to `Broker.say`, which
keeps it until it is durable. What a request does wrong is its own answer and nobody else's.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from vedette.engine.session.session import Session
from vedette.engine.statements.execution import LongReadError
from vedette.errors import PolicyError, VedetteError
from vedette.gateway.collections.stream import CollectionStream
from vedette.gateway.streams.stream import WatchStream
from vedette.gateway.streams.stream_key import claims_hash
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import FrameError, engine_error, message
from vedette.gateway.wire.replies import is_heavy, managed, result_message, settling_statement
from vedette.transport.sampled_log import remark
from vedette.values import duration_from_ms

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker
    from vedette.gateway.streams.client import Client

__all__ = ["Requests"]

log = logging.getLogger(__name__)
LIGHT_BYTES = 262_144
"""Of an answer that is put together between two requests; a larger one is, while others are served."""


class Requests:
    """Carries out what clients ask of one broker."""

    def __init__(self, broker: Broker, wake: Callable[[], None]) -> None:
        self._broker = broker
        self._wake = wake
        self._finished: deque[Callable[[], None]] = deque()
        """Long reads that are done, for the next batch to answer."""
        self._held: list[tuple[Client, Callable[[], None]]] = []
        """What may begin when the gateway of its client has taken what is on its way there."""
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="vedette-long-read")

    def finish_reads(self) -> None:
        """Answer what was read elsewhere meanwhile, and begin what had to wait."""
        while self._finished:
            self._finished.popleft()()
        held, self._held = self._held, []
        for client, begin in held:
            if client.port.congested and (client.port, client.conn) in self._broker.clients:
                self._held.append((client, begin))
            else:
                begin()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def carry_out(self, client: Client, record: Any) -> None:
        try:
            _REQUESTS[type(record)](self, client, record)
        except Exception as error:
            payload = self._words(client, error)
            if isinstance(record, link.SubscribeTo) and not isinstance(error, FrameError):
                payload["message"] = f"Subscribe failed: {payload['message']}"
            self._refuse(client, record, payload)

    def _words(self, client: Client, error: BaseException) -> dict[str, Any]:
        """What a request failed with, for whoever made it."""
        if isinstance(error, VedetteError):
            return engine_error(error)
        if isinstance(error, FrameError):
            return {"code": error.code, "message": error.text}
        reference = f"{client.conn:x}-{self._broker.clock.now():%H%M%S%f}"
        ids = {"tenant": client.desk.tenant, "conn": client.conn, "reference": reference}
        log.error("A request failed", exc_info=error, extra={"action": "broker.request_failed", **ids})
        return {"code": "internal", "message": f"internal error; the log has it under {reference}"}

    def _refuse(self, client: Client, record: Any, payload: dict[str, Any]) -> None:
        """Say that it cannot be; a subscription that cannot be brought up is told to begin anew."""
        if isinstance(record, link.Replay):
            self._broker.say(client, link.Stale(conn=client.conn, sub=record.sub, reason="overflow"))
        elif not isinstance(
            record, link.Trim | link.Renew
        ):  # those are no requests: nobody waits for an answer
            id = record.sub if isinstance(record, link.SubscribeTo) else getattr(record, "id", None)
            self._broker.say(client, link.Failed(conn=client.conn, id=id, payload=payload))

    # --- statements ---------------------------------------------------------------------------------------------

    def _asked(self, client: Client, record: link.Asked) -> None:
        if record.kind == "define":
            if record.text.strip():
                client.desk.database.define(record.text)
            data = message("define_ack", self._defined(client), record.id)
            self._broker.say(client, link.Answer(conn=client.conn, data=data), record.id)
            return
        self._check_person(client)
        session = self._broker.session_of(client)
        watching = client.desk.database.watching
        if watching.full:  # a full watch that holds writers back may be one that is read here
            self._broker.settle()
        id, text, params = record.id, record.text, record.params
        most = self._broker.limits.max_answer_bytes
        if record.kind == "run":
            self._elsewhere(client, session, id, lambda: result_message(session.run(text, params), id, most))
            return
        try:
            result = session.execute_undurably(text, params)
        except LongReadError:
            self._elsewhere(
                client, session, id, lambda: result_message(session.execute(text, params), id, most)
            )
            return
        if result.tick is None and is_heavy(result, LIGHT_BYTES):
            self._elsewhere(client, session, id, lambda: result_message(result, id, most))
            return
        self._broker.say(client, link.Answer(conn=client.conn, data=result_message(result, id, most)), id)

    def _check_person(self, client: Client) -> None:
        """Who was there when the connection was opened may be gone by now: its watches have ended then, too."""
        person = client.person
        if person is not None and client.desk.database.state.graph.get(person) is None:
            raise PolicyError("E7003", "The actor of this connection does not exist any more")

    def _defined(self, client: Client) -> dict[str, Any]:
        """What the database's ontology is now; command lines of this machine also learn what else there is."""
        payload: dict[str, Any] = {"status": "ok", "definitions": client.desk.database.definitions()}
        if client.local:
            payload["databases"] = self._broker.home.databases()
        return payload

    def _elsewhere(self, client: Client, session: Session, id: str | None, work: Callable[[], bytes]) -> None:
        """A script, a read that outgrew its slice, or a large answer: a thread does it while others are served."""
        client.busy = True
        session.patient = True

        def finish(done: Future[bytes]) -> None:
            self._finished.append(lambda: self._ended_elsewhere(client, session, id, done))
            self._wake()

        def begin() -> None:
            self._pool.submit(work).add_done_callback(finish)

        if client.port.congested:
            self._held.append((client, begin))
        else:
            begin()

    def _ended_elsewhere(self, client: Client, session: Session, id: str | None, done: Future[bytes]) -> None:
        session.patient = False
        client.busy = False
        error = done.exception()
        if (client.port, client.conn) not in self._broker.clients:
            session.close()
            return
        if error is None:
            self._broker.say(client, link.Answer(conn=client.conn, data=done.result()), id)
        else:
            failed = link.Failed(conn=client.conn, id=id, payload=self._words(client, error))
            self._broker.say(client, failed)
        for trim in client.postponed():
            self.carry_out(client, trim)
        while client.queue and not client.busy:
            self.carry_out(client, client.queue.popleft())

    # --- subscriptions ------------------------------------------------------------------------------------------

    def _subscribe(self, client: Client, record: link.SubscribeTo) -> None:
        self._broker.check_quotas(client, record.sub)
        self._broker.part(client, record.sub)
        self._broker.subscribing.subscribe(client, record)

    def _resume(self, client: Client, record: link.Take) -> None:
        self._broker.check_quotas(client, record.sub)
        self._broker.subscribing.resume(client, record)

    def _drop(self, client: Client, record: link.Drop) -> None:
        stream = client.subs.get(record.sub)
        if isinstance(stream, WatchStream) and stream.feed.lasts:
            stream.feed.detach()
        self._broker.part(client, record.sub)
        data = message("unsubscribe_ack", None, record.id)
        self._broker.say(client, link.Unsubscribed(conn=client.conn, sub=record.sub, data=data))

    def _renew(self, client: Client, record: link.Renew) -> None:
        """Filters that ask about the token are bound anew (spec/pipeline.md §3, ruling 16): by subscribing again."""
        client.renew(record.claims)
        bound_to = claims_hash(client)
        for name, stream in list(client.subs.items()):
            if stream.bound_to not in (None, bound_to):
                self._broker.part(client, name)
                self._broker.say(client, link.Stale(conn=client.conn, sub=name, reason="auth"))

    def _replay(self, client: Client, record: link.Replay) -> None:
        stream = client.subs.get(record.sub)
        if stream is None:
            return
        tenant = client.desk.tenant
        remark(
            "subscription.replay",
            tenant,
            f"A subscription of {tenant} lags and is replayed",
            conn=client.conn,
        )
        self._broker.settle()
        if not stream.history.reaches(record.seq):
            self._broker.say(client, link.Stale(conn=client.conn, sub=record.sub, reason="window"))
            return
        self._broker.replay(client, record.sub, stream, record.seq)

    def _trim(self, client: Client, record: link.Trim) -> None:
        names = [record.sub] if record.sub is not None else list(client.subs)
        for name in names:
            stream = client.subs.get(name)
            if stream is not None:
                member = (client.port, client.conn, name)
                stream.acknowledge(member, record.seq, self._broker.clock.monotonic())

    def _steer(self, client: Client, record: link.Steer) -> None:
        stream = client.subs.get(record.sub)
        if isinstance(stream, CollectionStream) and record.operation == "cancel":
            self._broker.part(client, record.sub)
            self._broker.say(
                client, link.Unsubscribed(conn=client.conn, sub=record.sub, data=managed(record))
            )
            return
        if not isinstance(stream, WatchStream) or (stream.shared and record.operation == "alter"):
            text = "only a watch of one's own can be altered: subscribe with exclusive: true"
            raise FrameError("not_exclusive", text)
        if record.operation == "cancel":
            if not stream.shared:
                stream.feed.cancel()
            self._broker.part(client, record.sub)
            self._broker.say(
                client, link.Unsubscribed(conn=client.conn, sub=record.sub, data=managed(record))
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
        self._broker.say(client, link.Answer(conn=client.conn, data=managed(record)), record.id)

    def _pull(self, client: Client, stream: WatchStream, record: link.Steer) -> None:
        """What is ready now, and then the answer."""
        if stream.credit != 0:
            raise FrameError("invalid_payload", "pull is for what was subscribed to with prefetch: 0")
        self._broker.settle()
        pulled = stream.pull(record.limit)
        for seq, tail in pulled:
            self._broker.tell(stream, seq, tail)
        self._broker.say(
            client, link.Answer(conn=client.conn, data=managed(record, count=len(pulled))), record.id
        )

    def _settle_delivery(self, client: Client, record: link.Settle) -> None:
        session = self._broker.session_of(client)
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
        self._broker.say(client, link.Answer(conn=client.conn, data=data), record.id)


_REQUESTS: dict[type[Any], Callable[[Requests, Client, Any], None]] = {
    link.Asked: Requests._asked,
    link.SubscribeTo: Requests._subscribe,
    link.Drop: Requests._drop,
    link.Take: Requests._resume,
    link.Renew: Requests._renew,
    link.Replay: Requests._replay,
    link.Trim: Requests._trim,
    link.Settle: Requests._settle_delivery,
    link.Steer: Requests._steer,
}
