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

REACTOR_TIMEOUT_SECONDS = 10.0
"""How long `poll` waits for the callback of a reactor."""


class EmbeddedHost:
    """Opens a new data location: `:memory:`, or a directory that can be opened again."""

    def __init__(self, location: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._location = location
        self._settings = validated({"manage_gc": False, **settings})
        self._clock = ManualClock()
        self._vedette = self._open()

    def _open(self) -> Vedette:
        return open_vedette(self._location, settings=self._settings, clock=self._clock)

    def define(self, text: str) -> None:
        self._vedette.define(text)

    def session(self, actor: str | None = None) -> Session:
        return self._vedette.session(actor)

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
                raise RuntimeError("this callback always fails")

        return _ReactorWatch(self._vedette.reactor(name, text, call), calls)

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def restart(self) -> None:
        self._vedette.close()
        self._vedette = self._open()

    def validate(self) -> None:
        self._vedette.default.state.graph.validate()
        self._vedette.default.watching.consuming.validate()

    def contents(self) -> Mapping[str, Any]:
        state = self._vedette.default.state
        elements: dict[str, Any] = {
            e.id: (e.type, repr(e.values), e.targets) for e in state.graph.elements.values()
        }
        return {**elements, "tick": state.tick}

    def close(self) -> None:
        self._vedette.close()


class _ReactorWatch:
    """A reactor as a watch: its events are those passed to the callback."""

    def __init__(self, reactor: Reactor, calls: list[Event]) -> None:
        self._reactor, self._calls = reactor, calls
        self._clock, self._polled = SystemClock(), 0

    @property
    def id(self) -> str:
        return self._reactor.id

    @property
    def status(self) -> str:
        return self._reactor.status

    def poll(self, limit: int | None = None) -> list[Event]:
        """Wait in real time until the callback has received every event."""
        end = self._clock.monotonic() + REACTOR_TIMEOUT_SECONDS
        while not self._reactor.idle and self._clock.monotonic() < end:
            Flag().wait(0.002)
        fresh = self._calls[self._polled :][:limit]
        self._polled += len(fresh)
        return fresh

    def errors(self) -> list[VedetteError]:
        return []

    def ack(self, event: Event) -> None:
        """No-op: a reactor confirms its events itself."""
