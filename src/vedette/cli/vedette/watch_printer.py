"""Following one watch: what it is told is shown as it comes, until enough was seen or somebody says stop."""

from __future__ import annotations

from collections.abc import Callable

from vedette.change import Event
from vedette.cli.output.display import Display
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError
from vedette.processes.signals import StopSignal

__all__ = ["WatchPrinter"]

_LOOK_SECONDS = 0.2
"""How long it waits for an event before it looks whether somebody said stop."""


class WatchPrinter:
    """One watch in the hands of a command."""

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
        """`most`: how many events are shown, all when None; `initial`: whether what is there already is, too.

        `acknowledges`: what was delivered is acknowledged, and thereby deleted, when it was shown.
        """
        self._handle = handle
        self._show = show
        self._display = display
        self._left = max_events
        self._initial = initial
        self._acknowledges = ack_deliveries
        self.failed = False
        """The watch ended because something went wrong."""

    @property
    def is_done(self) -> bool:
        return self.failed or self._left == 0 or self._handle.status == "cancelled"

    def print_ready(self) -> None:
        """Show what is ready, without waiting."""
        while not self.is_done and (event := self._handle.next(timeout=0)) is not None:
            self._print_event(event)
        self._print_errors()

    def follow(self, stop: StopSignal) -> None:
        """Show what comes, until it is over or a signal came."""
        self.print_ready()
        while not self.is_done and not stop.wait(0):
            event = self._handle.next(timeout=_LOOK_SECONDS)
            if event is not None:
                self._print_event(event)
            self._print_errors()

    def _print_event(self, event: Event) -> None:
        if event.type == "initial" and event.window_end is None and not self._initial:
            return
        self._show(event)
        if self._left is not None:
            self._left -= 1
        if self._acknowledges if event.delivery_id is not None else self._handle.lasts:
            self._handle.ack(event)

    def _print_errors(self) -> None:
        for record in self._handle.errors():
            if isinstance(record, VedetteError) and self._handle.status == "cancelled":
                self.failed = True
                self._display.error(record)
            else:
                self._display.warning(str(record))
