"""Build node types: parents, inherited attributes, layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from vedette.language.diagnostics import NO_SPAN, Span
from vedette.language.schema.attributes import build_attributes
from vedette.language.schema.compatibility import (
    breaking_addition,
    breaking_attribute_changes,
    keep_doc,
    missing_attributes,
)
from vedette.language.schema.draft import SchemaDraft
from vedette.language.schema.inheritance import (
    IncompatibleAttributes,
    TypeHierarchy,
    apply_override,
    inherit_attributes,
)
from vedette.language.schema.model import AttributeType, NodeType
from vedette.language.schema.type_expressions import DeclaredTypeResolver
from vedette.language.syntax.declarations import NodeDeclaration

__all__ = ["NodeBuilder"]


class NodeBuilder:
    """Builds all node types, existing ones too: a parent that gains an attribute extends its subtypes."""

    def __init__(self, draft: SchemaDraft, resolver: DeclaredTypeResolver) -> None:
        self._draft = draft
        self._old = draft.schema.nodes
        self._declared = draft.nodes
        self._own = {
            name: build_attributes(draft, resolver, declaration.attributes, name)
            for name, declaration in draft.nodes.items()
        }
        self._parents = self._find_parents()
        order = self._order()
        self.hierarchy = TypeHierarchy(self._parents, order)
        self._build_order = order
        self._attributes: dict[str, dict[str, AttributeType]] = {}

    def build(self) -> dict[str, NodeType]:
        """Return every node type, in the order of declaration."""
        for name in self._build_order:
            self._attributes[name] = self._attributes_of(name)
        names = [*self._old, *(name for name in self._declared if name not in self._old)]
        return {name: self._reuse_unchanged(self._node(name)) for name in names}

    def _reuse_unchanged(self, node: NodeType) -> NodeType:
        """Return the existing object if nothing changed, because plans refer to it."""
        old = self._old.get(node.name)
        return old if old is not None and old == node else node

    # --- parents ------------------------------------------------------------------------------------------------

    def _find_parents(self) -> dict[str, tuple[str, ...]]:
        parents = {name: node.parents for name, node in self._old.items()}
        for name, declaration in self._declared.items():
            found = tuple(self._draft.unqualified_name(parent) for parent in declaration.parents)
            usable = tuple(parent for parent in found if self._check_parent(declaration, parent))
            if len(set(found)) < len(found):
                self._draft.report("E2005", f"'{name}' names a parent twice", declaration.span)
            if name not in parents:
                parents[name] = tuple(dict.fromkeys(usable))
            elif set(found) != set(parents[name]):
                before = ", ".join(parents[name]) or "none"
                text = f"the node '{name}' is defined with other parents ({before}): they cannot change"
                self._draft.report("E2011", text, declaration.span)
        return parents

    def _check_parent(self, declaration: NodeDeclaration, parent: str) -> bool:
        if not self._draft.is_node(parent):
            self._draft.report("E2001", f"Unknown type '{parent}'", declaration.span)
            return False
        inherited = self._declared.get(parent)
        sealed = "sealed" in inherited.modifiers if inherited is not None else self._old[parent].sealed
        if sealed and not self._draft.layer0:
            text = f"the type '{parent}' is sealed: '{declaration.name}' cannot inherit from it"
            self._draft.report("E2010", text, declaration.span)
        return True

    def _order(self) -> list[str]:
        """Return the types, each after its parents. A cycle is reported and broken."""
        while True:
            try:
                return list(TopologicalSorter(self._parents).static_order())
            except CycleError as error:
                cycle: list[str] = error.args[1]
                name = next(each for each in cycle if each in self._declared and each not in self._old)
                path = " : ".join(reversed(cycle))
                text = f"the node '{name}' inherits from itself: {path}"
                self._draft.report("E2010", text, self._declared[name].span)
                self._parents[name] = ()

    # --- attributes ---------------------------------------------------------------------------------------------

    def _attributes_of(self, name: str) -> dict[str, AttributeType]:
        inherited, problems = inherit_attributes(
            (self._attributes[parent] for parent in self._parents[name]), self.hierarchy
        )
        for problem in problems:
            code = "E2011" if name in self._old else "E2010"
            self._draft.report(code, f"in the node '{name}' {problem}", self._span(name))
        if name not in self._old:
            return self._attributes_of_new_type(name, inherited)
        return self._extend_existing(name, inherited)

    def _attributes_of_new_type(
        self, name: str, inherited: Mapping[str, AttributeType]
    ) -> dict[str, AttributeType]:
        attributes = dict(inherited)
        for attribute in self._own[name].values():
            attributes[attribute.name] = self._overridden(name, inherited, attribute, "E2010")
        return attributes

    def _extend_existing(self, name: str, inherited: Mapping[str, AttributeType]) -> dict[str, AttributeType]:
        """Return the attributes of an existing type with unchanged indexes, followed by new ones."""
        old = self._old[name]
        own = self._own.get(name)
        before, _ = inherit_attributes(
            (self._old[parent].attributes for parent in old.parents), self.hierarchy
        )
        declared_here = {
            each: old_attribute
            for each, old_attribute in old.attributes.items()
            if old_attribute != before.get(each)
        }
        attributes: dict[str, AttributeType] = {}
        for each, old_attribute in old.attributes.items():
            if own is not None and each in own:
                attributes[each] = self._changed(
                    name, old_attribute, self._overridden(name, inherited, own[each], "E2011")
                )
            elif each in declared_here:
                attributes[each] = self._overridden(name, inherited, old_attribute, "E2011")
            else:
                attributes[each] = inherited[each]
        if own is not None:
            for problem in missing_attributes(declared_here, own):
                self._report_breaking_change(name, problem, self._declared[name].span)
        for each, attribute in inherited.items():
            attributes.setdefault(each, attribute)
        for each, attribute in (own or {}).items():
            if each not in old.attributes:
                attributes[each] = self._overridden(name, inherited, attribute, "E2011")
                self._added(name, attribute)
        return attributes

    def _overridden(
        self, name: str, inherited: Mapping[str, AttributeType], own: AttributeType, code: str
    ) -> AttributeType:
        if own.name not in inherited:
            return own
        try:
            return apply_override(inherited[own.name], own, self.hierarchy)
        except IncompatibleAttributes as error:
            self._draft.report(code, f"in the node '{name}' {error}", self._span(name, own.name))
            return own

    def _changed(
        self, name: str, old_attribute: AttributeType, new_attribute: AttributeType
    ) -> AttributeType:
        for problem in breaking_attribute_changes(old_attribute, new_attribute, self.hierarchy):
            self._report_breaking_change(name, problem, self._span(name, old_attribute.name))
        return keep_doc(old_attribute, new_attribute)

    def _added(self, name: str, attribute: AttributeType) -> None:
        for problem in breaking_addition(attribute):
            self._report_breaking_change(name, problem, self._span(name, attribute.name))

    # --- types --------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> NodeType:
        attributes = self._attributes[name]
        old, declaration = self._old.get(name), self._declared.get(name)
        layout = {each: index for index, each in enumerate(attributes)}
        node = replace(
            old or NodeType(name=name, parents=self._parents[name]),
            attributes=attributes,
            layout=layout,
            ancestors=self.hierarchy.ancestors[name],
            descendants=self.hierarchy.descendants[name],
        )
        if declaration is None:
            return node
        node = replace(
            node,
            abstract="abstract" in declaration.modifiers,
            sealed="sealed" in declaration.modifiers,
            doc=declaration.doc or node.doc,
        )
        self._check_modifiers(node, old, declaration.span)
        return node

    def _check_modifiers(self, node: NodeType, old: NodeType | None, span: Span) -> None:
        if node.abstract and node.sealed and not node.is_layer0:
            text = f"the node '{node.name}' is abstract and sealed: it could never have elements"
            self._draft.report("E2010", text, span)
        if old is None:
            return
        if node.abstract and not old.abstract:
            self._report_breaking_change(node.name, "it was not abstract before: it may have elements", span)
        if node.sealed and not old.sealed and len(node.descendants) > 1:
            self._report_breaking_change(node.name, "it was not sealed before and has subtypes", span)

    def _report_breaking_change(self, name: str, problem: str, span: Span) -> None:
        self._draft.report("E2011", f"the node '{name}' is already defined: {problem}", span)

    def _span(self, name: str, attribute: str | None = None) -> Span:
        """Return where the text declares the attribute of this type, else the type or one of its supertypes."""
        inherited = [name, *sorted(self.hierarchy.ancestors[name] - {name})]
        declared = [self._declared[each] for each in inherited if each in self._declared]
        for declaration in declared:
            for each in declaration.attributes:
                if each.name == attribute:
                    return each.span
        return declared[0].span if declared else NO_SPAN
