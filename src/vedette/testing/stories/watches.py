"""The named watches of a story: compare their events with the expected ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from vedette.change import Event
from vedette.testing.clock import START
from vedette.testing.stories.events import EVENT_FIELDS, compare_events, event_text
from vedette.testing.stories.host import HostWatch
from vedette.testing.stories.steps import ExpectErrors, ExpectEvents

__all__ = ["WatchExpectations"]

_ALWAYS = frozenset({"type", "tick", "position"})
_REFERENCE = re.compile(r"#(?P<reference>\w+)|\{(?P<text>\w+)\}")


class _TrackedWatch:
    """One watch and the events it has delivered so far."""

    def __init__(self, watch: HostWatch) -> None:
        self.id = watch.id
        self.watch: HostWatch | None = watch
        """None after a restart, until a session attaches to it."""
        self.was_polled = False
        self.positions: set[int] = set()
        self.dropped = 0
        self.last: Event | None = None
        self.consumes = False
        self.checks_positions = True
        """True if positions identify repeated events. Positions of deliveries do not after a restart."""


class WatchExpectations:
    """Watches by name. Methods return a description of the difference, or None."""

    def __init__(self, names: dict[str, str], start: datetime = START) -> None:
        """`names` maps ids to the names that the story uses for them."""
        self._names = names
        self._ids_by_name: dict[str, str] = {}
        """Ids by the names of deliveries and of rows named with `.name`."""
        self._start = start
        self._tracked: dict[str, _TrackedWatch] = {}

    def add(self, name: str, watch: HostWatch) -> None:
        """Add a new or reattached watch. Events that it delivered before are kept."""
        known = self._tracked.get(name)
        if known is not None and known.id == watch.id:
            known.watch = watch
        else:
            self._tracked[name] = _TrackedWatch(watch)

    def name_id(self, name: str, id: str) -> None:
        """Use this name for the id from here on."""
        self._ids_by_name[name], self._names[id] = id, name

    def substitute_ids(self, text: str) -> str:
        """Replace names such as `#d1` and `{d1}` in a text by their ids."""

        def id_of(found: re.Match[str]) -> str:
            name = found["reference"] or found["text"]
            if name not in self._ids_by_name:
                return found[0]
            return f"#{self._ids_by_name[name]}" if found["reference"] else self._ids_by_name[name]

        return _REFERENCE.sub(id_of, text)

    def disconnect(self) -> None:
        """The host restarts: all watches are detached."""
        for tracked in self._tracked.values():
            tracked.watch = None
            tracked.checks_positions = tracked.checks_positions and not tracked.consumes

    def handle(self, name: str) -> str | None:
        return self._tracked[name].id if name in self._tracked else None

    def events(self, step: ExpectEvents) -> str | None:
        for name in step.watches:
            tracked = self._tracked.get(name)
            if tracked is None or tracked.watch is None:
                return f"no session has a watch '{name}': write `> {name} = WATCH …`, or `.attach {name}`"
            tracked.was_polled = True
            found = tracked.watch.poll(step.limit)
            wrong = self._compare(step, found) or _check_positions(tracked, found, step)
            if wrong is not None:
                return f"{name}: {wrong}"
        return None

    def _compare(self, step: ExpectEvents, found: Sequence[Event]) -> str | None:
        for event in found:
            if (wrong := _check_fields(event)) is not None:
                return wrong
        self._name_deliveries(step, found)
        shown = [event_text(event, self._names, self._start) for event in found]
        if not compare_events(step.events, shown, in_order=step.in_order):
            return None
        lines = ["expected", *(f"  {line}" for event in step.events for line in event.lines())]
        lines += ["received", *(f"  {line}" for event in shown for line in event.lines())]
        return "\n  ".join(lines)

    def _name_deliveries(self, step: ExpectEvents, found: Sequence[Event]) -> None:
        """Bind a new name to the first unnamed delivery with that row."""
        for expected in step.events:
            name = expected.notes.get("delivery")
            if name is None or name in self._ids_by_name:
                continue
            for event in found:
                nameless = event.delivery_id is not None and event.delivery_id not in self._names
                if nameless and event_text(event, self._names, self._start).head == expected.head:
                    self.name_id(name, str(event.delivery_id))
                    break

    def errors(self, step: ExpectErrors) -> str | None:
        tracked = self._tracked.get(step.watch)
        if tracked is None or tracked.watch is None:
            return f"no session has a watch '{step.watch}'"
        found = [(record.code, str(record)) for record in tracked.watch.errors()]
        expected = [self.substitute_ids(words).partition(" ")[::2] for words in step.records]
        fits = len(found) == len(expected) and all(
            one == other and words in text
            for (one, text), (other, words) in zip(found, expected, strict=True)
        )
        return None if fits else f"expected the errors {expected}, got {[text for _, text in found]}"

    def confirm(self, name: str) -> str | None:
        tracked = self._tracked.get(name)
        if tracked is None or tracked.watch is None or tracked.last is None:
            return f"'{name}' has received no event that it could confirm"
        tracked.watch.ack(tracked.last)
        return None

    def unexpected(self) -> str | None:
        """Return events that no step expected. A story must list every event of its watches."""
        for name, tracked in self._tracked.items():
            if tracked.watch is None:
                continue
            records = [str(record) for record in tracked.watch.errors()]
            if records:
                return f"{name} has errors that the story does not mention: {records}"
            found = tracked.watch.poll() if tracked.was_polled and tracked.watch.status == "active" else ()
            if found:
                lines = (line for e in found for line in event_text(e, self._names, self._start).lines())
                return "\n  ".join([f"{name} received events that the story does not list:", *lines])
        return None


def _check_fields(event: Event) -> str | None:
    """Check that an event has exactly the documented fields."""
    required, optional = EVENT_FIELDS[event.type]
    fields = event.to_dict().keys() - _ALWAYS
    if required <= fields <= required | optional:
        return None
    return f"an event of type {event.type} has the fields {sorted(fields)}, not {sorted(required)}"


def _check_positions(tracked: _TrackedWatch, found: Sequence[Event], step: ExpectEvents) -> str | None:
    """Check that positions are consecutive. They jump only at an event with `dropped`."""
    tracked.consumes = tracked.consumes or any(event.delivery_id is not None for event in found)
    if not tracked.checks_positions:
        return None
    for event in found:
        if event.position in tracked.positions:
            if not step.redelivered:
                return f"position {event.position} was delivered twice"
            continue
        tracked.positions.add(event.position)
        tracked.dropped += event.dropped
    tracked.last = found[-1] if found else tracked.last
    whole = step.limit is None and bool(tracked.positions)
    if whole and max(tracked.positions) != len(tracked.positions) + tracked.dropped:
        return f"positions {sorted(tracked.positions)} have a gap, but `dropped` adds up to {tracked.dropped}"
    return None
