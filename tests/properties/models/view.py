"""Reference model of policies over documents (`docs/reference/language/policy.md`), one document at a time.

It shares only the parser with `vedette.subscriptions.policy_view`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from vedette.language.parser import parse_expression
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Expression,
    ListLiteral,
    Literal,
    Unary,
    Variable,
)
from vedette.policy.collection_policies import ViewRule

__all__ = ["NAMES", "RULES", "seen", "truths"]

ERROR = object()
NAMES = st.sampled_from(["a", "b", "c"])
_CONSTANTS = st.sampled_from(["1", "0.5", "2", "-1", '"x"', '"y"', "true", "null"])
_ORDERED = st.sampled_from(["1", "0.5", "2", '"x"'])
_LEAVES = st.one_of(
    st.builds("o.{} {} {}".format, NAMES, st.sampled_from(["=", "!=", "="]), _CONSTANTS),
    st.builds("o.{} {} {}".format, NAMES, st.sampled_from(["<", "<=", ">", ">="]), _ORDERED),
    st.builds("o.{} < o.{}".format, NAMES, NAMES),
    st.builds("o.{} IS {}NULL".format, NAMES, st.sampled_from(["", "NOT "])),
    st.builds("o.{} IN [{}, {}]".format, NAMES, _CONSTANTS, _CONSTANTS),
    st.builds('o.{} STARTS WITH "x"'.format, NAMES),
    st.builds("o.{}".format, NAMES),
    st.sampled_from(["true", "true", "false", 'o.id = "k"']),
)
CONDITIONS = st.recursive(
    _LEAVES,
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=4,
)
_RULE = st.builds(
    ViewRule,
    allow=st.booleans(),
    attribute=st.none() | NAMES,
    variable=st.just("o"),
    condition=CONDITIONS,
)
RULES = st.lists(_RULE, max_size=4).flatmap(
    lambda rules: st.sampled_from([tuple(rules), (_shown(), *rules), (_shown(), *rules)])
)


def _shown() -> ViewRule:
    return ViewRule(allow=True, attribute=None, variable="o", condition="true")


def seen(rules: Sequence[ViewRule], key: str, document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the visible part of a document for an actor under these rules, or None if it is hidden."""
    if document is None:
        return None
    votes = [(rule.allow, rule.attribute, _votes(rule, key, document)) for rule in rules]
    about = [(allow, vote) for allow, attribute, vote in votes if attribute is None]
    if not _passes(about, must=True):
        return None
    found = {}
    for name, value in document.items():
        own = [(allow, vote) for allow, attribute, vote in votes if attribute == name]
        if _passes(own, must=any(allow for allow, _ in own)):
            found[name] = value
    return found


def _passes(votes: Sequence[tuple[bool, bool]], *, must: bool) -> bool:
    """Return True if no DENY applies and, with `must`, at least one ALLOW applies."""
    if any(not allow and vote for allow, vote in votes):
        return False
    return not must or any(allow and vote for allow, vote in votes)


def _votes(rule: ViewRule, key: str, document: Mapping[str, Any]) -> bool:
    """Evaluate a condition of a rule. If a comparison fails, an ALLOW does not apply and a DENY does."""
    return True in truths(rule.condition, key, document, undecided={None} if rule.allow else {True, False})


def truths(condition: str, key: str, document: Mapping[str, Any], undecided: set[Any]) -> set[Any]:
    """Evaluate a condition to True, False, or None for unknown. A comparison that fails is unknown."""

    def of(node: Expression) -> set[Any]:
        match node:
            case Binary(op="AND" | "OR" as op, left=left, right=right):
                return {_joined(op, one, other) for one in of(left) for other in of(right)}
            case Unary(op="NOT", operand=operand):
                return {None if value is None else not value for value in of(operand)}
        value = _compared(node, key, document)
        return undecided if value is ERROR else {value}

    return of(parse_expression(condition))


def _compared(node: Expression, key: str, document: Mapping[str, Any]) -> Any:
    match node:
        case Unary(op="IS NULL" | "IS NOT NULL" as op, operand=operand):
            return (_value(operand, key, document) is None) is (op == "IS NULL")
        case Binary(op="=" | "!=" as op, left=left, right=right):
            return _equal(_value(left, key, document), _value(right, key, document)) is (op == "=")
        case Binary(op="IN", left=left, right=ListLiteral(items=items)):
            value = _value(left, key, document)
            return any(_equal(value, _value(item, key, document)) for item in items)
        case Binary(op=op, left=left, right=right):
            return _ordered(op, _value(left, key, document), _value(right, key, document))
    value = _value(node, key, document)
    return value if value is None or isinstance(value, bool) else ERROR


def _joined(op: str, left: bool | None, right: bool | None) -> bool | None:
    settles = op == "OR"
    if left is settles or right is settles:
        return settles
    return None if left is None or right is None else not settles


def _value(node: Expression, key: str, document: Mapping[str, Any]) -> Any:
    match node:
        case Literal(value=value):
            return value
        case Unary(op="-", operand=Literal(value=int() | float() as value)):
            return -value
        case Attribute(base=Variable(), name="id"):
            return key
        case Attribute(base=Variable(), name=name):
            return document.get(name)
    raise AssertionError(node)


def _family(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _equal(left: Any, right: Any) -> bool:
    return _family(left) == _family(right) and bool(left == right)


def _ordered(op: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if op == "STARTS WITH":
        return left.startswith(right) if isinstance(left, str) else ERROR
    if _family(left) != _family(right) or _family(left) not in ("number", "str"):
        return ERROR
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]
