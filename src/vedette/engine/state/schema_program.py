"""The compiled constraints, rules and policies of a schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vedette.errors import VedetteError
from vedette.graph.constraints import Constraint, compile_constraint
from vedette.graph.rules import Rule, compile_rule
from vedette.graph.type_layout import SchemaLayout
from vedette.language.plan.steps import PlanContext
from vedette.language.schema.model import Schema
from vedette.policy.collection_policies import CollectionPolicy, compile_collection_policy
from vedette.policy.decisions import Policy, compile_policy

__all__ = ["SchemaProgram"]


class SchemaProgram:
    """Compiled on first use: a database without rules never pays for them."""

    def __init__(self, schema: Schema, tables: SchemaLayout, context: PlanContext) -> None:
        self._schema = schema
        self._tables = tables
        self._context = context
        self._constraints: tuple[Constraint, ...] | None = None
        self._rules: dict[str, Rule] | None = None
        self._policies: tuple[Policy, ...] | None = None
        self._collection_policies: tuple[CollectionPolicy, ...] | None = None

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        if self._constraints is None:
            declared = (c for c in self._schema.constraints.values() if not c.name.startswith("_"))
            self._constraints = tuple(compile_constraint(c, self._context) for c in declared)
        return self._constraints

    @property
    def rules(self) -> dict[str, Rule]:
        if self._rules is None:
            declared = enumerate(self._schema.rules.values())
            self._rules = {r.name: compile_rule(r, i, self._context, self._tables) for i, r in declared}
        return self._rules

    @property
    def policies(self) -> tuple[Policy, ...]:
        if self._policies is None:
            declared = self._schema.policies.values()
            self._policies = tuple(p for d in declared for p in compile_policy(d, self._context))
        return self._policies

    @property
    def collection_policies(self) -> tuple[CollectionPolicy, ...]:
        """Policies about external collections, which are not part of the graph."""
        if self._collection_policies is None:
            declared = self._schema.policies.values()
            found = (p for d in declared for p in compile_collection_policy(d, self._context))
            self._collection_policies = tuple(found)
        return self._collection_policies

    def compile_all(self, source: str) -> None:
        """Compile everything now, so that `define` reports errors in declarations with their positions."""
        known: list[Callable[[], object]] = [
            *(
                lambda c=c: compile_constraint(c, self._context, source)
                for c in self._schema.constraints.values()
            ),
            *(
                lambda r=r, i=i: compile_rule(r, i, self._context, self._tables, source)
                for i, r in enumerate(self._schema.rules.values())
            ),
            *(lambda p=p: compile_policy(p, self._context, source) for p in self._schema.policies.values()),
            *(
                lambda p=p: compile_collection_policy(p, self._context, source)
                for p in self._schema.policies.values()
            ),
        ]
        mistakes = [mistake for mistake in map(_error_of, known) if mistake is not None]
        if mistakes:
            raise _combined_error(mistakes)


def _error_of(action: Callable[[], object]) -> VedetteError | None:
    try:
        action()
    except VedetteError as error:
        return error.with_traceback(None)  # without its traceback, which would keep frames alive
    return None


def _combined_error(errors: Sequence[VedetteError]) -> VedetteError:
    """One error with the diagnostics of all."""
    first = errors[0]
    diagnostics = [diagnostic for error in errors for diagnostic in error.diagnostics]
    return type(first)(first.code, first.text, fields=first.fields, diagnostics=diagnostics)
