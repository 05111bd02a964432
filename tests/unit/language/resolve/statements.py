"""Resolve single statements against a small ontology, for the tests of resolver, planner and compiler."""

from __future__ import annotations

from tests.unit.language.schema.schema_cases import define_all
from vedette.language.parser import parse_script
from vedette.language.resolve.actions import resolve_action
from vedette.language.resolve.patterns import PatternResolver
from vedette.language.resolve.queries import ResolvedQuery, ResolvedReturn, resolve_blocks, resolve_return
from vedette.language.resolve.scope import AnalysisContext, Scope
from vedette.language.schema.model import Schema
from vedette.language.syntax import statements as ast
from vedette.language.types import STRING

ONTOLOGY = """\
node Person { name: String [required, unique], age: Int?, boss: Person? }
node Task { title: String [required], rank: Int?, due: Timestamp?, active: Bool = true, size: Int? [indexed] }
node Project: Task { reach: String? }
edge assigned_to(task: Task, person: Person) { since: Int? }
edge knows(a: Person, b: Person) [symmetric]
edge reports_to(a: Person, b: Person)
"""


def schema() -> Schema:
    return define_all(ONTOLOGY)


def analysis_of(text: str) -> AnalysisContext:
    return AnalysisContext(schema(), text, (STRING,), {"text": 0})


def resolve_statement(analysis: AnalysisContext, statement: ast.Statement) -> None:
    """Resolve MATCH or an action; errors are reported to the analysis context."""
    scope, resolver = Scope(analysis), PatternResolver(analysis)
    if isinstance(statement, (ast.Match, ast.MatchMutate)):
        resolve_blocks(resolver, statement.blocks, statement.optional, scope)
    if isinstance(statement, ast.Match):
        resolve_return(resolver, statement.returns, scope)
    elif isinstance(statement, ast.MatchMutate):
        for action in statement.actions:
            resolve_action(resolver, action, scope)
    elif isinstance(statement, (ast.Spawn, ast.Kill, ast.Link, ast.Unlink, ast.Set)):
        resolve_action(resolver, statement, scope)


def resolve_match(text: str) -> tuple[AnalysisContext, ResolvedQuery, ResolvedReturn]:
    """Resolve one MATCH … RETURN without errors."""
    analysis = analysis_of(text)
    (statement,) = parse_script(text)
    assert isinstance(statement, ast.Match)
    scope, resolver = Scope(analysis), PatternResolver(analysis)
    query = resolve_blocks(resolver, statement.blocks, statement.optional, scope)
    returns = resolve_return(resolver, statement.returns, scope)
    analysis.raise_if_any()
    return analysis, query, returns
