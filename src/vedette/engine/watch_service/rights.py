"""Policy checks for watches: who may create one, and what its actor may see."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vedette.engine.statements import execution
from vedette.engine.watch_service.compile import CompiledWatch
from vedette.errors import PolicyError, WatchError
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.parser.redaction import redact_literals
from vedette.language.resolve.analysis import walk_expression
from vedette.language.resolve.tree import AttributeAccess, ResolvedEdge, ResolvedNode
from vedette.policy.decisions import condition_holds
from vedette.policy.guard import PolicyGuard

if TYPE_CHECKING:
    from vedette.engine.context.request import StatementRequest
    from vedette.engine.database import Database
    from vedette.engine.session.session import Session

__all__ = ["actor_deleted_error", "check_watch_rights"]

_audit = logging.getLogger("vedette.audit")


def check_watch_rights(request: StatementRequest, compiled: CompiledWatch) -> PolicyGuard:
    """Raise E8001 unless the actor may create watches, see the pattern's types and attributes, and delete what it
    consumes.
    """
    session = request.session
    _, guard = execution.statement_context(session, ())
    assert guard is not None
    try:
        guard.check_meta("SPAWN", "_Watch")
        denied = _denied(session, compiled)
    except PolicyError:
        denied = "META SPAWN on _Watch"
    if denied is not None:
        _audit.warning(
            "WATCH was denied for actor %s",
            session.actor,
            extra={
                "action": "watch.denied",
                "tenant": session.database.name,
                "actor": session.actor,
                "pattern": redact_literals(request.text),
                "reason": denied,
            },
        )
        raise WatchError("E8001", "Watch pattern denied")
    return guard


def _denied(session: Session, compiled: CompiledWatch) -> str | None:
    """The first type or attribute of the pattern that the actor can never see, under any policy condition."""
    database = session.database
    context = ExecutionContext(
        view=database.state.graph, now=database.clock.now, tick=database.state.tick, actor=session.actor
    )
    shape = compiled.shape.resolved
    for element in shape.pattern.elements:
        if not isinstance(element, ResolvedNode) or element.implicit:
            continue
        if not any(_may_ever(database, "MATCH", name, None, context) for name in element.types):
            return f"MATCH on {element.type}"
    conditions = (*shape.pattern.where, *(shape.returns.projections if shape.returns is not None else ()))
    for condition in conditions:
        for part in walk_expression(condition):
            if isinstance(part, AttributeAccess) and not any(
                _may_ever(database, "MATCH", name, part.name, context) for name in part.index_by_type
            ):
                return f"MATCH on attribute {part.name}"
    return _deletion_denied(database, compiled, context) if compiled.shape.resolved.is_consume else None


def _deletion_denied(database: Database, compiled: CompiledWatch, context: ExecutionContext) -> str | None:
    """ACK deletes the first element, so some policy must allow that for at least one of its types."""
    element = compiled.shape.claimed_element
    if isinstance(element, ResolvedNode):
        allowed = any(_may_ever(database, "KILL", name, None, context) for name in element.types)
        return None if allowed else f"KILL on {element.type}"
    if isinstance(element, ResolvedEdge):
        allowed = any(_may_ever(database, "UNLINK", name, None, context) for name in element.edge_types)
        return None if allowed else f"UNLINK on {', '.join(element.edge_types)}"
    return None  # rejected elsewhere: a path cannot be consumed


def _may_ever(
    database: Database, operation: str, type_name: str, attribute: str | None, context: ExecutionContext
) -> bool:
    """True if some policy could allow the operation. Conditions on the element are checked per event or at ACK."""
    if type_name.startswith("_"):
        return True
    allowed = attribute is not None
    for policy in database.state.program.policies:
        if policy.attribute != attribute or not policy.applies_to(operation, type_name, attribute):
            continue
        if policy.reads_element:
            allowed = allowed or policy.allow
        elif condition_holds(policy, None, context):
            if not policy.allow:
                return False
            allowed = True
    return allowed


def actor_deleted_error() -> PolicyError:
    """The error of a watch whose actor was deleted."""
    return PolicyError("E7003", "The actor of this watch was deleted; the watch has ended")
