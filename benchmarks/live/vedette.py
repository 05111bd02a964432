"""Vedette: statements and watches of one session, events polled by the thread that writes."""

from __future__ import annotations

from collections.abc import Sequence

import vedette
from benchmarks.live.seam import HIGH, Change, Workload

__all__ = ["ONTOLOGY", "SPAWN", "VedetteLive"]

ONTOLOGY = """
node Person { key: Int [indexed], room: Int = 1, rank: Int = 0 }
edge knows(a: Person, b: Person)
"""
SPAWN = "SPAWN p: Person { key = $key, rank = $rank } RETURNING id"
_SET = "SET #$id.rank = $rank"
_POLL_EVERY = 100


class VedetteLive:
    def __init__(self, workload: Workload, *, one_for_all: bool = False, together: int = 1) -> None:
        """With `one_for_all`, one watch with a key that all people share instead of one watch per key.

        `together` is the number of changes per transaction.
        """
        self._together = together
        self.db = vedette.open(":memory:")
        self.db.define(ONTOLOGY)
        self.session = self.db.session()
        self._ids = self._enter(workload)
        self._keyed = workload.pattern == "keys"
        watch = self.session.watch
        if workload.pattern == "filter":
            text = "WATCH p: Person WHERE p.rank > $high [initial: none] RETURN p.key, p.rank"
            self._watches = [watch(text, high=HIGH)] * workload.people
        elif workload.pattern == "hop":
            text = "WATCH a: Person, b: Person, knows(a, b) WHERE a.rank > $high [initial: none] RETURN a.key, b.key"
            self._watches = [watch(text, high=HIGH)] * workload.people
        elif one_for_all:
            text = "WATCH p: Person WHERE p.room = $room [initial: none] RETURN p.key, p.rank"
            self._watches = [watch(text, room=1)] * workload.people
        else:
            text = "WATCH p: Person WHERE p.key = $key [initial: none] RETURN p.key, p.rank"
            self._watches = [watch(text, key=key) for key in range(workload.watches)]

    def _enter(self, workload: Workload) -> list[str]:
        execute, ids = self.session.execute, []
        execute("BEGIN")
        for key, rank in enumerate(workload.first_ranks()):
            ids.append(execute(SPAWN, key=key, rank=rank).rows[0][0])
        if workload.pattern == "hop":
            for key, id in enumerate(ids):
                execute("LINK knows(#$a, #$b)", a=id, b=ids[(key + 1) % len(ids)])
        execute("COMMIT")
        return ids

    def change(self, changes: Sequence[Change]) -> int:
        execute, ids, watches = self.session.execute, self._ids, self._watches
        if self._keyed:
            seen = 0
            for key, rank in changes:
                execute(_SET, id=ids[key], rank=rank)
                seen += len(watches[key].poll())
            return seen
        if self._together > 1:
            return self._change_together(changes)
        seen, watch = 0, watches[0]
        for number, (key, rank) in enumerate(changes):
            execute(_SET, id=ids[key], rank=rank)
            if number % _POLL_EVERY == 0:
                seen += len(watch.poll())
        return seen + len(watch.poll())

    def _change_together(self, changes: Sequence[Change]) -> int:
        execute, ids, watch = self.session.execute, self._ids, self._watches[0]
        seen = 0
        for start in range(0, len(changes), self._together):
            execute("BEGIN")
            for key, rank in changes[start : start + self._together]:
                execute(_SET, id=ids[key], rank=rank)
            execute("COMMIT")
            seen += len(watch.poll())
        return seen

    def close(self) -> None:
        self.db.close()
