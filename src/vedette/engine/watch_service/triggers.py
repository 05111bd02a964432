"""ON MATCH DO: runs the actions of a trigger for every new match, each in its own transaction."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.engine.statements import execution
from vedette.engine.watch_service.rights import actor_deleted_error
from vedette.errors import StoreError, VedetteError, WatchError
from vedette.graph.actions import ActionWriter
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.policy.actor_view import ActorView
from vedette.policy.guard import PolicyGuard
from vedette.watch.evaluation.effects import CommitEffects
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.commit.lock import LockScope
    from vedette.engine.watch_service.service import WatchService

__all__ = ["MAX_TRIGGER_CHAIN", "TriggerFiring", "TriggerQueue"]

MAX_TRIGGER_CHAIN = 100
"""Maximum length of a chain of commits in which each one was made by a trigger on the one before."""

log = logging.getLogger(__name__)


class TriggerFiring(NamedTuple):
    """A match for which a trigger must run."""

    watch: Watch
    row: Row
    depth: int
    sequence: int
    ordinal: int
    """The ordinal of the match among the matches of this commit for the watch, from 1."""
    evaluated_ms: int
    """When the watch was evaluated and found the match, in milliseconds."""
    previous_evaluated_ms: int
    """When it was evaluated before that."""


class TriggerQueue:
    """Firings that wait to run."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self._waiting: deque[TriggerFiring] = deque()
        self._paused: dict[int, deque[TriggerFiring]] = {}
        """Firings of paused watches, by watch number; they run after RESUME."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def pending_count(self, watch: Watch) -> int:
        """The number of firings of this watch that have not run yet."""
        held = len(self._paused.get(watch.number, ()))
        return held + sum(firing.watch is watch for firing in self._waiting)

    def resume(self, watch: Watch) -> None:
        """Run the firings queued while the watch was paused, before all others."""
        self._waiting.extendleft(reversed(self._paused.pop(watch.number, ())))

    def forget(self, watch: Watch) -> None:
        self._paused.pop(watch.number, None)

    def add(self, effects: CommitEffects, depth: int) -> None:
        """Queue the firings in a fixed order, so that after a crash it is known which of a commit's firings have
        run.
        """
        by_watch: dict[int, list[tuple[Watch, Row]]] = {}
        for watch, row in effects.triggers:
            by_watch.setdefault(watch.number, []).append((watch, row))
        for pairs in by_watch.values():
            pairs.sort(key=lambda pair: pair[0].shape.identity(pair[1]))
            since = pairs[0][0].details.previously_evaluated_at_ms or effects.evaluated_at_ms
            for done, (watch, row) in enumerate(pairs, 1):
                firing = TriggerFiring(
                    watch, row, depth + 1, effects.sequence, done, effects.evaluated_at_ms, since
                )
                if not (effects.is_replay and self._is_done_or_queued(firing)):
                    self._waiting.append(firing)

    def _is_done_or_queued(self, firing: TriggerFiring) -> bool:
        """True if the firing has run or is queued."""
        cursor, position = firing.watch.details.cursor or {}, (firing.sequence, firing.ordinal)
        acted = position <= (cursor.get("fired", 0), cursor.get("done", 0))
        return acted or any(
            w.watch is firing.watch and (w.sequence, w.ordinal) == position for w in self._waiting
        )

    def run_pending(self, lock_scope: LockScope) -> None:
        """Run all queued firings, including those they cause."""
        while self._waiting:
            try:
                firing = self._waiting.popleft()
            except IndexError:
                return
            if firing.watch.status is WatchStatus.ACTIVE:
                self._run_one(firing, lock_scope)
            elif firing.watch.status is WatchStatus.PAUSED:
                with lock_scope:
                    self._queue_while_paused(firing)

    def _queue_while_paused(self, firing: TriggerFiring) -> None:
        """Queue a firing of a paused watch: up to `buffer` firings; a reliable watch queues all."""
        watch = firing.watch
        held = self._paused.setdefault(watch.number, deque())
        held.append(firing)
        if watch.options.delivery != "reliable" and len(held) > watch.options.buffer:
            self._watching.durable_watches.store_skipped_trigger(held.popleft())
            fields = {
                "handle": self._watching.id_of(watch),
                "buffer_size": watch.options.buffer,
                "dropped": 1,
            }
            text = "Buffer full while paused: the trigger does not run for the oldest match"
            watch.details.add_error(WatchError("E8005", text, fields=fields))

    def _run_one(self, firing: TriggerFiring, lock_scope: LockScope) -> None:
        watch = firing.watch
        try:
            self._watching.database.admit_write()
            with lock_scope:
                self._act(firing)
        except StoreError:
            raise
        except VedetteError as error:
            watch.details.add_error(error)
            id = self._watching.id_of(watch)
            log.warning(
                "The trigger of watch %s failed: %s",
                id,
                error,
                extra={
                    "action": "trigger.failed",
                    "tenant": self._watching.database.name,
                    "watch": id,
                    "code": error.code,
                },
            )
            with lock_scope:
                self._watching.durable_watches.store_skipped_trigger(firing)

    def _chain_too_long(self, watch: Watch) -> WatchError:
        text = (
            f"Triggers caused more than {MAX_TRIGGER_CHAIN} consecutive commits: give the watch a WHERE that is"
            " false for what its own action creates"
        )
        fields = {"option": "ON MATCH DO", "handle": self._watching.id_of(watch), "limit": MAX_TRIGGER_CHAIN}
        return WatchError("E8009", text, fields=fields)

    def _act(self, firing: TriggerFiring) -> None:
        if firing.depth > MAX_TRIGGER_CHAIN:
            raise self._chain_too_long(firing.watch)
        watch, database = firing.watch, self._watching.database
        if watch.actor is not None and database.state.graph.get(watch.actor) is None:
            self._watching.fail(watch, actor_deleted_error())  # the watch ends with its actor
            return
        transaction = database.state.begin()
        context = self._context(watch, transaction)
        row: Row = firing.row + [None] * (watch.details.actions_size - len(firing.row))
        row[0] = context
        for slot, value in enumerate(row[1:], 1):
            if hasattr(value, "values"):
                row[slot] = context.view.get(value.id) or value
        for act in watch.details.actions:
            act(row)
        commit, _ = database.state.commit(
            transaction,
            started=database.state.sequence,
            explicit=database.settings.strict_cardinality,
            now=database.clock.now(),
            context=lambda _: execution.system_context(database, transaction, context.now),
            cause=f"trigger {self._watching.id_of(watch)}",
            meta=self._watching.durable_watches.trigger_notes(firing),
        )
        if commit is not None:
            database.log_writer.append(commit.sequence, commit)
            self._watching.follow(commit, firing.depth)

    def _context(self, watch: Watch, transaction: Any) -> ExecutionContext:
        """An execution context with the watch's constants and its actor's rights."""
        database = self._watching.database
        state = database.state
        view = transaction.view
        context = ExecutionContext(
            view=view, constants=watch.constants, now=database.clock.now, tick=state.tick, actor=watch.actor
        )
        guard = None
        if watch.actor is not None and state.schema.policies:
            own = ExecutionContext(view=view, now=context.now, tick=state.tick, actor=watch.actor)
            context.view = ActorView(state.program.policies, own, state.schema)
            guard = PolicyGuard(state.program.policies, own, context.view, tenant=database.name)
        context.writer = ActionWriter(transaction, {}, guard)
        return context
