"""Compiles policies, and decides whether an operation is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vedette.element import Element
from vedette.errors import VedetteError
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.plan.steps import PlanContext
from vedette.language.resolve.analysis import registers_read, walk_expression
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import AnalysisContext, ExpressionSite, Scope
from vedette.language.resolve.tree import ContextFunction, ResolvedExpression
from vedette.language.resolve.types import UnknownAttribute, find_attribute, resolve_type
from vedette.language.syntax.declarations import OperationPattern, PolicyDeclaration
from vedette.language.syntax.expressions import NamedType, TypeExpression
from vedette.language.types import Type, node_type
from vedette.policy.operation_targets import graph_operation

__all__ = [
    "POLICY_SITE",
    "Decision",
    "Policy",
    "compile_policy",
    "condition_holds",
    "decide",
    "named_types",
    "variable_of",
]

POLICY_SITE = ExpressionSite(allows_policy_target=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One operation pattern of a declared policy, compiled."""

    name: str
    allow: bool
    priority: int
    message: str | None
    operation: str
    types: frozenset[str] | None
    """Types of the operation's element that it applies to, subtypes included; None: any."""
    target_types: frozenset[str] | None
    """LINK(_, t: Task): types that one of the edge's targets must have; None: not restricted."""
    attribute: str | None
    condition: CompiledExpression
    slot: int | None
    """The register of the pattern's variable."""
    size: int
    reads_element: bool
    """True if the condition reads the element itself."""

    def applies_to(self, operation: str, type_name: str | None, attribute: str | None) -> bool:
        if self.operation not in ("*", operation):
            return False
        if self.types is not None and (type_name is None or type_name not in self.types):
            return False
        return self.attribute is None or self.attribute == attribute


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one operation, with the policy that decided (None: no policy applied, so it is denied)."""

    allowed: bool
    policy: str | None = None
    message: str | None = None
    error: str | None = None
    """Code and name of the error that a condition raised (E7004). Its text may contain data and is not stored."""


def compile_policy(declaration: PolicyDeclaration, context: PlanContext, source: str = "") -> list[Policy]:
    """Compile the part of a policy that applies to the graph; `collection_policies.py` has the rest."""
    sides = (graph_operation(operation, context.schema) for operation in declaration.operations)
    return [_compile(declaration, operation, context, source) for operation in sides if operation is not None]


def _compile(
    declaration: PolicyDeclaration, operation: OperationPattern, context: PlanContext, source: str
) -> Policy:
    analysis = AnalysisContext(context.schema, source)
    scope = Scope(analysis)
    resolver = PatternResolver(analysis, POLICY_SITE)
    variable, written = variable_of(operation, analysis)
    type_ = resolve_type(analysis, written) if written is not None else None
    second_name, second_type = operation.second or (None, None)
    touching = resolve_type(analysis, second_type) if second_type is not None else None
    bound = second_name if second_name is not None else variable
    bound_type = touching if second_name is not None else type_
    slot = scope.bind(bound, bound_type or node_type()).register if bound is not None else None
    _check_attribute(analysis, operation, type_)
    condition = resolver.resolve_condition(declaration.condition, scope)
    analysis.raise_if_any()
    assert condition is not None
    return Policy(
        name=declaration.name,
        allow=declaration.allow,
        priority=declaration.priority,
        message=declaration.message,
        operation=operation.operation,
        types=named_types(analysis, type_),
        target_types=named_types(analysis, touching),
        attribute=operation.attribute,
        condition=PatternCompiler(context).compile_expression(condition),
        slot=slot,
        size=analysis.register_count,
        reads_element=_looks_at(condition, slot),
    )


def _looks_at(condition: ResolvedExpression, slot: int | None) -> bool:
    """True if the condition reads the element, by its variable or by target() and related functions."""
    asks = (
        p
        for p in walk_expression(condition)
        if isinstance(p, ContextFunction) and p.name.startswith("target")
    )
    return (slot is not None and slot in registers_read(condition)) or any(asks)


def variable_of(
    operation: OperationPattern, analysis: AnalysisContext
) -> tuple[str | None, TypeExpression | None]:
    """`META SPAWN(_Watch)`: a bare name that is a type means the type."""
    name, type_ = operation.variable, operation.type
    if (
        type_ is None
        and name is not None
        and (name in analysis.schema.nodes or name in analysis.schema.edges)
    ):
        return None, NamedType(name, span=operation.span)
    return name, type_


def named_types(analysis: AnalysisContext, type_: Type | None) -> frozenset[str] | None:
    if type_ is None or type_.names is None:
        return None
    below = (
        analysis.schema.nodes[name].descendants if name in analysis.schema.nodes else {name}
        for name in type_.names
    )
    return frozenset().union(*below)


def _check_attribute(analysis: AnalysisContext, operation: OperationPattern, type_: Type | None) -> None:
    """Reject a policy on an attribute that does not exist: it would protect nothing."""
    if operation.attribute is None or type_ is None or not type_.is_reference:
        return
    try:
        find_attribute(analysis, type_, operation.attribute)
    except UnknownAttribute as error:
        analysis.report("E2002", str(error), operation.span)


# --- decisions --------------------------------------------------------------------------------------------------


def condition_holds(policy: Policy, element: Element | None, context: ExecutionContext) -> bool:
    """True if the policy's condition holds for this element. LINK(_, t: Task) tries each matching target."""
    for bound in _bindings(policy, element, context):
        row: Row = [None] * policy.size
        row[0] = context
        if policy.slot is not None:
            row[policy.slot] = bound
        if policy.condition(row) is True:
            return True
    return False


def _bindings(policy: Policy, element: Element | None, context: ExecutionContext) -> Iterable[Element | None]:
    if policy.target_types is None:
        return (element,)
    targets = (context.view.get(id) for id in (element.targets or ())) if element is not None else ()
    return [target for target in targets if target is not None and target.type in policy.target_types]


def decide(
    policies: Sequence[Policy],
    operation: str,
    element: Element | None,
    attribute: str | None,
    context: ExecutionContext,
) -> Decision:
    """Among policies whose condition holds, the highest priority wins; DENY wins ties. If none holds, deny."""
    best: Policy | None = None
    context.operation, context.target = operation, element
    context.target_type = element.type if element is not None else context.target_type
    context.target_attr = attribute
    for policy in policies:
        type_name = element.type if element is not None else context.target_type
        if not policy.applies_to(operation, type_name, attribute):
            continue
        try:
            vote = condition_holds(policy, element, context)
        except VedetteError as error:
            return Decision(False, policy.name, None, f"{error.code} {error.name}")
        if vote and (best is None or (policy.priority, not policy.allow) > (best.priority, not best.allow)):
            best = policy
    if best is None:
        return Decision(False)
    return Decision(best.allow, best.name, best.message)
