"""Replace `request.auth` and `request.time` in a document filter by constants.

Both are fixed while a subscription lives. With constants, `doc.owner == request.auth.userId` is an ordinary comparison
with a constant, which is fast and which the subscription index supports. When a client refreshes its token, the
original tree is bound again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vedette.filters.inputs import FilterRequest
from vedette.language.syntax.expressions import (
    Attribute,
    Call,
    Expression,
    ListLiteral,
    Literal,
    Variable,
)
from vedette.language.syntax.visit import transform

__all__ = ["bind_request"]


def bind_request(expression: Expression, request: FilterRequest) -> Expression:
    """Return the filter without the variable `request`. Reading a missing claim stays an evaluation error."""

    def bind(node: Expression) -> Expression | None:
        match node:
            case Attribute(base=Variable("request"), name="auth" | "time" as name):
                return _constant(getattr(request, name), node)
            case Attribute(base=base):
                return _field(replace(node, base=transform(base, bind)))
            case Call(name="has", arguments=(Attribute(base=base) as field,)):
                return _presence(node, replace(field, base=transform(base, bind)))
        return None

    bound: Expression = transform(expression, bind)
    return bound


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
    """Return a node for the value. A list of scalars becomes a ListLiteral, which `in` compiles to a set."""
    if isinstance(value, list | tuple) and not any(
        isinstance(item, list | tuple | Mapping) for item in value
    ):
        return ListLiteral(tuple(Literal(item, span=node.span) for item in value), span=node.span)
    return Literal(list(value) if isinstance(value, tuple) else value, span=node.span)
