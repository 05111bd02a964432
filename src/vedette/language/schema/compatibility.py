"""Find changes to an existing type that stored data could contradict (E2011).

Accepted are: the same declaration again, new attributes that are optional or have a default, and changes that only
loosen (a wider range, `T` to `T?`, a reference to more types, another default, doc or index). Every other change is
breaking. Two changes are left to the engine, which checks the stored data: a new constraint, and an attribute of a node
that becomes unique. docs/reference/language/ontology.md#how-an-ontology-grows describes the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from vedette.language.schema.inheritance import TypeHierarchy
from vedette.language.schema.model import AttributeType, Cardinality, EdgeType
from vedette.language.schema.modifiers import is_same_or_looser
from vedette.language.types import describe

__all__ = [
    "breaking_addition",
    "breaking_attribute_changes",
    "breaking_edge_changes",
    "keep_doc",
    "missing_attributes",
    "newly_unique",
]


def breaking_addition(attribute: AttributeType) -> Iterator[str]:
    """Yield why the attribute cannot be added to a type that may have elements."""
    if attribute.required and attribute.default is None:
        yield f"the new attribute '{attribute.name}' is required and has no default for existing elements"


def breaking_attribute_changes(
    old: AttributeType, new: AttributeType, hierarchy: TypeHierarchy
) -> Iterator[str]:
    """Yield the changes of an attribute that existing values could contradict."""
    name = f"the attribute '{old.name}'"
    if not hierarchy.is_subset_of(old.type, new.type):
        yield f"{name} is {describe(old.type)} and cannot become {describe(new.type)}"
        return
    if old.optional and not new.optional:
        yield f"{name} is optional: existing elements may have null"
    if new.required and not old.required:
        yield f"{name} was not required before: existing elements may have null"
    for modifier in new.value_modifiers:
        if not is_same_or_looser(modifier, old.value_modifiers):
            yield f"{name} gets a narrower [{modifier.name}]: existing values may lie outside"


def newly_unique(old: AttributeType | None, new: AttributeType) -> Iterator[str]:
    """Yield the error for an edge attribute that becomes unique although existing edges may share a value."""
    if new.unique and (old is None or not old.unique) and (old is not None or new.default is not None):
        yield f"the attribute '{new.name}' becomes unique: existing edges may share a value"


def missing_attributes(old: Mapping[str, AttributeType], new: Mapping[str, AttributeType]) -> Iterator[str]:
    for name in old:
        if name not in new:
            yield f"the attribute '{name}' is missing: a declaration must repeat every attribute that the type declares"


def breaking_edge_changes(old: EdgeType, new: EdgeType, hierarchy: TypeHierarchy) -> Iterator[str]:
    """Yield the changes of an edge type, except its attributes, that existing edges could contradict."""
    before = tuple(parameter.name for parameter in old.parameters)
    after = tuple(parameter.name for parameter in new.parameters)
    if before != after:
        yield f"its parameters are ({', '.join(before)}) and cannot become ({', '.join(after)})"
        return
    for one, other in zip(old.parameters, new.parameters, strict=True):
        if not hierarchy.is_subset_of(one.type, other.type):
            yield f"its parameter '{one.name}' is {describe(one.type)} and cannot become {describe(other.type)}"
    if old.symmetric is not new.symmetric:
        yield f"it was {'' if old.symmetric else 'not '}symmetric before: existing edges would change their meaning"
    for word, had, has in (
        ("no_self", old.no_self, new.no_self),
        ("acyclic", old.acyclic, new.acyclic),
        ("unique", old.unique, new.unique),
    ):
        if has and not had:
            yield f"it was not {word} before: existing edges may contradict it"
    for parameter, narrow, wide in zip(new.parameters, old.cardinalities, new.cardinalities, strict=True):
        if not _is_within(narrow, wide):
            yield f"the cardinality of '{parameter.name}' becomes narrower: existing edges may contradict it"


def _is_within(narrow: Cardinality | None, wide: Cardinality | None) -> bool:
    if wide is None:
        return True
    low, high = (narrow.low, narrow.high) if narrow is not None else (0, None)
    return wide.low <= low and (wide.high is None or (high is not None and high <= wide.high))


def keep_doc(old: AttributeType, new: AttributeType) -> AttributeType:
    """Return `new` with the old doc if it has none: a declaration without a doc comment does not delete the doc."""
    return replace(new, doc=old.doc) if new.doc is None and old.doc is not None else new
