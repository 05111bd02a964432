"""How large a document filter may be, and the one place that measures it.

The bounds are those of spec/pipeline.md §1.7. A filter that breaks one is refused when it is compiled, with E1202,
never while changes are delivered; only work that depends on the documents is counted while it runs.
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

_LONGEST_NAME = 60
_DEEPEST = 50
"""Compiling and running a filter recurse once or twice per level: more would endanger Python's own stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLimits:
    """Bounds on one filter; each is a count that is still allowed."""

    source_bytes: int = 8192
    """UTF-8 bytes of CEL text, of one field name and of one constant in a filter list."""
    depth: int = 20
    """Levels of the tree; a chain of `&&` or `||` of any length counts as its logarithm."""
    nodes: int = 500
    """Nodes of the tree; constants inside a list are bounded by `list_items` instead."""
    list_items: int = 256
    """Items of one list."""
    cost_steps: int = 10_000
    """A step is one node, one list item looked at, or 64 characters searched or copied."""

    def allows(self, text: str) -> bool:
        """Whether a text is short enough; halves of surrogate pairs count like any other character."""
        return (
            len(text) <= self.source_bytes and len(text.encode(errors="surrogatepass")) <= self.source_bytes
        )

    def __post_init__(self) -> None:
        for name in ("source_bytes", "depth", "nodes", "list_items", "cost_steps"):
            if getattr(self, name) < 1:
                raise SettingsError("E0101", f"the filter limit {name} must be at least 1")
        if self.depth > _DEEPEST:
            raise SettingsError("E0101", f"the filter limit depth must be at most {_DEEPEST}")


DEFAULT_FILTER_LIMITS = FilterLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSize:
    """The size of a tree that is within its limits."""

    nodes: int
    depth: int
    cost_steps: int
    """The steps of one evaluation, without those that depend on the document."""


def check_limits(
    expression: Expression, limits: FilterLimits = DEFAULT_FILTER_LIMITS, source: str = ""
) -> FilterSize:
    """Walk the tree without recursion; raises E1202 at the first bound that is broken, pointing into `source`."""
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
    """The nodes right below this one; raises E1201 for a kind of node that no document filter has."""
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
            raise FilterError("E1201", f"a {type(node).__name__} has no meaning in a document filter")


def filter_error(code: str, message: str, source: str, span: Span, **fields: object) -> FilterError:
    """The error that underlines `span`; without a source there is nothing to underline."""
    diagnostics = [Diagnostic(code=code, message=message, span=span, source=source)] if source else []
    return FilterError(code, message, fields=fields, diagnostics=diagnostics)


def quote_name(name: str) -> str:
    """A name for the text of an error: in ASCII, and short even when the name is not."""
    return ascii(name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}...")


def _too_complex(limit: str, allowed: int, words: str, node: Expression, source: str) -> FilterError:
    span = node.span if source else NO_SPAN
    return filter_error(
        "E1202", f"a filter has at most {allowed} {words}", source, span, limit=limit, allowed=allowed
    )
