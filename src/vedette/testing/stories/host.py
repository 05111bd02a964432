"""The interface between the story runner and a host. One catalogue of stories runs on every host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vedette.change import Event

__all__ = ["HostResult", "HostSession", "HostWatch", "StoryHost"]


class HostResult(Protocol):
    """Result of a statement: columns, rows, counts, warnings."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> Sequence[tuple[Any, ...]]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...
    @property
    def created(self) -> int: ...
    @property
    def modified(self) -> int: ...
    @property
    def deleted(self) -> int: ...
    @property
    def linked(self) -> int: ...
    @property
    def unlinked(self) -> int: ...


class HostWatch(Protocol):
    """A watch as its owner sees it."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...
    def poll(self, limit: int | None = None) -> Sequence[Event]:
        """Return all events of the steps so far. A host with asynchronous delivery waits for them."""
        ...

    def errors(self) -> Sequence[Any]:
        """Records with `code` and a text: errors, withdrawals."""
        ...

    def ack(self, event: Event) -> None: ...


class HostSession(Protocol):
    """A session that executes statements one after another."""

    @property
    def bindings(self) -> Mapping[str, str]:
        """Ids by the names that statements bound."""
        ...

    def execute(self, text: str, params: Mapping[str, Any], /) -> HostResult: ...
    def run(self, script: str, params: Mapping[str, Any], /) -> Sequence[HostResult]: ...
    def watch(self, text: str, params: Mapping[str, Any], /) -> HostWatch: ...
    def attach(self, handle: str, /) -> HostWatch: ...
    def close(self) -> None: ...


class StoryHost(Protocol):
    """A new database with a manual clock that starts at 2024-01-01."""

    def define(self, text: str) -> None: ...
    def session(self, actor: str | None = None) -> HostSession: ...
    def limit(self, session: HostSession, per_session: int, total: int) -> None:
        """Limit the watches of a session and in total, as a gateway does for its clients."""
        ...

    def disconnect(self, session: HostSession) -> None:
        """End a session as if its owner had crashed."""
        ...

    def react(self, name: str, text: str, *, failing: bool) -> HostWatch:
        """Start a reactor on a watch. Polling returns the events that its callback received."""
        ...

    def advance(self, seconds: float) -> None:
        """Advance the clock. Everything due by then has run when this returns."""
        ...

    def restart(self) -> None:
        """Close the database and open it again. All sessions end."""
        ...

    def validate(self) -> None:
        """Raise AssertionError if an internal invariant does not hold. Called after every step."""
        ...

    def contents(self) -> Mapping[str, Any]:
        """Return everything that must survive `restart`, by id, and the logical time."""
        ...

    def close(self) -> None: ...
