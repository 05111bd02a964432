"""HTTP connections with time limits for request heads and for reading responses, and a connection limit.

uvicorn sets no limit on the time a client takes to send a request head. Clients that open sockets and send nothing, or
one byte a minute, could otherwise exhaust the file descriptors of the engine process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["HEAD_SECONDS", "MOST_CONNECTIONS", "TimeLimitedH11Protocol"]

MOST_CONNECTIONS = 1_024
HEAD_SECONDS = 10.0
STUCK_SECONDS = 30.0
"""Time without progress after which a client that does not read a response is disconnected. A stream may last forever.
"""


class TimeLimitedH11Protocol(H11Protocol):
    """uvicorn's protocol with a limit on head time, read stalls and connections."""

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
        """Abort a client without progress. Nothing is written meanwhile, so a slow client has fewer bytes left and goes
        on.
        """
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
