"""How watches that are behind come to the present: commit by commit from the log, or by a snapshot of it.

Theory of operation. A watch is `behind` when commits were not told to its reader: its memory was full, its process
died, or it is new and looks back. Most such watches stand in no index of their hub (`away`), so that nothing reaches
them out of turn. They are told every commit since then, alone, on the views before and after it, until they have caught
up or their memory is full again; then they stand in the index, or wait to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vedette.element import View
from vedette.engine.commit.history import Trimmed, replay
from vedette.engine.state.graph_state import Commit
from vedette.graph.overlay import Overlay
from vedette.values import timestamp_from_ms, timestamp_to_ms
from vedette.watch.evaluation.effects import SetOff, Told
from vedette.watch.evaluation.rows import Scene
from vedette.watch.shapes.key_index import KeyIndex
from vedette.watch.status import WatchStatus
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import Watching

__all__ = ["CatchingUp", "is_in_the_log"]


class CatchingUp:
    """Tells single watches what they have not had. Called with the turn held."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._database = watching.database

    def catch_up(self, watch: Watch, sequence: int) -> None:
        """Tell the watch every commit after `sequence`. It stands in the index again when it has caught up."""
        state, details, started = self._database.state, watch.details, False
        if details.behind is not None and not is_in_the_log(watch):
            self.skip_ahead(watch)
            return
        details.behind = sequence
        details.away = details.away or watch.number not in self._watching.hub.watches
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
                earlier = self._database.history.time_of(sequence) if watch.shape.time_dependent else None
                self._watching.creation.start(watch, before, commit.tick, now=lambda: earlier or commit.time)
                started = True
            self._tell(watch, commit, before, after)
            details.behind = commit.sequence

        with self._alone(watch):
            replay(state, commits, tell)
        if watch.status is WatchStatus.CANCELLED:
            return
        if not started:
            self._watching.creation.start(watch, Overlay(state.graph, state.layout))
        if watch.options.visibility == "immediate":
            self._show_drafts(watch)
        if not _is_full(watch):
            self.stand(watch)

    def skip_ahead(self, watch: Watch) -> None:
        """What it was not told yet cannot be worked out any more: a snapshot of the present has all of it."""
        missing = 0
        if watch.options.visibility == "immediate":
            self._watching.see_drafts()
        if watch.options.delivery != "reliable" and watch.buffer is not None:
            missing = watch.pending
            watch.buffer.clear()
        self.start_anew(watch)
        if watch.buffer is not None:
            watch.buffer.tell_gap(missing)
        self.stand(watch)

    def start_anew(self, watch: Watch) -> None:
        """A fresh snapshot. Actions go on from the last evaluation: what fell due since then sets them off."""
        details, past = watch.details, None
        if details.evaluated_ms and details.actions is not None:
            then = timestamp_from_ms(details.evaluated_ms)
            past = lambda: then  # noqa: E731
        self._watching.creation.start(watch, self._database.state.graph, anew=True, now=past)

    def stand(self, watch: Watch) -> None:
        """It has caught up: from now on it is told like any other."""
        watch.details.behind = None
        if watch.details.away:
            watch.details.away = False
            self._watching.hub_of(watch).add(watch)

    def act_late(self, watch: Watch, cursor: dict[str, int]) -> None:
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
            self._tell(watch, commit._replace(time=latest), before, after, SetOff)

        with self._alone(watch):
            replay(state, commits, tell)
            if not resumed:
                resume(state.graph)

    # --- telling one watch ------------------------------------------------------------------------------------

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


def is_in_the_log(watch: Watch) -> bool:
    """Whether commits are all that its reader is told: no drafts, nor what only the time or Layer 0 brings about."""
    return not (watch.shape.time_dependent or watch.shape.layered or watch.options.visibility == "immediate")


def _is_full(watch: Watch) -> bool:
    return watch.options.delivery == "reliable" and watch.pending >= watch.options.buffer
