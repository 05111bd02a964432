"""The engine inside this process as a host of stories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vedette.engine.home import Vedette, open_vedette
from vedette.engine.session import Session
from vedette.settings import checked
from vedette.testing.clock import ManualClock
from vedette.testing.stories.host import HostSession

__all__ = ["EmbeddedHost"]


class EmbeddedHost:
    """A home of the story's own: `:memory:`, or a directory that can be opened again."""

    def __init__(self, location: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._location = location
        self._settings = checked({"manage_gc": False, **settings})
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

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def reopen(self) -> None:
        self._home.close()
        self._home = self._open()

    def validate(self) -> None:
        self._home.default.state.graph.validate()

    def contents(self) -> Mapping[str, Any]:
        state = self._home.default.state
        elements: dict[str, Any] = {
            e.id: (e.type, repr(e.values), e.targets) for e in state.graph.elements.values()
        }
        return {**elements, "tick": state.tick}

    def close(self) -> None:
        self._home.close()
