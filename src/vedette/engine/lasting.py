"""Watches that outlive their session and the process: what is stored of them, and how they catch up.

Events are not stored: they can be worked out again from the journal, commit by commit. What is stored is the statement
with its constants, and a cursor: the first commit that is not wholly confirmed, the position before it, and the last
position that is. So a reliable watch costs a line in the store, however much it has to catch up on.

    watch.<id>    {"text", "constants", "actor", "name", "created_ms", "status", "altered", "filter"}; empty: it ended
    cursor.<id>   {"sequence", "start", "confirmed", "snapshot"} for its reader,
                  {"fired", "done", "since", "at"} for its actions: of the commit `fired` so many are carried out; it
                  was evaluated `at` that time, and `since` that time before

Some events cannot be worked out again: what another filter or another policy brought, and what only the time did. A
watch that had not confirmed those begins with a fresh snapshot when it comes back. So there is never a hole that nobody
speaks of.
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
from vedette.values import timestamp_from_ms, timestamp_to_ms
from vedette.watch.buffer import Entry
from vedette.watch.delta import Delta
from vedette.watch.evaluation import Scene
from vedette.watch.hub import Told
from vedette.watch.keys import KeyIndex
from vedette.watch.subscription import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.request import Request
    from vedette.engine.triggers import Firing
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
        if details.altered or not details.base:
            details.base = self._database.state.sequence + 2
        known = watch.position if details.altered else 0
        details.cursor = {"sequence": details.base, "start": known, "confirmed": known}
        details.cursor |= {
            "fired": details.base,
            "done": 0,
            "since": details.evaluated_ms or watch.created_ms,
        }
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
        if watch.number in self._watching.consuming.destinations:
            facts["destination"] = self._watching.consuming.destinations[watch.number]
        if watch.details.altered:
            facts["altered"] = {name: getattr(watch.options, name) for name in _ALTERED}
        if watch.details.refiltered and watch.options.filter is not None:
            facts["filter"] = print_expression(watch.options.filter)
        return self._key(_WATCH, watch), json.dumps(facts)

    def rebase(self, watch: Watch) -> None:
        """Another filter: what it brought cannot be worked out again, what comes after it can."""
        self._begin_after_next_note(watch)
        self._note(self._facts(watch, watch.details.request), self._cursor(watch))

    def _begin_after_next_note(self, watch: Watch) -> None:
        details, position = watch.details, watch.position
        details.base = self._database.state.sequence + 2
        details.cursor = {**(details.cursor or {"confirmed": 0}), "sequence": details.base}
        details.cursor |= {"start": position, "snapshot": position}

    def rights_changed(self) -> None:
        """A policy was declared: what actors were told under the former ones cannot be worked out again."""
        told = [
            watch
            for watch in self._watching.hub.watches.values()
            if watch.actor is not None and watch.has_details and watch.details.cursor is not None
            if watch.shape.columns and watch.options.mode == "watch"
        ]
        for watch in told:
            if watch.details.behind is not None:
                self.skip_ahead(watch)
            self._begin_after_next_note(watch)
        if told:
            self._note(*map(self._cursor, told))

    def skip_ahead(self, watch: Watch) -> None:
        """What it was not told yet cannot be worked out any more: a snapshot of the present has all of it."""
        missing = 0
        if watch.options.visibility == "immediate":
            self._watching.see_drafts()
        if watch.options.delivery != "reliable" and watch.buffer is not None:
            missing = watch.pending
            watch.buffer.clear()
        self._watching.creation.start(watch, self._database.state.graph, anew=True)
        if watch.buffer is not None:
            watch.buffer.tell_gap(missing)
        self._stand(watch)

    def advance(self) -> None:
        """Before the log is trimmed: whoever has had everything needs nothing of what is in it."""
        sequence, done = self._database.state.sequence, []
        for watch in self._watching.hub.watches.values():
            details = watch.details if watch.has_details and watch.options.mode == "watch" else None
            if details is None or details.cursor is None or not self._has_all(watch):
                continue
            details.cursor |= {"sequence": sequence + 1, "start": watch.position, "confirmed": watch.position}
            details.cursor |= {"fired": sequence + 1, "done": 0, "since": details.evaluated_ms}
            details.cursor.pop("at", None)
            done.append(self._cursor(watch))
        if done:
            self._note(*done)

    def _has_all(self, watch: Watch) -> bool:
        details = watch.details
        waits = watch.pending or details.unconfirmed or details.behind is not None
        held = details.window is not None and details.window.holds
        return not waits and not held and not self._watching.triggers.waits_for(watch)

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
            place = {"sequence": first.sequence, "start": first.start, "confirmed": first.position - 1}
            return {**cursor, **place}
        sequence, start = entry.sequence, entry.start
        if entry.delta.window is not None:
            sequence, start = entry.sequence + 1, entry.position
        elif entry.delta.type == "initial":
            sequence, start = watch.details.base, entry.position
        return {**cursor, "sequence": sequence, "start": start, "confirmed": entry.position}

    def trigger_cursor(self, firing: Firing) -> tuple[tuple[str, str], ...]:
        """What to store with the transaction of a trigger: it and everything before it are carried out."""
        details = firing.watch.details
        if details.cursor is None:
            return ()
        details.cursor |= {
            "fired": firing.sequence,
            "done": firing.done,
            "since": firing.since,
            "at": firing.at,
        }
        if firing.watch.options.delivery != "reliable":  # nobody confirms what its reader had
            details.cursor["sequence"] = firing.sequence
        return (self._cursor(firing.watch),)

    def skip_trigger(self, firing: Firing) -> None:
        """A trigger that failed is not tried again."""
        for item in self.trigger_cursor(firing):
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
        cursor = cursor or {"sequence": 0, "start": 0, "confirmed": 0}
        cursor = {"fired": cursor["sequence"], "done": 0, "since": watch.created_ms, **cursor}
        watch.details.cursor, watch.details.base = cursor, cursor["sequence"]
        watch.details.behind, watch.details.away = cursor["sequence"] - 1, True
        if watch.shape.time_dependent and watch.details.actions is not None:
            self._act_late(watch, cursor)
        missing = max(0, cursor.get("snapshot", 0) - cursor["confirmed"])
        if watch.options.mode == "consume":
            watch.position = max(1, cursor["start"])  # `initial` is not told twice
            self._watching.consuming.enter(watch)
        elif watch.status is WatchStatus.CANCELLED:
            return
        elif missing or not self._can_be_repeated(watch, cursor):
            self._begin_anew(watch, cursor["confirmed"], missing)
        else:
            watch.position = cursor["start"]
            self._catch_up_beyond(watch, cursor["confirmed"])
        self._watching.management.schedule_expiry(watch)

    def _catch_up_beyond(self, watch: Watch, confirmed: int) -> None:
        """Until there is something that its owner has not had, or nothing more."""
        while watch.details.behind is not None and not watch.pending:
            self.catch_up(watch, watch.details.behind)
            if watch.buffer is not None:
                watch.buffer.forget_until(confirmed)
            if watch.status is WatchStatus.CANCELLED:
                return

    def _can_be_repeated(self, watch: Watch, cursor: dict[str, int]) -> bool:
        """Whether the log says all that the watch was told: not drafts, nor what only the time or a policy did."""
        told_under_others = (
            watch.actor is not None
            and bool(watch.shape.columns)
            and cursor["sequence"] <= self._database.rights.sequence
        )
        beyond = watch.shape.time_dependent or watch.shape.layered or watch.options.visibility == "immediate"
        return not beyond and not told_under_others

    def _begin_anew(self, watch: Watch, confirmed: int, missing: int) -> None:
        """What it has not had cannot be worked out again: a snapshot of the present has all of it.

        Actions go on from the time of the last evaluation: what fell due since then sets them off.
        """
        state, evaluated = self._database.state, watch.details.evaluated_ms
        position = watch.position = confirmed + missing
        then = timestamp_from_ms(evaluated) if evaluated and watch.details.actions is not None else None
        past = (lambda: then) if then is not None else None
        self._watching.creation.start(watch, state.graph, anew=True, now=past)
        if watch.buffer is not None:
            watch.buffer.tell_gap(missing)
        watch.details.base = state.sequence + 1
        assert watch.details.cursor is not None
        watch.details.cursor |= {"sequence": state.sequence + 1, "start": position, "confirmed": position}
        self._stand(watch)

    def _stand(self, watch: Watch) -> None:
        """It has caught up: from now on it is told like any other."""
        watch.details.behind = None
        if watch.details.away:
            watch.details.away = False
            self._watching.hub_of(watch).add(watch)

    def _act_late(self, watch: Watch, cursor: dict[str, int]) -> None:
        """Actions of a watch that looks at the time: whatever set them off after the last one that was carried out.

        Each commit is evaluated as of its own time. Ticks are not in the log: what one of them brought about is found
        at the next commit, or at the next evaluation there is.
        """
        state, fired = self._database.state, cursor["fired"]
        try:
            commits = self._database.history.after(fired - 1)
        except Trimmed:
            self._watching.lost_track(watch)
            return
        if "at" in cursor:
            acted = Commit(fired, state.tick, state.tick, timestamp_from_ms(cursor["at"]))
            if not commits or commits[0].sequence != fired:
                commits.insert(0, acted)
            else:
                commits[0] = commits[0]._replace(time=acted.time)
        since = timestamp_from_ms(cursor["since"])
        resumed = False

        def resume(view: View) -> None:
            nonlocal resumed
            resumed = True
            self._watching.creation.start_counting(
                watch, self._watching.own_context(watch, view, lambda: since)
            )

        def tell(commit: Commit, before: Overlay, after: Overlay) -> None:
            if not resumed:
                resume(before)
            latest = max(commit.time, timestamp_from_ms(watch.details.evaluated_ms))
            self._tell(watch, commit._replace(time=latest), before, after, _Actions)

        with self._alone(watch):
            replay(state, commits, tell)
            if not resumed:
                resume(state.graph)

    # --- catching up ------------------------------------------------------------------------------------------

    def catch_up(self, watch: Watch, sequence: int) -> None:
        """Tell the watch every commit after `sequence`. It stands in the index again when it has caught up."""
        state, details, started = self._database.state, watch.details, False
        immediate = watch.options.visibility == "immediate"
        if immediate and details.behind is not None:  # drafts are in no log
            self.skip_ahead(watch)
            return
        details.behind, details.away = (
            sequence,
            details.away or watch.number not in self._watching.hub.watches,
        )
        self._watching.hub.watches[watch.number] = watch
        try:
            commits = self._database.history.after(sequence)
        except Trimmed:
            self._watching.lost_track(watch)
            return

        def tell(commit: Commit, before: Overlay, after: Overlay) -> None:
            nonlocal started
            if _is_full(watch) or watch.status is WatchStatus.CANCELLED:
                return
            if not started:
                self._watching.creation.start(watch, before, commit.tick, now=lambda: commit.time)
                started = True
            self._tell(watch, commit, before, after)
            details.behind = commit.sequence

        with self._alone(watch):
            replay(state, commits, tell)
        if watch.status is WatchStatus.CANCELLED:
            return
        if not started:
            self._watching.creation.start(watch, Overlay(state.graph, state.layout))
        if immediate:
            self._show_drafts(watch)
        if not _is_full(watch):
            self._stand(watch)

    def _show_drafts(self, watch: Watch) -> None:
        """Behind the past comes the present: what open transactions have written."""
        state, draft, now = self._database.state, self._watching.draft, self._database.clock.now
        scene = Scene(
            lambda: state.graph, draft.view, now=now, tick=state.tick, sight=self._watching.put_sight
        )
        told = Told(state.tick, self._database.gate.durable_tick, timestamp_to_ms(now()))
        told.repeated = True
        with self._alone(watch):
            self._watching.immediate.tell([watch.shape], draft.differences(), scene, told)
            self._watching.settle(told, 0)

    def _tell(self, watch: Watch, commit: Commit, before: View, after: View, kind: type[Told] = Told) -> None:
        watching = self._watching
        scene = Scene(
            lambda: before, after, now=lambda: commit.time, tick=commit.tick, sight=watching.put_sight
        )
        told = kind(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        told.repeated = True
        watching.hub.tell([watch.shape], commit.changes, scene, told)
        watching.settle(told, 0)

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


class _Actions(Told):
    """Sets off actions and tells nobody."""

    def deliver(self, watch: Watch, delta: Delta) -> None:
        pass


def _is_full(watch: Watch) -> bool:
    return watch.options.delivery == "reliable" and watch.pending >= watch.options.buffer


def _position(entry: Entry) -> int:
    return entry.position


def _stored(value: Any) -> Any:
    return {"$missing": True} if value is MISSING else tagged(value)


def _live(value: Any) -> Any:
    return MISSING if value == {"$missing": True} else untagged(value)


def refuse_since(tick: int, why: str = "older than the log reaches back") -> WatchError:
    text = f"Invalid watch option 'initial': since({tick}) is {why}; use full"
    return WatchError("E8009", text, fields={"option": "initial", "tick": tick})
