"""What a story is told on. The teller knows nothing else of a host, so that one catalogue serves every host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vedette.change import Event

__all__ = ["HostResult", "HostSession", "HostWatch", "StoryHost"]


class HostResult(Protocol):
    """What a statement gave back: columns, rows, counts, warnings."""

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
    """A watch in the hands of whoever made it."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...
    def poll(self, limit: int | None = None) -> Sequence[Event]:
        """Everything that is ready now. What was done before must be told by then: a host with a way to go waits."""
        ...

    def errors(self) -> Sequence[Any]:
        """Records with `code` and a text: errors, withdrawals."""
        ...

    def ack(self, event: Event) -> None: ...


class HostSession(Protocol):
    """One line of statements."""

    @property
    def bindings(self) -> Mapping[str, str]:
        """Names that statements bound, to ids."""
        ...

    def execute(self, text: str, params: Mapping[str, Any], /) -> HostResult: ...
    def run(self, script: str, params: Mapping[str, Any], /) -> Sequence[HostResult]: ...
    def watch(self, text: str, params: Mapping[str, Any], /) -> HostWatch: ...
    def attach(self, handle: str, /) -> HostWatch: ...
    def close(self) -> None: ...


class StoryHost(Protocol):
    """A database of a story's own, on a clock that only the story moves, from 2024-01-01 on."""

    def define(self, text: str) -> None: ...
    def session(self, actor: str | None = None) -> HostSession: ...
    def limit(self, session: HostSession, per_session: int, total: int) -> None:
        """Bound the watches of a session, and of all, as a gateway does for its clients."""
        ...

    def disconnect(self, session: HostSession) -> None:
        """Let a session end as if whoever held it were gone without a word."""
        ...

    def react(self, name: str, text: str, *, failing: bool) -> HostWatch:
        """Have a program called for every event of a watch; polling yields the events it was called with."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass; what falls due on the way has happened when it returns."""
        ...

    def restart(self) -> None:
        """Stop and start again with what was kept. Sessions are gone."""
        ...

    def validate(self) -> None:
        """Raise AssertionError when something is wrong inside; called after every step."""
        ...

    def contents(self) -> Mapping[str, Any]:
        """Everything that must be there again after `reopen`, by id; logical time, too."""
        ...

    def close(self) -> None: ...
