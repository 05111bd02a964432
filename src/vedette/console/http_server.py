"""HTTP connections that do not dawdle: a request's head is due in time, answers are taken, sockets are not for keeping.

uvicorn gives a client as long as it likes to send the head of a request. Whoever opens sockets and says nothing, or a
byte a minute, would in the end take every file descriptor of the engine's process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["HEAD_SECONDS", "MOST_CONNECTIONS", "TimeLimitedH11Protocol"]

MOST_CONNECTIONS = 1_024
HEAD_SECONDS = 10.0
STUCK_SECONDS = 30.0
"""How long a client may take nothing of an answer before it is cut off; a stream of events may last for ever."""


class TimeLimitedH11Protocol(H11Protocol):
    """uvicorn's protocol, with a time for each head and for taking an answer, and a bound for all connections."""

    most_connections = MOST_CONNECTIONS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._due: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_waiting()
        elif self._due is None and not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._is_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        self._is_taking()
        super().resume_writing()

    def _await_taking(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self._check_stalled, left)

    def _check_stalled(self, before: int) -> None:
        """Nothing is written meanwhile: a slow client has less left to take, and its time again."""
        if self.transport.get_write_buffer_size() < before:
            self._await_taking()
        else:
            self.transport.abort()

    def _is_taking(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _await_head(self) -> None:
        self._due = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
