"""Checks every operation of a session with an actor."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from vedette.element import Element, View
from vedette.errors import MutationError, PolicyError
from vedette.language.compile.execution_context import ExecutionContext
from vedette.policy.actor_view import ActorView
from vedette.policy.decisions import Decision, Policy, decide

__all__ = ["PolicyGuard"]

_audit = logging.getLogger("vedette.audit")


class PolicyGuard:
    """Decides for one statement of one actor. A denied operation on an unknown element raises "not found".

    An actor knows what it sees, itself, and what its session has bound (`bindings`).
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        context: ExecutionContext,
        policy_view: ActorView,
        bindings: Mapping[str, str] | None = None,
        tenant: str = "",
    ) -> None:
        self._policies = policies
        self._context = context
        self._actor_view = policy_view
        self._bindings = bindings if bindings is not None else {}
        self._tenant = tenant

    def visible_version(self, element: Element) -> Element | None:
        """The element as the actor may see it now, without the cache."""
        return self._actor_view.evaluate(element)

    def can_see(self, element: Element) -> bool:
        return self._actor_view.visible_version(element) is not None

    def _knows(self, element: Element) -> bool:
        id = element.id
        return self.can_see(element) or id == self._context.actor or id in self._bindings.values()

    def check_ids_visible(self, ids: Iterable[str | None], view: View) -> None:
        """Raise "not found" for ids in a statement that the actor does not know."""
        for id in ids:
            element = view.get(id) if id is not None else None
            if element is None or not self._knows(element):
                raise not_found(str(id))

    def check(self, operation: str, element: Element, attribute: str | None = None) -> None:
        decision = decide(self._policies, operation, element, attribute, self._context)
        if decision.allowed:
            return
        self._audit_denial(decision, operation, element.type, element.id, attribute)
        if operation not in ("SPAWN", "LINK") and not self._knows(element):
            raise not_found(element.id)
        raise _denied(decision)

    def check_meta(self, operation: str, type_name: str) -> None:
        """Check an operation on the schema or the engine, such as META SPAWN on `_Watch`."""
        decision = self._decide_meta(operation, type_name)
        if not decision.allowed:
            self._audit_denial(decision, f"META {operation}", type_name, None, None)
            raise _denied(decision)

    def allows_meta(self, operation: str, type_name: str) -> bool:
        return self._decide_meta(operation, type_name).allowed

    def _decide_meta(self, operation: str, type_name: str) -> Decision:
        self._context.target_type = type_name
        return decide(self._policies, f"META {operation}", None, None, self._context)

    def _audit_denial(
        self, decision: Decision, operation: str, type_name: str, id: str | None, attribute: str | None
    ) -> None:
        _audit.warning(
            "%s on %s was denied to %s",
            operation,
            type_name,
            self._context.actor,
            extra={
                "action": "policy.denied",
                "tenant": self._tenant,
                "operation": operation,
                "type": type_name,
                "element": id,
                "attribute": attribute,
                "actor": self._context.actor,
                "policy": decision.policy,
                "failed": decision.error,
            },
        )


def not_found(id: str) -> MutationError:
    return MutationError(
        "E3601", f"#{id} was not found: nothing is bound to it or has this id", fields={"id": id}
    )


def _denied(decision: Decision) -> PolicyError:
    if decision.error is not None:
        return PolicyError("E7004", "Permission denied")
    return PolicyError("E7001", decision.message or "Permission denied")
