"""The records of a schema: the declarations of an ontology, resolved and checked. `extend.py` builds them.

An element stores its attribute values in a tuple; `layout` gives the index of each attribute. A layout only grows at
its end, so stored elements stay readable when a type gains attributes.
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
    """Declared as `T?`: the value may be null."""
    required: bool = False
    unique: bool = False
    readonly: bool = False
    indexed: bool = False
    default: Expression | None = None
    value_modifiers: tuple[Modifier, ...] = ()
    """The effective range, in, length, match and format modifiers, from aliases and overrides."""
    declared_in: str
    """The type that declares the attribute. Uniqueness and indexes cover this type and all its subtypes."""
    doc: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    name: str
    parents: tuple[str, ...] = ()
    abstract: bool = False
    sealed: bool = False
    attributes: Mapping[str, AttributeType] = field(default_factory=dict)
    """Own and inherited attributes, in the order of the layout."""
    layout: Mapping[str, int] = field(default_factory=dict)
    """Index in an element's values, by attribute name."""
    ancestors: frozenset[str] = frozenset()
    """This type and all its supertypes."""
    descendants: frozenset[str] = frozenset()
    """This type and all its subtypes."""
    doc: str | None = None

    @property
    def is_layer0(self) -> bool:
        """True for a system type (Layer 0): statements can read it but not write it."""
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeParameterType:
    name: str
    type: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardinality:
    """The number of edges of one type that an element may have at one position; `high` is None for no limit."""

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
    """By position; None for no limit."""
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
    """All types, constraints, rules and policies of one database. Immutable: `extend_schema` returns a new one."""

    version: int = 0
    ontologies: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[Type, tuple[Modifier, ...]]] = field(default_factory=dict)
    nodes: Mapping[str, NodeType] = field(default_factory=dict)
    edges: Mapping[str, EdgeType] = field(default_factory=dict)
    constraints: Mapping[str, ConstraintDeclaration] = field(default_factory=dict)
    rules: Mapping[str, RuleDeclaration] = field(default_factory=dict)
    policies: Mapping[str, PolicyDeclaration] = field(default_factory=dict)

    def concrete_subtypes(self, names: frozenset[str] | None) -> tuple[str, ...]:
        """Return these types and their subtypes, without abstract types, in declaration order.

        None means every type of the user. Layer 0 types are included only if they are named
        (docs/reference/language/layer0.md).
        """
        if names is None:
            return tuple(
                name for name, node in self.nodes.items() if not node.abstract and not node.is_layer0
            )
        included = frozenset().union(*(self.nodes[name].descendants for name in names if name in self.nodes))
        return tuple(name for name in self.nodes if name in included and not self.nodes[name].abstract)

    def is_subtype(self, name: str, names: frozenset[str] | None) -> bool:
        """True if the type `name` is one of `names` or a subtype of one; None means any node type."""
        if names is None:
            return name in self.nodes
        node = self.nodes.get(name)
        return node is not None and not names.isdisjoint(node.ancestors)
