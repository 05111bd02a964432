"""The canonical text of an expression, from which hashes and stored keys are computed.

Two expressions have the same canonical text if and only if they are equal; spans do not count. The text is JSON, one
array per node: a tag, then the fields in the order of the tables below. The tags are part of stored and signed formats
(subscription shapes, resume tokens), so they never follow the names of classes. A change of this form needs a new
version of every format that contains it.

    doc.total > 100    ["binary", ">", ["attribute", ["variable", "doc"], "total"], ["literal", "int", "100"]]
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from vedette.language.syntax import expressions as ast
from vedette.values import Value

__all__ = ["canonical_form", "canonical_text", "value_form"]

_MICROSECOND = timedelta(microseconds=1)


def canonical_text(node: Any) -> str:
    """Return the canonical text of an expression, or of nested tuples and lists that contain expressions."""
    return json.dumps(canonical_form(node), ensure_ascii=False, separators=(",", ":"))


def canonical_form(node: Any) -> Any:
    """Return the canonical form as nested lists of strings, booleans and None.

    A node class of another package provides its form in a method `canonical_form`.
    """
    match node:
        case ast.Literal(value=value):
            return ["literal", *value_form(value)]
        case ast.ListLiteral(items=items):
            return ["list", *map(canonical_form, items)]
        case ast.Variable(name=name):
            return ["variable", name]
        case ast.Attribute(base=base, name=name):
            return ["attribute", canonical_form(base), name]
        case ast.Index(base=base, key=key):
            return ["index", canonical_form(base), canonical_form(key)]
        case ast.Unary(op=op, operand=operand):
            return ["unary", op, canonical_form(operand)]
        case ast.Binary(op=op, left=left, right=right):
            return ["binary", op, canonical_form(left), canonical_form(right)]
        case ast.Conditional(test=test, then=then, otherwise=otherwise):
            return ["conditional", canonical_form(test), canonical_form(then), canonical_form(otherwise)]
        case ast.Call(name=name, arguments=arguments):
            return ["call", name, *map(canonical_form, arguments)]
        case _ if hasattr(node, "canonical_form"):
            return node.canonical_form()
        case ast.Parameter(name=name, optional=optional):
            return ["parameter", name, optional]
        case tuple() | list():
            return ["sequence", *map(canonical_form, node)]
        case dict():
            return ["map", *([name, canonical_form(node[name])] for name in sorted(node))]
        case None | str() | bool() | int() | float() | datetime() | timedelta():
            return ["value", *value_form(node)]
    raise TypeError(f"{type(node).__name__} has no canonical form")


def value_form(value: Value) -> list[Any]:
    """Return kind and text of a scalar. `1`, `1.0` and `true` differ; equal values of one kind have the same form."""
    match value:
        case None:
            return ["null"]
        case bool():
            return ["bool", value]
        case int():
            return ["int", str(value)]
        case float():
            return ["float", repr(value)]
        case str():
            return ["string", value]
        case datetime():
            return ["timestamp", value.isoformat()]
        case timedelta():
            return ["duration", str(value // _MICROSECOND)]
        case list():
            return ["list", *map(value_form, value)]
    raise TypeError(f"{type(value).__name__} has no canonical form")
