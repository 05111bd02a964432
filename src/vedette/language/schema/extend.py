"""Add declarations to a schema. Pure: takes a schema and returns a schema.

The phases, in order, with the module of each:

1. `draft`             group the declarations by kind; report duplicate and reserved names
2. `type_expressions`  resolve declared types and expand aliases; `modifiers` combines their modifiers
3. `nodes`             resolve parents, build attributes (`attributes`, `modifier_predicates`), inherit (`inheritance`)
4. `edges`             parameters, cardinalities, on-kill actions
5. `compatibility`     report changes of existing types that stored data could contradict (in steps 3 and 4)
6. merge constraints, rules and policies by name

All phases report to one collector; the errors are raised together at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from vedette.language.schema.attributes import check_alias
from vedette.language.schema.draft import SchemaDraft, collect_declarations
from vedette.language.schema.edges import build_edges
from vedette.language.schema.model import Schema
from vedette.language.schema.nodes import NodeBuilder
from vedette.language.schema.type_expressions import DeclaredTypeResolver
from vedette.language.syntax.declarations import (
    ConstraintDeclaration,
    Declaration,
    Modifier,
    NodeDeclaration,
    PolicyDeclaration,
    RuleDeclaration,
)
from vedette.language.syntax.expressions import (
    Binary,
    Exists,
    NamedType,
    NodePattern,
    Pattern,
    Unary,
    Variable,
)
from vedette.language.types import Type

__all__ = ["extend_schema"]

_Body = TypeVar("_Body", ConstraintDeclaration, RuleDeclaration, PolicyDeclaration)


def extend_schema(
    schema: Schema, declarations: Sequence[Declaration], source: str, *, layer0: bool = False
) -> Schema:
    """Return the schema with these declarations added; the same object if they add nothing.

    Raises one AnalysisError that carries every error as a Diagnostic (E2001, E2005, E2010, E2011, E2012, E3301) and, in
    `fields["problems"]`, as {code, message, line, column}. Its code is that of the first error in the text. `layer0`
    allows names that begin with `_`. The bodies of constraints, rules and policies are not resolved here.
    """
    draft = collect_declarations(schema, declarations, source, layer0=layer0)
    resolver = DeclaredTypeResolver(draft)
    aliases = _merged_aliases(draft, resolver)
    nodes = NodeBuilder(draft, resolver)
    built = nodes.build()
    edges = build_edges(draft, resolver, nodes.hierarchy)
    constraints = {**draft.constraints, **_singletons(draft)}
    extended = replace(
        schema,
        ontologies=tuple(dict.fromkeys((*schema.ontologies, *draft.ontologies))),
        aliases=aliases,
        nodes=built,
        edges=edges,
        constraints=_merged(draft, schema.constraints, constraints, "constraint"),
        rules=_merged(draft, schema.rules, draft.rules, "rule"),
        policies=_merged(draft, schema.policies, draft.policies, "policy"),
    )
    draft.raise_if_any()
    return schema if extended == schema else replace(extended, version=schema.version + 1)


def _merged_aliases(
    draft: SchemaDraft, resolver: DeclaredTypeResolver
) -> dict[str, tuple[Type, tuple[Modifier, ...]]]:
    merged = dict(draft.schema.aliases)
    for name, alias in resolver.aliases().items():
        check_alias(draft, *alias)
        if name in merged and merged[name] != alias:
            text = f"the type '{name}' is already defined differently: attributes that use it would change"
            draft.report("E2011", text, draft.aliases[name].span)
        merged[name] = alias
    return merged


def _merged(
    draft: SchemaDraft, old: Mapping[str, _Body], new: Mapping[str, _Body], what: str
) -> dict[str, _Body]:
    merged = dict(old)
    for name, declaration in new.items():
        if name not in merged:
            merged[name] = declaration
        elif merged[name] != declaration:
            text = f"the {what} '{name}' is already defined differently: give the new one another name"
            draft.report("E2011", text, declaration.span)
    return merged


def _singletons(draft: SchemaDraft) -> dict[str, ConstraintDeclaration]:
    """Build the constraint of each `[singleton]` node. A text cannot use its name, because the name contains `::`."""
    if draft.layer0:
        return {}
    found = (node for node in draft.nodes.values() if "singleton" in node.modifiers)
    return {f"{node.name}::singleton": _singleton_constraint(node) for node in found}


def _singleton_constraint(node: NodeDeclaration) -> ConstraintDeclaration:
    type_ = NamedType(node.name, span=node.span)
    other = Exists(
        Pattern((NodePattern("other", type_),)),
        Binary("!=", Variable("other"), Variable("one")),
        span=node.span,
    )
    return ConstraintDeclaration(
        name=f"{node.name}::singleton",
        pattern=Pattern((NodePattern("one", type_),)),
        condition=Unary("NOT", other),
        message=f"there can be only one {node.name}",
        span=node.span,
    )
