"""Steps of a story that are about watches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from vedette.testing.stories.events import EventText, parse_event

__all__ = [
    "Attach",
    "Confirm",
    "ExpectErrors",
    "ExpectEvents",
    "LoseSession",
    "NameRows",
    "SetLimits",
    "StartReactor",
    "WatchStep",
    "named_watch",
    "read_reactor",
    "read_told",
]

_NAMED = re.compile(r"\s*(?P<name>\w+)\s*=\s*WATCH\b", re.IGNORECASE)
_REACTOR = re.compile(r"^(?P<name>\w+)(?P<failing> failing)? = (?P<text>.*)$", re.DOTALL)
_TOLD = re.compile(
    r"^(?P<watches>\w+(?:, \w+)*)(?: first (?P<limit>\d+))?(?P<order> in order)?(?P<again> again)?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectEvents:
    """What each of these watches is told since it was last asked."""

    line: int
    watches: tuple[str, ...]
    events: tuple[EventText, ...]
    limit: int | None = None
    in_order: bool = False
    """Without it, events of one commit may come in any order."""
    redelivered: bool = False
    """All of it was told before: what a reliable watch may do after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectErrors:
    """The records that a watch has for its owner, each by its code and words of it."""

    line: int
    watch: str
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """A session takes a watch up again, by its name or its handle."""

    line: int
    watch: str
    session: str
    by_handle: bool
    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The owner has everything for certain that it was told so far."""

    line: int
    watch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRows:
    """Names for the ids in the first column of the last result, row by row."""

    line: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseSession:
    """Whoever held the session is gone without a word."""

    line: int
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """A session that may have so many watches, of so many in all."""

    line: int
    session: str
    per_session: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReactor:
    """A program that is called for every event of a watch, under a name that outlives it."""

    line: int
    name: str
    text: str
    failing: bool
    """Whether every call ends with an error."""


WatchStep: TypeAlias = (
    ExpectEvents | ExpectErrors | Attach | Confirm | NameRows | LoseSession | SetLimits | StartReactor
)


def named_watch(text: str) -> str | None:
    """The name of `name = WATCH …`: such a watch is held, and can be asked about."""
    found = _NAMED.match(text)
    return found["name"] if found is not None else None


def read_told(line: int, rest: str, lines: list[str]) -> ExpectEvents:
    """`.told a, b first 2 in order` with the lines below it."""
    found = _TOLD.match(rest)
    if found is None:
        raise ValueError("write `.told watch, watch`, then perhaps `first 2`, `in order`, `again`")
    blocks: list[tuple[str, list[str]]] = []
    for each in lines:
        if not each.startswith((" ", "\t")):
            blocks.append((each, []))
        elif blocks:
            blocks[-1][1].append(each.strip())
    if not blocks:
        raise ValueError("below `.told` stands what the watch is told, or (nothing)")
    nothing = [head for head, _ in blocks] == ["(nothing)"]
    return ExpectEvents(
        line=line,
        watches=tuple(found["watches"].split(", ")),
        events=() if nothing else tuple(parse_event(head, below) for head, below in blocks),
        limit=int(found["limit"]) if found["limit"] is not None else None,
        in_order=found["order"] is not None,
        redelivered=found["again"] is not None,
    )


def read_reactor(line: int, rest: str) -> StartReactor:
    """`.reactor mailer = WATCH …`; `.reactor mailer failing = WATCH …`: each call fails."""
    found = _REACTOR.match(rest)
    if found is None:
        raise ValueError("write `.reactor name = WATCH …`, or `.reactor name failing = WATCH …`")
    return StartReactor(
        line=line, name=found["name"], text=found["text"], failing=found["failing"] is not None
    )
