"""Runs a story on a host and says where it went another way."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from vedette.clock import Clock
from vedette.engine.home import Vedette, open_vedette
from vedette.engine.result import Result
from vedette.engine.session import Session
from vedette.errors import VedetteError
from vedette.settings import checked
from vedette.testing.clock import ManualClock
from vedette.testing.stories.format import (
    COUNTS,
    Advance,
    Close,
    Define,
    Expected,
    Open,
    Reopen,
    Say,
    Step,
    Story,
)
from vedette.testing.stories.rendering import render_row
from vedette.values import timestamp_from_text

__all__ = ["StoryFailed", "tell"]


class StoryFailed(AssertionError):
    """A step did not do what the story says."""


def tell(story: Story, location: str | os.PathLike[str], *, keeps: bool) -> None:
    """Run a story in a home of its own; where the data is kept, the reopened home must hold the very same."""
    teller = _Teller(story, location, ManualClock())
    try:
        teller.run()
        if keeps:
            teller.check_kept()
    finally:
        teller.close()


class _Teller:
    def __init__(self, story: Story, location: str | os.PathLike[str], clock: ManualClock) -> None:
        self._story = story
        self._location = location
        self._clock = clock
        self._home = self._open(clock)
        self._sessions: dict[str, Session] = {}
        self._names: dict[str, str] = {}
        self._acts: dict[type, Callable[[Any], None]] = {
            Say: self._say,
            Define: self._define,
            Open: self._open_session,
            Close: lambda step: self._session(step.session).close(),
            Advance: lambda step: clock.advance(step.seconds),
            Reopen: lambda step: self._reopen(),
        }

    def run(self) -> None:
        for step in self._story.steps:
            self._acts[type(step)](step)
            self._home.default.state.graph.validate()

    def close(self) -> None:
        self._home.close()

    def check_kept(self) -> None:
        """What was committed is there again, element by element."""
        before, tick = self._everything(), self._home.default.state.tick
        self._reopen()
        after = self._everything()
        if (before, tick) != (after, self._home.default.state.tick):
            lost = {id: facts for id, facts in before.items() if after.get(id) != facts}
            raise StoryFailed(f"{self._place(self._story.line)}: after opening again: {lost} became {after}")

    def _everything(self) -> dict[str, tuple[Any, ...]]:
        elements = self._home.default.state.graph.elements.values()
        return {e.id: (e.type, repr(e.values), e.targets) for e in elements}

    def _open(self, clock: Clock) -> Vedette:
        settings = checked({"manage_gc": False, **self._story.settings})
        return open_vedette(self._location, settings=settings, clock=clock)

    def _reopen(self) -> None:
        self._home.close()
        self._sessions = {}
        self._home = self._open(self._clock)

    # --- steps ------------------------------------------------------------------------------------------------

    def _say(self, step: Say) -> None:
        session = self._session(step.session)
        parameters = {name: self._parameter(value) for name, value in step.parameters.items()}

        def act() -> Result:
            if step.script:
                results = session.run(step.text, parameters)
                return results[-1] if results else Result()
            return session.execute(step.text, parameters)

        result = self._attempt(step, step.expected, act)
        self._learn(session)
        if result is not None:
            self._compare(step, step.expected, result)

    def _define(self, step: Define) -> None:
        self._attempt(step, step.expected, lambda: self._home.define(step.text))

    def _open_session(self, step: Open) -> None:
        ids = {name: id for id, name in self._names.items()}

        def act() -> Session:
            return self._home.session(ids.get(step.actor, step.actor))

        session = self._attempt(step, step.expected, act)
        if session is not None:
            self._sessions[step.session] = session

    def _session(self, name: str) -> Session:
        if name not in self._sessions:
            self._sessions[name] = self._home.session()
        return self._sessions[name]

    def _learn(self, session: Session) -> None:
        self._names.update({id: name for name, id in session.bindings.items()})

    def _parameter(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return timestamp_from_text(value[1:])
        if isinstance(value, str) and value.startswith("#"):
            return {name: id for id, name in self._names.items()}.get(value[1:], value)
        return value

    # --- comparing --------------------------------------------------------------------------------------------

    def _attempt(self, step: Step, expected: Expected, act: Callable[[], Any]) -> Any:
        """Do it; None when it failed as it should."""
        try:
            result = act()
        except VedetteError as error:
            self._compare_error(step, expected, error)
            return None
        if expected.code is not None:
            raise self._failed(step, f"expected {expected.code}, but it succeeded: {result!r}")
        return result

    def _compare_error(self, step: Step, expected: Expected, error: VedetteError) -> None:
        text = str(error)
        if not text.startswith(f"{error.words}: {error.code} {error.name}: "):
            raise self._failed(step, f"the error does not begin with its class, code and name: {text}")
        if expected.code is None or error.code not in expected.code.split("/"):
            raise self._failed(step, f"expected {expected.code or 'success'}, got {text}") from error
        missing = [words for words in expected.words if words not in text]
        if missing:
            raise self._failed(step, f"expected the words {missing} in: {text}") from error
        said = [words for words in expected.absent if words in text or words in str(error.fields)]
        if said:
            raise self._failed(step, f"the error must not say {said}: {text} {error.fields}") from error

    def _compare(self, step: Say, expected: Expected, result: Result) -> None:
        if expected.columns is not None and " | ".join(result.columns) != expected.columns:
            raise self._failed(step, f"expected columns {expected.columns}, got {' | '.join(result.columns)}")
        if expected.count is not None and len(result.rows) != expected.count:
            raise self._failed(step, f"expected {expected.count} rows, got {len(result.rows)}")
        if expected.rows is not None:
            self._compare_rows(step, expected.rows, [render_row(row, self._names) for row in result.rows])
        if expected.counts is not None:
            counts = {name: getattr(result, name) for name in COUNTS}
            if counts != expected.counts:
                raise self._failed(step, f"expected {expected.counts}, got {counts}")
        self._compare_warnings(step, expected, result)

    def _compare_rows(self, step: Say, expected: list[str], found: list[str]) -> None:
        if "ORDER BY" not in step.text:
            expected, found = sorted(expected), sorted(found)
        if expected != found:
            lines = "\n  ".join(["expected", *expected, "got", *(found or ["(nothing)"])])
            raise self._failed(step, lines)

    def _compare_warnings(self, step: Say, expected: Expected, result: Result) -> None:
        text = "\n".join(result.warnings)
        missing = [words for words in expected.warnings if words not in text]
        if missing or (expected.quiet and text):
            raise self._failed(step, f"expected the warnings {expected.warnings}, got {text!r}")

    def _failed(self, step: Step, why: str) -> StoryFailed:
        text = getattr(step, "text", "")
        return StoryFailed(f"{self._place(step.line)}: {text}\n  {why}")

    def _place(self, line: int) -> str:
        return f"{self._story.file}:{line} ({self._story})"
