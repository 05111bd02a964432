"""Static types: the type of an expression as far as it is known before execution.

Nullability is not part of a static type. Every expression may be null; a value that must not be null is checked when it
is stored. `ANY_VALUE` is the type of a value that is known only at run time (attributes of external collections).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ANY_VALUE",
    "BOOL",
    "DURATION",
    "FLOAT",
    "ID",
    "INT",
    "NULL",
    "SCALARS",
    "STRING",
    "TIMESTAMP",
    "Type",
    "describe",
    "edge_type",
    "is_comparable",
    "is_orderable",
    "list_of",
    "node_type",
    "union_of",
]


@dataclass(frozen=True, slots=True)
class Type:
    """`kind` is a scalar's name, or Node, Edge, List, Union, Null, Any."""

    kind: str
    names: frozenset[str] | None = None
    """Node and Edge: the declared types, subtypes included; None means any type."""
    members: tuple[Type, ...] = ()
    """Union: its members. List: the item type."""

    @property
    def is_reference(self) -> bool:
        return self.kind == "Node" or self.kind == "Edge"

    @property
    def is_numeric(self) -> bool:
        return self.kind == "Int" or self.kind == "Float"

    @property
    def alternatives(self) -> tuple[Type, ...]:
        """The members of a union; for any other type, the type itself."""
        return self.members if self.kind == "Union" else (self,)

    def __str__(self) -> str:
        return describe(self)


STRING = Type("String")
INT = Type("Int")
FLOAT = Type("Float")
BOOL = Type("Bool")
TIMESTAMP = Type("Timestamp")
DURATION = Type("Duration")
ID = Type("ID")
NULL = Type("Null")
ANY_VALUE = Type("Any")
SCALARS = {scalar.kind: scalar for scalar in (STRING, INT, FLOAT, BOOL, TIMESTAMP, DURATION, ID)}
_REFERENCE_LIKE = frozenset({"Node", "Edge", "ID"})


def node_type(*names: str) -> Type:
    """Return the type of a reference to a node of one of these types; without names, to any node."""
    return Type("Node", frozenset(names) or None)


def edge_type(*names: str) -> Type:
    return Type("Edge", frozenset(names) or None)


def list_of(item: Type) -> Type:
    return Type("List", None, (item,))


def union_of(members: tuple[Type, ...]) -> Type:
    """Return the union: flat, without duplicates, in a fixed order.

    Several node types become one node type with all names, and so do edge types. A union of one type is that type.
    """
    flat: dict[Type, None] = {}
    for member in members:
        flat.update(dict.fromkeys(member.members if member.kind == "Union" else (member,)))
    for kind in ("Node", "Edge"):
        same = [member for member in flat if member.kind == kind]
        if len(same) > 1:
            for member in same:
                del flat[member]
            names = (
                None
                if any(m.names is None for m in same)
                else frozenset().union(*(m.names or () for m in same))
            )
            flat[Type(kind, names)] = None
    ordered = tuple(sorted(flat, key=describe))
    return ordered[0] if len(ordered) == 1 else Type("Union", None, ordered)


def describe(type_: Type) -> str:
    """Return the type as a user writes it."""
    match type_.kind:
        case "Node":
            return " | ".join(sorted(type_.names)) if type_.names else "any"
        case "Edge":
            return " | ".join(f"edge<{name}>" for name in sorted(type_.names)) if type_.names else "edge<any>"
        case "List":
            return f"List of {describe(type_.members[0])}"
        case "Union":
            return " | ".join(describe(member) for member in type_.members)
        case kind:
            return kind


def is_comparable(left: Type, right: Type) -> bool:
    """True if `=` and `!=` accept these types: equal types, Int and Float, two references, null and anything.

    docs/reference/language/expressions.md lists the rules.
    """
    if left == right or "Any" in (left.kind, right.kind) or "Null" in (left.kind, right.kind):
        return True
    for union, other in ((left, right), (right, left)):
        if union.kind == "Union":
            return any(is_comparable(member, other) for member in union.members)
    if left.kind == "List" and right.kind == "List":
        return is_comparable(left.members[0], right.members[0])
    if left.kind in _REFERENCE_LIKE or right.kind in _REFERENCE_LIKE:
        kinds = {left.kind, right.kind}
        return kinds <= _REFERENCE_LIKE or kinds == {"ID", "String"} or "String" in kinds
    return left.kind == right.kind or _same_family(left, right)


def is_orderable(left: Type, right: Type) -> bool:
    """True if `<` accepts these types: two numbers, strings, Booleans, timestamps or durations.

    An Int beside a timestamp or duration counts as milliseconds.
    """
    if "Any" in (left.kind, right.kind) or "Null" in (left.kind, right.kind):
        return True
    if left.kind == "Union" or right.kind == "Union":
        return is_comparable(left, right)
    if left.kind in _REFERENCE_LIKE or left.kind == "List":
        return False
    return left.kind == right.kind or _same_family(left, right)


def _same_family(left: Type, right: Type) -> bool:
    if left.is_numeric and right.is_numeric:
        return True
    kinds = {left.kind, right.kind}
    return kinds in ({"Timestamp", "Int"}, {"Duration", "Int"})
