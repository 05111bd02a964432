"""A view of what an actor may see: hides elements and blanks attributes according to the policies.

All reads (patterns, EXISTS, aggregates, ids) go through it and are filtered in the same way. An element is visible
if an ALLOW applies and no DENY does. An edge is visible if all its targets are, or, where an ALLOW names its type,
if such an ALLOW applies. A hidden attribute is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vedette.element import Element, View
from vedette.errors import VedetteError
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.schema.model import Schema
from vedette.policy.decisions import Policy, condition_holds

__all__ = ["ActorView"]


class ActorView:
    """The graph as one actor sees it during one statement. `context.view` is the unfiltered state."""

    def __init__(self, policies: Sequence[Policy], context: ExecutionContext, schema: Schema) -> None:
        self._view: View = context.view
        self._context = context
        self._schema = schema
        reading = [policy for policy in policies if policy.operation in ("*", "MATCH")]
        self._elements = [policy for policy in reading if policy.attribute is None]
        self._attributes = [policy for policy in reading if policy.attribute is not None]
        self._known: dict[str, tuple[Element | None, Element | None]] = {}
        """Id ▸ the version that was checked, and its visible version."""

    # --- View -------------------------------------------------------------------------------------------------

    def get(self, id: str) -> Element | None:
        element = self._view.get(id)
        return None if element is None else self.visible_version(element)

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        return self._seen(self._view.scan(types))

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterator[Element]:
        for element in self._view.lookup(owner, attribute, value):
            seen = self.visible_version(element)
            if seen is not None and (seen is element or self._value(seen, attribute) == value):
                yield seen

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        return self._seen(self._view.edges_at(edge, position, id))

    def incident(self, id: str) -> Iterable[Element]:
        return self._seen(self._view.incident(id))

    def _seen(self, elements: Iterable[Element]) -> Iterator[Element]:
        for element in elements:
            seen = self.visible_version(element)
            if seen is not None:
                yield seen

    # --- decisions --------------------------------------------------------------------------------------------

    def visible_version(self, element: Element) -> Element | None:
        """The element as the actor sees it, or None. Cached per version."""
        version, known = self._known.get(element.id, (None, None))
        if version is not element:
            self._known[element.id] = (element, None)
            known = self.evaluate(element)
            self._known[element.id] = (element, known)
        return known

    def evaluate(self, element: Element) -> Element | None:
        """Like `visible_version`, without the cache."""
        visible = self._visible_edge(element) if element.targets is not None else self._visible(element)
        return self._masked(element) if visible else None

    def _visible(self, element: Element) -> bool:
        if self._schema.nodes[element.type].is_layer0:
            return True
        allowed = False
        for policy in self._elements:
            if policy.applies_to("MATCH", element.type, None) and self._applies(policy, element):
                if not policy.allow:
                    return False
                allowed = True
        return allowed

    def _visible_edge(self, edge: Element) -> bool:
        named = allowed = False
        for policy in self._elements:
            if not policy.applies_to("MATCH", edge.type, None):
                continue
            explicit = policy.allow and policy.types is not None
            named = named or explicit
            if self._applies(policy, edge):
                if not policy.allow:
                    return False
                allowed = allowed or explicit
        if named:
            return allowed
        targets = (self._view.get(id) for id in edge.targets or ())
        return all(target is not None and self.visible_version(target) is not None for target in targets)

    def _masked(self, element: Element) -> Element:
        about = [p for p in self._attributes if p.applies_to("MATCH", element.type, p.attribute)]
        if not about:
            return element
        holder = (
            self._schema.edges[element.type]
            if element.targets is not None
            else self._schema.nodes[element.type]
        )
        hidden = {
            position
            for name, position in holder.layout.items()
            if self._hides([p for p in about if p.attribute == name], element)
        }
        if not hidden:
            return element
        values = tuple(None if position in hidden else value for position, value in enumerate(element.values))
        return Element(element.id, element.type, values, element.targets)

    def _hides(self, about: list[Policy], element: Element) -> bool:
        if not about:
            return False
        if any(not policy.allow and self._applies(policy, element) for policy in about):
            return True
        allowing = [policy for policy in about if policy.allow]
        return bool(allowing) and not any(self._applies(policy, element) for policy in allowing)

    def _applies(self, policy: Policy, element: Element) -> bool:
        context = self._context
        context.operation, context.target, context.target_type = "MATCH", element, element.type
        context.target_attr = policy.attribute
        try:
            return condition_holds(policy, element, context)
        except VedetteError:
            return not policy.allow

    def _value(self, element: Element, attribute: str) -> Any:
        holder = (
            self._schema.edges[element.type]
            if element.targets is not None
            else self._schema.nodes[element.type]
        )
        return element.values[holder.layout[attribute]]
