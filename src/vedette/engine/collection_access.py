"""What policies let an actor read of external collections.

The pipeline evaluates policies on documents. What they read of the graph is evaluated here, at one moment. It may
change with any commit, so a gateway evaluates again when its `CollectionRulesListener` is notified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from vedette.engine.commit.lock import LockScope
from vedette.engine.state.graph_state import Commit
from vedette.engine.watch_service.rights import actor_deleted_error
from vedette.errors import PolicyError, WatchError
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.parser.redaction import redact_literals
from vedette.policy.actor_view import ActorView
from vedette.policy.collection_policies import (
    CollectionPolicy,
    UnsupportedPolicy,
    ViewRule,
    is_ever_visible,
    view_rules,
)
from vedette.policy.guard import PolicyGuard

if TYPE_CHECKING:
    from vedette.engine.database import Database

__all__ = ["CollectionRules", "CollectionRulesListener", "check_collection_access", "collection_rules"]

_audit = logging.getLogger("vedette.audit")
CollectionRules: TypeAlias = dict[str, tuple[ViewRule, ...]]
"""By collection, as named in a WATCH."""


def check_collection_access(
    database: Database,
    actor: str,
    collections: Sequence[str],
    attributes: Iterable[str],
    pattern: str,
) -> CollectionRules | None:
    """Check that the actor may watch, and may see the collections and attributes. Return its view rules.

    Raises E8001 without details; the log has the reason. Returns None if there are no policies: everything is
    visible.
    """
    with LockScope(database):
        if not database.schema.policies:
            return None
        context = _context(database, actor)
        found: dict[str, tuple[tuple[CollectionPolicy, ViewRule], ...]] = {}
        try:
            _guard(database, context).check_meta("SPAWN", "_Watch")
            found = {name: view_rules(_policies(database), name, context) for name in collections}
            denied = _denied(found, list(attributes))
        except PolicyError:
            denied = "META SPAWN on _Watch"
        except UnsupportedPolicy as error:
            denied = str(error)
        if denied is not None:
            raise _refusal(database, actor, pattern, denied)
        return {name: tuple(rule for _, rule in rules) for name, rules in found.items()}


def collection_rules(database: Database, actor: str, collections: Iterable[str]) -> CollectionRules | None:
    """The actor's view rules of the collections now.

    E7003 if the actor was deleted, E8001 if a policy is unsupported.
    """
    with LockScope(database):
        if not database.schema.policies:
            return None
        context = _context(database, actor)
        try:
            return {
                name: tuple(rule for _, rule in view_rules(_policies(database), name, context))
                for name in collections
            }
        except UnsupportedPolicy as error:
            raise _refusal(database, actor, ", ".join(collections), str(error)) from None


def _policies(database: Database) -> tuple[CollectionPolicy, ...]:
    return database.state.program.collection_policies


def _context(database: Database, actor: str) -> ExecutionContext:
    state = database.state
    if state.graph.get(actor) is None:
        raise actor_deleted_error()
    return ExecutionContext(view=state.graph, now=database.statement_time(), tick=state.tick, actor=actor)


def _guard(database: Database, context: ExecutionContext) -> PolicyGuard:
    policies = database.state.program.policies
    policy_view = ActorView(policies, context, database.schema)
    return PolicyGuard(policies, context, policy_view, tenant=database.name)


def _denied(
    found: dict[str, tuple[tuple[CollectionPolicy, ViewRule], ...]], attributes: Sequence[str]
) -> str | None:
    for name, rules in found.items():
        if not is_ever_visible(rules):
            return f"MATCH on {name}"
        for attribute in attributes:
            if not is_ever_visible(rules, attribute):
                return f"MATCH on attribute {attribute} of {name}"
    return None


def _refusal(database: Database, actor: str, pattern: str, reason: str) -> WatchError:
    extra = {
        "action": "watch.denied",
        "tenant": database.name,
        "actor": actor,
        "pattern": redact_literals(pattern),
        "reason": reason,
    }
    _audit.warning("WATCH was denied for actor %s", actor, extra=extra)
    return WatchError("E8001", "Watch pattern denied")


class CollectionRulesListener:
    """Calls back when a commit may have changed what actors see of external collections."""

    def __init__(self, database: Database, on_change: Callable[[], None]) -> None:
        """`on_change` is called with the engine lock held and must only record the change."""
        self._database, self._on_change = database, on_change
        self.actors: set[str] = set()
        """Actors whose deletion is reported, too."""
        database.watching.commit_hooks.append(self._committed)

    def close(self) -> None:
        self._database.watching.commit_hooks.remove(self._committed)

    def _committed(self, commit: Commit) -> None:
        if commit.definition is not None or self._concerns(commit):
            self._on_change()

    def _concerns(self, commit: Commit) -> bool:
        touched = {element.type for change in commit.changes for element in change if element is not None}
        gone = {before.id for before, after in commit.changes if after is None and before is not None}
        return not gone.isdisjoint(self.actors) or any(
            policy.depends_on_types is None or not policy.depends_on_types.isdisjoint(touched)
            for policy in _policies(self._database)
        )
