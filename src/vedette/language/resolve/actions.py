"""Resolve the actions SPAWN, LINK, SET, KILL and UNLINK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.queries import ResolvedQuery, ResolvedReturn, resolve_blocks, resolve_return
from vedette.language.resolve.scope import Scope
from vedette.language.resolve.tree import ElementReference, ResolvedExpression, VariableRef
from vedette.language.resolve.types import UnknownAttribute, find_attribute
from vedette.language.schema.conversion import is_assignable
from vedette.language.schema.model import EdgeType, NodeType
from vedette.language.syntax import expressions as syntax
from vedette.language.syntax import statements
from vedette.language.types import Type, edge_type, node_type

__all__ = [
    "ResolvedAction",
    "ResolvedEdgesByTargets",
    "ResolvedKill",
    "ResolvedLink",
    "ResolvedSet",
    "ResolvedSpawn",
    "ResolvedSubquery",
    "ResolvedTarget",
    "ResolvedUnlink",
    "resolve_action",
]


@dataclass(frozen=True, slots=True)
class ResolvedSpawn:
    type: str
    assignments: tuple[tuple[str, ResolvedExpression], ...]
    register: int
    variable: str | None


@dataclass(frozen=True, slots=True)
class ResolvedSubquery:
    """`{ MATCH … RETURN v }`. `returns` has one column, the element."""

    query: ResolvedQuery
    returns: ResolvedReturn


@dataclass(frozen=True, slots=True)
class ResolvedEdgesByTargets:
    """`UNLINK edge(a, _)`; a target is None for a wildcard."""

    edge: str
    targets: tuple[ResolvedExpression | None, ...]


ResolvedTarget: TypeAlias = ResolvedExpression | ResolvedSubquery | ResolvedEdgesByTargets


@dataclass(frozen=True, slots=True)
class ResolvedLink:
    edge: str
    targets: tuple[ResolvedSpawn | ResolvedSubquery | ResolvedExpression, ...]
    assignments: tuple[tuple[str, ResolvedExpression], ...]
    register: int
    variable: str | None
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class ResolvedSet:
    target: ResolvedTarget
    assignments: tuple[tuple[str, ResolvedExpression], ...]


@dataclass(frozen=True, slots=True)
class ResolvedKill:
    target: ResolvedTarget
    cascade: bool | None


@dataclass(frozen=True, slots=True)
class ResolvedUnlink:
    target: ResolvedTarget


ResolvedAction: TypeAlias = ResolvedSpawn | ResolvedLink | ResolvedSet | ResolvedKill | ResolvedUnlink


def resolve_action(
    resolver: PatternResolver, action: statements.Action, scope: Scope
) -> tuple[ResolvedAction, ...]:
    """Resolve one action and add its variables to the scope. A chained SPAWN gives several resolved actions."""
    match action:
        case statements.Spawn():
            return tuple(_spawn(resolver, item, scope) for item in action.items)
        case statements.Link():
            return (_link(resolver, action, scope),)
        case statements.Set():
            return (_set(resolver, action, scope),)
        case statements.Kill():
            return (ResolvedKill(_target(resolver, action.target, scope, "Node"), action.cascade),)
        case statements.Unlink():
            return (ResolvedUnlink(_target(resolver, action.target, scope, "Edge")),)


# --- SPAWN and LINK --------------------------------------------------------------------------------------------


def _spawn(resolver: PatternResolver, item: statements.SpawnItem, scope: Scope) -> ResolvedSpawn:
    node = _node_type(resolver, item)
    assignments: tuple[tuple[str, ResolvedExpression], ...] = ()
    if node is not None:
        assignments = _assignments(resolver, item.assignments, node_type(node.name), scope)
        _check_required_attributes(resolver, node, item.assignments, item)
    name = node.name if node is not None else ""
    variable = scope.bind(
        item.variable or f"_spawn{scope.analysis.register_count}", node_type(name) if name else node_type()
    )
    return ResolvedSpawn(name, assignments, variable.register, item.variable)


def _node_type(resolver: PatternResolver, item: statements.SpawnItem) -> NodeType | None:
    report = resolver.analysis.report
    if not isinstance(item.type, syntax.NamedType):
        report("E2003", "SPAWN needs one node type", item.type.span)
        return None
    node = resolver.analysis.schema.nodes.get(item.type.name)
    if node is None:
        report("E2001", f"Unknown type '{item.type.name}'", item.type.span)
    elif node.is_layer0:
        report("E2012", f"Cannot create protected type '{node.name}'", item.type.span)
    elif node.abstract:
        report("E2013", f"Cannot instantiate abstract type '{node.name}'", item.type.span)
    else:
        return node
    return None


def _check_required_attributes(
    resolver: PatternResolver,
    holder: NodeType | EdgeType,
    given: Sequence[statements.Assignment],
    at: statements.SpawnItem | statements.Link,
) -> None:
    names = {assignment.name for assignment in given}
    for attribute in holder.attributes.values():
        if attribute.required and attribute.default is None and attribute.name not in names:
            text = f"Attribute '{attribute.name}' of '{holder.name}' is required: give it a value"
            resolver.analysis.report("E3002", text, at.span)


def _assignments(
    resolver: PatternResolver, given: Sequence[statements.Assignment], type_: Type, scope: Scope
) -> tuple[tuple[str, ResolvedExpression], ...]:
    found: list[tuple[str, ResolvedExpression]] = []
    seen: set[str] = set()
    for assignment in given:
        value = resolver.resolve(assignment.expression, scope)
        if assignment.name in seen:
            resolver.analysis.report(
                "E2005", f"Attribute '{assignment.name}' is given twice", assignment.span
            )
        seen.add(assignment.name)
        if _check_assignment(resolver, assignment, value, type_):
            found.append((assignment.name, value))
    return tuple(found)


def _check_assignment(
    resolver: PatternResolver, assignment: statements.Assignment, value: ResolvedExpression, type_: Type
) -> bool:
    """Report an attribute that does not exist or does not accept the value; then return False."""
    try:
        declarations = find_attribute(resolver.analysis, type_, assignment.name).declarations
    except UnknownAttribute as error:
        resolver.analysis.report("E2002", str(error), assignment.span)
        return False
    if not any(is_assignable(value.type, attribute.type) for attribute in declarations):
        text = f"Attribute '{assignment.name}' is {declarations[0].type}, the value is {value.type} (type mismatch)"
        resolver.analysis.report("E2003", text, assignment.expression.span)
        return False
    return True


def _link(resolver: PatternResolver, link: statements.Link, scope: Scope) -> ResolvedLink:
    edge = resolver.analysis.schema.edges.get(link.edge)
    report = resolver.analysis.report
    if edge is None:
        report("E2001", f"Unknown edge type '{link.edge}'", link.span)
    elif edge.is_layer0:
        report("E2012", f"Cannot create protected type '{edge.name}'", link.span)
    elif edge.arity != len(link.targets):
        text = f"Edge '{edge.name}' expects {edge.arity} targets, got {len(link.targets)} (arity)"
        report("E2007", text, link.span)
    targets = tuple(_link_target(resolver, target, scope) for target in link.targets)
    assignments: tuple[tuple[str, ResolvedExpression], ...] = ()
    if edge is not None:
        assignments = _assignments(resolver, link.assignments, edge_type(edge.name), scope)
        _check_required_attributes(resolver, edge, link.assignments, link)
        _check_targets(resolver, edge, targets, link)
    variable = scope.bind(link.variable or f"_link{scope.analysis.register_count}", edge_type(link.edge))
    return ResolvedLink(link.edge, targets, assignments, variable.register, link.variable, link.if_not_exists)


def _link_target(
    resolver: PatternResolver, target: statements.LinkTarget, scope: Scope
) -> ResolvedSpawn | ResolvedSubquery | ResolvedExpression:
    if isinstance(target, statements.SpawnItem):
        return _spawn(resolver, target, scope)
    if isinstance(target, statements.Subquery):
        return _subquery(resolver, target, scope)
    value = resolver.resolve(target, scope)
    if not value.type.is_reference and value.type.kind not in ("ID", "String", "Any", "Null", "Union"):
        resolver.analysis.report(
            "E2003", f"A target must be an element or an id, this is {value.type}", target.span
        )
    return value


def _check_targets(
    resolver: PatternResolver,
    edge: EdgeType,
    targets: tuple[ResolvedSpawn | ResolvedSubquery | ResolvedExpression, ...],
    link: statements.Link,
) -> None:
    for parameter, target, written in zip(edge.parameters, targets, link.targets, strict=False):
        known = node_type(target.type) if isinstance(target, ResolvedSpawn) and target.type else None
        if isinstance(target, VariableRef):
            known = target.type
        if known is not None and resolver.are_disjoint(known, parameter.type):
            text = (
                f"'{edge.name}' joins {parameter.type} as '{parameter.name}', this is {known} (type mismatch)"
            )
            resolver.analysis.report("E2003", text, written.span)


# --- targets ----------------------------------------------------------------------------------------------------


def _target(
    resolver: PatternResolver, target: statements.MutationTarget, scope: Scope, kind: str
) -> ResolvedTarget:
    if isinstance(target, statements.Subquery):
        return _subquery(resolver, target, scope)
    if isinstance(target, statements.EdgesByTargets):
        return _endpoints(resolver, target, scope)
    if isinstance(target, syntax.Variable) and scope.lookup(target.name) is None:
        return ElementReference(target.name, False)
    found = resolver.resolve(target, scope)
    for name in sorted(found.type.names or ()):
        if name.startswith("_"):
            resolver.analysis.report("E2012", f"Cannot write protected type '{name}'", target.span)
    wrong = {"Node": "Edge", "Edge": "Node"}.get(kind)
    if found.type.kind == wrong:
        verb = (
            "KILL takes a node: use UNLINK for an edge"
            if kind == "Node"
            else "UNLINK takes an edge: use KILL for a node"
        )
        resolver.analysis.report("E2003", verb, target.span)
    return found


def _endpoints(resolver: PatternResolver, target: statements.EdgesByTargets, scope: Scope) -> ResolvedTarget:
    edge = resolver.analysis.schema.edges.get(target.edge)
    if edge is None:
        resolver.analysis.report("E2001", f"Unknown edge type '{target.edge}'", target.span)
    elif edge.arity != len(target.targets):
        text = f"Edge '{edge.name}' expects {edge.arity} targets, got {len(target.targets)} (arity)"
        resolver.analysis.report("E2007", text, target.span)
    ends = tuple(
        None if isinstance(end, syntax.Wildcard) else resolver.resolve(end, scope) for end in target.targets
    )
    return ResolvedEdgesByTargets(target.edge, ends)


def _subquery(resolver: PatternResolver, subquery: statements.Subquery, scope: Scope) -> ResolvedSubquery:
    inner = scope.child()
    match = subquery.match
    query = resolve_blocks(resolver, match.blocks, match.optional, inner)
    returns = resolve_return(resolver, match.returns, inner)
    if len(returns.columns) != 1 or not returns.projections[0].type.is_reference:
        resolver.analysis.report(
            "E2009", "A subquery that is used as a target must RETURN one element", subquery.span
        )
    for projection in returns.projections:
        for name in sorted(projection.type.names or ()):
            if name.startswith("_"):
                resolver.analysis.report("E2012", f"Cannot write protected type '{name}'", subquery.span)
    return ResolvedSubquery(query, returns)


def _set(resolver: PatternResolver, action: statements.Set, scope: Scope) -> ResolvedSet:
    target = _target(resolver, action.target, scope, "any")
    type_ = _target_type(target)
    if isinstance(target, ResolvedEdgesByTargets):
        type_ = edge_type(target.edge) if target.edge in resolver.analysis.schema.edges else None
    if type_ is not None and type_.is_reference:
        _check_writable(resolver, type_, action)
        return ResolvedSet(target, _assignments(resolver, action.assignments, type_, scope))
    values = tuple((a.name, resolver.resolve(a.expression, scope)) for a in action.assignments)
    return ResolvedSet(target, values)


def _target_type(target: ResolvedTarget) -> Type | None:
    if isinstance(target, ResolvedSubquery):
        return target.returns.projections[0].type if target.returns.projections else None
    if isinstance(target, ResolvedEdgesByTargets) or target.type.kind == "ID":
        return None
    return target.type


def _check_writable(resolver: PatternResolver, type_: Type, action: statements.Set) -> None:
    for name in sorted(type_.names or ()):
        holder = resolver.analysis.schema.nodes.get(name) or resolver.analysis.schema.edges.get(name)
        for assignment in action.assignments:
            attribute = holder.attributes.get(assignment.name) if holder is not None else None
            if attribute is not None and attribute.readonly:
                text = (
                    f"Attribute '{assignment.name}' of '{name}' is readonly: it can be set only on creation"
                )
                resolver.analysis.report("E3004", text, assignment.span)
