"""The declarations of one text, grouped by kind and name, and the errors found in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from vedette.errors import AnalysisError
from vedette.language.diagnostics import Diagnostic, DiagnosticCollector, Span
from vedette.language.schema.model import Schema
from vedette.language.syntax.declarations import (
    AliasDeclaration,
    ConstraintDeclaration,
    Declaration,
    EdgeDeclaration,
    NodeDeclaration,
    OntologyDeclaration,
    PolicyDeclaration,
    RuleDeclaration,
)
from vedette.language.types import SCALARS

__all__ = ["SchemaDraft", "collect_declarations"]

_MAX_DIAGNOSTICS = 100
"""Errors that are reported for one ontology text; later ones are dropped."""
_Named = TypeVar(
    "_Named",
    AliasDeclaration,
    NodeDeclaration,
    EdgeDeclaration,
    ConstraintDeclaration,
    RuleDeclaration,
    PolicyDeclaration,
)


@dataclass(slots=True, kw_only=True)
class SchemaDraft:
    """An existing schema and the declarations to add, each name once."""

    schema: Schema
    diagnostics: DiagnosticCollector
    layer0: bool
    ontologies: dict[str, OntologyDeclaration] = field(default_factory=dict)
    aliases: dict[str, AliasDeclaration] = field(default_factory=dict)
    nodes: dict[str, NodeDeclaration] = field(default_factory=dict)
    edges: dict[str, EdgeDeclaration] = field(default_factory=dict)
    constraints: dict[str, ConstraintDeclaration] = field(default_factory=dict)
    rules: dict[str, RuleDeclaration] = field(default_factory=dict)
    policies: dict[str, PolicyDeclaration] = field(default_factory=dict)

    def report(self, code: str, message: str, span: Span) -> None:
        self.diagnostics.report(code, message, span)

    def raise_if_any(self) -> None:
        """Raise one AnalysisError that lists every diagnostic in the order of the text, if there are any."""
        self.diagnostics.raise_first(_schema_error, sort=True)

    def unqualified_name(self, name: str) -> str:
        """Return `Task` for `Onto::Task`: all ontologies share one namespace."""
        ontology, _, last = name.rpartition("::")
        return last if ontology in self.ontologies or ontology in self.schema.ontologies else name

    def is_node(self, name: str) -> bool:
        return name in self.nodes or name in self.schema.nodes

    def is_edge(self, name: str) -> bool:
        return name in self.edges or name in self.schema.edges

    def is_alias(self, name: str) -> bool:
        return name in self.aliases or name in self.schema.aliases

    def reject_reserved_name(self, name: str, what: str, span: Span) -> bool:
        """Report a name that only Layer 0 may use (E2012); return True if it is one."""
        if self.layer0 or not name.startswith("_"):
            return False
        self.report("E2012", f"the {what} '{name}': names that begin with '_' are reserved", span)
        return True


def _schema_error(diagnostics: Sequence[Diagnostic]) -> AnalysisError:
    text = diagnostics[0].message
    if len(diagnostics) > 1:
        text += f" (and {len(diagnostics) - 1} more)"
    problems = [
        {"code": each.code, "message": each.message, "line": each.line, "column": each.column}
        for each in diagnostics
    ]
    return AnalysisError(diagnostics[0].code, text, fields={"problems": problems}, diagnostics=diagnostics)


def collect_declarations(
    schema: Schema, declarations: Iterable[Declaration], source: str, *, layer0: bool
) -> SchemaDraft:
    """Group the declarations by kind. Reports duplicate names, reserved names and names used for another kind."""
    draft = SchemaDraft(
        schema=schema, diagnostics=DiagnosticCollector(source, _MAX_DIAGNOSTICS), layer0=layer0
    )
    _group_by_kind(draft, declarations)
    _check_ontologies(draft)
    _check_shadowing(draft)
    return draft


def _group_by_kind(draft: SchemaDraft, declarations: Iterable[Declaration]) -> None:
    for declaration in declarations:
        match declaration:
            case OntologyDeclaration():
                draft.reject_reserved_name(declaration.name, "ontology", declaration.span)
                draft.ontologies.setdefault(declaration.name, declaration)
                _group_by_kind(draft, declaration.declarations)
            case AliasDeclaration():
                _add_declaration(draft, draft.aliases, declaration, "type")
            case NodeDeclaration():
                _add_declaration(draft, draft.nodes, declaration, "node")
            case EdgeDeclaration():
                _add_declaration(draft, draft.edges, declaration, "edge")
            case ConstraintDeclaration():
                _add_declaration(draft, draft.constraints, declaration, "constraint")
            case RuleDeclaration():
                _add_declaration(draft, draft.rules, declaration, "rule")
            case PolicyDeclaration():
                _add_declaration(draft, draft.policies, declaration, "policy")


def _add_declaration(draft: SchemaDraft, kept: dict[str, _Named], declaration: _Named, what: str) -> None:
    if draft.reject_reserved_name(declaration.name, what, declaration.span) and _is_layer0(
        draft.schema, declaration.name
    ):
        return
    if declaration.name in kept:
        draft.report("E2005", f"the {what} '{declaration.name}' is declared twice", declaration.span)
    else:
        kept[declaration.name] = declaration


def _is_layer0(schema: Schema, name: str) -> bool:
    """True if the name is that of a Layer 0 declaration."""
    return name in schema.nodes or name in schema.edges or name in schema.constraints


def _check_ontologies(draft: SchemaDraft) -> None:
    for ontology in draft.ontologies.values():
        for parent in ontology.parents:
            if parent not in draft.ontologies and parent not in draft.schema.ontologies:
                draft.report("E2001", f"Unknown ontology '{parent}'", ontology.span)


def _check_shadowing(draft: SchemaDraft) -> None:
    """Report a name that is already used for another kind: aliases, nodes, edges and scalars share one namespace."""
    schema = draft.schema
    seen: dict[str, str] = dict.fromkeys(SCALARS, "a built-in type")
    for what, known in (("a type", schema.aliases), ("a node", schema.nodes), ("an edge", schema.edges)):
        seen.update(dict.fromkeys(known, what))
    declared: list[tuple[str, AliasDeclaration | NodeDeclaration | EdgeDeclaration]] = [
        *(("a type", alias) for alias in draft.aliases.values()),
        *(("a node", node) for node in draft.nodes.values()),
        *(("an edge", edge) for edge in draft.edges.values()),
    ]
    for what, declaration in sorted(declared, key=lambda pair: pair[1].span.start):
        other = seen.setdefault(declaration.name, what)
        if other != what:
            text = f"'{declaration.name}' cannot be {what}: it is the name of {other}"
            draft.report("E2005", text, declaration.span)
