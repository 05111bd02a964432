"""The context of one execution: view, constants, clock, actor and output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from vedette.element import Element, View
from vedette.errors import PolicyError, QueryError

__all__ = ["UNLIMITED", "ExecutionContext", "Row"]

Row = list[Any]
"""The registers of an execution; register 0 holds its `ExecutionContext`."""

UNLIMITED: Final = 1 << 62


class ExecutionContext:
    """The context of one execution. Compiled closures read it as `row[0]`.

    One is created for every statement. Attributes that few statements need are defaults of the class, so that creating
    a context does not set them.
    """

    operation: str | None = None
    """For the condition of a policy, with `target`, `target_type` and `target_attr`: the operation to decide on."""
    target: Element | None = None
    target_type: str | None = None
    target_attr: str | None = None
    layer0_type_of: Callable[[str], str | None] | None = None
    """Returns the type of a Layer 0 element by id, or None. Actions refuse to write such elements."""
    writer: Any = None
    """A `graph.actions.ActionWriter` for actions; None for statements that only read."""
    sink: Any = None
    """The output of the running search: consumers append rows or add groups to it.

    The caller of a search sets it and restores the previous value, so that a search can run inside another one.
    """
    max_rows: int = UNLIMITED
    """Rows after which a consumer stops the search (LIMIT and OFFSET)."""
    candidates_examined = 0
    """Candidates examined so far."""
    candidate_limit: int = UNLIMITED
    """Candidates after which the statement fails (E2103)."""
    pause_at_candidates: int = UNLIMITED
    """Candidates after which `yield_lock` is called."""
    yield_lock: Callable[[], None] | None = None
    """Releases the engine lock for a moment during long reads, and sets the next `pause_at_candidates`."""
    warnings: tuple[str, ...] = ()
    constants: tuple[Any, ...] = ()
    actor: str | None = None
    session: str | None = None
    bindings: Mapping[str, str] | None = None
    _matched: set[object] | None = None
    _aggregate_stack: list[list[Any]] | None = None

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
        """The graph that patterns read. Policies filter it if there is an actor."""
        self.constants = constants
        self.now = now
        self.wall_time = wall_time if wall_time is not None else now
        self.tick = tick
        self.actor = actor
        self.session = session
        self.bindings = bindings

    @property
    def matched_optionals(self) -> set[object]:
        """The OPTIONAL MATCH patterns that matched for the current row."""
        if self._matched is None:
            self._matched = set()
        return self._matched

    @property
    def pattern_aggregate_stack(self) -> list[list[Any]]:
        """The matches of the pattern aggregates that are being evaluated, the innermost last."""
        if self._aggregate_stack is None:
            self._aggregate_stack = []
        return self._aggregate_stack

    def resolve(self, name: str, quoted: bool) -> str:
        """Return the id for `#name`: that of a session binding, else the name itself."""
        return name if quoted or self.bindings is None else self.bindings.get(name, name)

    def require_actor(self) -> str:
        if self.actor is None:
            raise PolicyError("E7002", "#self needs an actor: run BEGIN SESSION AS … first")
        return self.actor

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings += (text,)

    def charge(self, candidates: int) -> None:
        """Add to the number of candidates examined.

        At `pause_at_candidates`, release the engine lock for a moment; past `candidate_limit`, raise E2103.
        """
        self.candidates_examined += candidates
        if self.candidates_examined >= self.pause_at_candidates:
            self._pause_or_abort()

    def _pause_or_abort(self) -> None:
        if self.candidates_examined > self.candidate_limit:
            text = (
                f"The statement examined more than {self.candidate_limit:,} candidates: start it at an element, "
                "an index or an edge (EXPLAIN shows the plan), or raise settings.max_statement_work"
            )
            raise QueryError("E2103", text, fields={"limit": self.candidate_limit})
        if self.yield_lock is not None:
            self.yield_lock()
