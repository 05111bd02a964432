"""Run a story on a host and report the first step whose result differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vedette.errors import VedetteError
from vedette.testing.stories.host import HostResult, HostSession, HostWatch, StoryHost
from vedette.testing.stories.parser import (
    COUNTS,
    Advance,
    CloseSession,
    Define,
    Execute,
    Expected,
    OpenSession,
    Reopen,
    Step,
    Story,
)
from vedette.testing.stories.steps import (
    Attach,
    Confirm,
    ExpectErrors,
    ExpectEvents,
    LoseSession,
    NameRows,
    SetLimits,
    StartReactor,
    named_watch,
)
from vedette.testing.stories.values import render_row
from vedette.testing.stories.watches import WatchExpectations
from vedette.values import timestamp_from_text

__all__ = ["StoryFailed", "run_story"]


class StoryFailed(AssertionError):
    """The result of a step differs from the story."""


def run_story(story: Story, host: StoryHost, *, persistent: bool) -> None:
    """Run a story on a new host. On a durable host, the data must be identical after a restart."""
    runner = StoryRunner(story, host)
    try:
        runner.run()
        if persistent:
            runner.check_persisted()
    finally:
        host.close()


class StoryRunner:
    def __init__(self, story: Story, host: StoryHost) -> None:
        self._story = story
        self._host = host
        self._sessions: dict[str, HostSession] = {}
        self._names: dict[str, str] = {}
        self._watches = WatchExpectations(self._names)
        self._last: HostResult | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            Execute: self._execute,
            Define: self._define,
            OpenSession: self._open_session,
            CloseSession: lambda step: self._session(step.session).close(),
            Advance: lambda step: host.advance(step.seconds),
            Reopen: lambda step: self._restart(),
            ExpectEvents: lambda step: self._check(step, self._watches.events(step)),
            ExpectErrors: lambda step: self._check(step, self._watches.errors(step)),
            Attach: self._attach,
            Confirm: lambda step: self._check(step, self._watches.confirm(step.watch)),
            NameRows: self._name_rows,
            LoseSession: lambda step: host.disconnect(self._sessions.pop(step.session)),
            StartReactor: self._react,
            SetLimits: lambda step: host.limit(self._session(step.session), step.per_session, step.total),
        }

    def run(self) -> None:
        for step in self._story.steps:
            self._handlers[type(step)](step)
            self._host.validate()
        left = self._watches.unexpected()
        if left is not None:
            raise StoryFailed(f"{self._place(self._story.line)}: {left}")

    def check_persisted(self) -> None:
        """Check after a restart that every committed element is present and unchanged."""
        before = self._host.contents()
        self._restart()
        after = self._host.contents()
        if before != after:
            lost = {id: facts for id, facts in before.items() if after.get(id) != facts}
            raise StoryFailed(f"{self._place(self._story.line)}: after a restart {lost} became {after}")

    def _restart(self) -> None:
        self._sessions = {}
        self._watches.disconnect()
        self._host.restart()

    # Steps

    def _execute(self, step: Execute) -> None:
        session = self._session(step.session)
        parameters = {name: self._parameter(value) for name, value in step.parameters.items()}
        name, text = named_watch(step.text), self._watches.substitute_ids(step.text)
        if name is not None and not step.script:
            self._add_watch(step, name, step.expected, lambda: session.watch(text, parameters))
            self._update_names(session)
            return

        def act() -> HostResult | None:
            if step.script:
                return [None, *session.run(text, parameters)][-1]
            return session.execute(text, parameters)

        self._last = self._attempt(step, step.expected, act)
        self._update_names(session)
        if self._last is not None:
            self._compare(step, step.expected, self._last)
        elif step.expected.code is None and not step.script:  # an empty script has no result
            raise self._failed(step, "the host returned no result")

    def _name_rows(self, step: NameRows) -> None:
        ids = [row[0] for row in self._last.rows] if self._last is not None else []
        if len(ids) != len(step.names):
            raise self._failed(step, f"{len(step.names)} names for {len(ids)} rows")
        for name, id in zip(step.names, ids, strict=True):
            self._watches.name_id(name, id)

    def _add_watch(self, step: Step, name: str, expected: Expected, act: Callable[[], HostWatch]) -> None:
        watch = self._attempt(step, expected, act)
        if watch is not None:
            self._names[watch.id] = name
            self._watches.add(name, watch)

    def _attach(self, step: Attach) -> None:
        session = self._session(step.session)
        handle = (self._watches.handle(step.watch) or step.watch) if step.by_handle else step.watch
        self._add_watch(step, step.watch, step.expected, lambda: session.attach(handle))

    def _react(self, step: StartReactor) -> None:
        reactor = self._host.react(step.name, step.text, failing=step.failing)
        self._watches.add(step.name, reactor)

    def _check(self, step: Step, wrong: str | None) -> None:
        if wrong is not None:
            raise self._failed(step, wrong)

    def _define(self, step: Define) -> None:
        self._attempt(step, step.expected, lambda: self._host.define(step.text))

    def _open_session(self, step: OpenSession) -> None:
        ids = {name: id for id, name in self._names.items()}

        def act() -> HostSession:
            return self._host.session(ids.get(step.actor, step.actor))

        session = self._attempt(step, step.expected, act)
        if session is not None:
            self._sessions[step.session] = session

    def _session(self, name: str) -> HostSession:
        if name not in self._sessions:
            self._sessions[name] = self._host.session()
        return self._sessions[name]

    def _update_names(self, session: HostSession) -> None:
        self._names.update({id: name for name, id in session.bindings.items()})

    def _parameter(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return timestamp_from_text(value[1:])
        if isinstance(value, str) and value.startswith("#"):
            return {name: id for id, name in self._names.items()}.get(value[1:], value)
        return value

    # Comparing

    def _attempt(self, step: Step, expected: Expected, act: Callable[[], Any]) -> Any:
        """Run the step. Return None if it raised the expected error."""
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
        if not text.startswith(f"{error.category}: {error.code} {error.name}: "):
            raise self._failed(step, f"the error does not begin with its category, code and name: {text}")
        if expected.code is None or error.code not in expected.code.split("/"):
            raise self._failed(step, f"expected {expected.code or 'success'}, got {text}") from error
        missing = [words for words in map(self._watches.substitute_ids, expected.words) if words not in text]
        if missing:
            raise self._failed(step, f"expected the words {missing} in: {text}") from error
        forbidden = [words for words in expected.absent if words in text or words in str(error.fields)]
        if forbidden:
            raise self._failed(
                step, f"the error must not contain {forbidden}: {text} {error.fields}"
            ) from error

    def _compare(self, step: Execute, expected: Expected, result: HostResult) -> None:
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

    def _compare_rows(self, step: Execute, expected: list[str], found: list[str]) -> None:
        if "ORDER BY" not in step.text:
            expected, found = sorted(expected), sorted(found)
        if expected != found:
            lines = "\n  ".join(["expected", *expected, "got", *(found or ["(nothing)"])])
            raise self._failed(step, lines)

    def _compare_warnings(self, step: Execute, expected: Expected, result: HostResult) -> None:
        text = "\n".join(result.warnings)
        missing = [
            words for words in map(self._watches.substitute_ids, expected.warnings) if words not in text
        ]
        if missing or (expected.quiet and text):
            raise self._failed(step, f"expected the warnings {expected.warnings}, got {text!r}")

    def _failed(self, step: Step, why: str) -> StoryFailed:
        text = getattr(step, "text", "")
        return StoryFailed(f"{self._place(step.line)}: {text}\n  {why}")

    def _place(self, line: int) -> str:
        return f"{self._story.file}:{line} ({self._story})"
