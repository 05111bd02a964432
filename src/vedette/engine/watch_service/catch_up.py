"""Brings lagging watches to the present: commit by commit from the log, or with a snapshot.

Theory of operation. A watch lags when its reader has not received some commits: its buffer was full, its process
ended, or it is new and starts in the past (`followed_sequence` is set). Most lagging watches are removed from the
index (`is_unindexed`), so that no event reaches them out of order. A lagging watch is evaluated alone on the views
before and after each missed commit, until it has caught up or its buffer is full. Then it rejoins the index or
waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vedette.element import View
from vedette.engine.commit.history import LogTrimmed, replay
from vedette.engine.state.graph_state import Commit
from vedette.graph.overlay import Overlay
from vedette.values import timestamp_from_ms, timestamp_to_ms
from vedette.watch.evaluation.commit_views import CommitViews
from vedette.watch.evaluation.effects import CommitEffects, TriggerEffects
from vedette.watch.shapes.key_index import KeyIndex
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import WatchService

__all__ = ["CatchUp", "is_replayable"]


class CatchUp:
    """Replays commits for single watches. Call every method with the engine lock held."""

    def __init__(self, watching: WatchService) -> None:
        self._watching = watching
        self._database = watching.database

    def catch_up(self, watch: Watch, sequence: int) -> None:
        """Replay every commit after `sequence`. The watch rejoins the index when it has caught up."""
        state, details, started = self._database.state, watch.details, False
        if details.followed_sequence is not None and not is_replayable(watch):
            self.restart_from_snapshot(watch)
            return
        details.followed_sequence = sequence
        details.is_unindexed = (
            details.is_unindexed or watch.number not in self._watching.committed_index.watches
        )
        self._watching.committed_index.watches[watch.number] = watch
        try:
            commits = self._database.history.commits_after(sequence)
        except LogTrimmed:
            self._watching.end_after_trim(watch)
            return

        def replay_one(commit: Commit, before: Overlay, after: Overlay) -> None:
            nonlocal started
            if _is_full(watch) or watch.status is WatchStatus.CANCELLED:
                return
            if not started:
                earlier = self._database.history.time_of(sequence) if watch.shape.time_dependent else None
                self._watching.creation.push_initial(
                    watch, before, commit.tick, now=lambda: earlier or commit.time
                )
                started = True
            self._replay_commit(watch, commit, before, after)
            details.followed_sequence = commit.sequence

        with self._isolated_index(watch):
            replay(state, commits, replay_one)
        if watch.status is WatchStatus.CANCELLED:
            return
        if not started:
            self._watching.creation.push_initial(watch, Overlay(state.graph, state.layout))
        if watch.options.visibility == "immediate":
            self._replay_open_transactions(watch)
        if not _is_full(watch):
            self.rejoin_index(watch)

    def restart_from_snapshot(self, watch: Watch) -> None:
        """Send a snapshot of the present, because the missed events cannot be computed any more."""
        missing = 0
        if watch.options.visibility == "immediate":
            self._watching.load_open_transactions()
        if watch.options.delivery != "reliable" and watch.buffer is not None:
            missing = watch.buffered_count
            watch.buffer.clear()
        self.push_snapshot(watch)
        if watch.buffer is not None:
            watch.buffer.add_unreported_drops(missing)
        self.rejoin_index(watch)

    def push_snapshot(self, watch: Watch) -> None:
        """Send a snapshot. Triggers continue from their last evaluation and run for what became due since then."""
        details, past = watch.details, None
        if details.evaluated_ms and details.actions is not None:
            then = timestamp_from_ms(details.evaluated_ms)
            past = lambda: then  # noqa: E731
        self._watching.creation.push_initial(watch, self._database.state.graph, repeat=True, now=past)

    def rejoin_index(self, watch: Watch) -> None:
        """Evaluate the watch with all others again."""
        watch.details.followed_sequence = None
        if watch.details.is_unindexed:
            watch.details.is_unindexed = False
            self._watching.index_of(watch).add(watch)

    def replay_triggers(self, watch: Watch, cursor: dict[str, int]) -> None:
        """Run the triggers of a time-dependent watch for every commit after the last one they ran for.

        Each commit is evaluated at its own time. Ticks are not in the log: what a tick caused is found at the next
        commit or evaluation.
        """
        state, fired = self._database.state, cursor["fired"]
        try:
            commits = self._database.history.commits_after(fired - 1)
        except LogTrimmed:
            self._watching.end_after_trim(watch)
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
            self._watching.creation.rebuild_counts(
                watch, self._watching.watch_context(watch, view, lambda: since)
            )

        def replay_one(commit: Commit, before: Overlay, after: Overlay) -> None:
            if not resumed:
                resume(before)
            latest = max(commit.time, timestamp_from_ms(watch.details.evaluated_ms))
            self._replay_commit(watch, commit._replace(time=latest), before, after, TriggerEffects)

        with self._isolated_index(watch):
            replay(state, commits, replay_one)
            if not resumed:
                resume(state.graph)

    # --- one watch --------------------------------------------------------------------------------------------

    def _replay_open_transactions(self, watch: Watch) -> None:
        """After the replay, add what open transactions have written."""
        state, draft, now = self._database.state, self._watching.uncommitted_view, self._database.clock.now
        views = CommitViews(
            lambda: state.graph,
            draft.view,
            now=now,
            tick=state.tick,
            policy_view=self._watching.apply_policy_view,
        )
        effects = CommitEffects(
            state.tick, self._database.log_writer.durable_sequence, timestamp_to_ms(now())
        )
        effects.is_replay = True
        with self._isolated_index(watch):
            self._watching.uncommitted_index.evaluate_commit(
                [watch.shape], draft.all_changes(), views, effects
            )
            self._watching.apply_effects(effects, 0)

    def _replay_commit(
        self,
        watch: Watch,
        commit: Commit,
        before: View,
        after: View,
        kind: type[CommitEffects] = CommitEffects,
    ) -> None:
        watching = self._watching
        views = CommitViews(
            lambda: before,
            after,
            now=lambda: commit.time,
            tick=commit.tick,
            policy_view=watching.apply_policy_view,
        )
        effects = kind(commit.tick, commit.sequence, timestamp_to_ms(commit.time))
        effects.is_replay = True
        watching.committed_index.evaluate_commit([watch.shape], commit.changes, views, effects)
        watching.apply_effects(effects, 0)

    @contextmanager
    def _isolated_index(self, watch: Watch) -> Iterator[None]:
        """Replace the shape's key index by one that contains only this watch, for a while."""
        shape = watch.shape
        shared, shape.key_index = (
            shape.key_index,
            KeyIndex(shape.range[1] if shape.range is not None else None),
        )
        shape.key_index.add(
            shape.key_of_constants(watch.constants), shape.range_of_constants(watch.constants), watch
        )
        try:
            yield
        finally:
            shape.key_index = shared


def is_replayable(watch: Watch) -> bool:
    """True if the log alone determines the events: no uncommitted writes, no time dependence, no Layer 0."""
    return not (
        watch.shape.time_dependent or watch.shape.reads_layer0 or watch.options.visibility == "immediate"
    )


def _is_full(watch: Watch) -> bool:
    return watch.options.delivery == "reliable" and watch.buffered_count >= watch.options.buffer
