"""Watches that outlive their session and process: what is stored of them, and how they resume.

Events are not stored, because they can be computed again from the log. Stored are the statement with its constants
and a cursor: the first commit that is not fully confirmed, the position before it, and the last confirmed position.
A reliable watch therefore costs one line in the store, however far it lags.

  watch.<id>    {"text", "constants", "actor", "name", "created_ms", "status", "altered", "filter"};
                empty: it ended
  cursor.<id>   {"sequence", "start", "confirmed", "snapshot", "told"} for its reader: `told` is the highest position
                that a window end used,
                {"fired", "done", "since", "at", "unacted"} for its trigger: of commit `fired`, `done` firings have
                run; the watch was evaluated `at` that time and `since` that time before; `unacted` firings were not
                run and cannot be replayed

Some events cannot be replayed: those caused by an earlier filter or policy, and those caused by time alone. A watch
that had not confirmed them restarts with a snapshot, so its reader never misses a change silently.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vedette.engine.context.prepared import MISSING
from vedette.engine.watch_service.catch_up import is_replayable
from vedette.errors import WatchError
from vedette.language.printer import print_expression
from vedette.storage.element_codec import decode_tagged, encode_tagged
from vedette.watch.buffer import BufferedEvent
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.context.request import StatementRequest
    from vedette.engine.watch_service.service import WatchService
    from vedette.engine.watch_service.triggers import TriggerFiring

__all__ = ["DurableWatches", "since_unavailable"]

_WATCH, _CURSOR = "watch.", "cursor."
_ALTERED = ("buffer", "on_full", "delivery")
"""Options that ALTER WATCH changes and that must survive a restart."""


class DurableWatches:
    """Stored definitions and positions of a database's watches. Call every method with the engine lock held."""

    def __init__(self, watching: WatchService) -> None:
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

    def store_new(self, watch: Watch, request: StatementRequest) -> None:
        """Store a new durable watch with the next flush."""
        details = watch.details
        if not details.first_sequence:
            details.first_sequence = self._database.state.sequence + 2
        details.cursor = {
            "sequence": details.first_sequence,
            "start": 0,
            "confirmed": 0,
            **self._no_actions(watch),
        }
        self._note(self._facts(watch, request), self._cursor(watch))

    def _no_actions(self, watch: Watch) -> dict[str, int]:
        """The cursor of a trigger that has not run yet."""
        details = watch.details
        return {"fired": details.first_sequence, "done": 0, "since": details.evaluated_ms or watch.created_ms}

    def make_reliable(self, watch: Watch) -> None:
        """Make the watch reliable from now on.

        Buffered events are kept, or replaced by a snapshot after a restart.
        """
        details = watch.details
        details.first_sequence = self._database.state.sequence + 2
        waiting = watch.buffer.peek() if watch.buffer is not None else []
        confirmed = waiting[0].position - 1 if waiting else watch.position
        details.cursor = {**(details.cursor or self._no_actions(watch)), "confirmed": confirmed}
        self.reset_position(watch)

    def store_definition(self, watch: Watch) -> None:
        """Store a changed name or changed options."""
        self._note(self._facts(watch, watch.details.request))

    def _facts(self, watch: Watch, request: StatementRequest) -> tuple[str, str]:
        facts = {
            "text": request.text,
            "constants": [_encode_constant(value) for value in watch.constants],
            "given": len(request.constants),
            "actor": watch.actor,
            "name": watch.details.name,
            "created_ms": watch.created_ms,
            "status": str(watch.status),
        }
        if watch.number in self._watching.consuming.dead_letter_destinations:
            facts["destination"] = self._watching.consuming.dead_letter_destinations[watch.number]
        if watch.details.has_altered_options:
            facts["altered"] = {name: getattr(watch.options, name) for name in _ALTERED}
        if watch.details.has_altered_filter and watch.options.filter is not None:
            facts["filter"] = print_expression(watch.options.filter)
        return self._key(_WATCH, watch), json.dumps(facts)

    def reset_position(self, watch: Watch) -> None:
        """Set the cursor after the present, because earlier events (of another filter, say) cannot be replayed."""
        self._begin_after_next_note(watch)
        self._note(self._facts(watch, watch.details.request), self._cursor(watch))

    def _begin_after_next_note(self, watch: Watch) -> None:
        details, position = watch.details, watch.position
        if details.window is not None and details.window.gathers:
            position += (
                1  # what the window has gathered comes under the next position, or is lost with the process
            )
        details.first_sequence = self._database.state.sequence + 2
        details.cursor = {**(details.cursor or {"confirmed": 0}), "sequence": details.first_sequence}
        details.cursor |= {"start": position, "snapshot": position}
        if unacted := self._watching.triggers.pending_count(watch):
            details.cursor["unacted"] = unacted

    def reset_after_policy_change(self) -> None:
        """Reset the cursors of actors' watches after a policy change, because earlier events cannot be replayed."""
        published = [
            watch
            for watch in self._watching.committed_index.watches.values()
            if watch.actor is not None and watch.has_details and watch.details.cursor is not None
            if watch.shape.columns and watch.options.mode == "watch"
        ]
        for watch in published:
            if watch.details.followed_sequence is not None:
                self._watching.catch_up.restart_from_snapshot(watch)
            self._begin_after_next_note(watch)
        if published:
            self._note(*map(self._cursor, published))

    def advance_idle_positions(self) -> None:
        """Before the log is trimmed: advance the cursors of watches that are fully caught up."""
        sequence, done = self._database.state.sequence, []
        for watch in self._watching.committed_index.watches.values():
            details = watch.details if watch.has_details and watch.options.mode == "watch" else None
            if details is None or details.cursor is None or not self._is_caught_up(watch):
                continue
            details.cursor |= {"sequence": sequence + 1, "start": watch.position, "confirmed": watch.position}
            details.cursor |= {"fired": sequence + 1, "done": 0, "since": details.evaluated_ms}
            details.cursor.pop("at", None)
            done.append(self._cursor(watch))
        if done:
            self._note(*done)

    def _is_caught_up(self, watch: Watch) -> bool:
        details = watch.details
        waits = watch.buffered_count or details.unconfirmed or details.followed_sequence is not None
        held = details.window is not None and details.window.holds
        return not waits and not held and not self._watching.triggers.pending_count(watch)

    def forget(self, watch: Watch) -> None:
        if watch.details.cursor is not None:
            watch.details.cursor = None
            self._note((self._key(_WATCH, watch), ""))

    def confirm(self, watch: Watch, position: int) -> None:
        """Confirm this event and all events delivered before it."""
        details = watch.details
        kept = details.unconfirmed
        count = next((n for n, entry in enumerate(kept, 1) if entry.position == position), 0)
        if not count:
            return
        done = [*kept[:count], *([details.last_confirmed] if details.last_confirmed is not None else [])]
        details.last_confirmed = max(done, key=_position)
        del kept[:count]
        if details.cursor is not None:
            details.cursor = self._position_after(watch, details.last_confirmed, details.cursor)
            self._note(self._cursor(watch))

    def _position_after(self, watch: Watch, entry: BufferedEvent, cursor: dict[str, int]) -> dict[str, int]:
        """The cursor once everything up to this event is confirmed, except for what the ordering still holds back."""
        gathered = entry.delta.window is not None and entry.sequence >= cursor["sequence"]
        if entry.position <= cursor.get("snapshot", 0) and not gathered:
            return {**cursor, "confirmed": max(entry.position, cursor["confirmed"])}
        waiting = watch.buffer.peek() if watch.shape.order and watch.buffer is not None else []
        earlier = [e for e in (*watch.details.unconfirmed, *waiting) if e.position < entry.position]
        if earlier:
            first = min(earlier, key=_position)
            position = {
                "sequence": first.sequence,
                "start": first.commit_start_position,
                "confirmed": first.position - 1,
            }
            return {**cursor, **position}
        sequence, start = entry.sequence, entry.commit_start_position
        if entry.delta.window is not None:
            sequence, start = entry.sequence + 1, entry.position
        elif entry.delta.type == "initial":
            sequence, start = watch.details.first_sequence, entry.position
        return {**cursor, "sequence": sequence, "start": start, "confirmed": entry.position}

    def reserve_window_positions(self, watch: Watch, events: int) -> int:
        """Reserve positions for the events of a window end, so that no other event ever uses them.

        Returns the sequence that must be durable before the events are delivered.
        """
        details = watch.details
        details.cursor = {**(details.cursor or {}), "told": watch.position + events}
        self._note(self._cursor(watch))
        return self._database.state.sequence

    def trigger_notes(self, firing: TriggerFiring) -> tuple[tuple[str, str], ...]:
        """The notes to store with a trigger's transaction: it and all earlier firings have run."""
        details = firing.watch.details
        if details.cursor is None:
            return ()
        details.cursor |= {
            "fired": firing.sequence,
            "done": firing.ordinal,
            "since": firing.previous_evaluated_ms,
            "at": firing.evaluated_ms,
        }
        if "unacted" in details.cursor:
            details.cursor["unacted"] = self._watching.triggers.pending_count(firing.watch)
        if firing.watch.options.delivery != "reliable":  # only reliable readers confirm events
            details.cursor["sequence"] = firing.sequence
        return (self._cursor(firing.watch),)

    def store_skipped_trigger(self, firing: TriggerFiring) -> None:
        """Store that a failed trigger firing is skipped. It is not retried."""
        for item in self.trigger_notes(firing):
            self._note(item)

    def _cursor(self, watch: Watch) -> tuple[str, str]:
        return self._key(_CURSOR, watch), json.dumps(watch.details.cursor)

    def _key(self, kind: str, watch: Watch) -> str:
        return f"{kind}{self._watching.id_of(watch)}"

    def _note(self, *facts: tuple[str, str]) -> None:
        database = self._database
        if database.read_only is None:
            commit = database.state.next_note_commit(database.clock.now(), facts)
            database.log_writer.append(commit.sequence, commit)

    # --- restoring --------------------------------------------------------------------------------------------

    def restore(self, meta: dict[str, str]) -> None:
        """Restore every durable watch of the store."""
        for key, value in meta.items():
            if key.startswith(_WATCH) and value:
                id = key.removeprefix(_WATCH)
                cursor = json.loads(meta.get(f"{_CURSOR}{id}", "null"))
                watch = self._restore(id, json.loads(value), cursor)
                if watch is not None:
                    self._watching.layer0_changes.watch_added(watch)

    def _restore(self, id: str, facts: dict[str, Any], cursor: dict[str, int] | None) -> Watch | None:
        constants = tuple(_decode_constant(value) for value in facts["constants"])
        watch = self._watching.creation.restore_watch(facts, constants)
        if watch is None:
            return None
        self._ids[watch.number], self._numbers[id] = id, watch.number
        cursor = cursor or {"sequence": 0, "start": 0, "confirmed": 0}
        cursor = {"fired": cursor["sequence"], "done": 0, "since": watch.created_ms, **cursor}
        watch.details.cursor, watch.details.first_sequence = cursor, cursor["sequence"]
        if watch.options.mode == "watch":
            watch.details.followed_sequence, watch.details.is_unindexed = cursor["sequence"] - 1, True
        if watch.shape.time_dependent and watch.details.actions is not None:
            self._watching.catch_up.replay_triggers(watch, cursor)
        self._report_lost_firings(watch, cursor.pop("unacted", 0))
        missing = max(0, cursor.get("snapshot", 0) - cursor["confirmed"])
        if watch.options.mode == "consume":
            watch.position = max(1, cursor["start"])  # `initial` is not delivered twice
            self._watching.consuming.add_consumer(watch)
        elif watch.status is WatchStatus.CANCELLED:
            return watch
        elif missing or not self._is_replayable(watch, cursor):
            self._restart_with_snapshot(watch, cursor["confirmed"], missing)
        else:
            watch.position = cursor["start"]
            self._catch_up_beyond(watch, cursor["confirmed"])
            watch.position = max(watch.position, cursor.get("told", 0))
        self._watching.management.schedule_expiry(watch)
        return watch

    def _report_lost_firings(self, watch: Watch, matches: int) -> None:
        """Report firings that waited for RESUME when the filter or a policy changed: they can no longer be
        computed.
        """
        if matches:
            fields = {
                "handle": self._watching.id_of(watch),
                "buffer_size": watch.options.buffer,
                "dropped": matches,
            }
            text = "The filter or a policy changed while matches waited for RESUME; the trigger does not run for them"
            watch.details.add_error(WatchError("E8005", text, fields=fields))
            self._note(self._cursor(watch))

    def _catch_up_beyond(self, watch: Watch, confirmed: int) -> None:
        """Catch up until there is an unconfirmed event or nothing more to replay."""
        while watch.details.followed_sequence is not None and not watch.buffered_count:
            self._watching.catch_up.catch_up(watch, watch.details.followed_sequence)
            if watch.buffer is not None:
                watch.buffer.discard_until(confirmed)
            if watch.status is WatchStatus.CANCELLED:
                return

    def _is_replayable(self, watch: Watch, cursor: dict[str, int]) -> bool:
        """True if the log determines all missed events under the current policies."""
        saw_other_policies = (
            watch.actor is not None
            and bool(watch.shape.columns)
            and cursor["sequence"] <= self._database.last_policy_change.sequence
        )
        return is_replayable(watch) and not saw_other_policies

    def _restart_with_snapshot(self, watch: Watch, confirmed: int, missing: int) -> None:
        """Send a snapshot, because the missed events cannot be computed again."""
        state = self._database.state
        position = watch.position = confirmed + missing
        self._watching.catch_up.push_snapshot(watch)
        if watch.buffer is not None:
            watch.buffer.add_unreported_drops(missing)
        watch.details.first_sequence = state.sequence + 1
        assert watch.details.cursor is not None
        watch.details.cursor |= {"sequence": state.sequence + 1, "start": position, "confirmed": position}
        self._watching.catch_up.rejoin_index(watch)


def _position(entry: BufferedEvent) -> int:
    return entry.position


def _encode_constant(value: Any) -> Any:
    return {"$missing": True} if value is MISSING else encode_tagged(value)


def _decode_constant(value: Any) -> Any:
    return MISSING if value == {"$missing": True} else decode_tagged(value)


def since_unavailable(tick: int, why: str = "older than the log reaches back") -> WatchError:
    text = f"Invalid watch option 'initial': since({tick}) is {why}; use full"
    return WatchError("E8009", text, fields={"option": "initial", "tick": tick})
