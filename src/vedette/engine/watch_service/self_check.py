"""Compares sampled watches with a fresh evaluation before and after a commit.

A difference is a bug in the incremental evaluation. It is logged and counted and has no other effect.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from vedette.errors import QueryError
from vedette.watch.delta import ADDED, CHANGED, REMOVED, values_equal
from vedette.watch.evaluation.commit_views import CommitViews
from vedette.watch.evaluation.effects import CommitEffects
from vedette.watch.evaluation.reevaluation import current_rows
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

if TYPE_CHECKING:
    from vedette.engine.watch_service.service import WatchService

__all__ = ["SelfCheck"]

log = logging.getLogger(__name__)
_MAX_CANDIDATES = 20_000
"""Maximum candidates one check may examine, because the commit waits for it."""
_COMMITS_PER_CANDIDATE = 5
"""Commits to skip per examined candidate, so that checks stay a small part of the work."""


class SelfCheck:
    """Checks one watch every `every` commits that affect a watch, and less often after an expensive check."""

    def __init__(self, watching: WatchService, every: int) -> None:
        self._watching = watching
        self._every = every
        self._commits = 0
        self._due = every
        self.checked = 0
        self.failed = 0
        self.skipped = 0
        """Checks that exceeded the candidate limit."""

    def pick_watch(self, shapes: list[WatchShape]) -> Watch | None:
        """Return the watch to check in this commit, usually None."""
        self._commits += 1
        if not self._every or self._commits < self._due:
            return None
        self._due = self._commits + self._every
        check_number = self._commits // self._every
        shape = shapes[check_number % len(shapes)]
        can_be_checked = shape.strategy == "rows" and shape.key_index.size > 0
        return shape.key_index.sample(check_number) if can_be_checked else None

    def check(self, watch: Watch, views: CommitViews, effects: CommitEffects) -> None:
        """Evaluate the watch before and after the commit and compare the difference with its events."""
        try:
            before, after = (self._evaluate(watch, views, late) for late in (False, True))
        except QueryError:
            self.skipped += 1
            return
        self.checked += 1
        expected = Counter((kind, identity) for kind, identity in _differences(before, after))
        actual = Counter((delta.type, delta.identity) for delta in effects.sampled)
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

    def _evaluate(self, watch: Watch, views: CommitViews, late: bool) -> dict[Any, Any]:
        context = self._watching.watch_context(watch, (views.after if late else views.before).view)
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
