"""What an actor sees of the documents of a collection: policies as conditions, in the tree that all filters share.

    visible     some ALLOW is true and no DENY is
    hidden      of an attribute: a DENY about it is true, or there are ALLOWs about it and none is true

A document that is not visible is not there. A hidden attribute is missing, which MEW reads as null: `through` says what
a filter says about a document without its hidden attributes, as a filter over the document as it is, so that the index
and the column code of `evaluation` need not know of policies.

ALLOW needs a condition that is true. DENY hides also where the condition cannot be evaluated, because a value is of
another kind than it is compared with; null and missing are no failure, an order with them is just not true (MEW).
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
    """Raises SubscriptionError E6204 for conditions that the pipeline cannot answer."""
    about: dict[str | None, list[ViewRule]] = {None: []}
    for rule in rules:
        about.setdefault(rule.attribute, []).append(rule)
    documents = about.pop(None)
    hidden = {
        attribute: condition
        for attribute, own in sorted(about.items(), key=str)
        if attribute is not None and (condition := _hidden(own)) != _FALSE
    }
    if len(hidden) > MAX_HIDDEN_ATTRIBUTES:
        raise SubscriptionError(
            "E6204", f"policies may hide at most {MAX_HIDDEN_ATTRIBUTES} attributes of a collection"
        )
    denied, allowed = _sides(documents)
    return DocumentView(visible=_all((allowed, _not(denied))), hidden=tuple(hidden.items()))


def _sides(rules: Sequence[ViewRule]) -> tuple[Expression, Expression]:
    conditions = [
        (rule.allow, translate_condition(parse_expression(rule.condition), rule.variable)) for rule in rules
    ]
    denied = _any(_not_false(condition) for allow, condition in conditions if not allow)
    allowed = _any(_true(condition) for allow, condition in conditions if allow)
    return denied, allowed


def _hidden(rules: Sequence[ViewRule]) -> Expression:
    denied, allowed = _sides(rules)
    return _any((denied, _not(allowed))) if any(rule.allow for rule in rules) else denied


@dataclass(frozen=True)
class DocumentView:
    visible: Expression
    hidden: tuple[tuple[str, Expression], ...]
    """Attributes and the conditions under which they are hidden. These conditions and `visible` never fail."""

    def restrict(self, condition: Expression) -> Expression:
        """True if and only if the document is visible and the condition is true of its visible part."""
        return _all((self.visible, _ViewRewriter(dict(self.hidden)).condition(condition, failing=False)))

    def redact(self, collection: str, key: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """A visible document without its hidden attributes."""
        environment = FilterInput(doc=document, id=key, collection=collection)
        gone = [name for name, hides in self._hides if name in document and hides.matches(environment)]
        return drop_attributes(document, gone) if gone else document

    @cached_property
    def _hides(self) -> list[tuple[str, DocumentFilter]]:
        return [(name, compile_filter(condition, limits=TRUSTED_LIMITS)) for name, condition in self.hidden]


def drop_attributes(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    left = dict(document)
    for name in names:
        left.pop(name, None)
    return left


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
    """True if a condition is true; never a fault."""
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


def _not_false(condition: Expression, *, wanted: bool = True) -> Expression:
    """Whether a condition is `wanted`, or cannot be evaluated because values are of kinds that do not go together."""
    match condition:
        case Binary(op="AND" | "OR" as op, left=left, right=right):
            join = _all if (op == "AND") is wanted else _any
            return join((_not_false(left, wanted=wanted), _not_false(right, wanted=wanted)))
        case Unary(op="NOT", operand=operand):
            return _not_false(operand, wanted=not wanted)
        case Literal(value=value):
            return Literal(value is wanted)
        case Call(name="holds"):
            return condition if wanted else _not(condition)
    contrary = Call("holds", (_not(condition) if wanted else condition,))
    return _all((*map(_is_there, _operands(condition)), _not(contrary)))


def _operands(condition: Expression) -> tuple[Expression, ...]:
    return (condition.left, condition.right) if isinstance(condition, Binary) else (condition,)


def _is_there(operand: Expression) -> Expression:
    match operand:
        case Literal(value=value):
            return Literal(value is not None)
        case Variable():
            return _TRUE
    return Call("holds", (Binary("!=", operand, _FAULT),))


# --- a filter through hidden attributes ---------------------------------------------------------------------------


class _ViewRewriter:
    """Rewrites a condition on the visible part of a document into one on the whole document."""

    def __init__(self, hidden: Mapping[str, Expression]) -> None:
        self._hidden = hidden

    def condition(self, node: Expression, *, failing: bool) -> Expression:
        """`failing`: whether it matters that a condition fails rather than being false."""
        match node:
            case Binary(op="AND" | "OR" as op, left=left, right=right):
                sides = self.condition(left, failing=failing), self.condition(right, failing=failing)
                return Binary(op, *sides)
            case Unary(op="NOT", operand=operand):
                return Unary("NOT", self.condition(operand, failing=True))
            case Call(name="holds", arguments=(inner,)):
                return Call("holds", (self.condition(inner, failing=False),))
            case Conditional(test=test, then=then, otherwise=otherwise):
                return Conditional(
                    self.condition(test, failing=True),
                    self.condition(then, failing=failing),
                    self.condition(otherwise, failing=failing),
                )
            case Call(name="has", arguments=(Attribute(base=Variable(name="doc"), name=name),)):
                return _all((_not(self._hidden.get(name, _FALSE)), node))
        return self._atom(node, failing=failing)

    def _atom(self, node: Expression, *, failing: bool) -> Expression:
        """A condition fails if an attribute it names is missing."""
        self._check(node)
        names = dict.fromkeys(part.name for part in walk(node) if _is_field(part))
        hidden = _any(self._hidden[name] for name in names if name in self._hidden)
        if hidden == _FALSE:
            return node
        if any(isinstance(part, _LOGIC) or _is_logic(part) for part in walk(node)):
            return self._replaced(node)
        if not failing:
            return _all((_not(hidden), node))
        return _FAULT if hidden == _TRUE else Conditional(hidden, _FAULT, node)

    def _replaced(self, node: Expression) -> Expression:
        """A nested condition may observe a failure, so each attribute is rewritten separately."""

        def seen(part: Any) -> Any:
            match part:
                case Call(name="has", arguments=(Attribute(base=Variable(name="doc"), name=name),)):
                    return _all((_not(self._hidden.get(name, _FALSE)), part))
                case Attribute(base=Variable(name="doc"), name=name) if name in self._hidden:
                    return Conditional(self._hidden[name], Attribute(_FAULT, name), part)
            return None

        replaced: Expression = transform(node, seen)
        return replaced

    def _check(self, node: Expression) -> None:
        fields = [part.base for part in walk(node) if _is_field(part)]
        whole = sum(isinstance(part, Variable) and part.name == "doc" for part in walk(node)) - len(fields)
        if whole and self._hidden:
            text = (
                "the document as a whole cannot be asked about where policies hide some of its attributes: "
                "name the attributes"
            )
            raise SubscriptionError("E6204", text)
        if any(isinstance(part, Variable) and part.name in ("op", "before") for part in walk(node)):
            text = "op and before cannot be asked about where policies decide what is seen: watch for what is true"
            raise SubscriptionError("E6204", text)


def _is_field(node: Any) -> bool:
    return isinstance(node, Attribute) and node.base == Variable("doc")


def _is_logic(node: Any) -> bool:
    return (isinstance(node, Binary) and node.op in ("AND", "OR")) or (
        isinstance(node, Unary) and node.op == "NOT"
    )
