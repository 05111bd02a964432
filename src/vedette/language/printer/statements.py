"""Print statements, one line each."""

from __future__ import annotations

from collections.abc import Iterable

from vedette.language.printer.expressions import (
    print_expression,
    print_order_term,
    print_pattern,
    print_target,
    print_type,
    print_where,
)
from vedette.language.syntax.expressions import (
    Aggregate,
    Call,
    Exists,
    Expression,
    PatternAggregate,
    Projection,
    Variable,
)
from vedette.language.syntax.grammar import EXPRESSION_VALUED_OPTIONS
from vedette.language.syntax.statements import (
    Ack,
    Action,
    AlterWatch,
    Assignment,
    Begin,
    BeginSession,
    Commit,
    EdgesByTargets,
    EndSession,
    Explain,
    Extend,
    Inspect,
    Kill,
    Link,
    LinkTarget,
    ManageWatch,
    Match,
    MatchBlock,
    MatchManage,
    MatchMutate,
    MutationTarget,
    Nack,
    OptionValue,
    Profile,
    Redrive,
    Return,
    Returning,
    ReturningItem,
    Rollback,
    Savepoint,
    Set,
    Spawn,
    SpawnItem,
    Statement,
    Subquery,
    Tick,
    Trigger,
    Unlink,
    Watch,
    WatchOption,
)

__all__ = ["print_script", "print_statement", "print_watch_options"]


def print_script(statements: Iterable[Statement]) -> str:
    """Return one statement per line, each with a final `;`."""
    return "".join(f"{print_statement(statement)};\n" for statement in statements)


def print_statement(node: Statement) -> str:
    match node:
        case Match() | MatchMutate() | MatchManage():
            return _print_match(node)
        case Spawn() | Kill() | Link() | Unlink() | Set():
            return _print_action(node)
        case Watch():
            return _watch(node)
        case Explain():
            return f"EXPLAIN {print_statement(node.statement)}"
        case Profile():
            return f"PROFILE {print_statement(node.statement)}"
        case Inspect():
            returns = f" RETURN {_projections(node.projections)}" if node.projections else ""
            return f"INSPECT {print_expression(node.target)}{returns}"
        case Trigger():
            return f"TRIGGER {node.rule}{print_where(node.where)}"
        case Ack() | Nack() | Extend() | Redrive() | ManageWatch() | AlterWatch():
            return _delivery(node)
        case _:
            return _transaction(node)


def print_watch_options(options: Iterable[WatchOption]) -> str:
    """Return the options in brackets, such as `[mode: consume, buffer: 10]`."""
    return f"[{', '.join(_option(option) for option in options)}]"


def _transaction(
    node: Begin | Commit | Rollback | Savepoint | BeginSession | EndSession | Tick,
) -> str:
    match node:
        case Begin():
            return f"BEGIN {node.isolation}" if node.isolation else "BEGIN"
        case Commit():
            return "COMMIT"
        case Rollback():
            return f"ROLLBACK TO {node.savepoint}" if node.savepoint else "ROLLBACK"
        case Savepoint():
            return f"SAVEPOINT {node.name}"
        case BeginSession():
            return f"BEGIN SESSION AS {print_expression(node.actor)}"
        case EndSession():
            return "END SESSION"
        case Tick():
            return "TICK" if node.amount is None else f"TICK {print_expression(node.amount)}"


# --- reading ----------------------------------------------------------------------------------------------------


def _print_match(node: Match | MatchMutate | MatchManage) -> str:
    parts = [f"MATCH {_block(block)}" for block in node.blocks]
    parts += [f"OPTIONAL MATCH {_block(block)}" for block in node.optional]
    match node:
        case Match():
            parts.append(_returns(node.returns))
        case MatchMutate():
            parts += [_print_action(action) for action in node.actions]
        case MatchManage():
            parts.append(f"DO {_delivery(node.action)}")
    return " ".join(parts)


def _block(node: MatchBlock) -> str:
    return print_pattern(node.pattern) + print_where(node.where)


def _returns(node: Return) -> str:
    text = f"RETURN {'DISTINCT ' if node.distinct else ''}{_projections(node.projections)}"
    if node.order:
        text += f" ORDER BY {', '.join(print_order_term(term) for term in node.order)}"
    if node.limit is not None:
        text += f" LIMIT {print_expression(node.limit)}"
    if node.offset is not None:
        text += f" OFFSET {print_expression(node.offset)}"
    return text


def _projections(nodes: Iterable[Projection]) -> str:
    return ", ".join(_projection(node) for node in nodes)


def _projection(node: Projection) -> str:
    if node.expression is None:
        return "*"
    text = print_expression(node.expression)
    return f"{text} AS {node.alias}" if node.alias else text


# --- writing ----------------------------------------------------------------------------------------------------


def _print_action(node: Action) -> str:
    return _change(node) + _returning(node.returning)


def _change(node: Action) -> str:
    match node:
        case Spawn():
            return ", ".join(_spawn_item(item) for item in node.items)
        case Kill():
            cascade = {True: " CASCADE", False: " NO CASCADE", None: ""}[node.cascade]
            return f"KILL {_target(node.target)}{cascade}"
        case Unlink():
            return f"UNLINK {_target(node.target)}"
        case Link():
            return _link(node)
        case Set(block=True):
            return f"SET {_target(node.target)}{_assignments(node.assignments) or ' {}'}"
        case Set():
            return f"SET {_target(node.target)}.{_assignment(node.assignments[0])}"


def _spawn_item(node: SpawnItem) -> str:
    variable = f"{node.variable}: " if node.variable else ""
    return f"SPAWN {variable}{print_type(node.type)}{_assignments(node.assignments)}"


def _link(node: Link) -> str:
    condition = "IF NOT EXISTS " if node.if_not_exists else ""
    alias = f" AS {node.variable}" if node.variable else ""
    targets = ", ".join(_link_target(target) for target in node.targets)
    return f"LINK {condition}{node.edge}({targets}){alias}{_assignments(node.assignments)}"


def _link_target(node: LinkTarget) -> str:
    match node:
        case SpawnItem():
            return _spawn_item(node)
        case Subquery():
            return _target(node)
        case _:
            return print_expression(node)


def _target(node: MutationTarget) -> str:
    match node:
        case Subquery():
            return f"{{ {_print_match(node.match)} }}"
        case EdgesByTargets():
            return f"{node.edge}({', '.join(print_target(target) for target in node.targets)})"
        case _:
            return print_expression(node)


def _assignments(nodes: tuple[Assignment, ...]) -> str:
    return f" {{ {', '.join(_assignment(node) for node in nodes)} }}" if nodes else ""


def _assignment(node: Assignment) -> str:
    return f"{node.name} = {print_expression(node.expression)}"


def _returning(node: Returning | None) -> str:
    if node is None:
        return ""
    return f" RETURNING {', '.join(_return_item(item) for item in node.items) or '*'}"


def _return_item(node: ReturningItem) -> str:
    attribute = f".{node.attribute}" if node.attribute else ""
    return f"{node.name}{attribute}{f' AS {node.alias}' if node.alias else ''}"


# --- watches ----------------------------------------------------------------------------------------------------


def _watch(node: Watch) -> str:
    last = node.returns.projections[-1].alias if node.returns else None
    name = f"{node.name} = " if node.name and node.name != last else ""
    parts = [f"{name}WATCH {_watched(node)}"]
    if node.options:
        parts.append(print_watch_options(node.options))
    if node.actions:
        parts.append("ON MATCH DO")
        parts += [_print_action(action) for action in node.actions]
    if node.returns:
        parts.append(_returns(node.returns))
    return " ".join(parts)


def _watched(node: Watch) -> str:
    """Return the pattern and WHERE of a watch, so that its options cannot be read as part of them.

    After an edge, `[depth: …]` would be its depth; after COLLECT, `[limit: …]` would be its limit. A trailing comma or
    parentheses separate them.
    """
    pattern, where = print_pattern(node.pattern), print_where(node.where)
    if node.options and node.options[0].name in ("depth", "limit") and node.pattern.elements:
        return f"{pattern}," if node.where is None else f"{pattern} WHERE ({print_expression(node.where)})"
    return pattern + where


def _option(node: WatchOption) -> str:
    if node.value is None:
        return node.name
    return f"{node.name}: {_option_value(node.name, node.value)}"


def _option_value(name: str, value: OptionValue | Expression) -> str:
    """Put a lone variable or call into parentheses. Without them the parser would read a keyword."""
    if isinstance(value, OptionValue):
        arguments = ", ".join(print_order_term(term) for term in value.arguments)
        return f"{value.name}({arguments})" if arguments else value.name
    text = print_expression(value)
    like_word = isinstance(value, Variable | Call | Aggregate | PatternAggregate | Exists)
    return f"({text})" if like_word and name not in EXPRESSION_VALUED_OPTIONS else text


def _delivery(node: Ack | Nack | Extend | Redrive | ManageWatch | AlterWatch) -> str:
    match node:
        case Ack():
            return f"ACK {print_expression(node.delivery)}"
        case Nack() | Extend():
            word = "NACK" if isinstance(node, Nack) else "EXTEND"
            options = f" {print_watch_options(node.options)}" if node.options else ""
            return f"{word} {print_expression(node.delivery)}{options}"
        case Redrive():
            return f"REDRIVE {'WATCH ' if node.watch else ''}{print_expression(node.target)}"
        case ManageWatch():
            return f"{node.operation} WATCH {print_expression(node.handle)}"
        case AlterWatch():
            return f"ALTER WATCH {print_expression(node.handle)} SET {print_watch_options(node.options)}"
