"""Policies as values: which ones speak about an operation, and what they decide together (spec/language.md §3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vedette.element import Element
from vedette.errors import VedetteError
from vedette.language.compile.execution_context import Context, Row
from vedette.language.compile.expressions import Closure
from vedette.language.compile.patterns import PatternChains
from vedette.language.plan.planner import PlanContext
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import Frame, Place, Scope
from vedette.language.resolve.tree import Condition, ContextValue, slots_of, subexpressions
from vedette.language.resolve.types import attribute_places, resolve_type
from vedette.language.syntax.declarations import OperationPattern, PolicyDeclaration
from vedette.language.syntax.expressions import NamedType, TypeExpression
from vedette.language.types import Type, node_type
from vedette.policy.operation_targets import graph_side

__all__ = [
    "PLACE",
    "Decision",
    "Policy",
    "compile_policy",
    "decide",
    "holds",
    "named_types",
    "variable_of",
]

PLACE = Place(policy=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One operation pattern of a declared policy, compiled."""

    name: str
    allow: bool
    priority: int
    message: str | None
    operation: str
    types: frozenset[str] | None
    """Types of the operation's element that it speaks about, subtypes included; None is any."""
    touching: frozenset[str] | None
    """LINK(_, t: Task): types that one of the edge's targets must have; None when not asked."""
    attribute: str | None
    condition: Closure
    slot: int | None
    """The register of the pattern's variable."""
    size: int
    instance: bool
    """Whether the condition looks at the element itself."""

    def speaks_about(self, operation: str, type_name: str | None, attribute: str | None) -> bool:
        if self.operation not in ("*", operation):
            return False
        if self.types is not None and (type_name is None or type_name not in self.types):
            return False
        return self.attribute is None or self.attribute == attribute


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one operation, with the policy that decided (None: nobody spoke, so it is denied)."""

    allowed: bool
    policy: str | None = None
    message: str | None = None
    failed: str | None = None
    """Code and name of the error that a condition raised (E7004). Its text may quote data, so it is not kept."""


def compile_policy(declaration: PolicyDeclaration, context: PlanContext, source: str = "") -> list[Policy]:
    """As far as it is about the graph; `policy/collection_policies.py` has the rest."""
    sides = (graph_side(operation, context.schema) for operation in declaration.operations)
    return [_compile(declaration, operation, context, source) for operation in sides if operation is not None]


def _compile(
    declaration: PolicyDeclaration, operation: OperationPattern, context: PlanContext, source: str
) -> Policy:
    frame = Frame(context.schema, source)
    scope = Scope(frame)
    resolver = PatternResolver(frame, PLACE)
    variable, written = variable_of(operation, frame)
    type_ = resolve_type(frame, written) if written is not None else None
    second_name, second_type = operation.second or (None, None)
    touching = resolve_type(frame, second_type) if second_type is not None else None
    bound = second_name if second_name is not None else variable
    bound_type = touching if second_name is not None else type_
    slot = scope.bind(bound, bound_type or node_type()).slot if bound is not None else None
    _check_attribute(frame, operation, type_)
    condition = resolver.condition(declaration.condition, scope)
    frame.finish()
    assert condition is not None
    return Policy(
        name=declaration.name,
        allow=declaration.allow,
        priority=declaration.priority,
        message=declaration.message,
        operation=operation.operation,
        types=named_types(frame, type_),
        touching=named_types(frame, touching),
        attribute=operation.attribute,
        condition=PatternChains(context).condition(condition),
        slot=slot,
        size=frame.size,
        instance=_looks_at(condition, slot),
    )


def _looks_at(condition: Condition, slot: int | None) -> bool:
    """Whether the condition mentions the element: its variable, or target() and its kin."""
    asks = (
        p for p in subexpressions(condition) if isinstance(p, ContextValue) and p.name.startswith("target")
    )
    return (slot is not None and slot in slots_of(condition)) or any(asks)


def variable_of(operation: OperationPattern, frame: Frame) -> tuple[str | None, TypeExpression | None]:
    """`META SPAWN(_Watch)`: a bare name that is a type means the type."""
    name, type_ = operation.variable, operation.type
    if type_ is None and name is not None and (name in frame.schema.nodes or name in frame.schema.edges):
        return None, NamedType(name, span=operation.span)
    return name, type_


def named_types(frame: Frame, type_: Type | None) -> frozenset[str] | None:
    if type_ is None or type_.names is None:
        return None
    below = (
        frame.schema.nodes[name].descendants if name in frame.schema.nodes else {name} for name in type_.names
    )
    return frozenset().union(*below)


def _check_attribute(frame: Frame, operation: OperationPattern, type_: Type | None) -> None:
    """A policy about an attribute that nothing has would silently guard nothing."""
    if operation.attribute is None or type_ is None or not type_.is_reference:
        return
    found = attribute_places(frame, type_, operation.attribute)
    if isinstance(found, str):
        frame.report("E2002", found, operation.span)


# --- deciding ---------------------------------------------------------------------------------------------------


def holds(policy: Policy, element: Element | None, context: Context) -> bool:
    """Whether the policy's condition is true for this element; a LINK(_, t: Task) tries each fitting target."""
    for bound in _bindings(policy, element, context):
        row: Row = [None] * policy.size
        row[0] = context
        if policy.slot is not None:
            row[policy.slot] = bound
        if policy.condition(row) is True:
            return True
    return False


def _bindings(policy: Policy, element: Element | None, context: Context) -> Iterable[Element | None]:
    if policy.touching is None:
        return (element,)
    targets = (context.view.get(id) for id in (element.targets or ())) if element is not None else ()
    return [target for target in targets if target is not None and target.type in policy.touching]


def decide(
    policies: Sequence[Policy],
    operation: str,
    element: Element | None,
    attribute: str | None,
    context: Context,
) -> Decision:
    """Those whose condition is true vote; the highest priority wins, DENY wins ties, nobody voting denies."""
    best: Policy | None = None
    context.operation, context.target = operation, element
    context.target_type = element.type if element is not None else context.target_type
    context.target_attr = attribute
    for policy in policies:
        type_name = element.type if element is not None else context.target_type
        if not policy.speaks_about(operation, type_name, attribute):
            continue
        try:
            vote = holds(policy, element, context)
        except VedetteError as error:
            return Decision(False, policy.name, None, f"{error.code} {error.name}")
        if vote and (best is None or (policy.priority, not policy.allow) > (best.priority, not best.allow)):
            best = policy
    if best is None:
        return Decision(False)
    return Decision(best.allow, best.name, best.message)
