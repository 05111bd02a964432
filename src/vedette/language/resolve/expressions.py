"""Resolve expressions: names become registers, every expression gets a static type, errors are collected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from vedette.language.functions import operators
from vedette.language.functions.registry import FUNCTIONS, ArgumentTypeError, Function
from vedette.language.resolve import tree as resolved
from vedette.language.resolve.scope import QUERY_SITE, AnalysisContext, ExpressionSite, Scope
from vedette.language.resolve.tree import FixedValue, ResolvedExpression
from vedette.language.resolve.types import AttributeLookup, UnknownAttribute, concrete_types, find_attribute
from vedette.language.schema.model import EdgeType, NodeType
from vedette.language.syntax import expressions as syntax
from vedette.language.syntax.expressions import Expression
from vedette.language.types import (
    ANY_VALUE,
    BOOL,
    DURATION,
    FLOAT,
    INT,
    NULL,
    Type,
    is_comparable,
    is_orderable,
    list_of,
    node_type,
    union_of,
)
from vedette.language.value_kinds import type_of_class

__all__ = ["ExpressionResolver"]

_UNRESOLVED = FixedValue(None, ANY_VALUE)
_BOOLEAN = frozenset({"Bool", "Any", "Null"})
_TEXT = frozenset({"String", "Any", "Null"})
_BUILT_IN = frozenset({"id", "_id", "_type", "_targets"})
_NOT_ALLOWED = {
    "allows_clock": (
        "E9034",
        "is nondeterministic: a constraint's condition must not depend on it",
    ),
    "allows_actor": ("E2009", "may not be used in a constraint or a default"),
    "allows_policy_target": ("E2009", "may only be used in the condition of a policy"),
}
"""Error code and reason for a context function at a site that does not allow it, by permission."""


class ExpressionResolver(ABC):
    """Resolves the expressions of one statement and reports their errors to one analysis context.

    Subclasses resolve patterns. A subclass may also replace how ids, context functions and edge targets are resolved,
    by overriding `resolve_id_reference`, `resolve_context_function` and (in `PatternResolver`) `resolve_edge_target`.
    """

    _RESOLVERS: ClassVar[Mapping[type, str]] = {
        syntax.Literal: "_literal",
        syntax.ListLiteral: "_list",
        syntax.Parameter: "_parameter",
        syntax.IdReference: "resolve_id_reference",
        syntax.Variable: "_variable",
        syntax.Attribute: "_attribute",
        syntax.TypeTest: "_type_test",
        syntax.Unary: "_unary",
        syntax.Binary: "_binary",
        syntax.Call: "_call",
        syntax.Aggregate: "_aggregate",
        syntax.PatternAggregate: "_pattern_aggregate",
        syntax.Exists: "_exists",
    }
    """Method names. A table of bound methods in each instance would be a reference cycle."""

    def __init__(self, analysis: AnalysisContext, site: ExpressionSite = QUERY_SITE) -> None:
        self.analysis = analysis
        self._site = site
        self._aggregates: list[resolved.AggregateCall] | None = None
        """The aggregates found so far; None where aggregates are not allowed."""

    @abstractmethod
    def resolve_pattern(
        self, pattern: syntax.Pattern, where: Expression | None, scope: Scope
    ) -> resolved.ResolvedPattern:
        """Resolve a pattern and add its variables to the scope."""

    def resolve(self, expression: Expression, scope: Scope) -> ResolvedExpression:
        """Resolve an expression. An error is reported, and a placeholder of type Any is returned."""
        name = self._RESOLVERS.get(type(expression))
        if name is None:
            return self._report("E2009", "This kind of expression is not allowed here", expression)
        condition: ResolvedExpression = getattr(self, name)(expression, scope)
        return condition

    def resolve_condition(self, expression: Expression | None, scope: Scope) -> ResolvedExpression | None:
        """Resolve an expression that must be Bool: WHERE, a constraint, a filter."""
        if expression is None:
            return None
        found = self.resolve(expression, scope)
        if found.type.kind not in _BOOLEAN:
            self._report("E2003", f"A condition must be Bool, this is {found.type}", expression)
        return found

    @contextmanager
    def at_site(self, site: ExpressionSite) -> Iterator[None]:
        """Apply the rules of another site to the expressions that are resolved inside the `with` block."""
        previous, self._site = self._site, site
        try:
            yield
        finally:
            self._site = previous

    @contextmanager
    def collecting_aggregates(self) -> Iterator[list[resolved.AggregateCall]]:
        """Allow aggregates inside the `with` block, and collect them in the list that it yields."""
        found: list[resolved.AggregateCall] = []
        self._aggregates = found
        try:
            yield found
        finally:
            self._aggregates = None

    # --- leaves -----------------------------------------------------------------------------------------------

    def _literal(self, literal: syntax.Literal, scope: Scope) -> ResolvedExpression:
        type_ = type_of_class(type(literal.value))
        if (
            literal.literal_index is None
            or not self.analysis.literals_extracted
            or literal.value is None
            or type_ is BOOL
        ):
            return FixedValue(literal.value, type_)
        return resolved.ConstantRef(literal.literal_index, type_)

    def _list(self, expression: syntax.ListLiteral, scope: Scope) -> ResolvedExpression:
        items = tuple(self.resolve(item, scope) for item in expression.items)
        inner = union_of(tuple(item.type for item in items)) if items else ANY_VALUE
        return resolved.ListValue(items, list_of(inner))

    def _parameter(self, parameter: syntax.Parameter, scope: Scope) -> ResolvedExpression:
        index = self.analysis.parameter_indexes.get(parameter.name)
        if index is None:
            if parameter.optional:
                return FixedValue(None, NULL)
            text = f"missing_parameter: no value was given for ${parameter.name}"
            return self._report("E2008", text, parameter)
        return resolved.ConstantRef(index, self.analysis.constant_types[index])

    def resolve_id_reference(self, reference: syntax.IdReference, scope: Scope) -> ResolvedExpression:
        if isinstance(reference.name, syntax.Parameter):
            index = self._parameter(reference.name, scope)
            return (
                resolved.ElementReference(index, True)
                if isinstance(index, resolved.ConstantRef)
                else _UNRESOLVED
            )
        if reference.name == "self" and not reference.quoted:
            return resolved.ContextFunction("self", node_type())
        return resolved.ElementReference(reference.name, reference.quoted)

    def _variable(self, variable: syntax.Variable, scope: Scope) -> ResolvedExpression:
        known = scope.lookup(variable.name)
        if known is not None:
            return known
        if self._site.allows_session_bindings:
            return resolved.ElementReference(variable.name, False)
        return self._report("E2004", f"Unknown variable '{variable.name}': no pattern binds it", variable)

    # --- access -----------------------------------------------------------------------------------------------

    def _attribute(self, expression: syntax.Attribute, scope: Scope) -> ResolvedExpression:
        base = self.resolve(expression.base, scope)
        name = expression.name
        if base is _UNRESOLVED:
            return _UNRESOLVED
        if base.type.kind in ("ID", "Any", "Null"):
            return self._dynamic_attribute(expression, base)
        if not self._has_attributes(base.type):
            return self._report("E2003", f"A value of type {base.type} has no attribute '{name}'", expression)
        try:
            found = find_attribute(self.analysis, base.type, name)
        except UnknownAttribute as error:
            built_in = self._built_in(base, name)
            return built_in if built_in is not None else self._report("E2002", str(error), expression)
        return self._known_attribute(base, name, found)

    def _known_attribute(
        self, base: ResolvedExpression, name: str, found: AttributeLookup
    ) -> ResolvedExpression:
        indexes = found.index_by_type
        everywhere = indexes.keys() >= set(concrete_types(self.analysis, base.type))
        common = next(iter(indexes.values())) if everywhere and len(set(indexes.values())) == 1 else None
        type_ = union_of(tuple(declaration.type for declaration in found.declarations))
        return resolved.AttributeAccess(base, name, type_, indexes, common)

    def _has_attributes(self, type_: Type) -> bool:
        return type_.is_reference or (type_.kind == "Union" and all(m.is_reference for m in type_.members))

    def _built_in(self, base: ResolvedExpression, name: str) -> ResolvedExpression | None:
        match name:
            case "id" | "_id":
                return resolved.IdOf(base)
            case "_type":
                return resolved.TypeOf(base)
            case "_targets" if base.type.kind == "Edge":
                return resolved.TargetsOf(base)
        return None

    def _dynamic_attribute(
        self, expression: syntax.Attribute, base: ResolvedExpression
    ) -> ResolvedExpression:
        name = expression.name
        schema = self.analysis.schema
        types: list[NodeType | EdgeType] = [*schema.nodes.values(), *schema.edges.values()]
        having = [each for each in types if name in each.attributes]
        if not having:
            if name in _BUILT_IN:
                return self._built_in(base, name) or resolved.TargetsOf(base)
            return self._report("E2002", f"Unknown attribute '{name}': no type has it", expression)
        index_by_type = {each.name: each.layout[name] for each in having}
        return resolved.DynamicAttributeAccess(
            base, name, index_by_type, union_of(tuple(h.attributes[name].type for h in having))
        )

    def _type_test(self, expression: syntax.TypeTest, scope: Scope) -> ResolvedExpression:
        base = self.resolve(expression.base, scope)
        schema = self.analysis.schema
        if expression.type in schema.nodes:
            return resolved.TypeIs(base, frozenset(schema.concrete_subtypes(frozenset({expression.type}))))
        if expression.type in schema.edges:
            return resolved.TypeIs(base, frozenset({expression.type}))
        return self._report("E2001", f"Unknown type '{expression.type}'", expression)

    # --- operators --------------------------------------------------------------------------------------------

    def _unary(self, expression: syntax.Unary, scope: Scope) -> ResolvedExpression:
        operand = self.resolve(expression.operand, scope)
        match expression.op:
            case "NOT":
                self._expect_bool(operand, expression)
                return resolved.Not(operand)
            case "-":
                if not operand.type.is_numeric and operand.type.kind not in ("Duration", "Any", "Null"):
                    self._report("E2003", f"Invalid operator '-' for type {operand.type}", expression)
                return resolved.Negate(operand, operand.type)
            case op:
                return resolved.IsNull(operand, op == "IS NOT NULL")

    def _binary(self, expression: syntax.Binary, scope: Scope) -> ResolvedExpression:
        left = self.resolve(expression.left, scope)
        right = self.resolve(expression.right, scope)
        type_ = self._result(expression.op, left.type, right.type)
        if type_ is None:
            text = f"Invalid operator '{expression.op}' for types {left.type} and {right.type}"
            return self._report("E2003", text, expression)
        if expression.op == "IN":
            return resolved.InList(left, right)
        return resolved.BinaryOperation(expression.op, left, right, type_)

    def _result(self, op: str, left: Type, right: Type) -> Type | None:
        match op:
            case "AND" | "OR":
                return BOOL if left.kind in _BOOLEAN and right.kind in _BOOLEAN else None
            case "=" | "!=":
                return BOOL if is_comparable(left, right) else None
            case "<" | "<=" | ">" | ">=":
                return BOOL if is_orderable(left, right) else None
            case "IN":
                is_list = right.kind in ("List", "Any", "Null")
                return (
                    BOOL
                    if is_list and (right.kind != "List" or is_comparable(left, right.members[0]))
                    else None
                )
            case "STARTS WITH" | "ENDS WITH" | "CONTAINS":
                return BOOL if left.kind in _TEXT and right.kind in _TEXT else None
            case "??":
                return (
                    right
                    if left.kind == "Null"
                    else left
                    if right.kind == "Null"
                    else union_of((left, right))
                )
        return operators.result_type(op, left, right)

    def _expect_bool(self, operand: ResolvedExpression, expression: Expression) -> None:
        if operand.type.kind not in _BOOLEAN:
            self._report("E2003", f"NOT needs a Bool, this is {operand.type}", expression)

    # --- calls ------------------------------------------------------------------------------------------------

    def _call(self, call: syntax.Call, scope: Scope) -> ResolvedExpression:
        name = call.name.lower()
        function = FUNCTIONS.get(name)
        if function is not None and function.needs_context:
            return self.resolve_context_function(function, call)
        if call.name in self.analysis.schema.edges:
            return self._edge_test(call, scope)
        arguments = tuple(self.resolve(argument, scope) for argument in call.arguments)
        if function is None:
            return self._report("E2006", f"Unknown function '{call.name}'", call)
        low, high = function.arity
        if not low <= len(arguments) <= (high if high is not None else len(arguments)):
            text = f"{call.name}() takes {_count(low, high)}, got {len(arguments)} (arity)"
            return self._report("E2007", text, call)
        if name == "type_of" and (arguments[0].type.is_reference or arguments[0].type.kind == "ID"):
            return resolved.TypeOf(arguments[0])
        try:
            result = function.result_type(tuple(argument.type for argument in arguments))
        except ArgumentTypeError as error:
            return self._report("E2003", str(error), call)
        return resolved.FunctionCall(name, arguments, result)

    def resolve_context_function(self, function: Function, call: syntax.Call) -> ResolvedExpression:
        """Resolve now(), current_actor(), target() … if the site allows the function."""
        if call.arguments:
            return self._report("E2007", f"{call.name}() takes no arguments (arity)", call)
        permission = function.permission
        if permission is not None and not getattr(self._site, permission):
            code, reason = _NOT_ALLOWED[permission]
            return self._report(code, f"{call.name}() {reason}", call)
        return resolved.ContextFunction(function.name, function.result_type(()))

    def _edge_test(self, call: syntax.Call, scope: Scope) -> ResolvedExpression:
        """`WHERE subscribed_to(s, c)` tests for an edge; it means EXISTS(subscribed_to(s, c))."""
        targets: list[syntax.EdgeTarget] = []
        for argument in call.arguments:
            if not isinstance(argument, (syntax.Variable, syntax.IdReference, syntax.Parameter, syntax.Call)):
                return self._report(
                    "E2009", f"'{call.name}' tests an edge: its arguments must be elements", argument
                )
            if (
                isinstance(argument, syntax.Variable)
                and argument.name != "_"
                and scope.lookup(argument.name) is None
            ):
                return self._variable(argument, scope)
            wildcard = isinstance(argument, syntax.Variable) and argument.name == "_"
            targets.append(syntax.Wildcard(span=argument.span) if wildcard else argument)
        edge = syntax.EdgePattern(call.name, tuple(targets), span=call.span)
        pattern = self.resolve_pattern(syntax.Pattern((edge,), span=call.span), None, scope.child())
        return resolved.ResolvedExists(pattern)

    def _aggregate(self, call: syntax.Aggregate, scope: Scope) -> ResolvedExpression:
        collected, self._aggregates = self._aggregates, None  # an aggregate inside an aggregate is an error
        if collected is None:
            return self._report(
                "E2009", f"{call.name}(…) may only be used in RETURN and ORDER BY, and not nested", call
            )
        operand = self.resolve(call.operand, scope) if call.operand is not None else None
        where = self.resolve_condition(call.where, scope)
        self._aggregates = collected
        name = call.name.upper()
        type_ = _aggregate_type(name, operand.type if operand is not None else NULL)
        if type_ is None:
            return self._report("E2003", f"{name} does not accept {operand.type if operand else '*'}", call)
        for known in collected:
            same = (known.name, known.operand, known.distinct, known.where, known.limit)
            if same == (name, operand, call.distinct, where, call.limit):
                return known
        found = resolved.AggregateCall(
            name, operand, call.distinct, where, call.limit, self.analysis.allocate_register(), type_
        )
        collected.append(found)
        return found

    def _pattern_aggregate(self, call: syntax.PatternAggregate, scope: Scope) -> ResolvedExpression:
        name = call.name.upper()
        if name not in ("COUNT", "COLLECT"):
            return self._report("E2009", f"{name} over a pattern is not defined: use COUNT or COLLECT", call)
        inner = scope.child()
        pattern = self.resolve_pattern(call.pattern, call.where, inner)
        first = call.pattern.elements[0]
        variable = inner.lookup(first.variable) if isinstance(first, syntax.NodePattern) else None
        if variable is None:
            return self._report("E2009", f"{name} over a pattern must begin with a variable", call)
        type_ = INT if name == "COUNT" else list_of(variable.type)
        return resolved.ResolvedPatternAggregate(name, pattern, variable.register, call.limit, type_)

    def _exists(self, expression: syntax.Exists, scope: Scope) -> ResolvedExpression:
        return resolved.ResolvedExists(
            self.resolve_pattern(expression.pattern, expression.where, scope.child())
        )

    def _report(self, code: str, message: str, at: Any) -> ResolvedExpression:
        self.analysis.report(code, message, at.span)
        return _UNRESOLVED


def _count(low: int, high: int | None) -> str:
    if high is None:
        return f"at least {low} arguments"
    return f"{low} argument{'s' if low != 1 else ''}" if low == high else f"{low} to {high} arguments"


def _aggregate_type(name: str, operand: Type) -> Type | None:
    match name:
        case "COUNT":
            return INT
        case "COLLECT":
            return list_of(operand)
        case "AVG":
            return _number(operand, FLOAT) if operand.kind != "Duration" else DURATION
        case "SUM":
            return _number(operand, operand) if operand.kind != "Duration" else DURATION
    members = operand.alternatives
    ordered = all(is_orderable(members[0], other) and not other.is_reference for other in members)
    return operand if ordered and operand.kind != "List" else None


def _number(operand: Type, result: Type) -> Type | None:
    members = operand.alternatives
    return result if all(m.is_numeric or m.kind in ("Any", "Null") for m in members) else None
