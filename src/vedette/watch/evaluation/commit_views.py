"""The states before and after one commit, and the execution contexts of watches on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vedette.element import View
from vedette.language.compile.execution_context import ExecutionContext
from vedette.watch.watch import Watch

__all__ = ["CommitViews", "NowFunction"]

NowFunction = Callable[[], Any]
"""Returns the time of the commit."""
ApplyPolicyView = Callable[[Watch, ExecutionContext], None]
"""Wraps a context's view so that it shows what the watch's actor may see."""


class CommitViews:
    """The views before and after one change of the graph, and the execution contexts of watches on them.

    `before` and `after` are contexts without a watch. They are built on first use.
    """

    __slots__ = (
        "_after",
        "_apply_policy_view",
        "_before",
        "_make_before_view",
        "_now",
        "_own",
        "_tick",
        "_view",
    )

    def __init__(
        self,
        before: Callable[[], View],
        after: View,
        now: NowFunction,
        tick: int,
        policy_view: ApplyPolicyView | None = None,
    ) -> None:
        """`before` creates the view before the commit. It is called at most once, when it is needed."""
        self._make_before_view, self._view = before, after
        self._now, self._tick, self._apply_policy_view = now, tick, policy_view
        self._before: ExecutionContext | None = None
        self._after: ExecutionContext | None = None
        self._own: dict[tuple[int, bool], ExecutionContext] = {}

    @property
    def before(self) -> ExecutionContext:
        if self._before is None:
            self._before = ExecutionContext(self._make_before_view(), self._now, tick=self._tick)
        return self._before

    @property
    def after(self) -> ExecutionContext:
        if self._after is None:
            self._after = ExecutionContext(self._view, self._now, tick=self._tick)
        return self._after

    def context_for(self, watch: Watch, *, after: bool) -> ExecutionContext:
        """The context of one watch: its constants and its actor."""
        key = (watch.number, after)
        known = self._own.get(key)
        if known is None:
            shared = self.after if after else self.before
            known = ExecutionContext(
                view=shared.view, constants=watch.constants, now=self._now, tick=self._tick, actor=watch.actor
            )
            if self._apply_policy_view is not None and (watch.actor is not None or watch.shape.reads_layer0):
                self._apply_policy_view(watch, known)
            self._own[key] = known
        return known
