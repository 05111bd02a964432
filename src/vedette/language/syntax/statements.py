"""Statements as a tree (docs/reference/grammar.md#statements)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from vedette.language.diagnostics import Span
from vedette.language.syntax.expressions import EdgeTarget as PatternTarget
from vedette.language.syntax.expressions import (
    Expression,
    IdReference,
    OrderTerm,
    Pattern,
    Projection,
    TypeExpression,
    Variable,
    span_field,
)

__all__ = [
    "Ack",
    "Action",
    "AlterWatch",
    "Assignment",
    "Begin",
    "BeginSession",
    "Commit",
    "EdgesByTargets",
    "EndSession",
    "Explain",
    "Extend",
    "Inspect",
    "Kill",
    "Link",
    "LinkTarget",
    "ManageWatch",
    "Match",
    "MatchBlock",
    "MatchManage",
    "MatchMutate",
    "MutationTarget",
    "Nack",
    "OptionValue",
    "Profile",
    "Redrive",
    "Return",
    "Returning",
    "ReturningItem",
    "Rollback",
    "Savepoint",
    "Set",
    "Spawn",
    "SpawnItem",
    "Statement",
    "Subquery",
    "Tick",
    "Trigger",
    "Unlink",
    "Watch",
    "WatchOption",
]


# --- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MatchBlock:
    """A MATCH or OPTIONAL MATCH: a pattern with its WHERE."""

    pattern: Pattern
    where: Expression | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Return:
    projections: tuple[Projection, ...]
    distinct: bool = False
    order: tuple[OrderTerm, ...] = ()
    limit: Expression | None = None
    """An Int literal or a Parameter."""
    offset: Expression | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Match:
    """`MATCH … [MATCH …] [OPTIONAL MATCH …] RETURN …`."""

    blocks: tuple[MatchBlock, ...]
    optional: tuple[MatchBlock, ...]
    returns: Return
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class MatchMutate:
    """`MATCH … actions`. All matches are found first; then the actions run for each match, in order."""

    blocks: tuple[MatchBlock, ...]
    optional: tuple[MatchBlock, ...]
    actions: tuple[Action, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class MatchManage:
    """`MATCH … DO CANCEL WATCH s.id`."""

    blocks: tuple[MatchBlock, ...]
    optional: tuple[MatchBlock, ...]
    action: ManageWatch | AlterWatch
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Inspect:
    target: IdReference
    projections: tuple[Projection, ...] = ()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Explain:
    statement: Statement
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Profile:
    statement: Statement
    span: Span = span_field()


# --- writing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subquery:
    """`{ MATCH … RETURN v }` as the target of an action."""

    match: Match
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EdgesByTargets:
    """`UNLINK edge(#a, _)`: all edges of the type with these targets."""

    edge: str
    targets: tuple[PatternTarget, ...]
    span: Span = span_field()


MutationTarget: TypeAlias = IdReference | Variable | Subquery | EdgesByTargets


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    expression: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ReturningItem:
    """`id`, `created`, `count(*)` (name `count(*)`), `attr` or `variable.attr`."""

    name: str
    attribute: str | None = None
    alias: str | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Returning:
    """Empty `items` means `RETURNING *`."""

    items: tuple[ReturningItem, ...] = ()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class SpawnItem:
    """`SPAWN v: Type { … }`. Only inside LINK may the variable be missing."""

    variable: str | None
    type: TypeExpression
    assignments: tuple[Assignment, ...] = ()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Spawn:
    items: tuple[SpawnItem, ...]
    returning: Returning | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Kill:
    """`cascade`: True for CASCADE, False for NO CASCADE, None to do what the edge types declare."""

    target: MutationTarget
    cascade: bool | None = None
    returning: Returning | None = None
    span: Span = span_field()


LinkTarget: TypeAlias = SpawnItem | Subquery | Expression


@dataclass(frozen=True, slots=True)
class Link:
    edge: str
    targets: tuple[LinkTarget, ...]
    variable: str | None = None
    assignments: tuple[Assignment, ...] = ()
    if_not_exists: bool = False
    returning: Returning | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Unlink:
    target: MutationTarget
    returning: Returning | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Set:
    """`SET t.a = e` or `SET t { a = e, … }`. The expressions read the state before the statement."""

    target: MutationTarget
    assignments: tuple[Assignment, ...]
    block: bool = False
    """True if the text has braces."""
    returning: Returning | None = None
    span: Span = span_field()


Action: TypeAlias = Spawn | Kill | Link | Unlink | Set


# --- transactions, sessions, time -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """`isolation` is `READ COMMITTED`, `SERIALIZABLE`, or None for the default, READ COMMITTED."""

    isolation: str | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Commit:
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Rollback:
    savepoint: str | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Savepoint:
    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class BeginSession:
    actor: IdReference | Variable
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EndSession:
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Tick:
    amount: Expression | None = None
    """An Int or a Parameter; None means one tick. A negative Int is parsed, so that the engine can report E9001."""
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Trigger:
    rule: str
    where: Expression | None = None
    span: Span = span_field()


# --- watches ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OptionValue:
    """An option value that is a word, with or without arguments: `arrival`, `attribute(t.p DESC)`, `since(7)`."""

    name: str
    arguments: tuple[OrderTerm, ...] = ()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class WatchOption:
    """`name: value`, or a name alone such as `no_retry`.

    The parser accepts any name and value; the engine reports unknown ones (E8009).
    """

    name: str
    value: OptionValue | Expression | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Watch:
    pattern: Pattern
    where: Expression | None = None
    options: tuple[WatchOption, ...] = ()
    actions: tuple[Action, ...] = ()
    returns: Return | None = None
    name: str | None = None
    """The name from `name = WATCH …`, or the alias after a trailing AS, which is also the alias of the last column."""
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Ack:
    delivery: Expression
    """A String literal, a Parameter or an IdReference."""
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Nack:
    delivery: Expression
    options: tuple[WatchOption, ...] = ()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Extend:
    delivery: Expression
    options: tuple[WatchOption, ...] = ()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Redrive:
    """`REDRIVE #letter`, or `REDRIVE WATCH #w` for all dead letters of a watch."""

    target: Expression
    watch: bool = False
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ManageWatch:
    """`PAUSE WATCH #w`; `operation` is PAUSE, RESUME or CANCEL.

    `handle` is an IdReference. In MATCH … DO it may also be `s` or `s.id`.
    """

    operation: str
    handle: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class AlterWatch:
    handle: Expression
    options: tuple[WatchOption, ...]
    span: Span = span_field()


Statement: TypeAlias = (
    Match
    | MatchMutate
    | MatchManage
    | Inspect
    | Explain
    | Profile
    | Spawn
    | Kill
    | Link
    | Unlink
    | Set
    | Begin
    | Commit
    | Rollback
    | Savepoint
    | BeginSession
    | EndSession
    | Tick
    | Trigger
    | Watch
    | Ack
    | Nack
    | Extend
    | Redrive
    | ManageWatch
    | AlterWatch
)
