"""Declarations of an ontology as a tree (spec/language.md §1.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from vedette.language.diagnostics import Span
from vedette.language.syntax.expressions import Expression, Pattern, TypeExpression, span_field
from vedette.language.syntax.statements import Action

__all__ = [
    "AliasDeclaration",
    "AttributeDeclaration",
    "ConstraintDeclaration",
    "Declaration",
    "EdgeDeclaration",
    "EdgeParameter",
    "Modifier",
    "NodeDeclaration",
    "OntologyDeclaration",
    "OperationPattern",
    "PolicyDeclaration",
    "RuleDeclaration",
]


@dataclass(frozen=True, slots=True)
class Modifier:
    """One modifier of an attribute or an edge.

    attributes: `required`, `unique`, `readonly`, `indexed` (value `asc`, `desc` or None), `>=` `<=` `>` `<` (a number),
    `range` ((low, high)), `in` (a tuple of Expressions), `length` ((low, high)), `match` (a regex), `format` (a name),
    `default` (an Expression).
    edges: `symmetric`, `no_self`, `acyclic`, `unique`, `indexed`, `cardinality` ((parameter, low, high or None for *)),
    `on_kill_source` and `on_kill_target` (`cascade`, `unlink` or `prevent`).
    """

    name: str
    value: object = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class AliasDeclaration:
    """`type Email = String [format: email]`."""

    name: str
    type: TypeExpression
    modifiers: tuple[Modifier, ...] = ()
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class AttributeDeclaration:
    """The default may be written `= e` or as a modifier; both end here as `default`."""

    name: str
    type: TypeExpression
    modifiers: tuple[Modifier, ...] = ()
    default: Expression | None = None
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """`modifiers` holds any of abstract, sealed, singleton, extension-point; all three spellings end here."""

    name: str
    parents: tuple[str, ...] = ()
    attributes: tuple[AttributeDeclaration, ...] = ()
    modifiers: frozenset[str] = frozenset()
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EdgeParameter:
    name: str
    type: TypeExpression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EdgeDeclaration:
    name: str
    parameters: tuple[EdgeParameter, ...]
    attributes: tuple[AttributeDeclaration, ...] = ()
    modifiers: tuple[Modifier, ...] = ()
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ConstraintDeclaration:
    name: str
    pattern: Pattern
    condition: Expression
    where: Expression | None = None
    soft: bool = False
    message: str | None = None
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class RuleDeclaration:
    name: str
    pattern: Pattern
    actions: tuple[Action, ...]
    where: Expression | None = None
    priority: int = 0
    manual: bool = False
    inherit_authority: bool = False
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class OperationPattern:
    """`SET(t: Task, "status")`, `META SPAWN(_Watch)`, `LINK(_, t: Task)`, `MATCH(t: Task).score`, `*`."""

    operation: str
    """SPAWN, KILL, LINK, UNLINK, SET, MATCH, each also with META in front; or `*`."""
    variable: str | None = None
    type: TypeExpression | None = None
    """None is any type. A bare name in the parentheses that is a type of the ontology is read as the type."""
    attribute: str | None = None
    """SET's second argument or the `.attr` suffix; None is any."""
    second: tuple[str | None, TypeExpression | None] | None = None
    """LINK(_, t: Task): variable and type of the second argument."""
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class PolicyDeclaration:
    name: str
    operations: tuple[OperationPattern, ...]
    allow: bool
    condition: Expression
    priority: int = 0
    message: str | None = None
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class OntologyDeclaration:
    """`ontology Name: Parent { … }`; its declarations stand in one namespace with all others."""

    name: str
    parents: tuple[str, ...]
    declarations: tuple[Declaration, ...]
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


Declaration: TypeAlias = (
    AliasDeclaration
    | NodeDeclaration
    | EdgeDeclaration
    | ConstraintDeclaration
    | RuleDeclaration
    | PolicyDeclaration
    | OntologyDeclaration
)
