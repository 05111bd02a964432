"""Following one watch: what it is told is shown as it comes, until enough was seen or somebody says stop."""

from __future__ import annotations

from collections.abc import Callable

from vedette.change import Event
from vedette.cli.output.display import Display
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError
from vedette.processes.signals import StopSignal

__all__ = ["Following"]

_LOOK_SECONDS = 0.2
"""How long it waits for an event before it looks whether somebody said stop."""


class Following:
    """One watch in the hands of a command."""

    def __init__(
        self,
        handle: WatchHandle,
        show: Callable[[Event], None],
        display: Display,
        *,
        most: int | None,
        initial: bool,
        acknowledges: bool = False,
    ) -> None:
        """`most`: how many events are shown, all when None; `initial`: whether what is there already is, too.

        `acknowledges`: what was delivered is acknowledged, and thereby deleted, when it was shown.
        """
        self._handle = handle
        self._show = show
        self._display = display
        self._left = most
        self._initial = initial
        self._acknowledges = acknowledges
        self.failed = False
        """The watch ended because something went wrong."""

    @property
    def over(self) -> bool:
        return self.failed or self._left == 0 or self._handle.status == "cancelled"

    def catch_up(self) -> None:
        """Show what is ready, without waiting."""
        while not self.over and (event := self._handle.next(timeout=0)) is not None:
            self._tell(event)
        self._tell_errors()

    def until(self, stop: StopSignal) -> None:
        """Show what comes, until it is over or a signal came."""
        self.catch_up()
        while not self.over and not stop.wait(0):
            event = self._handle.next(timeout=_LOOK_SECONDS)
            if event is not None:
                self._tell(event)
            self._tell_errors()

    def _tell(self, event: Event) -> None:
        if event.type == "initial" and event.window_end is None and not self._initial:
            return
        self._show(event)
        if self._left is not None:
            self._left -= 1
        if self._acknowledges if event.delivery_id is not None else self._handle.lasts:
            self._handle.ack(event)

    def _tell_errors(self) -> None:
        for record in self._handle.errors():
            if isinstance(record, VedetteError) and self._handle.status == "cancelled":
                self.failed = True
                self._display.error(record)
            else:
                self._display.warning(str(record))
