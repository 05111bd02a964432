"""The schema: an ontology's declarations, resolved, checked and laid out for the graph to use.

`schema_build.py` makes it from declarations; everything here is data. Attribute values of an element are a tuple;
`layout` says which place in it an attribute has. A layout only ever grows at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vedette.language.syntax.declarations import (
    ConstraintDeclaration,
    Modifier,
    PolicyDeclaration,
    RuleDeclaration,
)
from vedette.language.syntax.expressions import Expression
from vedette.language.types import Type

__all__ = ["AttributeType", "Cardinality", "EdgeParameterType", "EdgeType", "NodeType", "Schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeType:
    name: str
    type: Type
    optional: bool = False
    """Declared `T?`: null is a legal value."""
    required: bool = False
    unique: bool = False
    readonly: bool = False
    indexed: bool = False
    default: Expression | None = None
    value_modifiers: tuple[Modifier, ...] = ()
    """Range, in, length, match and format modifiers in force, after aliases and overrides."""
    declared_in: str
    """The type that declares it: uniqueness and indexes span this type and all its subtypes."""
    doc: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    name: str
    parents: tuple[str, ...] = ()
    abstract: bool = False
    sealed: bool = False
    attributes: Mapping[str, AttributeType] = field(default_factory=dict)
    """Own and inherited, in layout order."""
    layout: Mapping[str, int] = field(default_factory=dict)
    ancestors: frozenset[str] = frozenset()
    """This type and everything above it."""
    descendants: frozenset[str] = frozenset()
    """This type and everything below it."""
    doc: str | None = None

    @property
    def is_layer0(self) -> bool:
        """Layer 0: readable, never written by statements."""
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeParameterType:
    name: str
    type: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardinality:
    """How many edges of the type one element may have at this position; `high` None is any number."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeType:
    name: str
    parameters: tuple[EdgeParameterType, ...]
    attributes: Mapping[str, AttributeType] = field(default_factory=dict)
    layout: Mapping[str, int] = field(default_factory=dict)
    symmetric: bool = False
    no_self: bool = False
    acyclic: bool = False
    unique: bool = False
    cardinalities: tuple[Cardinality | None, ...] = ()
    """One per position."""
    on_kill_source: str = "unlink"
    on_kill_target: str = "unlink"
    doc: str | None = None

    @property
    def arity(self) -> int:
        return len(self.parameters)

    @property
    def is_layer0(self) -> bool:
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """All types, constraints, rules and policies of one database. Replaced as a whole when it grows."""

    version: int = 0
    ontologies: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[Type, tuple[Modifier, ...]]] = field(default_factory=dict)
    nodes: Mapping[str, NodeType] = field(default_factory=dict)
    edges: Mapping[str, EdgeType] = field(default_factory=dict)
    constraints: Mapping[str, ConstraintDeclaration] = field(default_factory=dict)
    rules: Mapping[str, RuleDeclaration] = field(default_factory=dict)
    policies: Mapping[str, PolicyDeclaration] = field(default_factory=dict)

    def concrete_subtypes(self, names: frozenset[str] | None) -> tuple[str, ...]:
        """The node types that elements of these types can really have, subtypes included, in declaration order.

        None is every user type: Layer 0 must be named (spec/language.md C18).
        """
        if names is None:
            return tuple(
                name for name, node in self.nodes.items() if not node.abstract and not node.is_layer0
            )
        wanted = frozenset().union(*(self.nodes[name].descendants for name in names if name in self.nodes))
        return tuple(name for name in self.nodes if name in wanted and not self.nodes[name].abstract)

    def is_subtype(self, name: str, names: frozenset[str] | None) -> bool:
        """Whether elements of type `name` are of one of `names`."""
        if names is None:
            return name in self.nodes
        node = self.nodes.get(name)
        return node is not None and not names.isdisjoint(node.ancestors)
