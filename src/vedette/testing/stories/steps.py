"""Steps of a story that are about watches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from vedette.testing.stories.events import ShownEvent, read_event

__all__ = [
    "Attach",
    "Called",
    "Confirm",
    "Errors",
    "Limit",
    "Lose",
    "React",
    "Told",
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
class Told:
    """What each of these watches is told since it was last asked."""

    line: int
    watches: tuple[str, ...]
    events: tuple[ShownEvent, ...]
    limit: int | None = None
    in_order: bool = False
    """Without it, events of one commit may come in any order."""
    again: bool = False
    """All of it was told before: what a reliable watch may do after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
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
class Called:
    """Names for the ids in the first column of the last result, row by row."""

    line: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose:
    """Whoever held the session is gone without a word."""

    line: int
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A session that may have so many watches, of so many in all."""

    line: int
    session: str
    per_session: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class React:
    """A program that is called for every event of a watch, under a name that outlives it."""

    line: int
    name: str
    text: str
    failing: bool
    """Whether every call ends with an error."""


WatchStep: TypeAlias = Told | Errors | Attach | Confirm | Called | Lose | Limit | React


def named_watch(text: str) -> str | None:
    """The name of `name = WATCH …`: such a watch is held, and can be asked about."""
    found = _NAMED.match(text)
    return found["name"] if found is not None else None


def read_told(line: int, rest: str, lines: list[str]) -> Told:
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
    return Told(
        line=line,
        watches=tuple(found["watches"].split(", ")),
        events=() if nothing else tuple(read_event(head, below) for head, below in blocks),
        limit=int(found["limit"]) if found["limit"] is not None else None,
        in_order=found["order"] is not None,
        again=found["again"] is not None,
    )


def read_reactor(line: int, rest: str) -> React:
    """`.reactor mailer = WATCH …`; `.reactor mailer failing = WATCH …`: each call fails."""
    found = _REACTOR.match(rest)
    if found is None:
        raise ValueError("write `.reactor name = WATCH …`, or `.reactor name failing = WATCH …`")
    return React(line=line, name=found["name"], text=found["text"], failing=found["failing"] is not None)
