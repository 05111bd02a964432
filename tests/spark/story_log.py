"""The stories of the engine as a log and a list of watches: what the pipeline must tell, if it is asked the same."""

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

__all__ = ["AskedWatch", "Recorded", "RecordingHost", "record"]


@dataclass(frozen=True)
class AskedWatch:
    """A WATCH that a story made: its text without options of delivery, and what the engine tells of it from the first
    commit on."""

    text: str
    params: Mapping[str, Any]
    types: tuple[str, ...]
    """Types that its elements really have."""
    deltas: tuple[Event, ...]


@dataclass(frozen=True)
class Recorded:
    story: Story
    log: Path
    """The file of the database."""
    watches: tuple[AskedWatch, ...]
    engine_only: tuple[str, ...]
    """Watches that the engine itself does not tell from its first tick on, and why."""
    beginning: int
    """The last commit of tick 0: what `since(0)` begins after."""


class RecordingHost(EmbeddedHost):
    """An engine that remembers which watches it was asked for."""

    def __init__(self, location: Path, story: Story) -> None:
        super().__init__(location, story.settings)
        self.location = location
        self.asked: dict[tuple[str, str], dict[str, Any]] = {}
        self.recorded: tuple[AskedWatch, ...] = ()
        self.refused: list[str] = []
        self.beginning = 0

    def session(self, actor: str | None = None) -> Any:
        return _RecordingSession(super().session(actor), self, privileged=actor is None)

    def limit(self, session: HostSession, per_session: int, total: int) -> None:
        super().limit(session.inner, per_session, total)  # type: ignore[attr-defined]

    def disconnect(self, session: HostSession) -> None:
        super().disconnect(session.inner)  # type: ignore[attr-defined]

    def react(self, name: str, text: str, *, failing: bool) -> Any:
        self.note(text, {}, {})
        return super().react(name, text, failing=failing)

    def note(self, text: str, params: Mapping[str, Any], bindings: Mapping[str, str]) -> None:
        spelled = re.sub(r"#(\w+)", lambda found: f"#{bindings.get(found[1], found[1])}", text)
        self.asked[spelled, repr(sorted(params.items()))] = dict(params)

    def contents(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """The last moment to ask the engine what it would have told."""
        found = []
        for (text, _), params in self.asked.items():
            try:
                found.append(self._told(text, params))
            except VedetteError as error:
                self.refused.append(f"{error.code} {text}")
        self.recorded = tuple(found)
        self.beginning = self._home.default.history.sequence_of_tick(0)
        super().close()

    def _told(self, text: str, params: dict[str, Any]) -> AskedWatch:
        statement = parse_statement(text)
        assert isinstance(statement, Watch)
        plain = replace(
            statement,
            name=None,
            actions=(),  # told, too, to whoever asks with RETURN what the actions are done for
            returns=statement.returns or Return((Projection(None),)),
            # All others say how and when it is delivered. (Windows of both hosts: test_collection_windows.py.)
            options=tuple(option for option in statement.options if option.name == "filter"),
        )
        since = WatchOption("initial", OptionValue("since", (OrderTerm(Literal(0)),)))
        wide = WatchOption("buffer", Literal(1_000_000))
        with EmbeddedHost.session(self) as session:
            watch = session.watch(
                print_statement(replace(plain, options=(*plain.options, since, wide))), params
            )
            deltas = tuple(event for event in watch.poll() if event.type != "initial")
        return AskedWatch(print_statement(plain), params, self._types(plain), deltas)

    def _types(self, statement: Watch) -> tuple[str, ...]:
        (element,) = statement.pattern.elements
        assert isinstance(element, NodePattern)
        names = [part.name for part in _members(element.type) if isinstance(part, NamedType)]
        return self._home.default.state.schema.concrete_subtypes(frozenset(names) if names else None)


def _members(type_: Any) -> Sequence[Any]:
    return type_.members if isinstance(type_, UnionType) else (type_,)


class _RecordingSession:
    """A session of the engine, listened to."""

    def __init__(self, inner: vedette.Session, host: RecordingHost, *, privileged: bool) -> None:
        self.inner, self._host, self._privileged = inner, host, privileged

    def watch(self, text: str, params: Mapping[str, Any], /) -> HostWatch:
        watch = self.inner.watch(text, params)
        if self._privileged:
            self._host.note(text, params, self.inner.bindings)
        return watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def record(story: Story, folder: Path) -> Recorded:
    """Tell a story to an engine, and ask it afterwards what each of its watches is told after tick 0."""
    host = RecordingHost(folder, story)
    with suppress(
        StoryFailed
    ):  # whether the engine tells it right is asked elsewhere; here, whether both tell the same
        run_story(story, host, persistent=False)
    (log,) = (folder / "databases").glob("*.sqlite")
    return Recorded(story, log, host.recorded, tuple(host.refused), host.beginning)
