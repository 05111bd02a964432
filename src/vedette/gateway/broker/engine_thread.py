"""The engine thread: executes all gateway requests, in batches."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from vedette.clock import SystemClock
from vedette.gateway.broker.broker import Broker
from vedette.gateway.wire.broker_link import AckEvents, Port

__all__ = ["EngineThread"]

log = logging.getLogger(__name__)
MAX_BATCH_REQUESTS = 256
"""Maximum number of requests that share a flush."""
MAX_QUEUED_REQUESTS = 131_072
"""Maximum number of queued requests; further ones are rejected."""
HOUSEKEEPING_SECONDS = 1.0
_real_time = SystemClock()


class EngineThread:
    """Runs the broker. `post` may be called from any thread; replies go to the request's port."""

    def __init__(self, make_broker: Callable[[Callable[[], None]], Broker]) -> None:
        self._wake = Event()
        self._inbox: deque[tuple[Port, Any]] = deque()
        self._latest_acks: dict[tuple[Port, int, str | None], AckEvents] = {}
        self._events: deque[Any] = deque()
        """Events of other threads, in one queue: their order must not change."""
        self._stopping = False
        self.ready = Event()
        """Set once the streams of the previous server are restored."""
        self.broker = make_broker(self._wake.set)
        self._thread = Thread(target=self._run, name="vedette-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        return len(self._inbox)

    def post(self, port: Port, record: Any, *, bypass_limit: bool = False) -> bool:
        """Queue a request. Return False if the queue is full. `bypass_limit` accepts it anyway, for requests that free
        resources.

        Acks are coalesced: only the latest ack per subscription is kept, since it includes the earlier ones.
        """
        if isinstance(record, AckEvents):
            key = (port, record.conn, record.sub_id)
            known = self._latest_acks.get(key)
            if known is None or known.seq < record.seq:
                self._latest_acks[key] = record
            self._wake.set()
            return True
        if len(self._inbox) >= MAX_QUEUED_REQUESTS and not bypass_limit:
            return False
        self._inbox.append((port, record))
        self._wake.set()
        return True

    def post_event(self, event: Any) -> None:
        """Queue an event for `Broker.handle_event`, which runs between batches. May be called from any thread."""
        self._events.append(event)
        self._wake.set()

    def stop(self, timeout: float | None = None) -> None:
        """Stop after the requests that are queued now."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        due = _real_time.monotonic() + HOUSEKEEPING_SECONDS
        try:
            self.broker.restore_streams()
        except Exception:
            log.exception("Replay windows could not be restored", extra={"action": "broker.restore_failed"})
        self.ready.set()
        while True:
            if not self._inbox and not self._events and not self._latest_acks:
                if self._stopping:
                    break
                self._wake.wait(max(0.0, due - _real_time.monotonic()))
            self._wake.clear()
            try:
                self._batch()
                if _real_time.monotonic() >= due:
                    due = _real_time.monotonic() + HOUSEKEEPING_SECONDS
                    self.broker.evict_expired()
            except Exception:
                log.exception("A batch of requests failed", extra={"action": "engine.batch_failed"})
        self.broker.close()

    def _batch(self) -> None:
        while self._events and not self.broker.send_queue.is_over_threshold:
            self.broker.handle_event(self._events.popleft())
        inbox, acks = self._inbox, self._latest_acks
        batch: list[tuple[Port, Any]] = [inbox.popleft() for _ in range(min(MAX_BATCH_REQUESTS, len(inbox)))]
        while acks:
            (port, _, _), ack = acks.popitem()
            batch.append((port, ack))
        self.broker.process(batch)
