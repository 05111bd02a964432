"""Put what is known at the moment of subscribing into the tree of a document filter.

`request.auth` and `request.time` do not change while a subscription lives (spec/pipeline.md §3, ruling 16): with
them replaced by constants, `doc.owner == request.auth.userId` is a comparison with a constant like any other, which
is fast and which an index understands. After a refresh of the token the unbound tree is bound again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vedette.filters.inputs import FilterRequest
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Conditional,
    Expression,
    Index,
    ListLiteral,
    Literal,
    Unary,
    Variable,
)

__all__ = ["bind_request"]


def bind_request(expression: Expression, request: FilterRequest) -> Expression:
    """The same filter without the variable `request`. A claim that is missing stays an error at evaluation."""

    def bind(node: Expression) -> Expression:
        return bind_request(node, request)

    match node := expression:
        case Attribute(base=Variable("request"), name="auth" | "time" as name):
            return _constant(getattr(request, name), node)
        case Attribute(base=base):
            return _field(replace(node, base=bind(base)))
        case Call(name="has", arguments=(Attribute(base=base) as field,)):
            return _presence(node, replace(field, base=bind(base)))
        case Call(arguments=arguments):
            return replace(node, arguments=tuple(map(bind, arguments)))
        case ListLiteral(items=items):
            return replace(node, items=tuple(map(bind, items)))
        case Index(base=base, key=key):
            return replace(node, base=bind(base), key=bind(key))
        case Unary(operand=operand):
            return replace(node, operand=bind(operand))
        case Binary(left=left, right=right):
            return replace(node, left=bind(left), right=bind(right))
        case Conditional(test=test, then=then, otherwise=otherwise):
            return replace(node, test=bind(test), then=bind(then), otherwise=bind(otherwise))
        case _:
            return node


def _field(node: Attribute) -> Expression:
    match node.base:
        case Literal(value=Mapping() as fields) if node.name in fields:
            return _constant(fields[node.name], node)
        case _:
            return node


def _presence(call: Call, field: Attribute) -> Expression:
    match field.base:
        case Literal(value=Mapping() as fields):
            return Literal(field.name in fields, span=call.span)
        case _:
            return replace(call, arguments=(field,))


def _constant(value: Any, node: Expression) -> Expression:
    """A list of scalars becomes a list literal, so that membership in it is compiled like any other."""
    if isinstance(value, list | tuple) and not any(
        isinstance(item, list | tuple | Mapping) for item in value
    ):
        return ListLiteral(tuple(Literal(item, span=node.span) for item in value), span=node.span)
    return Literal(list(value) if isinstance(value, tuple) else value, span=node.span)
