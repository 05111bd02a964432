"""Policies on a collection as conditions on its documents, in the tree that all filters share.

    visible     at least one ALLOW on documents is true, and no DENY is true
    hidden      per attribute: a DENY on it is true, or it has ALLOWs and none of them is true

A document that is not visible does not exist for the actor. A hidden attribute is missing, which MEW reads as null.
`restrict` rewrites a filter on the visible part of a document into a filter on the whole document, so the index and the
vectorized filters need no policies.

An ALLOW counts only if its condition is true. A DENY also counts if its condition fails because it compares values of
different kinds. Null and missing values do not fail: an ordering comparison with them is not true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vedette.errors import SubscriptionError
from vedette.filters.cel_parser import join_balanced
from vedette.filters.document_filter import DocumentFilter, compile_filter
from vedette.filters.inputs import FilterInput
from vedette.filters.limits import FilterLimits
from vedette.language.parser import parse_expression
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Conditional,
    Expression,
    Literal,
    Unary,
    Variable,
)
from vedette.language.syntax.visit import transform, walk
from vedette.policy.collection_policies import ViewRule
from vedette.subscriptions.collection_watch import translate_condition

__all__ = ["MAX_HIDDEN_ATTRIBUTES", "TRUSTED_LIMITS", "DocumentView", "compile_view", "drop_attributes"]

MAX_HIDDEN_ATTRIBUTES = 64
"""Maximum number of attributes of one collection that policies may hide: matching has one bit each."""
TRUSTED_LIMITS = FilterLimits(source_bytes=16 << 20, depth=50, nodes=100_000, list_items=100_000)
"""Limits for filters that a gateway has accepted, and for policies; the step limit still applies."""
_TRUE, _FALSE, _FAULT = Literal(True), Literal(False), Literal(None)
_LOGIC = (Conditional, Call)


def compile_view(rules: Sequence[ViewRule]) -> DocumentView:
    """Compile policy rules to conditions.

    Raises SubscriptionError E6204 for a condition that the pipeline cannot evaluate.
    """
    by_attribute: dict[str | None, list[ViewRule]] = {None: []}
    for rule in rules:
        by_attribute.setdefault(rule.attribute, []).append(rule)
    documents = by_attribute.pop(None)
    hidden = {
        attribute: condition
        for attribute, own_rules in sorted(by_attribute.items(), key=str)
        if attribute is not None and (condition := _hidden_condition(own_rules)) != _FALSE
    }
    if len(hidden) > MAX_HIDDEN_ATTRIBUTES:
        raise SubscriptionError(
            "E6204", f"policies may hide at most {MAX_HIDDEN_ATTRIBUTES} attributes of a collection"
        )
    denied, allowed = _denied_and_allowed(documents)
    return DocumentView(visible=_all((allowed, _not(denied))), hidden=tuple(hidden.items()))


def _denied_and_allowed(rules: Sequence[ViewRule]) -> tuple[Expression, Expression]:
    conditions = [
        (rule.allow, translate_condition(parse_expression(rule.condition), rule.variable)) for rule in rules
    ]
    denied = _any(_not_false(condition) for allow, condition in conditions if not allow)
    allowed = _any(_true(condition) for allow, condition in conditions if allow)
    return denied, allowed


def _hidden_condition(rules: Sequence[ViewRule]) -> Expression:
    denied, allowed = _denied_and_allowed(rules)
    return _any((denied, _not(allowed))) if any(rule.allow for rule in rules) else denied


@dataclass(frozen=True)
class DocumentView:
    """What one actor sees of the documents of a collection."""

    visible: Expression
    hidden: tuple[tuple[str, Expression], ...]
    """Attributes and the conditions under which they are hidden. These conditions and `visible` never fail."""

    def restrict(self, condition: Expression) -> Expression:
        """Return a condition that is true if the document is visible and the given condition is true of its visible
        part.
        """
        return _all((self.visible, _ViewRewriter(dict(self.hidden)).condition(condition, keeps_errors=False)))

    def redact(self, collection: str, key: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a visible document without its hidden attributes."""
        environment = FilterInput(doc=document, id=key, collection=collection)
        hidden_names = [
            name for name, hides in self._mask_filters if name in document and hides.matches(environment)
        ]
        return drop_attributes(document, hidden_names) if hidden_names else document

    @cached_property
    def _mask_filters(self) -> list[tuple[str, DocumentFilter]]:
        return [(name, compile_filter(condition, limits=TRUSTED_LIMITS)) for name, condition in self.hidden]


def drop_attributes(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    remaining = dict(document)
    for name in names:
        remaining.pop(name, None)
    return remaining


# --- joining conditions -----------------------------------------------------------------------------------------


def _all(parts: Iterable[Expression]) -> Expression:
    kept = [part for part in parts if part != _TRUE]
    return _FALSE if _FALSE in kept else join_balanced("AND", kept) if kept else _TRUE


def _any(parts: Iterable[Expression]) -> Expression:
    kept = [part for part in parts if part != _FALSE]
    return _TRUE if _TRUE in kept else join_balanced("OR", kept) if kept else _FALSE


def _not(part: Expression) -> Expression:
    match part:
        case Literal(value=bool() as value):
            return Literal(not value)
        case Unary(op="NOT", operand=operand):
            return operand
    return Unary("NOT", part)


# --- conditions that never fail ---------------------------------------------------------------------------------


def _true(condition: Expression) -> Expression:
    """Return a condition that is true if the given one is true, and false if it is false or fails."""
    match condition:
        case Binary(op="AND", left=left, right=right):
            return _all((_true(left), _true(right)))
        case Binary(op="OR", left=left, right=right):
            return _any((_true(left), _true(right)))
        case Literal(value=value):
            return Literal(value is True)
        case Call(name="holds"):
            return condition
        case Unary(op="NOT", operand=Call(name="holds")):
            return condition
    return Call("holds", (condition,))


def _not_false(condition: Expression, *, expected: bool = True) -> Expression:
    """Return a condition that is true if the given one has the value `expected`, or fails because it compares values of
    different kinds."""
    match condition:
        case Binary(op="AND" | "OR" as op, left=left, right=right):
            join = _all if (op == "AND") is expected else _any
            return join((_not_false(left, expected=expected), _not_false(right, expected=expected)))
        case Unary(op="NOT", operand=operand):
            return _not_false(operand, expected=not expected)
        case Literal(value=value):
            return Literal(value is expected)
        case Call(name="holds"):
            return condition if expected else _not(condition)
    opposite = Call("holds", (_not(condition) if expected else condition,))
    return _all((*map(_is_present, _operands(condition)), _not(opposite)))


def _operands(condition: Expression) -> tuple[Expression, ...]:
    return (condition.left, condition.right) if isinstance(condition, Binary) else (condition,)


def _is_present(operand: Expression) -> Expression:
    match operand:
        case Literal(value=value):
            return Literal(value is not None)
        case Variable():
            return _TRUE
    return Call("holds", (Binary("!=", operand, _FAULT),))


# --- filters on documents with hidden attributes ----------------------------------------------------------------


class _ViewRewriter:
    """Rewrites a condition on the visible part of a document into one on the whole document."""

    def __init__(self, hidden: Mapping[str, Expression]) -> None:
        self._hidden = hidden

    def condition(self, node: Expression, *, keeps_errors: bool) -> Expression:
        """Rewrite a condition. `keeps_errors`: a failure must stay a failure, because it differs from false at this
        place.
        """
        match node:
            case Binary(op="AND" | "OR" as op, left=left, right=right):
                sides = (
                    self.condition(left, keeps_errors=keeps_errors),
                    self.condition(right, keeps_errors=keeps_errors),
                )
                return Binary(op, *sides)
            case Unary(op="NOT", operand=operand):
                return Unary("NOT", self.condition(operand, keeps_errors=True))
            case Call(name="holds", arguments=(inner,)):
                return Call("holds", (self.condition(inner, keeps_errors=False),))
            case Conditional(test=test, then=then, otherwise=otherwise):
                return Conditional(
                    self.condition(test, keeps_errors=True),
                    self.condition(then, keeps_errors=keeps_errors),
                    self.condition(otherwise, keeps_errors=keeps_errors),
                )
            case Call(name="has", arguments=(Attribute(base=Variable(name="doc"), name=name),)):
                return _all((_not(self._hidden.get(name, _FALSE)), node))
        return self._atom(node, keeps_errors=keeps_errors)

    def _atom(self, node: Expression, *, keeps_errors: bool) -> Expression:
        """Rewrite a condition without AND, OR and NOT. It fails if an attribute in it is hidden."""
        self._check(node)
        names = dict.fromkeys(part.name for part in walk(node) if _is_field(part))
        hidden = _any(self._hidden[name] for name in names if name in self._hidden)
        if hidden == _FALSE:
            return node
        if any(isinstance(part, _LOGIC) or _is_logic(part) for part in walk(node)):
            return self._replaced(node)
        if not keeps_errors:
            return _all((_not(hidden), node))
        return _FAULT if hidden == _TRUE else Conditional(hidden, _FAULT, node)

    def _replaced(self, node: Expression) -> Expression:
        """A nested condition may observe a failure, so each attribute is rewritten separately."""

        def rewrite(part: Any) -> Any:
            match part:
                case Call(name="has", arguments=(Attribute(base=Variable(name="doc"), name=name),)):
                    return _all((_not(self._hidden.get(name, _FALSE)), part))
                case Attribute(base=Variable(name="doc"), name=name) if name in self._hidden:
                    return Conditional(self._hidden[name], Attribute(_FAULT, name), part)
            return None

        replaced: Expression = transform(node, rewrite)
        return replaced

    def _check(self, node: Expression) -> None:
        fields = [part.base for part in walk(node) if _is_field(part)]
        whole = sum(isinstance(part, Variable) and part.name == "doc" for part in walk(node)) - len(fields)
        if whole and self._hidden:
            text = (
                "a filter cannot use the whole document if policies hide some of its attributes: "
                "use the attributes by name"
            )
            raise SubscriptionError("E6204", text)
        if any(isinstance(part, Variable) and part.name in ("op", "before") for part in walk(node)):
            text = (
                "a filter cannot use op or before if policies restrict the collection: use the document alone"
            )
            raise SubscriptionError("E6204", text)


def _is_field(node: Any) -> bool:
    return isinstance(node, Attribute) and node.base == Variable("doc")


def _is_logic(node: Any) -> bool:
    return (isinstance(node, Binary) and node.op in ("AND", "OR")) or (
        isinstance(node, Unary) and node.op == "NOT"
    )
