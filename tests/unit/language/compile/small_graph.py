"""A graph of a few elements in memory, and functions that run one MATCH on it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from tests.unit.language.plan.test_planner import FixedSizes
from tests.unit.language.resolve.statements import resolve_match, schema
from vedette.element import Element
from vedette.language.compile.execution_context import ExecutionContext
from vedette.language.compile.patterns import PatternCompiler
from vedette.language.compile.queries import RowQuery
from vedette.language.plan.steps import PlanContext

NOW = datetime(2026, 1, 31, 8, 30, tzinfo=UTC)
SCHEMA = schema()


class SmallGraph:
    """A `View` over a dictionary of elements. Every method is a scan."""

    def __init__(self, elements: Iterable[Element]) -> None:
        self.elements = {element.id: element for element in elements}

    def get(self, id: str, /) -> Element | None:
        return self.elements.get(id)

    def scan(self, types: tuple[str, ...]) -> Iterable[Element]:
        return [element for element in self.elements.values() if element.type in types]

    def lookup(self, owner: str, attribute: str, value: Any) -> Iterable[Element]:
        types = SCHEMA.concrete_subtypes(frozenset({owner}))
        index = SCHEMA.nodes[owner].layout[attribute]
        return [element for element in self.scan(types) if element.values[index] == value]

    def edges_at(self, edge: str, position: int, id: str) -> Iterable[Element]:
        return [
            each for each in self.scan((edge,)) if each.targets is not None and each.targets[position] == id
        ]

    def incident(self, id: str) -> Iterable[Element]:
        return [each for each in self.elements.values() if each.targets is not None and id in each.targets]

    def with_changes(self, *changes: tuple[Element | None, Element | None]) -> SmallGraph:
        changed = SmallGraph(self.elements.values())
        for before, after in changes:
            if after is not None:
                changed.elements[after.id] = after
            elif before is not None:
                del changed.elements[before.id]
        return changed


def node(id: str, type_name: str, **values: Any) -> Element:
    return Element(id, type_name, tuple(values.get(name) for name in SCHEMA.nodes[type_name].layout))


def edge(id: str, type_name: str, *targets: str) -> Element:
    return Element(id, type_name, (None,) * len(SCHEMA.edges[type_name].layout), targets)


def people_and_tasks() -> SmallGraph:
    """Ada knows Ben, Ben reports to Cleo, Cleo to Dora. Two tasks; Ada has both, Ben one."""
    return SmallGraph(
        [
            node("1", "Person", name="Ada", age=30),
            node("2", "Person", name="Ben", age=40),
            node("3", "Person", name="Cleo"),
            node("4", "Person", name="Dora", age=40),
            node("5", "Task", title="write", rank=1, active=True),
            node("6", "Project", title="plan", rank=2, active=True),
            edge("7", "assigned_to", "5", "1"),
            edge("8", "assigned_to", "6", "1"),
            edge("9", "assigned_to", "6", "2"),
            edge("10", "knows", "2", "1"),
            edge("11", "reports_to", "1", "2"),
            edge("12", "reports_to", "2", "3"),
            edge("13", "reports_to", "3", "4"),
        ]
    )


def context_of(view: Any) -> ExecutionContext:
    return ExecutionContext(view, lambda: NOW, ("Ada",))


def compiler() -> PatternCompiler:
    return PatternCompiler(PlanContext(SCHEMA, FixedSizes({}), lambda *_: False, lambda *_: None))


def run(text: str, view: Any = None, context: ExecutionContext | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a MATCH, with elements as dictionaries."""
    analysis, query, returns = resolve_match(text)
    rows = RowQuery(query, returns, compiler(), analysis.register_count, SCHEMA)
    return rows.run(context or context_of(view or people_and_tasks()))
