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
    "read_events",
    "read_reactor",
]

_NAMED = re.compile(r"\s*(?P<name>\w+)\s*=\s*WATCH\b", re.IGNORECASE)
_REACTOR = re.compile(r"^(?P<name>\w+)(?P<failing> failing)? = (?P<text>.*)$", re.DOTALL)
_EXPECTED_EVENTS = re.compile(
    r"^(?P<watches>\w+(?:, \w+)*)(?: limit (?P<limit>\d+))?(?P<order> ordered)?(?P<again> redelivered)?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectEvents:
    """The events that each of these watches received since the last `.events`."""

    line: int
    watches: tuple[str, ...]
    events: tuple[EventText, ...]
    limit: int | None = None
    in_order: bool = False
    """If false, events of one commit may arrive in any order."""
    redelivered: bool = False
    """All events were delivered before; a reliable watch may repeat them after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectErrors:
    """The error records of a watch: each has a code and words of its text."""

    line: int
    watch: str
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """A session attaches to a watch again, by its name or its handle."""

    line: int
    watch: str
    session: str
    by_handle: bool
    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The owner confirms all events delivered so far."""

    line: int
    watch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRows:
    """Names for the ids in the first column of the last result, row by row."""

    line: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseSession:
    """The owner of the session disconnects without closing it."""

    line: int
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """Set the maximum number of watches of a session and in total."""

    line: int
    session: str
    per_session: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReactor:
    """A callback for every event of a watch, under a durable name."""

    line: int
    name: str
    text: str
    failing: bool
    """True if every call raises an error."""


WatchStep: TypeAlias = (
    ExpectEvents | ExpectErrors | Attach | Confirm | NameRows | LoseSession | SetLimits | StartReactor
)


def named_watch(text: str) -> str | None:
    """Return the name of `name = WATCH …`. Later steps refer to the watch by this name."""
    found = _NAMED.match(text)
    return found["name"] if found is not None else None


def read_events(line: int, rest: str, lines: list[str]) -> ExpectEvents:
    """Parse `.events a, b limit 2 ordered` and the lines below it."""
    found = _EXPECTED_EVENTS.match(rest)
    if found is None:
        raise ValueError(
            "write `.events watch, watch`, optionally followed by `limit 2`, `ordered`, `redelivered`"
        )
    blocks: list[tuple[str, list[str]]] = []
    for each in lines:
        if not each.startswith((" ", "\t")):
            blocks.append((each, []))
        elif blocks:
            blocks[-1][1].append(each.strip())
    if not blocks:
        raise ValueError("write the expected events below `.events`, or (nothing)")
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
