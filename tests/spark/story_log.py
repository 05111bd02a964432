"""Runs the stories on an engine, and records its log, its watches and their events for comparison with the pipeline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import vedette
from vedette.change import Event
from vedette.errors import VedetteError
from vedette.language.parser import parse_statement
from vedette.language.printer import print_statement
from vedette.language.syntax.expressions import (
    Literal,
    NamedType,
    NodePattern,
    OrderTerm,
    Projection,
    UnionType,
)
from vedette.language.syntax.statements import OptionValue, Return, Watch, WatchOption
from vedette.testing.stories import EmbeddedHost, Story
from vedette.testing.stories.host import HostSession, HostWatch
from vedette.testing.stories.runner import StoryFailed, run_story

__all__ = ["Recorded", "RecordedWatch", "RecordingHost", "record"]


@dataclass(frozen=True)
class RecordedWatch:
    """A WATCH of a story: its text without delivery options, and the engine's events from the first commit on."""

    text: str
    params: Mapping[str, Any]
    types: tuple[str, ...]
    """Concrete types of its elements."""
    deltas: tuple[Event, ...]


@dataclass(frozen=True)
class Recorded:
    story: Story
    log: Path
    """The database file."""
    watches: tuple[RecordedWatch, ...]
    engine_only: tuple[str, ...]
    """Watches for which the engine has no events from its first tick on, with the error code."""
    first_sequence: int
    """The last commit of tick 0: `since(0)` starts after it."""


class RecordingHost(EmbeddedHost):
    """An engine that records its watches."""

    def __init__(self, location: Path, story: Story) -> None:
        super().__init__(location, story.settings)
        self.location = location
        self.watches: dict[tuple[str, str], dict[str, Any]] = {}
        self.recorded: tuple[RecordedWatch, ...] = ()
        self.refused: list[str] = []
        self.first_sequence = 0

    def session(self, actor: str | None = None) -> Any:
        return _RecordingSession(super().session(actor), self, privileged=actor is None)

    def limit(self, session: HostSession, per_session: int, total: int) -> None:
        super().limit(session.inner, per_session, total)  # type: ignore[attr-defined]

    def disconnect(self, session: HostSession) -> None:
        super().disconnect(session.inner)  # type: ignore[attr-defined]

    def react(self, name: str, text: str, *, failing: bool) -> Any:
        self.record_watch(text, {}, {})
        return super().react(name, text, failing=failing)

    def record_watch(self, text: str, params: Mapping[str, Any], bindings: Mapping[str, str]) -> None:
        spelled = re.sub(r"#(\w+)", lambda found: f"#{bindings.get(found[1], found[1])}", text)
        self.watches[spelled, repr(sorted(params.items()))] = dict(params)

    def contents(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """Query the events of all recorded watches before the engine closes."""
        found = []
        for (text, _), params in self.watches.items():
            try:
                found.append(self._record(text, params))
            except VedetteError as error:
                self.refused.append(f"{error.code} {text}")
        self.recorded = tuple(found)
        self.first_sequence = self._vedette.default.history.sequence_of_tick(0)
        super().close()

    def _record(self, text: str, params: dict[str, Any]) -> RecordedWatch:
        statement = parse_statement(text)
        assert isinstance(statement, Watch)
        plain = replace(
            statement,
            name=None,
            actions=(),  # a RETURN in place of the actions gives the same events
            returns=statement.returns or Return((Projection(None),)),
            # The other options concern delivery. test_collection_windows.py compares windows of both hosts.
            options=tuple(option for option in statement.options if option.name == "filter"),
        )
        since = WatchOption("initial", OptionValue("since", (OrderTerm(Literal(0)),)))
        wide = WatchOption("buffer", Literal(1_000_000))
        with EmbeddedHost.session(self) as session:
            watch = session.watch(
                print_statement(replace(plain, options=(*plain.options, since, wide))), params
            )
            deltas = tuple(event for event in watch.poll() if event.type != "initial")
        return RecordedWatch(print_statement(plain), params, self._types(plain), deltas)

    def _types(self, statement: Watch) -> tuple[str, ...]:
        (element,) = statement.pattern.elements
        assert isinstance(element, NodePattern)
        names = [part.name for part in _members(element.type) if isinstance(part, NamedType)]
        return self._vedette.default.state.schema.concrete_subtypes(frozenset(names) if names else None)


def _members(type_: Any) -> Sequence[Any]:
    return type_.members if isinstance(type_, UnionType) else (type_,)


class _RecordingSession:
    """A session that records its watches."""

    def __init__(self, inner: vedette.Session, host: RecordingHost, *, privileged: bool) -> None:
        self.inner, self._host, self._privileged = inner, host, privileged

    def watch(self, text: str, params: Mapping[str, Any], /) -> HostWatch:
        watch = self.inner.watch(text, params)
        if self._privileged:
            self._host.record_watch(text, params, self.inner.bindings)
        return watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def record(story: Story, folder: Path) -> Recorded:
    """Run a story on an engine, and record the events of each of its watches after tick 0."""
    host = RecordingHost(folder, story)
    with suppress(StoryFailed):  # other tests check the engine; this one only compares the two hosts
        run_story(story, host, persistent=False)
    (log,) = (folder / "databases").glob("*.sqlite")
    return Recorded(story, log, host.recorded, tuple(host.refused), host.first_sequence)
