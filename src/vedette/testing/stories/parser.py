"""Parses story files into `Story` records. The format is described in `vedette.testing.stories`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from vedette.testing.stories.steps import (
    Attach,
    Confirm,
    ExpectErrors,
    LoseSession,
    NameRows,
    SetLimits,
    WatchStep,
    read_events,
    read_reactor,
)

__all__ = [
    "Advance",
    "CloseSession",
    "Define",
    "Execute",
    "Expected",
    "OpenSession",
    "Reopen",
    "Step",
    "Story",
    "StoryFormatError",
    "read_stories",
]

COUNTS = ("created", "modified", "deleted", "linked", "unlinked")
_HEAD = re.compile(r"^=== (?P<rules>[^|]+)\|\s*(?P<title>.+)$")
_STATEMENT = re.compile(r"^(?P<session>\w*)(?P<script>>>?) (?P<text>.*)$")
_COUNT = re.compile(r"^(created|modified|deleted|linked|unlinked) \d+")
_SPAN = re.compile(r"^(?P<amount>[\d.]+)(?P<unit>ms|s|m|h|d)$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class StoryFormatError(Exception):
    """A story file has a syntax error."""


@dataclass(slots=True, kw_only=True)
class Expected:
    """The expected result of a step. Fields that are None are not compared."""

    rows: list[str] | None = None
    count: int | None = None
    columns: str | None = None
    counts: dict[str, int] | None = None
    warnings: list[str] = field(default_factory=list)
    quiet: bool = False
    """If true, the statement must give no warning."""
    code: str | None = None
    words: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Words that the error must not contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Run a statement, or a script, in a session."""

    line: int
    session: str
    text: str
    script: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    line: int
    text: str
    expected: Expected = field(default_factory=Expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """Open a session for an actor. `actor` is a variable that an earlier statement bound, in any session."""

    line: int
    session: str
    actor: str
    expected: Expected = field(default_factory=Expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    line: int
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    line: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    line: int


Step: TypeAlias = Execute | Define | OpenSession | CloseSession | Advance | Reopen | WatchStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    file: str
    line: int
    rules: tuple[str, ...]
    title: str
    settings: Mapping[str, Any]
    steps: tuple[Step, ...]
    scope: str | None = None
    """`node` if each watch reads one node, which every host supports; otherwise `pattern`."""
    reader: str | None = None
    """`pull` if the result depends on when events are polled; hosts that push events skip the story."""
    xfail: str | None = None
    """The missing feature that the story needs. Such a story is expected to fail."""

    @property
    def needs_restart(self) -> bool:
        """True if the story restarts the database and therefore needs a durable store."""
        return any(isinstance(step, Reopen) for step in self.steps)

    def __str__(self) -> str:
        return f"{','.join(self.rules)} {self.title}"


def read_stories(text: str, file: str = "") -> list[Story]:
    """Parse all stories of a text. `file` is used in error messages."""
    return _Reader(text, file).read()


class _Reader:
    """Reads the lines once. A story ends where the next header begins."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._lines = text.splitlines()
        self._at = 0
        self._ontologies: dict[str, str] = {}
        self._stories: list[Story] = []
        self._steps: list[Step] = []
        self._settings: dict[str, Any] = {}
        self._parameters: dict[str, Any] = {}
        self._attributes: dict[str, str] = {}
        self._commands: dict[str, Callable[[str], None]] = {
            ".ontology": self._ontology,
            ".use": self._use,
            ".define": self._define,
            ".settings": self._read_settings,
            ".session": self._session,
            ".close": lambda rest: self._steps.append(CloseSession(line=self._at, session=rest)),
            ".params": self._params,
            ".advance": lambda rest: self._steps.append(Advance(line=self._at, seconds=self._seconds(rest))),
            ".restart": lambda rest: self._steps.append(Reopen(line=self._at)),
            ".scope": self._scope,
            ".reader": self._reader,
            ".xfail": lambda rest: self._attributes.update(xfail=rest),
            ".events": self._events,
            ".errors": self._errors,
            ".attach": self._attach,
            ".confirm": lambda rest: self._steps.append(Confirm(line=self._at, watch=rest)),
            ".name": self._name_rows,
            ".disconnect": lambda rest: self._steps.append(LoseSession(line=self._at, session=rest)),
            ".limits": self._limits,
            ".reactor": self._reactor,
        }

    def read(self) -> list[Story]:
        head: tuple[int, tuple[str, ...], str] | None = None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if not line.strip() or line.startswith("--"):
                continue
            if line.startswith("==="):
                self._finish(head)
                head = self._head(line)
            else:
                self._read_line(line)
        self._finish(head)
        return self._stories

    def _head(self, line: str) -> tuple[int, tuple[str, ...], str]:
        found = _HEAD.match(line)
        if found is None:
            raise self._error("a story begins with `=== rules | title`")
        return self._at, tuple(rule.strip() for rule in found["rules"].split(",")), found["title"].strip()

    def _finish(self, head: tuple[int, tuple[str, ...], str] | None) -> None:
        if head is not None:
            line, rules, title = head
            self._stories.append(
                Story(
                    file=self._file,
                    line=line,
                    rules=rules,
                    title=title,
                    settings=self._settings,
                    steps=tuple(self._steps),
                    **self._attributes,
                )
            )
        self._steps, self._settings, self._parameters, self._attributes = [], {}, {}, {}

    def _read_line(self, line: str) -> None:
        at = self._at
        statement = _STATEMENT.match(line)
        if statement is not None:
            text = "\n".join([statement["text"], *self._block()])
            self._steps.append(
                Execute(
                    line=at,
                    session=statement["session"],
                    text=text,
                    script=statement["script"] == ">>",
                    parameters=self._parameters,
                    expected=self._expected(),
                )
            )
            self._parameters = {}
            return
        command, _, rest = line.partition(" ")
        if command not in self._commands:
            raise self._error(f"expected a statement, a command or an expected result, got: {line}")
        self._commands[command](rest.strip())

    # Commands

    def _ontology(self, rest: str) -> None:
        self._ontologies[rest] = "\n".join(self._block())

    def _use(self, rest: str) -> None:
        if rest not in self._ontologies:
            raise self._error(f"no ontology '{rest}' in this file")
        self._steps.append(Define(line=self._at, text=self._ontologies[rest]))

    def _define(self, rest: str) -> None:
        line = self._at
        text = "\n".join([rest, *self._block()]) if rest else "\n".join(self._block())
        self._steps.append(Define(line=line, text=text, expected=self._expected()))

    def _read_settings(self, rest: str) -> None:
        self._settings.update(tomllib.loads(rest))

    def _session(self, rest: str) -> None:
        name, word, actor = (*rest.split(), "", "", "")[:3]
        if word != "as":
            raise self._error("write `.session name as #binding`")
        self._steps.append(
            OpenSession(line=self._at, session=name, actor=actor.removeprefix("#"), expected=self._expected())
        )

    def _params(self, rest: str) -> None:
        self._parameters = json.loads(rest)

    # Watches

    def _scope(self, rest: str) -> None:
        if rest not in ("node", "pattern"):
            raise self._error("write `.scope node` or `.scope pattern`")
        self._attributes["scope"] = rest

    def _reader(self, rest: str) -> None:
        if rest != "pull":
            raise self._error("write `.reader pull`")
        self._attributes["reader"] = rest

    def _events(self, rest: str) -> None:
        line = self._at
        try:
            self._steps.append(read_events(line, rest, self._expected_lines()))
        except ValueError as error:
            raise self._error(str(error)) from error

    def _errors(self, rest: str) -> None:
        line, records = self._at, self._expected_lines()
        if not records:
            raise self._error("write a line `E8005 words` below `.errors` for each record, or (nothing)")
        known = () if records == ["(nothing)"] else tuple(records)
        self._steps.append(ExpectErrors(line=line, watch=rest, records=known))

    def _attach(self, rest: str) -> None:
        """`.attach board`, `.attach #board by ann`: by name, by handle."""
        line, (watch, _, session) = self._at, (*rest.split(), "", "")[:3]
        self._steps.append(
            Attach(
                line=line,
                watch=watch.removeprefix("#"),
                session=session,
                by_handle=watch.startswith("#"),
                expected=self._expected(),
            )
        )

    def _name_rows(self, rest: str) -> None:
        self._steps.append(NameRows(line=self._at, names=tuple(rest.split(", "))))

    def _limits(self, rest: str) -> None:
        try:
            session, own, total = rest.split()
            self._steps.append(
                SetLimits(line=self._at, session=session, per_session=int(own), total=int(total))
            )
        except ValueError as error:
            raise self._error(
                "write `.limits session 2 5`: two watches in the session, five in total"
            ) from error

    def _reactor(self, rest: str) -> None:
        line = self._at
        try:
            self._steps.append(read_reactor(line, "\n".join([rest, *self._block()])))
        except ValueError as error:
            raise self._error(str(error)) from error

    def _expected_lines(self) -> list[str]:
        """Return the following lines up to the next step, unchanged."""
        lines: list[str] = []
        while self._at < len(self._lines) and not self._is_step(self._lines[self._at]):
            lines.append(self._lines[self._at].rstrip())
            self._at += 1
        return lines

    def _is_step(self, line: str) -> bool:
        return not line.strip() or line.startswith(("===", ".", "--")) or _STATEMENT.match(line) is not None

    def _seconds(self, text: str) -> float:
        found = _SPAN.match(text)
        if found is None:
            raise self._error("write a duration as 5s, 300ms or 2h")
        return float(found["amount"]) * _SECONDS[found["unit"]]

    # Expected results

    def _block(self) -> list[str]:
        """Return the following indented lines without their common indentation."""
        lines: list[str] = []
        while self._at < len(self._lines) and (
            self._lines[self._at].startswith(("  ", "\t")) or (lines and not self._lines[self._at].strip())
        ):
            lines.append(self._lines[self._at])
            self._at += 1
        while lines and not lines[-1].strip():
            lines.pop()
        shared = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return [line[shared:] for line in lines]

    def _expected(self) -> Expected:
        expected = Expected()
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if self._is_step(line):
                break
            self._at += 1
            self._expect(expected, line.rstrip())
        return expected

    def _expect(self, expected: Expected, line: str) -> None:
        head, _, rest = line.partition(" ")
        match head:
            case "(nothing)":
                expected.rows = []
            case "columns:":
                expected.columns = rest
            case "rows:":
                expected.count = int(rest)
            case "warning:":
                expected.warnings.append(rest)
            case "no":
                expected.quiet = True
            case "!" if expected.code is None:
                expected.code, _, words = rest.partition(" ")
                expected.words += [words] if words else []
            case "!":
                expected.words.append(rest)
            case "!not":
                expected.absent.append(rest)
            case _ if _COUNT.match(line):
                counts = dict.fromkeys(COUNTS, 0)
                counts.update({word: int(n) for word, n in (p.split() for p in line.split(", "))})
                expected.counts = counts
            case _ if line.startswith(">"):
                raise self._error("write a space between `>` and the statement")
            case _:
                expected.rows = [*(expected.rows or []), line]

    def _error(self, why: str) -> StoryFormatError:
        return StoryFormatError(f"{self._file}:{self._at}: {why}")
