"""What windows mean, worked out from the history alone (surface.md, Windows): no delta, no buffer, no engine.

The history is what MATCH said after every commit, with the time. Whatever a watch with a window must tell follows from
two snapshots and some arithmetic; that is done here, the slow and obvious way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.properties.models.watch_fold import frozen

__all__ = ["AGGREGATES", "History", "Snapshot", "WindowSpec", "told_by"]

Rows = Mapping[tuple[str, ...], Mapping[str, Any]]
"""Identity ▸ the row of a match."""


@dataclass(frozen=True)
class Snapshot:
    """What the pattern matched after a commit."""

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
    """Empty: the window gathers events."""

    @property
    def text(self) -> str:
        seconds = (f"{span.total_seconds():g}s" for span in (self.duration, self.interval))
        return f"tumbling({next(seconds)})" if self.kind == "tumbling" else f"sliding({', '.join(seconds)})"


@dataclass
class History:
    """Snapshots in order; the first is what was there when the watch was made."""

    snapshots: list[Snapshot] = field(default_factory=list)

    def add(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def steps(self) -> Iterator[tuple[Snapshot, Snapshot]]:
        return zip(self.snapshots, self.snapshots[1:], strict=False)

    def before(self, end: datetime) -> int:
        """How many snapshots lie before the end of a window."""
        return sum(each.at < end for each in self.snapshots)

    def begun_again(self, known: int, now: datetime) -> History:
        """The history for windows that begin now: what came after the first `known` snapshots counts from now on."""
        kept = self.snapshots[max(0, known - 1) :]
        return History([replace(each, at=max(each.at, now)) for each in kept])

    def at_end(self, end: datetime) -> Rows:
        """The matches that exist when a window ends: its end belongs to the next one."""
        return [each for each in self.snapshots if each.at < end or each is self.snapshots[0]][-1].rows

    def touched(
        self, identity: tuple[str, ...], taken: Callable[[Mapping[str, Any]], Any], end: datetime
    ) -> datetime | None:
        """When the match was last added or changed before `end`; None when it has been as it is all along."""
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
"""What RETURN says ▸ what it means over the columns `k` and `v` of the matches."""
_TAKES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "COUNT(*) AS n": lambda row: None,
    "COUNT(t WHERE t.v > 1) AS many": lambda row: row if (row["v"] or 0) > 1 else None,  # all of it
    "COUNT(DISTINCT t.k) AS kinds": lambda row: row["k"],
}
"""What an aggregate takes from a match, when it is not its `v`."""


def _taken(spec: WindowSpec) -> Callable[[Mapping[str, Any]], Any]:
    """What the groups and the aggregates take from a match: a match that differs in that has changed."""
    takers = [_TAKES.get(each, lambda row: row["v"]) for each in spec.aggregates]
    return lambda row: frozen([*({key: row[key]} for key in spec.keys), *([taker(row)] for taker in takers)])


def _groups(spec: WindowSpec, rows: Sequence[Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    found: dict[Any, list[Mapping[str, Any]]] = {} if spec.keys else {(): []}
    for row in rows:
        found.setdefault(tuple(frozen(row[key]) for key in spec.keys), []).append(row)
    return {
        identity: {
            **{key: members[0][key] for key in spec.keys},
            **{each.split(" AS ")[1]: AGGREGATES[each](members) for each in spec.aggregates},
        }
        for identity, members in found.items()
    }


# What is told


def told_by(spec: WindowSpec, history: History, until: datetime) -> list[dict[str, Any]]:
    """Everything that the ends of windows up to this moment tell, in order, apart from positions."""
    told: list[dict[str, Any]] = []
    known: dict[Any, dict[str, Any]] | None = None
    end = history.snapshots[0].at + spec.interval
    while end <= until:
        bounds = {"window_start": end - spec.duration, "window_end": end}
        if spec.aggregates:
            fresh = _groups(spec, _counted(spec, history, end))
            told += [{**event, **bounds} for event in _tell_groups(known, fresh)]
            known = fresh
        elif gathered := _gathered(history, end - spec.duration, end):
            told.append({"type": "window", "events": gathered, **bounds})
        end += spec.interval
    return told


def _counted(spec: WindowSpec, history: History, end: datetime) -> list[Mapping[str, Any]]:
    present = history.at_end(end)
    if spec.kind == "tumbling":
        return list(present.values())
    start, taken = end - spec.duration, _taken(spec)
    moments = {identity: history.touched(identity, taken, end) for identity in present}
    return [row for identity, row in present.items() if (at := moments[identity]) is not None and at >= start]


def _tell_groups(
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


def _gathered(history: History, start: datetime, end: datetime) -> list[dict[str, Any]]:
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
