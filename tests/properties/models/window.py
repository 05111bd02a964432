"""Reference model of windows, computed from the history alone (see `docs/reference/watch.md`): no delta, no buffer.

The history is the result of MATCH after every commit, with its time. Every event of a windowed watch follows from two
snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.properties.models.watch_fold import frozen

__all__ = ["AGGREGATES", "History", "Snapshot", "WindowSpec", "window_events_until"]

Rows = Mapping[tuple[str, ...], Mapping[str, Any]]
"""Identity ▸ the row of a match."""


@dataclass(frozen=True)
class Snapshot:
    """The matches of the pattern after a commit."""

    at: datetime
    tick: int
    rows: Rows


@dataclass(frozen=True)
class WindowSpec:
    kind: str
    duration: timedelta
    interval: timedelta
    keys: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    """If empty, the window collects events."""

    @property
    def text(self) -> str:
        seconds = (f"{span.total_seconds():g}s" for span in (self.duration, self.interval))
        return f"tumbling({next(seconds)})" if self.kind == "tumbling" else f"sliding({', '.join(seconds)})"


@dataclass
class History:
    """Snapshots in order. The first is the state when the watch was created."""

    snapshots: list[Snapshot] = field(default_factory=list)

    def add(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def steps(self) -> Iterator[tuple[Snapshot, Snapshot]]:
        return zip(self.snapshots, self.snapshots[1:], strict=False)

    def before(self, end: datetime) -> int:
        """Return the number of snapshots before the end of a window."""
        return sum(each.at < end for each in self.snapshots)

    def begun_again(self, known: int, now: datetime) -> History:
        """Return the history for windows that start now. Later snapshots than `known` count as changes made now."""
        kept = self.snapshots[max(0, known - 1) :]
        return History([replace(each, at=max(each.at, now)) for each in kept])

    def at_end(self, end: datetime) -> Rows:
        """Return the matches at the end of a window. The end itself belongs to the next window."""
        return [each for each in self.snapshots if each.at < end or each is self.snapshots[0]][-1].rows

    def touched(
        self, identity: tuple[str, ...], taken: Callable[[Mapping[str, Any]], Any], end: datetime
    ) -> datetime | None:
        """Return when the match was last added or changed before `end`, or None if it never changed."""
        latest = None
        for before, after in self.steps():
            if after.at >= end:
                break
            old, new = before.rows.get(identity), after.rows.get(identity)
            if new is not None and (old is None or taken(old) != taken(new)):
                latest = after.at
        return latest


# Aggregates


def _values(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [row["v"] for row in rows if row["v"] is not None]


AGGREGATES = {
    "COUNT(*) AS n": lambda rows: len(rows),
    "SUM(t.v) AS total": lambda rows: sum(_values(rows)) if _values(rows) else None,
    "AVG(t.v) AS mean": lambda rows: sum(_values(rows)) / len(_values(rows)) if _values(rows) else None,
    "MIN(t.v) AS low": lambda rows: min(_values(rows), default=None),
    "MAX(t.v) AS high": lambda rows: max(_values(rows), default=None),
    "COUNT(t WHERE t.v > 1) AS many": lambda rows: sum(v > 1 for v in _values(rows)),
    "COUNT(DISTINCT t.k) AS kinds": lambda rows: len({row["k"] for row in rows} - {None}),
    "COLLECT(t.v) AS all": lambda rows: [row["v"] for row in rows],
}
"""Aggregate expression ▸ function over the columns `k` and `v` of the matches."""
_AGGREGATE_INPUTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "COUNT(*) AS n": lambda row: None,
    # The whole result as one group.
    "COUNT(t WHERE t.v > 1) AS many": lambda row: row if (row["v"] or 0) > 1 else None,
    "COUNT(DISTINCT t.k) AS kinds": lambda row: row["k"],
}
"""The input of an aggregate if it is not `v`."""


def _aggregate_input_key(spec: WindowSpec) -> Callable[[Mapping[str, Any]], Any]:
    """Return the values of a match that groups and aggregates read. A match has changed if these differ."""
    readers = [_AGGREGATE_INPUTS.get(each, lambda row: row["v"]) for each in spec.aggregates]
    return lambda row: frozen([*({key: row[key]} for key in spec.keys), *([read(row)] for read in readers)])


def _groups(spec: WindowSpec, rows: Sequence[Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    found: dict[Any, list[Mapping[str, Any]]] = {} if spec.keys else {(): []}
    for row in rows:
        found.setdefault(tuple(frozen(row[key]) for key in spec.keys), []).append(row)
    return {
        identity: {
            **{key: group[0][key] for key in spec.keys},
            **{each.split(" AS ")[1]: AGGREGATES[each](group) for each in spec.aggregates},
        }
        for identity, group in found.items()
    }


# Events


def window_events_until(spec: WindowSpec, history: History, until: datetime) -> list[dict[str, Any]]:
    """Return the events of all windows that end by this time, in order, without positions."""
    events: list[dict[str, Any]] = []
    known: dict[Any, dict[str, Any]] | None = None
    end = history.snapshots[0].at + spec.interval
    while end <= until:
        bounds = {"window_start": end - spec.duration, "window_end": end}
        if spec.aggregates:
            fresh = _groups(spec, _counted(spec, history, end))
            events += [{**event, **bounds} for event in _group_events(known, fresh)]
            known = fresh
        elif changes := _changes_between(history, end - spec.duration, end):
            events.append({"type": "window", "events": changes, **bounds})
        end += spec.interval
    return events


def _counted(spec: WindowSpec, history: History, end: datetime) -> list[Mapping[str, Any]]:
    present = history.at_end(end)
    if spec.kind == "tumbling":
        return list(present.values())
    start, taken = end - spec.duration, _aggregate_input_key(spec)
    moments = {identity: history.touched(identity, taken, end) for identity in present}
    return [row for identity, row in present.items() if (at := moments[identity]) is not None and at >= start]


def _group_events(
    known: dict[Any, dict[str, Any]] | None, fresh: dict[Any, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    if known is None:
        yield {"type": "initial", "matches": list(fresh.values())}
        return
    for identity, row in fresh.items():
        if identity in known:
            yield {"type": "changed", "match": row, "prev": known[identity]}
        else:
            yield {"type": "added", "match": row}
    for identity, row in known.items():
        if identity not in fresh:
            yield {"type": "removed", "match": row}


def _changes_between(history: History, start: datetime, end: datetime) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for before, after in history.steps():
        if start <= after.at < end:
            events += _difference(before, after)
    return events


def _difference(before: Snapshot, after: Snapshot) -> Iterator[dict[str, Any]]:
    for identity in {**before.rows, **after.rows}:
        old, new = before.rows.get(identity), after.rows.get(identity)
        if old is None:
            yield {"type": "added", "match": new, "tick": before.tick}
        elif new is None:
            yield {"type": "removed", "match": old, "tick": before.tick}
        elif any(_differ(old[name], new[name]) for name in new):
            yield {"type": "changed", "match": new, "prev": old, "tick": before.tick}


def _differ(old: Any, new: Any) -> bool:
    return bool(frozen(old) != frozen(new))
