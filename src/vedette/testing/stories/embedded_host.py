"""A story host that runs the engine in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Event as Flag
from typing import Any

from vedette.change import Event
from vedette.clock import SystemClock
from vedette.engine.data_directory import Vedette, open_vedette
from vedette.engine.reactor import Reactor
from vedette.engine.session.session import Session
from vedette.errors import VedetteError
from vedette.settings import validated
from vedette.testing.clock import ManualClock
from vedette.testing.stories.host import HostSession

__all__ = ["EmbeddedHost"]

PATIENCE = 10.0
"""Seconds to wait for a reactor before the story fails."""


class EmbeddedHost:
    """A new data location: `:memory:`, or a directory that can be opened again."""

    def __init__(self, location: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._location = location
        self._settings = validated({"manage_gc": False, **settings})
        self._clock = ManualClock()
        self._home = self._open()

    def _open(self) -> Vedette:
        return open_vedette(self._location, settings=self._settings, clock=self._clock)

    def define(self, text: str) -> None:
        self._home.define(text)

    def session(self, actor: str | None = None) -> Session:
        return self._home.session(actor)

    def limit(self, session: HostSession, per_session: int, total: int) -> None:
        assert isinstance(session, Session)
        session.watch_limits = (per_session, total)

    def disconnect(self, session: HostSession) -> None:
        assert isinstance(session, Session)
        session.close(lost=True)
        session.database.wait_durable(session.lock_scope)

    def react(self, name: str, text: str, *, failing: bool) -> _ReactorWatch:
        calls: list[Event] = []

        def call(event: Event) -> None:
            calls.append(event)
            if failing:
                raise RuntimeError("this program always fails")

        return _ReactorWatch(self._home.reactor(name, text, call), calls)

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def restart(self) -> None:
        self._home.close()
        self._home = self._open()

    def validate(self) -> None:
        self._home.default.state.graph.validate()
        self._home.default.watching.consuming.validate()

    def contents(self) -> Mapping[str, Any]:
        state = self._home.default.state
        elements: dict[str, Any] = {
            e.id: (e.type, repr(e.values), e.targets) for e in state.graph.elements.values()
        }
        return {**elements, "tick": state.tick}

    def close(self) -> None:
        self._home.close()


class _ReactorWatch:
    """A reactor as a watch: its events are those passed to the callback."""

    def __init__(self, reactor: Reactor, calls: list[Event]) -> None:
        self._reactor, self._calls = reactor, calls
        self._clock, self._told = SystemClock(), 0

    @property
    def id(self) -> str:
        return self._reactor.id

    @property
    def status(self) -> str:
        return self._reactor.status

    def poll(self, limit: int | None = None) -> list[Event]:
        """Wait in real time until the callback has received every event."""
        end = self._clock.monotonic() + PATIENCE
        while not self._reactor.idle and self._clock.monotonic() < end:
            Flag().wait(0.002)
        fresh = self._calls[self._told :][:limit]
        self._told += len(fresh)
        return fresh

    def errors(self) -> list[VedetteError]:
        return []

    def ack(self, event: Event) -> None:
        """No-op: a reactor confirms its events itself."""
