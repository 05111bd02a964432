"""Node declarations ▸ node types: parents, inherited attributes, layouts that only grow at their end."""

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
    """Builds all node types anew, old ones too: a parent that grows makes its subtypes grow."""

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
        self.ancestry = TypeHierarchy(self._parents, order)
        self._order_found = order
        self._attributes: dict[str, dict[str, AttributeType]] = {}

    def build(self) -> dict[str, NodeType]:
        """Every node type, in the order of declaration."""
        for name in self._order_found:
            self._attributes[name] = self._attributes_of(name)
        names = [*self._old, *(name for name in self._declared if name not in self._old)]
        return {name: self._reuse_unchanged(self._node(name)) for name in names}

    def _reuse_unchanged(self, node: NodeType) -> NodeType:
        """The old object when nothing changed: plans hold on to it."""
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
        above = self._declared.get(parent)
        sealed = "sealed" in above.modifiers if above is not None else self._old[parent].sealed
        if sealed and not self._draft.layer0:
            text = f"the type '{parent}' is sealed: '{declaration.name}' cannot inherit from it"
            self._draft.report("E2010", text, declaration.span)
        return True

    def _order(self) -> list[str]:
        """Every type after its parents; a cycle is reported and cut."""
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
        above, problems = inherit_attributes(
            (self._attributes[parent] for parent in self._parents[name]), self.ancestry
        )
        for problem in problems:
            code = "E2011" if name in self._old else "E2010"
            self._draft.report(code, f"in the node '{name}' {problem}", self._span(name))
        if name not in self._old:
            return self._attributes_of_new_type(name, above)
        return self._extend_existing(name, above)

    def _attributes_of_new_type(
        self, name: str, above: Mapping[str, AttributeType]
    ) -> dict[str, AttributeType]:
        attributes = dict(above)
        for attribute in self._own[name].values():
            attributes[attribute.name] = self._overridden(name, above, attribute, "E2010")
        return attributes

    def _extend_existing(self, name: str, above: Mapping[str, AttributeType]) -> dict[str, AttributeType]:
        """The attributes of a type that exists, in their old places, and new ones behind them."""
        old = self._old[name]
        own = self._own.get(name)
        before, _ = inherit_attributes(
            (self._old[parent].attributes for parent in old.parents), self.ancestry
        )
        declared_here = {each: was for each, was in old.attributes.items() if was != before.get(each)}
        attributes: dict[str, AttributeType] = {}
        for each, was in old.attributes.items():
            if own is not None and each in own:
                attributes[each] = self._changed(name, was, self._overridden(name, above, own[each], "E2011"))
            elif each in declared_here:
                attributes[each] = self._overridden(name, above, was, "E2011")
            else:
                attributes[each] = above[each]
        if own is not None:
            for problem in missing_attributes(declared_here, own):
                self._report_breaking_change(name, problem, self._declared[name].span)
        for each, attribute in above.items():
            attributes.setdefault(each, attribute)
        for each, attribute in (own or {}).items():
            if each not in old.attributes:
                attributes[each] = self._overridden(name, above, attribute, "E2011")
                self._added(name, attribute)
        return attributes

    def _overridden(
        self, name: str, above: Mapping[str, AttributeType], own: AttributeType, code: str
    ) -> AttributeType:
        if own.name not in above:
            return own
        try:
            return apply_override(above[own.name], own, self.ancestry)
        except IncompatibleAttributes as error:
            self._draft.report(code, f"in the node '{name}' {error}", self._span(name, own.name))
            return own

    def _changed(self, name: str, was: AttributeType, now: AttributeType) -> AttributeType:
        for problem in breaking_attribute_changes(was, now, self.ancestry):
            self._report_breaking_change(name, problem, self._span(name, was.name))
        return keep_doc(was, now)

    def _added(self, name: str, attribute: AttributeType) -> None:
        for problem in breaking_addition(attribute):
            self._report_breaking_change(name, problem, self._span(name, attribute.name))

    # --- the types ----------------------------------------------------------------------------------------------

    def _node(self, name: str) -> NodeType:
        attributes = self._attributes[name]
        old, declaration = self._old.get(name), self._declared.get(name)
        layout = {each: place for place, each in enumerate(attributes)}
        node = replace(
            old or NodeType(name=name, parents=self._parents[name]),
            attributes=attributes,
            layout=layout,
            ancestors=self.ancestry.ancestors[name],
            descendants=self.ancestry.descendants[name],
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
            text = f"the node '{node.name}' is abstract and sealed: it could never have an element"
            self._draft.report("E2010", text, span)
        if old is None:
            return
        if node.abstract and not old.abstract:
            self._report_breaking_change(node.name, "it is not abstract so far: it may have elements", span)
        if node.sealed and not old.sealed and len(node.descendants) > 1:
            self._report_breaking_change(node.name, "it is not sealed so far and has subtypes", span)

    def _report_breaking_change(self, name: str, problem: str, span: Span) -> None:
        self._draft.report("E2011", f"the node '{name}' is already defined: {problem}", span)

    def _span(self, name: str, attribute: str | None = None) -> Span:
        """Where the text declares the attribute for this type, or else the type, or one above it."""
        above = [name, *sorted(self.ancestry.ancestors[name] - {name})]
        declared = [self._declared[each] for each in above if each in self._declared]
        for declaration in declared:
            for each in declaration.attributes:
                if each.name == attribute:
                    return each.span
        return declared[0].span if declared else NO_SPAN
