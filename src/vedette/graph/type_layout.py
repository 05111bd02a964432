"""What writes need to know about each type, computed once per schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vedette.language.schema.model import AttributeType, EdgeType, NodeType, Schema
from vedette.language.schema.validator import Validator, compile_validator
from vedette.language.types import Type

__all__ = ["SchemaLayout", "TypeLayout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeLayout:
    """The write layout of one node or edge type."""

    name: str
    attributes: tuple[AttributeType, ...]
    """In layout order."""
    places: Mapping[str, int]
    """Name ▸ position in that order."""
    checks: tuple[Validator, ...]
    """One per attribute."""
    uniques: tuple[tuple[str, str, int], ...]
    """(owner, attribute, position) of every unique attribute."""
    references: tuple[tuple[str, Type, int], ...]
    """(attribute, type, position) of every reference attribute."""


class SchemaLayout:
    """The layouts of all types of a schema, and the indexes that the schema declares."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._holders: list[NodeType | EdgeType] = [*schema.nodes.values(), *schema.edges.values()]
        self.types = {holder.name: _table(holder) for holder in self._holders}
        self.minimum_cardinalities = tuple(
            (edge, position)
            for edge in schema.edges.values()
            for position, cardinality in enumerate(edge.cardinalities)
            if cardinality is not None and cardinality.low > 0
        )
        """Edge types and positions with a minimum cardinality."""

    def index_places(self, owner: str, attribute: str) -> dict[str, int]:
        """The position of the attribute in each type that an index on it covers."""
        if owner in self.schema.edges:
            return {owner: self.schema.edges[owner].layout[attribute]}
        below = (self.schema.nodes[name] for name in self.schema.nodes[owner].descendants)
        return {node.name: node.layout[attribute] for node in below if attribute in node.layout}

    def indexes(self) -> list[tuple[str, str]]:
        """(owner, attribute) of every attribute declared unique or indexed."""
        wanted: dict[tuple[str, str], None] = {}
        for holder in self._holders:
            for attribute in holder.attributes.values():
                if (attribute.unique or attribute.indexed) and not holder.is_layer0:
                    wanted[attribute.declared_in, attribute.name] = None
        return list(wanted)


def _table(holder: NodeType | EdgeType) -> TypeLayout:
    attributes = tuple(holder.attributes[name] for name in holder.layout)
    return TypeLayout(
        name=holder.name,
        attributes=attributes,
        places=holder.layout,
        checks=tuple(compile_validator(attribute, holder.name) for attribute in attributes),
        uniques=tuple((a.declared_in, a.name, position) for position, a in enumerate(attributes) if a.unique),
        references=tuple(
            (a.name, a.type, position) for position, a in enumerate(attributes) if a.type.is_reference
        ),
    )
