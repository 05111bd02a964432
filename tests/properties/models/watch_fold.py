"""Folds the events of a watch into its current rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from vedette.change import Event

__all__ = ["Fold", "frozen"]


def frozen(value: Any) -> Any:
    """Return a hashable form in which 1, 1.0 and true differ. Lists are bags, because COLLECT promises no order."""
    if isinstance(value, Mapping):
        element = (
            "_type" in value
        )  # A null attribute and an attribute that its type did not have yet are equal.
        return tuple((name, frozen(part)) for name, part in value.items() if part is not None or not element)
    if isinstance(value, (list, tuple)):
        return ("bag", *sorted(map(frozen, value), key=repr))
    return (type(value).__name__, value)


def _who(value: Any) -> Any:
    """Return the identity of a value: of an element its id, also in frozen form."""
    if isinstance(value, tuple) and value and value[0] and value[0][0] == "id":
        return value[0][1]
    return (
        frozen(value["id"])
        if isinstance(value, Mapping)
        else value
        if isinstance(value, tuple)
        else frozen(value)
    )


class Fold:
    """Rows with their number of occurrences. Raises AssertionError at the first impossible event."""

    def __init__(self, *, identity: tuple[str, ...] | None = None, changes: bool = True) -> None:
        self.rows: Counter[Any] = Counter()
        self._identity = identity
        """Columns that identify a row, or None if there are none."""
        self._changes = changes
        """False for DISTINCT, which never sends `changed`."""
        self._position = 0

    def begin(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Set the starting rows of a watch with `initial: none`."""
        self.rows = Counter(map(frozen, rows))

    def take(self, events: Iterable[Event], *, again: bool = False) -> None:
        """Apply events. With `again`, unconfirmed events may be repeated; a repeated event is recognized by its
        position.

        An `initial` event is never a repetition: the rows are replaced, whatever its position.
        """
        positions: list[int] = []
        for event in events:
            if again and event.type == "initial":
                positions.clear()
                self._position = event.position
                self.begin(event.matches or ())
                continue
            if again and event.position <= self._position:
                continue
            positions.append(event.position)
            self._apply(event)
        expected = list(range(self._position + 1, self._position + 1 + len(positions)))
        assert sorted(positions) == expected, f"positions {positions} after {self._position}"
        self._position += len(positions)
        self._check_identity()

    def _apply(self, event: Event) -> None:
        if event.type == "initial":
            assert event.position == 1, "initial comes first and once"
            assert event.matches is not None
            self.begin(event.matches)
            return
        assert event.match is not None
        match, prev = frozen(event.match), frozen(event.prev)
        match event.type:
            case "added":
                self.rows[match] += 1
            case "removed":
                self._remove(match, event)
            case "changed":
                assert self._changes, f"{event} for rows that are their own identity"
                assert match != prev, f"nothing changed in {event}"
                self._remove(prev, event)
                self.rows[match] += 1
                self._check_same(event)
            case other:
                raise AssertionError(f"unexpected event {other}")

    def _remove(self, row: Any, event: Event) -> None:
        assert self.rows[row] > 0, f"{event} refers to an unknown row"
        self.rows[row] -= 1
        if not self.rows[row]:
            del self.rows[row]

    def _check_same(self, event: Event) -> None:
        assert event.match is not None
        assert event.prev is not None
        for name in self._identity or ():
            same = _who(event.match[name]) == _who(event.prev[name])
            assert same, f"{event} is about another match"

    def _check_identity(self) -> None:
        if self._identity is None:
            return
        rows = map(dict, self.rows.elements())
        seen = Counter(tuple(_who(row[name]) for name in self._identity) for row in rows)
        twice = [identity for identity, times in seen.items() if times > 1]
        assert not twice, f"added twice: {twice}"
