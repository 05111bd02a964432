"""What an execution brings to a compiled statement: constants, a view of the graph, time, and who is asking."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from vedette.element import Element, View
from vedette.errors import PolicyError, QueryError

__all__ = ["Context", "Row"]

Row = list[Any]
"""The registers of an execution; register 0 is its Context."""

_UNLIMITED = 1 << 62


class Context:
    """One execution's surroundings. Compiled closures reach it as `row[0]`."""

    __slots__ = (
        "actor",
        "bindings",
        "constants",
        "folds",
        "graph",
        "matched",
        "now",
        "operation",
        "pause",
        "session",
        "sink",
        "stop_at",
        "target",
        "target_attr",
        "target_type",
        "tick",
        "view",
        "wall_time",
        "warnings",
        "work",
        "work_limit",
        "work_pause",
        "writer",
    )

    def __init__(
        self,
        *,
        view: View,
        graph: View | None = None,
        constants: tuple[Any, ...] = (),
        now: Callable[[], datetime],
        wall_time: Callable[[], datetime] | None = None,
        tick: int = 0,
        actor: str | None = None,
        session: str | None = None,
        bindings: dict[str, str] | None = None,
        work_limit: int = _UNLIMITED,
    ) -> None:
        self.view = view
        """What patterns read: filtered by policy when an actor is bound."""
        self.graph = graph if graph is not None else view
        """The same state, unfiltered; for the engine's own checks."""
        self.constants = constants
        self.now = now
        self.wall_time = wall_time if wall_time is not None else now
        self.tick = tick
        self.actor = actor
        self.session = session
        self.bindings = bindings if bindings is not None else {}
        self.operation: str | None = None
        self.target: Element | None = None
        self.target_type: str | None = None
        self.target_attr: str | None = None
        self.warnings: list[str] = []
        self.sink: Any = None
        """Where the running query puts its rows or groups."""
        self.stop_at = _UNLIMITED
        """How many rows are enough."""
        self.matched: set[object] = set()
        """Optional patterns that matched for the current row."""
        self.folds: list[list[Any]] = []
        """Matches of the pattern aggregates that are being evaluated, the innermost last."""
        self.writer: Any = None
        """Where actions write: a `graph.actions.Writer`, None for statements that only read."""
        self.work = 0
        """Candidates looked at so far."""
        self.work_limit = work_limit
        self.work_pause = _UNLIMITED
        self.pause: Callable[[], None] | None = None
        """Called every so many candidates by long reads, so that others get their turn."""

    def resolve(self, name: str, quoted: bool) -> str:
        """The id that `#name` means: a session binding, else the name itself."""
        return name if quoted else self.bindings.get(name, name)

    def self_actor(self) -> str:
        if self.actor is None:
            raise PolicyError("E7002", "#self needs an actor: begin a session AS someone first")
        return self.actor

    def charge(self, candidates: int) -> None:
        """Count work done; pause for others, or refuse to go on, when it is a lot."""
        self.work += candidates
        if self.work >= self.work_pause:
            if self.work > self.work_limit:
                text = (
                    f"The statement looked at more than {self.work_limit:,} candidates: anchor it at an element, "
                    "an index or an edge (EXPLAIN shows the plan), or raise settings.max_statement_work"
                )
                raise QueryError("E2103", text, fields={"limit": self.work_limit})
            if self.pause is not None:
                self.pause()
