"""What an execution brings to a compiled statement: constants, a view of the graph, time, and who is asking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from vedette.element import Element, View
from vedette.errors import PolicyError, QueryError

__all__ = ["UNLIMITED", "ExecutionContext", "Row"]

Row = list[Any]
"""The registers of an execution; register 0 is its Context."""

UNLIMITED: Final = 1 << 62


class ExecutionContext:
    """One execution's surroundings. Compiled closures reach it as `row[0]`.

    Made for every statement, so what few statements need has its default on the class and costs nothing.
    """

    operation: str | None = None
    """With `target`, `target_type` and `target_attr`: what a policy's condition is asked about."""
    target: Element | None = None
    target_type: str | None = None
    target_attr: str | None = None
    layer0_type_of: Callable[[str], str | None] | None = None
    """The type of an element of Layer 0, by id: nobody may write those."""
    writer: Any = None
    """Where actions write: a `graph.actions.ActionWriter`, None for statements that only read."""
    sink: Any = None
    """Where the running query puts its rows or groups."""
    max_rows: int = UNLIMITED
    """How many rows are enough."""
    candidates_examined = 0
    """Candidates looked at so far."""
    candidate_limit: int = UNLIMITED
    pause_at_candidates: int = UNLIMITED
    yield_lock: Callable[[], None] | None = None
    """Called every so many candidates by long reads, so that others get their turn."""
    warnings: tuple[str, ...] = ()
    constants: tuple[Any, ...] = ()
    actor: str | None = None
    session: str | None = None
    bindings: Mapping[str, str] | None = None
    _matched: set[object] | None = None
    _folds: list[list[Any]] | None = None

    def __init__(
        self,
        view: View,
        now: Callable[[], datetime],
        constants: tuple[Any, ...] = (),
        wall_time: Callable[[], datetime] | None = None,
        tick: int = 0,
        actor: str | None = None,
        session: str | None = None,
        bindings: Mapping[str, str] | None = None,
    ) -> None:
        self.view = view
        """What patterns read: filtered by policy when an actor is bound."""
        self.constants = constants
        self.now = now
        self.wall_time = wall_time if wall_time is not None else now
        self.tick = tick
        self.actor = actor
        self.session = session
        self.bindings = bindings

    @property
    def matched_optionals(self) -> set[object]:
        """Optional patterns that matched for the current row."""
        if self._matched is None:
            self._matched = set()
        return self._matched

    @property
    def pattern_aggregate_stack(self) -> list[list[Any]]:
        """Matches of the pattern aggregates that are being evaluated, the innermost last."""
        if self._folds is None:
            self._folds = []
        return self._folds

    def resolve(self, name: str, quoted: bool) -> str:
        """The id that `#name` means: a session binding, else the name itself."""
        return name if quoted or self.bindings is None else self.bindings.get(name, name)

    def require_actor(self) -> str:
        if self.actor is None:
            raise PolicyError("E7002", "#self needs an actor: begin a session AS someone first")
        return self.actor

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings += (text,)

    def charge(self, candidates: int) -> None:
        """Count work done; pause for others, or refuse to go on, when it is a lot."""
        self.candidates_examined += candidates
        if self.candidates_examined >= self.pause_at_candidates:
            self._pause_or_abort()

    def _pause_or_abort(self) -> None:
        if self.candidates_examined > self.candidate_limit:
            text = (
                f"The statement looked at more than {self.candidate_limit:,} candidates: anchor it at an element, "
                "an index or an edge (EXPLAIN shows the plan), or raise settings.max_statement_work"
            )
            raise QueryError("E2103", text, fields={"limit": self.candidate_limit})
        if self.yield_lock is not None:
            self.yield_lock()
