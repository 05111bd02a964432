"""Policies on external collections (`ON MATCH(o: shop::orders) …`), for processes that see documents but not the
graph.

A condition is split once. What reads the document stays an expression. What reads the graph, the actor or nothing
is evaluated here on request and replaced by a constant:

    o.owner = current_actor() AND EXISTS(me: User WHERE me = current_actor() AND me.admin)
    o.owner = "n1_7"          AND TRUE

A nested pattern may be joined with the document by one equality, which becomes a list of the values found:

    EXISTS(m: Member WHERE m.user = current_actor() AND m.region = o.region)      o.region IN ["north", "east"]

The result is a tuple of `ViewRule`: text that any process can evaluate. A condition that cannot be split has a
`problem`, and requests that depend on it are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from vedette.element import Element
from vedette.errors import VedetteError
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.plan.steps import PlanContext
from vedette.language.printer import print_expression
from vedette.language.resolve.analysis import registers_read
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import AnalysisContext, Scope
from vedette.language.resolve.tree import ResolvedExpression, ResolvedPatternAggregate
from vedette.language.syntax.declarations import OperationPattern, PolicyDeclaration
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Exists,
    Expression,
    ListLiteral,
    Literal,
    Parameter,
    TypeTest,
    Unary,
    Variable,
)
from vedette.language.syntax.visit import transform, walk
from vedette.language.types import list_of
from vedette.policy.decisions import POLICY_SITE
from vedette.policy.dependencies import mentioned_types
from vedette.policy.operation_targets import external_collections
from vedette.watch.delta import value_key

__all__ = [
    "CollectionPolicy",
    "UnsupportedPolicy",
    "ViewRule",
    "compile_collection_policy",
    "is_ever_visible",
    "view_rules",
]

MAX_LISTED_VALUES = 1_000
"""Maximum number of graph values in one comparison with a document."""
_TIME = frozenset({"now", "wall_time", "logical_time"})
_UNNAMED = "document"
"""The variable of the document in an operation without one."""


class UnsupportedPolicy(Exception):
    """A policy cannot be expressed as a condition on documents."""

    def __init__(self, policy: str, reason: str) -> None:
        super().__init__(f"the policy {policy} {reason}")


class ViewRule(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on reading a collection, for one actor at one moment. Stored as part of a `SubscriptionSpec`."""

    allow: bool = msgspec.field(name="allow")
    attribute: str | None = msgspec.field(name="attribute")
    """The attribute it applies to; None: the document."""
    variable: str = msgspec.field(name="variable")
    """The name of the document in the condition."""
    condition: str = msgspec.field(name="condition")
    """A MEW expression over the document and constants."""


@dataclass(frozen=True, slots=True)
class _GraphValue:
    """A part of a condition that the graph determines: a value, or with `listed` the values a pattern finds."""

    value: CompiledExpression
    size: int
    listed: tuple[int, CompiledExpression] | None = None
    """The register of the pattern's elements, and the value read from each."""

    def evaluate(self, context: ExecutionContext) -> Any:
        row: Row = [None] * self.size
        row[0] = context
        found = self.value(row)
        if self.listed is None:
            return found
        slot, read = self.listed
        values: dict[Any, Any] = {}
        for element in found:
            row[slot] = element
            value = read(row)
            values[value_key(value)] = value
            if len(values) > MAX_LISTED_VALUES:
                break  # too many to list
        return list(values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPolicy:
    """One operation pattern of a declared policy that applies to external collections."""

    name: str
    allow: bool
    collections: frozenset[str] | None
    """The collections; None: all."""
    attribute: str | None
    variable: str
    condition: Expression
    """With numbered parameters in place of graph values."""
    known: tuple[_GraphValue, ...]
    instance: bool
    """True if the condition reads the document."""
    depends_on_types: frozenset[str] | None
    """Graph types whose changes can change the graph values; None: time can as well, so any commit may."""
    problem: str | None

    def speaks_about(self, collection: str) -> bool:
        return self.collections is None or collection in self.collections


def compile_collection_policy(
    declaration: PolicyDeclaration, context: PlanContext, source: str = ""
) -> list[CollectionPolicy]:
    """Compile the part of a policy that applies to external collections. Raises with all its errors."""
    found = []
    for operation in declaration.operations:
        analysis = AnalysisContext(context.schema, source)
        collections = external_collections(operation, analysis)
        if collections is None or collections:
            found.append(_compile(declaration, operation, collections, analysis, context))
        analysis.raise_if_any()
    return found


def _compile(
    declaration: PolicyDeclaration,
    operation: OperationPattern,
    collections: frozenset[str] | None,
    analysis: AnalysisContext,
    context: PlanContext,
) -> CollectionPolicy:
    variable = operation.variable or _UNNAMED
    parts = _ConditionSplitter(analysis, variable, context)
    condition = parts.condition(declaration.condition)
    instance = any(_is_document(node, variable) for node in walk(condition))
    return CollectionPolicy(
        name=declaration.name,
        allow=declaration.allow,
        collections=collections,
        attribute=operation.attribute,
        variable=variable,
        condition=condition,
        known=tuple(_GraphValue(known.value, analysis.register_count, known.listed) for known in parts.known),
        instance=instance,
        depends_on_types=None if parts.depends_on_time else frozenset(parts.depends_on_types),
        problem=parts.problem,
    )


def _is_document(node: Any, variable: str) -> bool:
    return (isinstance(node, Variable) and node.name == variable) or (
        isinstance(node, Call) and node.name.lower() == "target"
    )


class _ConditionSplitter:
    """Splits a condition into an expression over the document and graph values."""

    def __init__(self, analysis: AnalysisContext, variable: str, context: PlanContext) -> None:
        self._resolver = PatternResolver(analysis, POLICY_SITE)
        self._variable = variable
        self._chains = PatternCompiler(context)
        self.known: list[_GraphValue] = []
        self.depends_on_types: set[str] = set()
        self.depends_on_time = False
        self.problem: str | None = None

    def condition(self, node: Expression) -> Expression:
        if isinstance(node, Literal):
            return Literal(node.value)
        if not self._mentioned(node):
            return self._known(node)
        match node:
            case Binary(left=left, right=right):
                return replace(node, left=self.condition(left), right=self.condition(right))
            case Unary(operand=operand):
                return replace(node, operand=self.condition(operand))
            case ListLiteral(items=items):
                return replace(node, items=tuple(map(self.condition, items)))
            case Call(name=name) if name.lower() == "target":
                return Variable(self._variable)
            case Variable() | Attribute() | TypeTest():
                return node
            case Exists():
                return self._met(node)
        return self._cannot(f"has a {type(node).__name__} over the document")

    def _mentioned(self, node: Any) -> bool:
        return any(_is_document(part, self._variable) for part in walk(node))

    def _cannot(self, problem: str) -> Expression:
        self.problem = self.problem or problem
        return Literal(None)

    # --- graph values -----------------------------------------------------------------------------------------

    def _known(self, node: Expression) -> Expression:
        found = self._resolver.resolve(node, Scope(self._resolver.analysis))
        self._note(node, found)
        if found.type.kind != "Bool" and self.depends_on_time:
            return self._cannot("compares the document with the current time")
        return self._place(_GraphValue(self._read(found), 0))

    def _read(self, found: ResolvedExpression) -> CompiledExpression:
        return (
            self._chains.compile_element_id(found)
            if found.type.is_reference
            else self._chains.compile_expression(found)
        )

    def _note(self, node: Any, found: ResolvedExpression) -> None:
        self.depends_on_types.update(mentioned_types(found))
        self.depends_on_time = self.depends_on_time or any(
            isinstance(part, Call) and part.name.lower() in _TIME for part in walk(node)
        )

    def _place(self, known: _GraphValue) -> Expression:
        self.known.append(known)
        return Parameter(str(len(self.known) - 1))

    def _met(self, node: Exists) -> Expression:
        """A nested pattern that is joined with the document by one equality."""
        meeting = [part for part in _conjuncts(node.where) if self._mentioned(part)]
        apart = [part for part in _conjuncts(node.where) if not self._mentioned(part)]
        if self._mentioned(node.pattern) or len(meeting) != 1:
            return self._cannot("joins documents with the graph by more than one equality")
        match meeting[0]:
            case Binary(op="=", left=left, right=right) if self._mentioned(left) != self._mentioned(right):
                outer, inner = (left, right) if self._mentioned(left) else (right, left)
            case _:
                return self._cannot("joins documents with the graph by more than one equality")
        scope = Scope(self._resolver.analysis).child()
        where = None
        for part in apart:
            where = part if where is None else Binary("AND", where, part)
        pattern = self._resolver.resolve_pattern(node.pattern, where, scope)
        read = self._resolver.resolve(inner, scope)
        slots = registers_read(read)
        if len(slots) != 1:
            return self._cannot("joins documents with several elements of the graph at once")
        (slot,) = slots
        fold = ResolvedPatternAggregate("COLLECT", pattern, slot, -1, list_of(read.type))
        self._note(node, fold)
        listed = _GraphValue(self._chains.compile_expression(fold), 0, (slot, self._read(read)))
        return Binary("IN", self.condition(outer), self._place(listed))


def _conjuncts(node: Expression | None) -> Iterator[Expression]:
    match node:
        case None:
            return
        case Binary(op="AND", left=left, right=right):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield node


# --- for one actor ----------------------------------------------------------------------------------------------


def view_rules(
    policies: Iterable[CollectionPolicy], collection: str, context: ExecutionContext
) -> tuple[tuple[CollectionPolicy, ViewRule], ...]:
    """The rules of a collection for the context's actor. Raises UnsupportedPolicy.

    A condition that raises counts as true for a DENY and as false for an ALLOW.
    """
    found = []
    for policy in policies:
        if policy.speaks_about(collection):
            try:
                condition = _policy_condition(policy, collection, context)
            except VedetteError:
                condition = Literal(not policy.allow)
            found.append((policy, _rule(policy, condition)))
    return tuple(found)


def _rule(policy: CollectionPolicy, condition: Expression) -> ViewRule:
    return ViewRule(
        allow=policy.allow,
        attribute=policy.attribute,
        variable=policy.variable,
        condition=print_expression(condition),
    )


def _policy_condition(policy: CollectionPolicy, collection: str, context: ExecutionContext) -> Expression:
    if policy.problem is not None:
        raise UnsupportedPolicy(policy.name, policy.problem)
    context.operation, context.target = "MATCH", None
    context.target_type, context.target_attr = collection, policy.attribute
    values = [_constant(policy, known.evaluate(context)) for known in policy.known]

    def filled(node: Any) -> Any:
        match node:
            case Parameter(name=name):
                return values[int(name)]
            case TypeTest(base=Variable(), type=type_):
                return Literal(type_ == collection)
        return None

    condition: Expression = transform(policy.condition, filled)
    return condition


def _constant(policy: CollectionPolicy, value: Any) -> Expression:
    if isinstance(value, list | tuple):
        if len(value) > MAX_LISTED_VALUES:
            raise UnsupportedPolicy(
                policy.name, f"compares the document with more than {MAX_LISTED_VALUES:,} values"
            )
        return ListLiteral(tuple(_constant(policy, item) for item in value))
    if isinstance(value, Element):
        return Literal(value.id)
    if isinstance(value, float) and not math.isfinite(value):
        raise UnsupportedPolicy(policy.name, "compares the document with a number that is not finite")
    return Literal(value)


def _is_true(rule: ViewRule) -> bool:
    """True if the condition holds for every document."""
    return rule.condition == print_expression(Literal(True))


def is_ever_visible(rules: Sequence[tuple[CollectionPolicy, ViewRule]], attribute: str | None = None) -> bool:
    """True if some policy could show the collection or attribute.

    Conditions on the document are evaluated later.
    """
    allowed = attribute is not None
    for policy, rule in rules:
        if policy.attribute != attribute:
            continue
        if policy.instance:
            allowed = allowed or policy.allow
        elif _is_true(rule):
            if not policy.allow:
                return False
            allowed = True
    return allowed
