"""Declarations onto a schema: names resolved, rules checked, layouts extended. Pure: a schema in, a schema out.

schema_draft         declarations by kind and name, duplicates, reserved names; the problems found
schema_types         type expressions, aliases expanded        modifiers          which modifier holds
schema_attributes    attributes, their modifiers and defaults  value_tests        what a modifier asks of a value
schema_nodes         parents, layouts                          schema_inheritance attributes that meet
schema_edges         parameters, cardinalities                 schema_merge       what would break existing data
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
    """The schema with these declarations added; `schema` itself (same object) when they say nothing new.

    Raises one AnalysisError that carries every problem as a Diagnostic (E2001, E2005, E2010, E2011, E2012, E3301) and,
    in `fields["problems"]`, as {code, message, line, column}; its own code is that of the first problem in the text.
    `layer0` allows names that begin with `_`. The bodies of constraints, rules and policies are not looked into.
    """
    draft = collect_declarations(schema, declarations, source, layer0=layer0)
    resolver = DeclaredTypeResolver(draft)
    aliases = _merged_aliases(draft, resolver)
    nodes = NodeBuilder(draft, resolver)
    built = nodes.build()
    edges = build_edges(draft, resolver, nodes.ancestry)
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
    """`[singleton]` is a constraint like any other, written by us under a name that no text can take."""
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
