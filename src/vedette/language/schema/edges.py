"""Build edge types: parameters, cardinalities, on-kill actions (docs/reference/language/ontology.md#edges)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from vedette.language.diagnostics import Span
from vedette.language.schema.attributes import build_attributes
from vedette.language.schema.compatibility import (
    breaking_addition,
    breaking_attribute_changes,
    breaking_edge_changes,
    keep_doc,
    missing_attributes,
    newly_unique,
)
from vedette.language.schema.draft import SchemaDraft
from vedette.language.schema.inheritance import TypeHierarchy
from vedette.language.schema.model import AttributeType, Cardinality, EdgeParameterType, EdgeType
from vedette.language.schema.type_expressions import DeclaredType, DeclaredTypeResolver
from vedette.language.syntax.declarations import EdgeDeclaration, Modifier
from vedette.language.types import describe

__all__ = ["build_edges"]

_FLAGS = ("symmetric", "no_self", "acyclic", "unique", "indexed")
_ACTIONS = ("on_kill_source", "on_kill_target")


def build_edges(
    draft: SchemaDraft, resolver: DeclaredTypeResolver, hierarchy: TypeHierarchy
) -> dict[str, EdgeType]:
    """Return every edge type, in the order of declaration."""
    edges = dict(draft.schema.edges)
    for name, declaration in draft.edges.items():
        edge = _EdgeBuilder(draft, resolver, declaration).build()
        old = edges.get(name)
        edges[name] = edge if old is None else _extend_existing(draft, old, edge, declaration, hierarchy)
    return edges


class _EdgeBuilder:
    """Builds one declaration, without regard to an existing type of the same name."""

    def __init__(
        self, draft: SchemaDraft, resolver: DeclaredTypeResolver, declaration: EdgeDeclaration
    ) -> None:
        self._draft = draft
        self._resolver = resolver
        self._declaration = declaration
        self._modifiers_by_name = self._modifiers()

    def build(self) -> EdgeType:
        declaration = self._declaration
        parameters = self._parameters()
        attributes = build_attributes(self._draft, self._resolver, declaration.attributes, declaration.name)
        edge = EdgeType(
            name=declaration.name,
            parameters=parameters,
            attributes=attributes,
            layout={each: index for index, each in enumerate(attributes)},
            symmetric="symmetric" in self._modifiers_by_name,
            no_self="no_self" in self._modifiers_by_name or "acyclic" in self._modifiers_by_name,
            acyclic="acyclic" in self._modifiers_by_name,
            unique="unique" in self._modifiers_by_name,
            cardinalities=self._cardinalities(parameters),
            on_kill_source=self._action("on_kill_source"),
            on_kill_target=self._action("on_kill_target"),
            doc=declaration.doc,
        )
        self._check(edge)
        return edge

    def _report(self, code: str, problem: str, span: Span) -> None:
        self._draft.report(code, f"the edge '{self._declaration.name}': {problem}", span)

    def _modifiers(self) -> dict[str, Modifier]:
        """Return the modifiers except cardinalities, by name; report duplicates."""
        by_name: dict[str, Modifier] = {}
        for modifier in self._declaration.modifiers:
            if modifier.name == "cardinality":
                continue
            if modifier.name not in _FLAGS and modifier.name not in _ACTIONS:
                self._report("E2010", f"there is no edge modifier '{modifier.name}'", modifier.span)
            if modifier.name in by_name:
                self._report("E2005", f"the modifier '{modifier.name}' is given twice", modifier.span)
            by_name.setdefault(modifier.name, modifier)
        return by_name

    def _action(self, name: str) -> str:
        modifier = self._modifiers_by_name.get(name)
        return "unlink" if modifier is None else str(modifier.value)

    # --- parameters ---------------------------------------------------------------------------------------------

    def _parameters(self) -> tuple[EdgeParameterType, ...]:
        found: dict[str, EdgeParameterType] = {}
        for parameter in self._declaration.parameters:
            self._draft.reject_reserved_name(parameter.name, "parameter", parameter.span)
            if parameter.name in found:
                self._report("E2005", f"the parameter '{parameter.name}' is given twice", parameter.span)
            resolved = self._resolver.resolve(parameter.type)
            self._check_parameter(parameter.name, resolved, parameter.span)
            found[parameter.name] = EdgeParameterType(name=parameter.name, type=resolved.type)
        if not found:
            self._report("E2010", "an edge joins at least one element", self._declaration.span)
        return tuple(found.values())

    def _check_parameter(self, name: str, resolved: DeclaredType, span: Span) -> None:
        members = resolved.type.alternatives
        if resolved.type.kind == "Any":
            return
        if not all(member.is_reference for member in members):
            text = f"its parameter '{name}' is {describe(resolved.type)}, but an edge joins nodes and edges"
            self._report("E2010", text, span)
        elif resolved.optional:
            self._report("E2010", f"its parameter '{name}' cannot be optional", span)

    def _cardinalities(self, parameters: tuple[EdgeParameterType, ...]) -> tuple[Cardinality | None, ...]:
        names = [parameter.name for parameter in parameters]
        found: dict[str, Cardinality] = {}
        for modifier in self._declaration.modifiers:
            if modifier.name != "cardinality":
                continue
            name, low, high = cast("tuple[str, int, int | None]", modifier.value)
            if name not in names:
                known = ", ".join(names)
                self._report("E2010", f"it has no parameter '{name}' to count; it has {known}", modifier.span)
            elif name in found:
                self._report("E2005", f"the cardinality of '{name}' is given twice", modifier.span)
            elif low < 0 or (high is not None and high < low):
                self._report("E2010", f"the cardinality {low}..{high} of '{name}' is empty", modifier.span)
            else:
                found[name] = Cardinality(low=low, high=high)
        return self._symmetric_cardinalities(tuple(found.get(name) for name in names))

    def _symmetric_cardinalities(
        self, found: tuple[Cardinality | None, ...]
    ) -> tuple[Cardinality | None, ...]:
        """A symmetric edge has no first end, so a cardinality of one end applies to both."""
        given = {cardinality for cardinality in found if cardinality is not None}
        if "symmetric" not in self._modifiers_by_name or not given:
            return found
        if len(given) > 1:
            text = "it is symmetric, so both ends must have the same cardinality"
            self._report("E2010", text, self._declaration.span)
        return tuple(next(iter(given)) for _ in found)

    # --- modifiers that need two ends ---------------------------------------------------------------------------

    def _check(self, edge: EdgeType) -> None:
        binary = edge.arity == 2
        for name in _ACTIONS:
            if name in self._modifiers_by_name and not binary:
                text = f"{name} needs a binary edge, and this one joins {edge.arity} elements"
                self._report("E3301", text, self._modifiers_by_name[name].span)
        if edge.symmetric and (not binary or edge.parameters[0].type != edge.parameters[1].type):
            text = "a symmetric edge joins two elements of one type"
            self._report("E2010", text, self._modifiers_by_name["symmetric"].span)
        if edge.acyclic and not binary:
            self._report(
                "E2010", "only a binary edge can be acyclic", self._modifiers_by_name["acyclic"].span
            )
        if edge.acyclic and edge.symmetric:
            text = "it is symmetric, and every symmetric edge is a cycle: it cannot be acyclic"
            self._report("E2010", text, self._modifiers_by_name["acyclic"].span)


def _extend_existing(
    draft: SchemaDraft, old: EdgeType, new: EdgeType, declaration: EdgeDeclaration, hierarchy: TypeHierarchy
) -> EdgeType:
    """Return an existing edge type with the changes of the declaration; report breaking changes."""
    spans = {attribute.name: attribute.span for attribute in declaration.attributes}
    breaking = [(problem, declaration.span) for problem in breaking_edge_changes(old, new, hierarchy)]
    breaking += [
        (problem, declaration.span) for problem in missing_attributes(old.attributes, new.attributes)
    ]
    attributes: dict[str, AttributeType] = {}
    for name, old_attribute in old.attributes.items():
        new_attribute = new.attributes.get(name, old_attribute)
        problems = [
            *breaking_attribute_changes(old_attribute, new_attribute, hierarchy),
            *newly_unique(old_attribute, new_attribute),
        ]
        breaking += [(problem, spans[name]) for problem in problems]
        attributes[name] = keep_doc(old_attribute, new_attribute)
    for name, attribute in new.attributes.items():
        if name not in attributes:
            problems = [*breaking_addition(attribute), *newly_unique(None, attribute)]
            breaking += [(problem, spans[name]) for problem in problems]
            attributes[name] = attribute
    for problem, span in breaking:
        draft.report("E2011", f"the edge '{old.name}' is already defined: {problem}", span)
    layout = {name: index for index, name in enumerate(attributes)}
    return replace(new, attributes=attributes, layout=layout, doc=new.doc or old.doc)
