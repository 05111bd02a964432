"""The limits on the size of document filters (docs/reference/filters.md#limits).

A filter that exceeds a limit is rejected when it is compiled (E1202), never while changes are delivered. Only work that
depends on the document is counted during evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vedette.errors import FilterError, SettingsError
from vedette.language.diagnostics import NO_SPAN, Diagnostic, Span
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

__all__ = [
    "DEFAULT_FILTER_LIMITS",
    "FilterLimits",
    "FilterSize",
    "check_limits",
    "children",
    "filter_error",
    "quote_name",
]

_MAX_QUOTED_CHARACTERS = 60
_MAX_DEPTH_LIMIT = 50
"""The largest `depth` that may be configured: compiling and running a filter recurse once or twice per level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLimits:
    """The limits on one filter; each value is the highest that is allowed."""

    source_bytes: int = 8192
    """UTF-8 bytes of CEL text, of one field name and of one constant in a filter list."""
    depth: int = 20
    """Levels of the tree; a chain of `&&` or `||` of any length counts as its logarithm."""
    nodes: int = 500
    """Nodes of the tree; constants inside a list are bounded by `list_items` instead."""
    list_items: int = 256
    """Items of one list."""
    cost_steps: int = 10_000
    """Steps of one evaluation. A step is one node, one list item examined, or 64 characters searched or copied."""

    def allows(self, text: str) -> bool:
        """True if the text has at most `source_bytes` bytes in UTF-8; a lone surrogate counts as three bytes."""
        return (
            len(text) <= self.source_bytes and len(text.encode(errors="surrogatepass")) <= self.source_bytes
        )

    def __post_init__(self) -> None:
        for name in ("source_bytes", "depth", "nodes", "list_items", "cost_steps"):
            if getattr(self, name) < 1:
                raise SettingsError("E0101", f"the filter limit {name} must be at least 1")
        if self.depth > _MAX_DEPTH_LIMIT:
            raise SettingsError("E0101", f"the filter limit depth must be at most {_MAX_DEPTH_LIMIT}")


DEFAULT_FILTER_LIMITS = FilterLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSize:
    """The size of a tree that is within its limits."""

    nodes: int
    depth: int
    cost_steps: int
    """Steps of one evaluation, without work that depends on the document."""


def check_limits(
    expression: Expression, limits: FilterLimits = DEFAULT_FILTER_LIMITS, source: str = ""
) -> FilterSize:
    """Return the size of the tree; raises E1202 at the first limit that it exceeds. Does not recurse."""
    nodes = depth = constants = 0
    waiting: list[tuple[Expression, int]] = [(expression, 1)]
    while waiting:
        node, level = waiting.pop()
        nodes += 1
        depth = max(depth, level)
        if nodes > limits.nodes:
            raise _too_complex("nodes", limits.nodes, "nodes", node, source)
        if level > limits.depth:
            raise _too_complex("depth", limits.depth, "levels of nesting", node, source)
        below = children(node)
        if isinstance(node, ListLiteral):
            if len(below) > limits.list_items:
                raise _too_complex("list_items", limits.list_items, "items in one list", node, source)
            constants += sum(isinstance(item, Literal) for item in below)
            below = [item for item in below if not isinstance(item, Literal)]
        waiting.extend((child, level + 1) for child in below)
    if nodes + constants > limits.cost_steps:
        raise _too_complex("cost_steps", limits.cost_steps, "steps", expression, source)
    return FilterSize(nodes=nodes, depth=depth, cost_steps=nodes + constants)


def children(node: Expression) -> Sequence[Expression]:
    """Return the child nodes; raises E1201 for a node that is not allowed in a document filter."""
    match node:
        case Literal() | Variable():
            return ()
        case ListLiteral(items=items) | Call(arguments=items):
            return items
        case Attribute(base=base) | Unary(operand=base):
            return (base,)
        case Index(base=left, key=right) | Binary(left=left, right=right):
            return (left, right)
        case Conditional(test=test, then=then, otherwise=otherwise):
            return (test, then, otherwise)
        case _:
            raise FilterError("E1201", f"a {type(node).__name__} is not allowed in a document filter")


def filter_error(code: str, message: str, source: str, span: Span, **fields: object) -> FilterError:
    """Build the error. With a source text it underlines `span`."""
    diagnostics = [Diagnostic(code=code, message=message, span=span, source=source)] if source else []
    return FilterError(code, message, fields=fields, diagnostics=diagnostics)


def quote_name(name: str) -> str:
    """Return a name for an error message, in ASCII and cut to a readable length."""
    return ascii(name if len(name) <= _MAX_QUOTED_CHARACTERS else f"{name[: _MAX_QUOTED_CHARACTERS - 3]}...")


def _too_complex(limit: str, allowed: int, words: str, node: Expression, source: str) -> FilterError:
    span = node.span if source else NO_SPAN
    return filter_error(
        "E1202", f"a filter has at most {allowed} {words}", source, span, limit=limit, allowed=allowed
    )
