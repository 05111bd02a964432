"""A watch on a server: the asynchronous counterpart of `WatchHandle`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Any, Protocol

from vedette.change import Event
from vedette.client.decode import decode_event
from vedette.client.sequence import SequenceCheck, SequenceTracker
from vedette.errors import VedetteError
from vedette.queue.reports import Withdrawal

__all__ = ["RemoteWatch", "WatchChannel"]

PAUSE_AT_EVENTS = 10_000
RESUME_AT_EVENTS = 2_000
"""Buffered events at which the client asks the server to pause, and to resume."""
MAX_REMEMBERED_POSITIONS = 10_000
"""Positions of a reliable watch that are remembered to detect duplicates."""
_SNAPSHOT_ATTRIBUTES: tuple[str, ...] = ("seq", "cursor", "resumeToken")


class WatchChannel(Protocol):
    """What a watch needs of its session."""

    @property
    def closed(self) -> bool: ...

    async def request(self, type: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return its reply."""
        ...

    async def send(self, type: str, payload: dict[str, Any]) -> None:
        """Send a message that has no reply."""

    def send_soon(self, type: str, payload: dict[str, Any]) -> None:
        """Send a message from synchronous code. Its reply is ignored."""

    def forget(self, watch: RemoteWatch) -> None:
        """Drop the watch: it gets no further messages."""


class RemoteWatch:
    """`async for event in watch`, `await watch.next(timeout=5)`, `watch.poll()`.

    After a reconnect, events continue where they stopped. If that is not possible, an event of type `resync` is emitted
    (`attributes["reason"]` holds the reason), and the watch starts again with a new snapshot.
    """

    def __init__(self, channel: WatchChannel, sub_id: str, request: dict[str, Any]) -> None:
        self._channel = channel
        self._request = request
        self._sequence = SequenceTracker()
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._paused = False
        self._unconfirmed: Event | None = None
        self._resync_reason: str | None = None
        """Reason for a pending resync event, emitted once the watch is subscribed again. Empty: emit none."""
        self._confirmed: dict[int, bool] = {}
        """For reliable watches: positions of recent events, each with True if the event is confirmed."""
        self._unacked_seqs: deque[tuple[int, int]] = deque()
        """Position and seq of events received on this connection and not yet confirmed on it."""
        self._errors: list[Any] = []
        self.id = sub_id
        self.handle: str | None = None
        """Id of an exclusive watch, to be passed to `attach`."""
        self.name: str | None = None
        self.mode = "watch"
        self.delivery = "best_effort"
        self.lease_seconds = 30.0
        """Consume mode: time until an unsettled delivery counts as failed (`ack_timeout`)."""
        self.token: str | None = None
        self.status = "active"
        self.failure: VedetteError | None = None
        self.established: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has acknowledged the watch."""

    # --- public methods -----------------------------------------------------------------------------------------

    async def next(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109 - as in WatchHandle
        """Return one event; None on timeout or if the watch has ended."""
        await self._confirm()
        try:
            async with asyncio.timeout(timeout):
                while not self._events:
                    if self.status == "cancelled":
                        if self.failure is not None:
                            raise self.failure
                        return None
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return None
        return self._take_event()

    def poll(self, limit: int | None = None) -> list[Event]:
        """Return the events received so far, without waiting. On a reliable watch, confirms what the last call
        returned.
        """
        if (event := self._unconfirmed) is not None:
            self._unconfirmed = None
            seq = self._confirm_through(event.position)
            if seq is not None:
                self._channel.send_soon("ack", {"subId": self.id, "seq": seq})
        count = len(self._events) if limit is None else min(limit, len(self._events))
        return [self._take_event() for _ in range(count)]

    async def pull(self, limit: int | None = None) -> list[Event]:
        """Request the events that are ready. For a watch with `prefetch=0`, which is sent no events otherwise."""
        await self._confirm()
        more = {"limit": limit} if limit is not None else {}
        await self._manage("pull", **more)
        return self.poll(limit)

    async def __aiter__(self) -> AsyncIterator[Event]:
        await self.ready()
        while (event := await self.next()) is not None:
            yield event

    async def ready(self) -> RemoteWatch:
        """Wait until the server has acknowledged the watch. Raise the error if it was rejected."""
        await asyncio.shield(self.established)
        return self

    def errors(self) -> list[Any]:
        """Return and clear errors and notices, including the reason if the watch ended."""
        found, self._errors = self._errors, []
        return found

    async def ack(self, event: Event) -> None:
        """Confirm an event of a reliable watch and all earlier ones. In consume mode, acknowledge this delivery."""
        if event.delivery_id is not None:
            await self._channel.request("ack", {"deliveryId": event.delivery_id})
            return
        if self._unconfirmed is event:
            self._unconfirmed = None
        seq = (
            int(event.attributes["seq"])
            if self.delivery != "reliable"
            else self._confirm_through(event.position)
        )
        if seq is not None:
            await self._channel.send("ack", {"subId": self.id, "seq": seq})

    async def nack(
        self, event: Event, *, retry: bool = True, delay: float | None = None, cause: str | None = None
    ) -> None:
        payload = {"deliveryId": event.delivery_id, "retry": retry, "cause": cause}
        await self._channel.request("nack", payload | _milliseconds("delay", delay))

    def release(self, event: Event) -> None:
        """Requeue a delivery without counting an attempt. Does not wait for the reply."""
        self._channel.send_soon("nack", {"deliveryId": event.delivery_id, "release": True})

    async def extend(self, event: Event, by: float | None = None) -> None:
        await self._channel.request("extend", {"deliveryId": event.delivery_id} | _milliseconds("by", by))

    async def pause(self) -> None:
        await self._manage("pause")

    async def resume(self) -> None:
        await self._manage("resume")

    async def cancel(self) -> None:
        """Cancel the watch on the server and end it here."""
        if self.status != "cancelled":
            await self._manage("cancel")
            self._channel.forget(self)
            self.on_ended(None)

    async def detach(self) -> None:
        """Leave a durable watch running on the server; `attach` continues it."""
        self._channel.forget(self)
        self.on_ended(None)
        await self._channel.request("unsubscribe", {"id": self.id})

    async def alter(self, options: str) -> None:
        await self._manage("alter", options=options)

    async def _manage(self, operation: str, **more: Any) -> None:
        await self.ready()
        await self._channel.request("manage", {"subId": self.id, "operation": operation, **more})

    # --- taking events ------------------------------------------------------------------------------------------

    def _take_event(self) -> Event:
        event = self._events.popleft()
        if self.delivery == "reliable" and event.delivery_id is None and "seq" in event.attributes:
            self._unconfirmed = event
        if self._paused and len(self._events) <= RESUME_AT_EVENTS:
            self._paused = False
            self._channel.send_soon("manage", {"subId": self.id, "operation": "resume"})
        return event

    async def _confirm(self) -> None:
        """Confirm the last returned event: asking for more implies that it was received."""
        event, self._unconfirmed = self._unconfirmed, None
        if event is not None:
            await self.ack(event)

    def _confirm_through(self, position: int) -> int | None:
        """Confirm this event and all earlier ones. Return the seq to acknowledge on this connection, or None."""
        if all(place != position for place, _ in self._unacked_seqs):
            self._confirmed[position] = True  # it will be sent again, and confirmed then
            return None
        while True:
            each_position, seq = self._unacked_seqs.popleft()
            self._confirmed[each_position] = True
            if each_position == position:
                return seq

    # --- for job loops ------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._channel.closed

    def buffered_deliveries(self) -> list[Event]:
        """Return deliveries that were received and not yet taken."""
        return [event for event in self._events if event.delivery_id is not None]

    def drop_deliveries(self, deliveries: Collection[str | None]) -> set[str]:
        """Drop buffered deliveries that are no longer valid. Return the ids of those dropped."""
        dropped = {str(e.delivery_id) for e in self.buffered_deliveries() if e.delivery_id in deliveries}
        if dropped:
            self._events = deque(e for e in self._events if e.delivery_id not in dropped)
        return dropped

    # --- for the session ----------------------------------------------------------------------------------------

    def subscribe_message(self) -> tuple[str, dict[str, Any]]:
        """Return type and payload of the message that subscribes, attaches or resumes the watch."""
        if self.handle is not None and self.delivery == "reliable":
            options = {k: v for k, v in self._request.items() if k in ("prefetch", "maxUnacked", "priority")}
            return "subscribe", {**options, "attach": self.handle}
        if self.token is not None:
            return "resume", {
                "token": self.token,
                "lastSeq": {str(p): s for p, s in self._sequence.seqs.items()},
            }
        return "subscribe", self._request

    def on_subscribed(self, payload: dict[str, Any]) -> None:
        """Handle the acknowledgement. If events were lost, emit the resync event first."""
        self.handle = payload.get("handle", self.handle)
        self.name = payload.get("name", self.name)
        self.mode = payload.get("mode", self.mode)
        self.delivery = payload.get("delivery", self.delivery)
        self.token = payload.get("resumeToken", self.token)
        self.lease_seconds = payload.get("leaseMs", 0) / 1000 or self.lease_seconds
        self._paused = False
        if "seq" in payload:
            self._sequence.start_at(0, payload["seq"])
            self._unacked_seqs.clear()
            self._emit_resync()
        if not self.established.done():
            self.established.set_result(None)

    def _emit_resync(self) -> None:
        """Emit a resync event if events may be lost. A watch that is neither durable nor resumable ended with the
        previous connection.
        """
        reason, self._resync_reason = self._resync_reason, None
        if (
            reason is None
            and self.established.done()
            and self.mode == "watch"
            and self.delivery != "reliable"
        ):
            reason = "connection"
        if reason:
            self._add_event(Event(type="resync", tick=0, position=0, attributes={"reason": reason}))

    def reset(self, reason: str) -> None:
        """Discard the position, because the watch cannot be resumed from it."""
        self.token = None
        self._sequence = SequenceTracker()
        if reason == "snapshot":  # no event was received yet, so none is lost
            self._resync_reason = self._resync_reason or ""
        else:
            self._resync_reason = reason

    def on_event(self, message: dict[str, Any]) -> SequenceCheck:
        """Handle an event for this watch."""
        check = self._sequence.check(message)
        if check is not SequenceCheck.NEXT:
            return check
        event = decode_event(message, asyncio.get_running_loop().time())
        self.token = message.get("resumeToken", self.token)
        kept = self.delivery == "reliable" and event.delivery_id is None
        if kept and self._is_repeat(event.position, message):
            return SequenceCheck.DUPLICATE
        self._add_event(event)
        if (
            len(self._events) >= PAUSE_AT_EVENTS
            and not self._paused
            and self.delivery != "reliable"
            and self.mode == "watch"
        ):
            self._paused = True
            self._channel.send_soon("manage", {"subId": self.id, "operation": "pause"})
        return check

    def _is_repeat(self, position: int, message: dict[str, Any]) -> bool:
        """Return True if a reliable event was already received. If it was confirmed, confirm it again."""
        self._unacked_seqs.append((position, int(message["seq"])))
        known = self._confirmed.get(position)
        if known:
            self._channel.send_soon("ack", {"subId": self.id, "seq": self._confirm_through(position)})
        if known is None:
            self._confirmed[position] = False
            while len(self._confirmed) > MAX_REMEMBERED_POSITIONS:
                del self._confirmed[next(iter(self._confirmed))]
        return known is not None

    def on_snapshot(self, payload: dict[str, Any]) -> None:
        """Add the snapshot of a filter as an `initial` event."""
        self._sequence.start_at(int(payload["partition"]), int(payload["seq"]))
        self.token = payload.get("resumeToken", self.token)
        attributes = {name: payload[name] for name in _SNAPSHOT_ATTRIBUTES if name in payload}
        self._add_event(
            Event(
                type="initial",
                tick=int(payload["lsn"]),
                position=int(payload["seq"]),
                matches=tuple(payload["documents"]),
                attributes=attributes,
            )
        )

    def _add_event(self, event: Event) -> None:
        self._events.append(event)
        self._changed.set()

    def on_notice(self, errors: list[Any]) -> None:
        """Add errors and notices. A delivery that is withdrawn before the caller took it is dropped and released."""
        withdrawn = {record.delivery_id for record in errors if isinstance(record, Withdrawal)}
        dropped = self.drop_deliveries(withdrawn)
        for id in dropped:
            self._channel.send_soon("nack", {"deliveryId": id, "release": True})
        self._errors += [e for e in errors if not (isinstance(e, Withdrawal) and e.delivery_id in dropped)]

    def on_ended(self, error: VedetteError | None, errors: list[Any] | None = None) -> None:
        self.status = "cancelled"
        self.failure = error
        self._errors += errors or []
        if not self.established.done():
            if error is not None:
                self.established.set_exception(error)
                self.established.exception()  # mark as retrieved, so that asyncio does not log it
            else:
                self.established.set_result(None)
        self._changed.set()


def _milliseconds(name: str, seconds: float | None) -> dict[str, int]:
    return {name: round(seconds * 1000)} if seconds is not None else {}
