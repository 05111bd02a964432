"""Prints the events of one watch until a limit or a stop request."""

from __future__ import annotations

from collections.abc import Callable

from vedette.change import Event
from vedette.cli.output.display import Display
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError
from vedette.processes.signals import StopSignal

__all__ = ["WatchPrinter"]

_POLL_INTERVAL_SECONDS = 0.2
"""How long to wait for an event before checking for a stop request."""


class WatchPrinter:
    """Prints the events and errors of one watch."""

    def __init__(
        self,
        handle: WatchHandle,
        show: Callable[[Event], None],
        display: Display,
        *,
        max_events: int | None,
        initial: bool,
        ack_deliveries: bool = False,
    ) -> None:
        """`max_events` limits the number of events; None prints all. `initial` prints the initial event too.

        `ack_deliveries` acknowledges each delivery after printing it, which deletes the element.
        """
        self._handle = handle
        self._show = show
        self._display = display
        self._remaining = max_events
        self._initial = initial
        self._ack_deliveries = ack_deliveries
        self.failed = False
        """True if the watch ended with an error."""

    @property
    def is_done(self) -> bool:
        return self.failed or self._remaining == 0 or self._handle.status == "cancelled"

    def print_ready(self) -> None:
        """Print the events that are ready, without waiting."""
        while not self.is_done and (event := self._handle.next(timeout=0)) is not None:
            self._print_event(event)
        self._print_errors()

    def follow(self, stop: StopSignal) -> None:
        """Print events until the watch is done or a signal arrives."""
        self.print_ready()
        while not self.is_done and not stop.wait(0):
            event = self._handle.next(timeout=_POLL_INTERVAL_SECONDS)
            if event is not None:
                self._print_event(event)
            self._print_errors()

    def _print_event(self, event: Event) -> None:
        if event.type == "initial" and event.window_end is None and not self._initial:
            return
        self._show(event)
        if self._remaining is not None:
            self._remaining -= 1
        if self._ack_deliveries if event.delivery_id is not None else self._handle.lasts:
            self._handle.ack(event)

    def _print_errors(self) -> None:
        for record in self._handle.errors():
            if isinstance(record, VedetteError) and self._handle.status == "cancelled":
                self.failed = True
                self._display.error(record)
            else:
                self._display.warning(str(record))
