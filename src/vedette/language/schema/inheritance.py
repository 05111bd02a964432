"""Combine the attributes that a type inherits from several parents or declares again.

The result satisfies both declarations: it has the narrower type, the value modifiers of both, and is required if one of
them is. A subtype never loosens what a parent declares (docs/reference/language/ontology.md#nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from vedette.language.schema.attributes import default_problem
from vedette.language.schema.model import AttributeType
from vedette.language.syntax.declarations import Modifier
from vedette.language.types import Type, describe

__all__ = [
    "IncompatibleAttributes",
    "TypeHierarchy",
    "apply_override",
    "inherit_attributes",
    "merge_inherited",
]


class IncompatibleAttributes(ValueError):
    """Two declarations of one attribute contradict each other. The text says why."""


class TypeHierarchy:
    """The ancestors and descendants of every node type."""

    def __init__(self, parents: Mapping[str, tuple[str, ...]], order: Iterable[str]) -> None:
        """`order` lists every type after its parents."""
        self.ancestors: dict[str, frozenset[str]] = {}
        for name in order:
            above = (self.ancestors[parent] for parent in parents[name])
            self.ancestors[name] = frozenset({name}).union(*above)
        self.descendants: dict[str, frozenset[str]] = self._below()

    def _below(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {name: set() for name in self.ancestors}
        for name, above in self.ancestors.items():
            for ancestor in above:
                found[ancestor].add(name)
        return {name: frozenset(below) for name, below in found.items()}

    def is_subset_of(self, type_: Type, other: Type) -> bool:
        """True if every value of `type_` is also a value of `other`; a type is a subset of itself."""
        if type_ == other or other.kind == "Any":  # Any: the declared type has an error that was reported
            return True
        if type_.kind != other.kind or not type_.is_reference:
            return False
        if other.names is None or type_.names is None:
            return other.names is None
        if type_.kind == "Edge":
            return type_.names <= other.names
        return all(not other.names.isdisjoint(self.ancestors[name]) for name in type_.names)


def inherit_attributes(
    parents: Iterable[Mapping[str, AttributeType]], hierarchy: TypeHierarchy
) -> tuple[dict[str, AttributeType], list[str]]:
    """Return the attributes of all parents in order, each once, and the texts of contradictions."""
    found: dict[str, AttributeType] = {}
    problems = []
    for attributes in parents:
        for name, attribute in attributes.items():
            try:
                found[name] = (
                    merge_inherited(found[name], attribute, hierarchy) if name in found else attribute
                )
            except IncompatibleAttributes as error:
                problems.append(str(error))
    return found, problems


def merge_inherited(first: AttributeType, second: AttributeType, hierarchy: TypeHierarchy) -> AttributeType:
    """Merge one attribute from two parents; raises IncompatibleAttributes."""
    if first == second:
        return first
    name = first.name
    if hierarchy.is_subset_of(first.type, second.type):
        type_ = first.type
    elif hierarchy.is_subset_of(second.type, first.type):
        type_ = second.type
    else:
        raise IncompatibleAttributes(
            f"the attribute '{name}' comes from '{first.declared_in}' as {describe(first.type)} "
            f"and from '{second.declared_in}' as {describe(second.type)}"
        )
    if first.declared_in != second.declared_in and (first.unique or second.unique):
        raise IncompatibleAttributes(
            f"the attribute '{name}' comes from '{first.declared_in}' and from '{second.declared_in}' and is unique: "
            "declare it in a common parent"
        )
    return replace(
        first,
        type=type_,
        optional=first.optional and second.optional,
        required=first.required or second.required,
        readonly=first.readonly or second.readonly,
        default=first.default if first.default is not None else second.default,
        value_modifiers=_both(first.value_modifiers, second.value_modifiers),
        doc=first.doc or second.doc,
    )


def apply_override(above: AttributeType, own: AttributeType, hierarchy: TypeHierarchy) -> AttributeType:
    """Merge an attribute that a subtype declares again. It may be narrower than the parent's, never wider."""
    name = own.name
    if not hierarchy.is_subset_of(own.type, above.type):
        raise IncompatibleAttributes(
            f"the attribute '{name}' is {describe(above.type)} in '{above.declared_in}' "
            f"and cannot be {describe(own.type)} here"
        )
    if own.optional and not above.optional:
        raise IncompatibleAttributes(
            f"the attribute '{name}' of '{above.declared_in}' is not optional and cannot become so here"
        )
    if own.unique and not above.unique:
        raise IncompatibleAttributes(
            f"the attribute '{name}' is declared in '{above.declared_in}': it can be unique only there"
        )
    result = replace(
        above,
        type=own.type,
        optional=own.optional,
        required=own.required or above.required,
        readonly=own.readonly or above.readonly,
        default=own.default if own.default is not None else above.default,
        value_modifiers=_both(above.value_modifiers, own.value_modifiers),
        doc=own.doc or above.doc,
    )
    problem = default_problem(result) if result.default is not None else None
    if problem is not None:
        raise IncompatibleAttributes(problem[0])
    return result


def _both(first: tuple[Modifier, ...], second: tuple[Modifier, ...]) -> tuple[Modifier, ...]:
    return first + tuple(modifier for modifier in second if modifier not in first)
