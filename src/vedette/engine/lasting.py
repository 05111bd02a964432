"""Watches that outlive their session and the process: what is stored of them, and how they catch up.

Events are not stored: they can be worked out again from the journal, commit by commit. What is stored is the statement
with its constants, and a cursor: the first commit that is not wholly confirmed, the position before it, and the last
position that is. So a reliable watch costs a line in the store, however much it has to catch up on.

    watch.<id>    {"text", "constants", "actor", "name", "created_ms", "status", "altered", "filter"}; empty: it ended
    cursor.<id>   {"sequence", "start", "confirmed", "snapshot"}; for triggers {"sequence", "done"}

Some events cannot be worked out again: what another filter brought, and what only the time did. A watch that had not
confirmed those begins with a fresh snapshot when it comes back. So there is never a hole that nobody speaks of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vedette.element import View
from vedette.engine.codec import tagged, untagged
from vedette.engine.history import Trimmed, replay
from vedette.engine.prepare import MISSING
from vedette.engine.state import Commit
from vedette.errors import WatchError
from vedette.graph.overlay import Overlay
from vedette.language.printer import print_expression
from vedette.values import timestamp_to_ms
from vedette.watch.buffer import Entry
from vedette.watch.evaluation import Scene
from vedette.watch.hub import Told
from vedette.watch.keys import KeyIndex
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.request import Request
    from vedette.engine.watching import Watching

__all__ = ["LastingWatches", "refuse_since"]

_WATCH, _CURSOR = "watch.", "cursor."
_ALTERED = ("buffer", "on_full", "delivery")
"""Options that ALTER WATCH changes and a restart must not change back."""


class LastingWatches:
    """The stored side of a database's watches. Called with the turn held."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._database = watching.database
        self._ids: dict[int, str] = {}
        """Ids of watches that an earlier process created."""
        self._numbers: dict[str, int] = {}

    # --- names ------------------------------------------------------------------------------------------------

    def id_of(self, watch: Watch) -> str | None:
        return self._ids.get(watch.number)

    def number_of(self, id: str) -> int | None:
        return self._numbers.get(id)

    # --- storing ----------------------------------------------------------------------------------------------

    def remember(self, watch: Watch, request: Request) -> None:
        """A new lasting watch, or one that lasts from now on: its statement goes to the store with the next flush."""
        details = watch.details
        details.base = self._database.state.sequence + 2
        known = watch.position if details.altered else 0
        details.cursor = {"sequence": details.base, "start": known, "confirmed": known, "done": 0}
        self._note(self._facts(watch, request), self._cursor(watch))

    def revise(self, watch: Watch) -> None:
        """Its name or its options are others now."""
        self._note(self._facts(watch, watch.details.request))

    def _facts(self, watch: Watch, request: Request) -> tuple[str, str]:
        facts = {
            "text": request.text,
            "constants": [_stored(value) for value in watch.constants],
            "given": len(request.constants),
            "actor": watch.actor,
            "name": watch.details.name,
            "created_ms": watch.created_ms,
            "status": str(watch.status),
        }
        if watch.details.altered:
            facts["altered"] = {name: getattr(watch.options, name) for name in _ALTERED}
        if watch.details.refiltered and watch.options.filter is not None:
            facts["filter"] = print_expression(watch.options.filter)
        return self._key(_WATCH, watch), json.dumps(facts)

    def rebase(self, watch: Watch) -> None:
        """Another filter: what it brought cannot be worked out again, what comes after it can."""
        details, position = watch.details, watch.position
        details.base = self._database.state.sequence + 2
        confirmed = details.cursor["confirmed"] if details.cursor is not None else 0
        facts = {"sequence": details.base, "start": position, "confirmed": confirmed, "done": 0}
        details.cursor = {**facts, "snapshot": position}
        self._note(self._facts(watch, details.request), self._cursor(watch))

    def forget(self, watch: Watch) -> None:
        if watch.details.cursor is not None:
            watch.details.cursor = None
            self._note((self._key(_WATCH, watch), ""))

    def confirm(self, watch: Watch, position: int) -> None:
        """The owner has this event and all that were handed out before it."""
        details = watch.details
        kept = details.unconfirmed
        count = next((n for n, entry in enumerate(kept, 1) if entry.position == position), 0)
        if not count:
            return
        done = [*kept[:count], *([details.highest] if details.highest is not None else [])]
        details.highest = max(done, key=_position)
        del kept[:count]
        if details.cursor is not None:
            details.cursor = self._place_after(watch, details.highest, details.cursor)
            self._note(self._cursor(watch))

    def _place_after(self, watch: Watch, entry: Entry, cursor: dict[str, int]) -> dict[str, int]:
        """Where to go on when everything up to this entry is there, apart from what ordering still holds back."""
        if entry.position <= cursor.get("snapshot", 0):
            return {**cursor, "confirmed": max(entry.position, cursor["confirmed"])}
        waiting = watch.buffer.peek() if watch.shape.order and watch.buffer is not None else []
        earlier = [e for e in (*watch.details.unconfirmed, *waiting) if e.position < entry.position]
        if earlier:
            first = min(earlier, key=_position)
            return {
                "sequence": first.sequence,
                "start": first.start,
                "confirmed": first.position - 1,
                "done": 0,
            }
        sequence, start = entry.sequence, entry.start
        if entry.delta.window is not None:
            sequence, start = entry.sequence + 1, entry.position
        elif entry.delta.type == "initial":
            sequence, start = watch.details.base, entry.position
        return {"sequence": sequence, "start": start, "confirmed": entry.position, "done": 0}

    def trigger_cursor(self, watch: Watch, sequence: int, done: int) -> tuple[tuple[str, str], ...]:
        """What to store with the transaction of a trigger: it and everything before it are carried out."""
        if watch.details.cursor is None:
            return ()
        watch.details.cursor = {**watch.details.cursor, "sequence": sequence, "done": done}
        return (self._cursor(watch),)

    def skip_trigger(self, watch: Watch, sequence: int, done: int) -> None:
        """A trigger that failed is not tried again."""
        for item in self.trigger_cursor(watch, sequence, done):
            self._note(item)

    def _cursor(self, watch: Watch) -> tuple[str, str]:
        return self._key(_CURSOR, watch), json.dumps(watch.details.cursor)

    def _key(self, kind: str, watch: Watch) -> str:
        return f"{kind}{self._watching.id_of(watch)}"

    def _note(self, *facts: tuple[str, str]) -> None:
        database = self._database
        if database.read_only is None:
            commit = database.state.note(database.clock.now(), facts)
            database.gate.submit(commit.sequence, commit)

    # --- coming back ------------------------------------------------------------------------------------------

    def restore(self, meta: dict[str, str]) -> None:
        """Take up every lasting watch that the store knows."""
        for key, value in meta.items():
            if key.startswith(_WATCH) and value:
                id = key.removeprefix(_WATCH)
                cursor = json.loads(meta.get(f"{_CURSOR}{id}", "null"))
                self._restore(id, json.loads(value), cursor)
        self._watching.layer_news()

    def _restore(self, id: str, facts: dict[str, Any], cursor: dict[str, int] | None) -> None:
        constants = tuple(_live(value) for value in facts["constants"])
        watch = self._watching.creation.revive(facts, constants)
        if watch is None:
            return
        self._ids[watch.number], self._numbers[id] = id, watch.number
        cursor = cursor or {"sequence": 0, "start": 0, "confirmed": 0, "done": 0}
        watch.details.cursor, watch.details.base = cursor, cursor["sequence"]
        missing = max(0, cursor.get("snapshot", 0) - cursor["confirmed"])
        if watch.shape.time_dependent or watch.shape.layered or missing:
            self._begin_anew(watch, cursor["confirmed"], missing)
        else:
            watch.position = cursor["start"]
            self.catch_up(watch, cursor["sequence"] - 1)
            if watch.buffer is not None:
                watch.buffer.forget_until(cursor["confirmed"])
        self._watching.management.schedule_expiry(watch)

    def _begin_anew(self, watch: Watch, confirmed: int, missing: int) -> None:
        """What it has not had cannot be worked out again: a snapshot of the present has all of it.

        A trigger, which has no snapshot, goes on from the time of the last commit: what fell due since then fires it.
        """
        state = self._database.state
        position = watch.position = confirmed + missing
        then = self._database.history.last_time()
        past = (lambda: then) if watch.details.actions is not None and then is not None else None
        self._watching.creation.start(watch, state.graph, anew=True, now=past)
        if watch.buffer is not None:
            watch.buffer.tell_gap(missing)
        watch.details.base = state.sequence + 1
        watch.details.cursor = {
            "sequence": state.sequence + 1,
            "start": position,
            "confirmed": position,
            "done": 0,
        }
        self._watching.hub_of(watch).add(watch)

    # --- catching up ------------------------------------------------------------------------------------------

    def catch_up(self, watch: Watch, sequence: int) -> None:
        """Tell the watch every commit after `sequence`. It stands in the index again when it has caught up."""
        try:
            commits = self._database.history.after(sequence)
        except Trimmed:
            self._watching.lost_track(watch)
            return
        state = self._database.state
        started = False

        def tell(commit: Commit, before: Overlay, after: Overlay) -> None:
            nonlocal started
            if watch.details.behind is not None:
                return
            if not started:
                self._watching.creation.start(watch, before, commit.tick, now=lambda: commit.time)
                started = True
            self._tell(watch, commit, before, after)

        watch.details.behind = None
        with self._alone(watch):
            replay(state, commits, tell)
        if not started:
            self._watching.creation.start(watch, state.graph)
        if watch.details.behind is None:
            self._watching.hub_of(watch).add(watch)

    def _tell(self, watch: Watch, commit: Commit, before: View, after: View) -> None:
        watching = self._watching
        scene = Scene(before, after, now=lambda: commit.time, tick=commit.tick, sight=watching.put_sight)
        told = Told(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        watching.hub.tell([watch.shape], commit.changes, scene, told)
        watching.settle(told, 0)
        if watch.options.delivery == "reliable" and watch.pending >= watch.options.buffer:
            watch.details.behind = commit.sequence

    @contextmanager
    def _alone(self, watch: Watch) -> Iterator[None]:
        """For a while the shape has only this watch."""
        shape = watch.shape
        shared, shape.index = shape.index, KeyIndex(shape.range[1] if shape.range is not None else None)
        shape.index.add(shape.key_of(watch.constants), shape.range_constant(watch.constants), watch)
        try:
            yield
        finally:
            shape.index = shared


def _position(entry: Entry) -> int:
    return entry.position


def _stored(value: Any) -> Any:
    return {"$missing": True} if value is MISSING else tagged(value)


def _live(value: Any) -> Any:
    return MISSING if value == {"$missing": True} else untagged(value)


def refuse_since(tick: int) -> WatchError:
    text = f"Invalid watch option 'initial': since({tick}) is older than the log reaches back; use full"
    return WatchError("E8009", text, fields={"option": "initial", "tick": tick})
