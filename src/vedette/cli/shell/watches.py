"""The watches that a conversation holds: what they are told is shown after every statement."""

from __future__ import annotations

from vedette.cli.output.display import Display
from vedette.engine.session.session import Session
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError

__all__ = ["HeldWatches"]


class HeldWatches:
    """Handles by their ids, as long as the session lives that made them."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._handles: dict[str, WatchHandle] = {}

    def start(self, session: Session, text: str) -> str:
        """Create the watch; its handle."""
        handle = session.watch(text)
        self._handles[handle.id] = handle
        return handle.id

    def print_events(self) -> None:
        """Show all that is ready. A watch that has ended is told of no more."""
        for id, handle in list(self._handles.items()):
            try:
                for event in handle.poll():
                    self._display.event(handle.name or id, event)
                for record in handle.errors():
                    self._display.warning(f"{handle.name or id}: {record}")
            except VedetteError as error:
                del self._handles[id]
                self._display.error(error)
            else:
                if handle.status == "cancelled":
                    del self._handles[id]

    def clear(self) -> None:
        self._handles.clear()
