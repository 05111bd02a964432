"""Rules: actions that run inside a transaction for each new match, until no new match appears.

Theory of operation. An agenda holds the matches that the transaction's changes caused, ordered by rule (priority,
then declaration), then arrival. The first match is taken. If it still holds, its actions run, and what they changed
may add matches to the agenda. A rule fires once per match and transaction, so the agenda becomes empty or a limit
is reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vedette.errors import RuleError
from vedette.graph.actions import ActionWriter, CompiledAction, compile_action
from vedette.graph.transaction import Transaction, differs
from vedette.graph.type_layout import SchemaLayout
from vedette.language.compile.affected_matches import AffectedMatchFinder
from vedette.language.compile.execution_context import ExecutionContext, Row
from vedette.language.compile.expressions import CompiledExpression
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.compile.union_view import ElementChange
from vedette.language.plan.steps import PlanContext
from vedette.language.resolve.actions import resolve_action
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.scope import AnalysisContext, Scope
from vedette.language.syntax.declarations import RuleDeclaration
from vedette.language.syntax.expressions import Expression

__all__ = [
    "RULE_ACTIONS",
    "RULE_DEPTH",
    "Rule",
    "compile_rule",
    "compile_rule_filter",
    "fire_rules",
    "system_writer",
    "trigger_rule",
]

RULE_DEPTH = 100
RULE_ACTIONS = 10_000
RULE_AGENDA = 100_000
"""Maximum number of matches on the agenda. Rules that exceed it are considered endless."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    priority: int
    order: int
    """Declaration order, the tie-break."""
    manual: bool
    inherit_authority: bool
    matches: AffectedMatchFinder
    actions: tuple[CompiledAction, ...]


def compile_rule(
    declaration: RuleDeclaration, order: int, context: PlanContext, tables: SchemaLayout, source: str = ""
) -> Rule:
    analysis, scope, resolver = _frame(context, source)
    pattern = resolver.resolve_pattern(declaration.pattern, declaration.where, scope)
    resolved = [each for action in declaration.actions for each in resolve_action(resolver, action, scope)]
    analysis.raise_if_any()
    compiler = PatternCompiler(context)
    return Rule(
        declaration.name,
        declaration.priority,
        order,
        declaration.manual,
        declaration.inherit_authority,
        AffectedMatchFinder(pattern, (), compiler, analysis.register_count),
        tuple(compile_action(action, compiler, tables, analysis.register_count) for action in resolved),
    )


def compile_rule_filter(
    declaration: RuleDeclaration, where: Expression | None, context: PlanContext, analysis: AnalysisContext
) -> tuple[CompiledExpression | None, int]:
    """The extra condition of `TRIGGER rule WHERE …` over the rule's variables, and the number of registers it
    needs.
    """
    if where is None:
        return None, 0
    scope = Scope(analysis)
    lifted, analysis.literals_extracted = analysis.literals_extracted, False
    resolver = PatternResolver(analysis)
    resolver.resolve_pattern(declaration.pattern, declaration.where, scope)
    analysis.literals_extracted = lifted
    condition = resolver.resolve_condition(where, scope)
    analysis.raise_if_any()
    assert condition is not None
    return PatternCompiler(context).compile_expression(condition), analysis.register_count


def _frame(context: PlanContext, source: str) -> tuple[AnalysisContext, Scope, PatternResolver]:
    analysis = AnalysisContext(context.schema, source)
    return analysis, Scope(analysis), PatternResolver(analysis)


# --- firing -----------------------------------------------------------------------------------------------------


class _Agenda:
    """Matches waiting to fire, and those that have fired."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Rule, Row, int]] = []
        self._known: set[tuple[str, tuple[str, ...]]] = set()
        self._arrivals = 0

    def offer(self, rule: Rule, row: Row, depth: int) -> None:
        key = (rule.name, rule.matches.identity_of(row))
        if key not in self._known:
            self._known.add(key)
            self._arrivals += 1
            heapq.heappush(self._heap, (-rule.priority, rule.order, self._arrivals, rule, row, depth))
            if len(self._heap) > RULE_AGENDA:
                text = f"More than {RULE_AGENDA:,} matches wait for rules, last for '{rule.name}'"
                raise RuleError("E9022", text)

    def forget(self, rule: Rule, row: Row) -> None:
        """A match that no longer holds may be added again."""
        self._known.discard((rule.name, rule.matches.identity_of(row)))

    def take(self) -> tuple[Rule, Row, int] | None:
        if not self._heap:
            return None
        *_, rule, row, depth = heapq.heappop(self._heap)
        return rule, row, depth


def fire_rules(
    rules: Sequence[Rule], transaction: Transaction, contexts: Callable[[Rule], ExecutionContext]
) -> int:
    """Run automatic rules until none matches. Return how many fired. The statement's counts are not changed."""
    automatic = [rule for rule in rules if not rule.manual]
    changed = transaction.net_changes()
    if not any(rule.matches.is_affected_by_types(_types(changed)) for rule in automatic):
        return 0
    counts, transaction.counts = transaction.counts, type(transaction.counts)()
    try:
        return _run(automatic, transaction, contexts, changed)
    finally:
        transaction.counts = counts
        transaction.touched = None


def _run(
    rules: Sequence[Rule],
    transaction: Transaction,
    contexts: Callable[[Rule], ExecutionContext],
    changed: Sequence[ElementChange],
) -> int:
    agenda = _Agenda()
    _offer(agenda, rules, contexts, changed, 1)
    fired = actions = 0
    while (waiting := agenda.take()) is not None:
        rule, stale, depth = waiting
        context = contexts(rule)
        row = rule.matches.reevaluate(context, stale)
        if row is None:
            agenda.forget(rule, stale)
            continue
        if depth > RULE_DEPTH:
            raise RuleError("E9021", f"Rules call each other more than {RULE_DEPTH} deep, last '{rule.name}'")
        actions += len(rule.actions)
        if actions > RULE_ACTIONS:
            raise RuleError("E9022", f"Rules ran more than {RULE_ACTIONS:,} actions, last '{rule.name}'")
        transaction.touched = {}
        _perform(rule, row)
        fired += 1
        _offer(agenda, rules, contexts, _differences(transaction), depth + 1)
    return fired


def _perform(rule: Rule, row: Row) -> None:
    for act in rule.actions:
        act(row)


def _offer(
    agenda: _Agenda,
    rules: Sequence[Rule],
    contexts: Callable[[Rule], ExecutionContext],
    changed: Sequence[ElementChange],
    depth: int,
) -> None:
    types = _types(changed)
    for rule in rules:
        if rule.matches.is_affected_by_types(types):
            for row in rule.matches.find(contexts(rule), changed):
                agenda.offer(rule, row, depth)


def _differences(transaction: Transaction) -> list[ElementChange]:
    """The net changes since the last call."""
    pairs = ((before, transaction.view.get(id)) for id, before in (transaction.touched or {}).items())
    return [(before, after) for before, after in pairs if differs(before, after)]


def _types(changed: Sequence[ElementChange]) -> set[str]:
    return {(after or before).type for before, after in changed}  # type: ignore[union-attr]


def trigger_rule(rule: Rule, context: ExecutionContext, where: CompiledExpression | None, size: int) -> int:
    """Fire a rule for every current match (`TRIGGER name WHERE …`). Return how many fired."""
    fired = 0
    for row in rule.matches.find_all(context):
        current = rule.matches.reevaluate(context, row)
        if current is not None:
            condition_row = current + [None] * (size - len(current))
            if where is None or where(condition_row):
                _perform(rule, current)
                fired += 1
    return fired


def system_writer(transaction: Transaction) -> ActionWriter:
    """A writer for rules: system rights, and its bindings do not leak into the session."""
    return ActionWriter(transaction, {})
