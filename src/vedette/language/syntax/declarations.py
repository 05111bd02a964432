"""The declarations of an ontology as a tree (docs/reference/grammar.md#types-and-ontologies)."""

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
    """`name: Type [modifiers] = default`. A default that is written as a modifier is stored in `default` too."""

    name: str
    type: TypeExpression
    modifiers: tuple[Modifier, ...] = ()
    default: Expression | None = None
    doc: str | None = field(default=None, compare=False)
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """`node Name: Parent [modifiers] { … }`.

    `modifiers` contains any of abstract, sealed, singleton and extension-point, wherever the text has them.
    """

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
    """SPAWN, KILL, LINK, UNLINK, SET or MATCH, also with the prefix `META `; or `*`."""
    variable: str | None = None
    type: TypeExpression | None = None
    """None means any type. A single name in the parentheses is a type if the ontology has one of that name."""
    attribute: str | None = None
    """The second argument of SET, or the suffix `.attr`; None means any attribute."""
    second: tuple[str | None, TypeExpression | None] | None = None
    """Variable and type of the second argument, as in `LINK(_, t: Task)`."""
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
    """`ontology Name: Parent { … }`. All ontologies share one namespace."""

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
