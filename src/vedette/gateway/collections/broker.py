"""External collections at the broker, on the engine's thread alone: who follows what. `Telling` has what they are told.

Theory of operation. A stream over a collection is one subscription at the registry. Its first subscriber's snapshot is
read at an offset of the journal, and the stream is registered with that offset as its boundary: the pipeline tells
everything after it. Whoever comes later joins the stream where it stands: its snapshot is what the stream has been told
by then (`collection_images`), and what it is told while the snapshot is read is replayed from the window, as in a
resume. So every subscriber has one chain without a hole and without a repeat, and each event is encoded once.

When continuity is lost (the source's log was, or our lease) the streams concerned are closed and their subscribers are
told to begin anew. Never is anything left out in silence.

An actor's stream is registered with what policies show it. When that changes, the stream is registered anew, and told
the difference: what it was shown where it stands, against what it is shown at the new boundary (`see_anew`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vedette.errors import InvalidStatement, SourceError, VedetteError
from vedette.gateway.collections.publish import Telling
from vedette.gateway.collections.queries import wish_left_behind
from vedette.gateway.collections.registry_thread import Ending, Looking, Opened, Opening, Registrar, Rows
from vedette.gateway.collections.snapshot import Documents
from vedette.gateway.collections.stream import (
    CollectionStream,
    Eyes,
    Joining,
    LeftStream,
    StreamState,
    ToldRows,
    Wanted,
)
from vedette.gateway.collections.subscribe import Reception
from vedette.gateway.collections.views import RightsReview
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import engine_error
from vedette.transport.ingest_messages import Complete, Deliver, Status

if TYPE_CHECKING:
    from vedette.gateway.broker.broker import Broker, Client
    from vedette.gateway.streams.tenant import Desk

__all__ = ["CollectionDesk"]

log = logging.getLogger(__name__)


class CollectionDesk:
    def __init__(self, broker: Broker, registrar: Registrar) -> None:
        self._broker = broker
        self._registrar = registrar
        self._reception = Reception(broker)
        self._telling = Telling(broker, self._resync)
        self._last_id = 0
        self._rights = RightsReview(registrar.call, self.see_anew, self._end)
        self.resyncs = 0
        """Streams that had to begin anew, so far."""

    @property
    def streams(self) -> int:
        return len(self._telling.numbers)

    @property
    def events(self) -> int:
        """What was told to streams here, so far."""
        return self._telling.events

    def take(self, frame: Deliver | Complete | Status) -> None:
        """One frame of an ingest link, in the order of arrival."""
        self._telling.take(frame)

    # --- subscribing --------------------------------------------------------------------------------------------

    def subscribe(self, client: Client, sub: str, wanted: Wanted, number: Callable[[], int]) -> None:
        """`number` gives a new stream its number."""
        desk = client.desk
        joining = Joining(client, sub, wanted)
        known = desk.streams.get(wanted.key)
        if isinstance(known, CollectionStream):
            self._broker.join(client, sub, known)
            if known.wanted.sights != wanted.sights:
                self.see_anew(known, wanted.eyes)
            if known.state is StreamState.OPENING:
                known.waiting.append(joining)
            else:
                self._join(known, joining)
            return
        actor = None if client.system else client.actor
        stream = CollectionStream(desk, number(), actor, wanted, self._closed)
        desk.streams[wanted.key] = stream
        self._broker.join(client, sub, stream)
        stream.waiting.append(joining)
        self._rights.add(stream)
        self._open(stream, wanted)

    def leave_behind(self) -> None:
        """The server ends in good order: streams say where they stand, for the one that comes next."""
        for stream in self._telling.numbers.values():
            stream.leave_behind(self._telling.told_up_to(stream))

    def take_up(
        self, desk: Desk, key: bytes, actor: str | None, left: LeftStream, position: int, number: int
    ) -> CollectionStream:
        """Go on with a stream of the server before; raises when it cannot be what it was."""
        wanted = wish_left_behind(desk, key, actor, left)
        stream = CollectionStream(desk, number, actor, wanted, self._closed)
        stream.position = position
        stream.places.update(left.places)
        stream.heard.update(left.places)
        desk.streams[key] = stream
        self._rights.add(stream)
        self._open(stream, wanted, left=left)
        return stream

    def _open(
        self,
        stream: CollectionStream,
        wanted: Wanted,
        shown: ToldRows | None = None,
        left: LeftStream | None = None,
    ) -> None:
        """Register a stream; `shown` is what it was told before, when it is not for the first time."""
        self._telling.expect()
        self._last_id += 1
        ids = stream.ids = tuple(f"{self._last_id}.{n}" for n in range(len(wanted.collections)))

        def done(outcome: Opened | VedetteError) -> None:
            try:
                self._opened(stream, ids, wanted, shown, left, outcome)
            finally:
                self._telling.expected()

        self._registrar.post(Opening(ids=ids, tenant=stream.desk.tenant, wanted=wanted, done=done, left=left))

    def _opened(
        self,
        stream: CollectionStream,
        ids: tuple[str, ...],
        wanted: Wanted,
        shown: ToldRows | None,
        left: LeftStream | None,
        outcome: Opened | VedetteError,
    ) -> None:
        if isinstance(outcome, VedetteError):
            self._not_opened(stream, outcome, begun=shown is not None or left is not None)
        elif stream.state is StreamState.CLOSED:
            self._registrar.post(Ending(ids=ids))
            for joining in stream.waiting:
                self._reception.still_there(stream, joining)
        elif stream.wanted.eyes is not wanted.eyes:  # rights have changed meanwhile
            self._registrar.post(Ending(ids=ids))
            if left is not None:
                self._resync([stream], "auth")
            else:
                self._open(stream, replace(wanted, eyes=stream.wanted.eyes), shown)
        elif left is not None:
            self._stand(stream, outcome, {}, differs=False)
        else:
            self._stand(stream, outcome, shown)

    def _not_opened(self, stream: CollectionStream, error: VedetteError, *, begun: bool) -> None:
        if begun:
            self._resync([stream], "gap")
            return
        for joining in stream.waiting:
            self._reception.refuse(stream, joining, error)

    def _stand(
        self, stream: CollectionStream, opened: Opened, shown: ToldRows | None, *, differs: bool = True
    ) -> None:
        """`differs`: what was shown before may not be what is shown now."""
        stream.state = StreamState.STANDING
        stream.registered, stream.version, stream.boundary = opened.numbers, opened.version, opened.boundary
        stream.collections, stream.partitions = opened.collections, opened.epochs
        self._telling.add(stream, opened.states)
        waiting, stream.waiting = stream.waiting, []
        if shown is not None:
            if differs:
                self._tell_difference(stream, shown, opened)
        elif self._reception.still_there(stream, first := waiting.pop(0)):
            documents = opened.documents if first.wanted.snapshot else None
            first = first.through(stream)
            self._reception.welcome(
                stream, first, stream.history.last_seq, stream.position, opened.boundary, documents
            )
        for joining in waiting:
            if self._reception.still_there(stream, joining):
                self._join(stream, joining)
        self._telling.tell_early(stream)

    def _join(self, stream: CollectionStream, joining: Joining) -> None:
        """Where the stream stands now; what it had been told by then is read elsewhere."""
        seq, position = stream.history.last_seq, stream.position
        joining = joining.through(stream)
        if not joining.wanted.snapshot:
            self._reception.welcome(stream, joining, seq, position, self._telling.reached, None)
            return

        def done(outcome: Rows | VedetteError) -> None:
            stream.looking.remove(joining)
            self._looked(stream, joining, seq, position, outcome)

        stream.looking.append(joining)

        self._registrar.post(
            Looking(
                tenant=stream.desk.tenant,
                collections=stream.collections,
                wanted=joining.wanted,
                after=self._telling.told_up_to(stream),
                told=dict(stream.places),
                done=done,
            )
        )

    def _looked(
        self,
        stream: CollectionStream,
        joining: Joining,
        seq: int,
        position: int,
        outcome: Rows | VedetteError,
    ) -> None:
        if not self._reception.still_there(stream, joining):
            return
        if stream.state is StreamState.OPENING:
            stream.waiting.append(joining)
        elif joining.wanted.eyes is not stream.wanted.eyes:
            self._join(stream, joining)
        elif isinstance(outcome, VedetteError):
            self._reception.refuse(stream, joining, outcome)
        elif not stream.history.reaches(seq):
            text = "the collection is too busy for a snapshot just now: subscribe again"
            self._reception.refuse(stream, joining, InvalidStatement("E1102", text))
        else:
            self._reception.welcome(stream, joining, seq, position, outcome.offset, outcome.documents)

    def _closed(self, stream: CollectionStream) -> None:
        """Nobody follows it any more."""
        self._rights.remove(stream)
        self._unregister(stream)

    def _unregister(self, stream: CollectionStream) -> None:
        self._telling.remove(stream)
        if stream.registered:
            self._registrar.post(Ending(ids=stream.ids))

    # --- rights change ------------------------------------------------------------------------------------------

    def see_anew(self, stream: CollectionStream, eyes: Mapping[str, Eyes] | None) -> None:
        """Policies show a stream's actor something else from now on: it is told the difference, and nothing between."""
        former, wanted = stream.wanted, replace(stream.wanted, eyes=eyes)
        if stream.state is StreamState.CLOSED:
            return
        if former.windowed:
            self._resync([stream], "auth")  # what its windows have counted cannot be taken back
            return
        if stream.state is StreamState.OPENING:
            stream.wanted = wanted  # `_opened` finds it
            return
        after, places = self._telling.told_up_to(stream), stream.places
        self._unregister(stream)
        stream.begin_anew(wanted)

        def done(outcome: Rows | VedetteError) -> None:
            if isinstance(outcome, VedetteError):
                self._resync([stream], "auth")
            elif stream.state is not StreamState.CLOSED:
                shown = _rows(former, stream.collections, outcome.documents)
                self._open(stream, replace(stream.wanted, snapshot=True), shown)

        self._registrar.post(
            Looking(
                tenant=stream.desk.tenant,
                collections=stream.collections,
                wanted=former,
                after=after,
                told=places,
                done=done,
            )
        )

    def _tell_difference(self, stream: CollectionStream, shown: ToldRows, opened: Opened) -> None:
        now = _rows(stream.wanted, opened.collections, opened.documents or {})
        for seq, tail in stream.tell_difference(shown, now, opened.boundary):
            self._telling.say(stream, seq, tail)

    def _unanswered(self, stream: CollectionStream) -> list[Joining]:
        """Who is counted as a subscriber and does not know it yet: a gateway tells them nothing."""
        return [
            joining
            for joining in (*stream.waiting, *stream.looking)
            if self._reception.is_there(stream, joining)
        ]

    def _end(self, stream: CollectionStream, error: VedetteError) -> None:
        """Nothing can be told to its actor any more."""
        stream.promised_until = 0.0
        for joining in self._unanswered(stream):
            self._reception.refuse(stream, joining, error)
        payload = {"status": "ended", "reason": "cancelled", "errors": [engine_error(error)]}
        self._broker.end_streams([stream], payload)
        stream.desk.close_stream(stream)

    # --- continuity is lost -------------------------------------------------------------------------------------

    def lapsed(self) -> None:
        """Our lease was lost and with it what was delivered since."""
        self._resync(list(self._telling.numbers.values()), "gap")
        self._telling.forget_early()

    def source_removed(self, source: str) -> None:
        """Nothing will come any more: who follows its collections is told that this is the end."""
        error = SourceError("E6103", f"the source '{source}' was removed", fields={"source": source})
        front = f"{source}::"
        for stream in set(self._telling.numbers.values()):
            if any(map(_begins(front), stream.wanted.collections)):
                self._end(stream, error)

    def _resync(self, streams: Iterable[CollectionStream], reason: str) -> None:
        """Close the streams and tell who followed them, once, to begin anew."""
        lost = {id(stream): stream for stream in streams}
        if not lost:
            return
        self.resyncs += len(lost)
        log.warning(
            "%d streams over collections must resync: %s",
            len(lost),
            reason,
            extra={"action": "collection.resync", "reason": reason},
        )
        unanswered = [joining for stream in lost.values() for joining in self._unanswered(stream)]
        for stream in lost.values():
            stream.promised_until = 0.0  # nobody can come back to it
        for client in list(self._broker.clients.values()):
            for name in [n for n, s in client.subs.items() if id(s) in lost]:
                self._broker.say(client, link.Stale(conn=client.conn, sub=name, reason=reason))
                self._broker.part(client, name)
        for stream in lost.values():
            stream.desk.close_stream(stream)
        for joining in unanswered:
            self._broker.subscribing.subscribe_anew(*joining)


def _rows(wanted: Wanted, collections: Mapping[str, str], documents: Documents) -> ToldRows:
    return {
        (collection, key): wanted.row(collections[collection], key, document)
        for (collection, key), document in documents.items()
    }


def _begins(front: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(front)
