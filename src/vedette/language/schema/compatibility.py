"""What a declaration may change in what is already defined: nothing that existing data could contradict.

Accepted: the same again, new optional or defaulted attributes, and whatever only loosens (a wider range, `T` to `T?`,
a reference to more types, other defaults, docs and indexes). Everything else is a breaking change, reported as E2011
with all the others of the text. Two things are left to the engine, which can look at the data: a new constraint, and a
node's attribute that becomes unique.
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
    """Why an attribute cannot be added to a type that may have elements."""
    if attribute.required and attribute.default is None:
        yield f"the new attribute '{attribute.name}' is required and has no default for existing elements"


def breaking_attribute_changes(
    was: AttributeType, now: AttributeType, ancestry: TypeHierarchy
) -> Iterator[str]:
    """What is new about an attribute that existing values could contradict."""
    name = f"the attribute '{was.name}'"
    if not ancestry.is_subset_of(was.type, now.type):
        yield f"{name} is {describe(was.type)} and cannot become {describe(now.type)}"
        return
    if was.optional and not now.optional:
        yield f"{name} is optional: existing elements may hold null"
    if now.required and not was.required:
        yield f"{name} is not required so far: existing elements may hold null"
    for modifier in now.value_modifiers:
        if not is_same_or_looser(modifier, was.value_modifiers):
            yield f"{name} gets a narrower [{modifier.name}]: existing values may lie outside"


def newly_unique(was: AttributeType | None, now: AttributeType) -> Iterator[str]:
    """An edge's attribute that becomes unique, or a new one whose default all existing edges would share."""
    if now.unique and (was is None or not was.unique) and (was is not None or now.default is not None):
        yield f"the attribute '{now.name}' becomes unique: existing edges may share a value"


def missing_attributes(was: Mapping[str, AttributeType], now: Mapping[str, AttributeType]) -> Iterator[str]:
    for name in was:
        if name not in now:
            yield f"the attribute '{name}' is missing: a declaration must name every attribute of its own again"


def breaking_edge_changes(was: EdgeType, now: EdgeType, ancestry: TypeHierarchy) -> Iterator[str]:
    """What is new about an edge type, its attributes apart, that existing edges could contradict."""
    before = tuple(parameter.name for parameter in was.parameters)
    after = tuple(parameter.name for parameter in now.parameters)
    if before != after:
        yield f"its parameters are ({', '.join(before)}) and cannot become ({', '.join(after)})"
        return
    for old, new in zip(was.parameters, now.parameters, strict=True):
        if not ancestry.is_subset_of(old.type, new.type):
            yield f"its parameter '{old.name}' is {describe(old.type)} and cannot become {describe(new.type)}"
    if was.symmetric is not now.symmetric:
        yield f"it is {'' if was.symmetric else 'not '}symmetric so far: existing edges would change their meaning"
    for word, had, has in (
        ("no_self", was.no_self, now.no_self),
        ("acyclic", was.acyclic, now.acyclic),
        ("unique", was.unique, now.unique),
    ):
        if has and not had:
            yield f"it is not {word} so far: existing edges may contradict it"
    for parameter, narrow, wide in zip(now.parameters, was.cardinalities, now.cardinalities, strict=True):
        if not _is_within(narrow, wide):
            yield f"the cardinality of '{parameter.name}' becomes narrower: existing edges may contradict it"


def _is_within(narrow: Cardinality | None, wide: Cardinality | None) -> bool:
    if wide is None:
        return True
    low, high = (narrow.low, narrow.high) if narrow is not None else (0, None)
    return wide.low <= low and (wide.high is None or (high is not None and high <= wide.high))


def keep_doc(was: AttributeType, now: AttributeType) -> AttributeType:
    """A declaration without a doc comment does not take the doc away."""
    return replace(now, doc=was.doc) if now.doc is None and was.doc is not None else now
