"""The oracle in service: now and then a watch is evaluated on both sides of a commit, to compare with what it was told.

A difference would be a bug in the matcher. It is logged and counted; nothing else is touched by it.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from vedette.errors import QueryError
from vedette.watch.delta import ADDED, CHANGED, REMOVED, values_equal
from vedette.watch.evaluation.effects import CommitEffects, current_rows
from vedette.watch.evaluation.rows import CommitViews
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import WatchService

__all__ = ["SelfCheck"]

log = logging.getLogger(__name__)
_MAX_CANDIDATES = 20_000
"""Candidates that one evaluation may look at: the commit that it hangs on must not be held up for long."""
_COMMITS_PER_CANDIDATE = 5
"""How many commits go by for each candidate of a check, so that checking stays a small part of the work."""


class SelfCheck:
    """Looks at one watch every so many commits that concern any; after an expensive look, more of them go by."""

    def __init__(self, watching: WatchService, every: int) -> None:
        self._watching = watching
        self._every = every
        self._commits = 0
        self._due = every
        self.checked = 0
        self.failed = 0
        self.skipped = 0
        """Watches with too much to look at."""

    def pick_watch(self, shapes: list[WatchShape]) -> Watch | None:
        """The watch to look at in this commit, mostly none."""
        self._commits += 1
        if not self._every or self._commits < self._due:
            return None
        self._due = self._commits + self._every
        turn = self._commits // self._every
        shape = shapes[turn % len(shapes)]
        plain = shape.strategy == "rows" and shape.ShapeIndex.size > 0
        return shape.ShapeIndex.sample(turn) if plain else None

    def check(self, watch: Watch, scene: CommitViews, told: CommitEffects) -> None:
        """Evaluate afresh on both sides of the commit; what is different must be what the watch was told."""
        try:
            before, after = (self._evaluate(watch, scene, late) for late in (False, True))
        except QueryError:
            self.skipped += 1
            return
        self.checked += 1
        expected = Counter((kind, identity) for kind, identity in _differences(before, after))
        actual = Counter((delta.type, delta.identity) for delta in told.sampled)
        if expected == actual:
            return
        self.failed += 1
        log.error(
            "The self-check of watch %s failed: %d events were delivered, a full evaluation gives %d, %d differ",
            self._watching.id_of(watch),
            actual.total(),
            expected.total(),
            ((actual - expected) + (expected - actual)).total(),
            extra={
                "action": "watch.self_check_failed",
                "tenant": self._watching.database.name,
                "watch": self._watching.id_of(watch),
            },
        )

    def _evaluate(self, watch: Watch, scene: CommitViews, late: bool) -> dict[Any, Any]:
        context = self._watching.watch_context(watch, (scene.after if late else scene.before).view)
        context.candidate_limit = context.pause_at_candidates = _MAX_CANDIDATES
        try:
            return current_rows(watch, context)
        finally:
            self._due += context.candidates_examined * _COMMITS_PER_CANDIDATE


def _differences(before: dict[Any, Any], after: dict[Any, Any]) -> list[tuple[str, Any]]:
    found = [(ADDED, identity) for identity in after if identity not in before]
    found += [(REMOVED, identity) for identity in before if identity not in after]
    found += [(CHANGED, i) for i, row in after.items() if i in before and not values_equal(before[i], row)]
    return found
