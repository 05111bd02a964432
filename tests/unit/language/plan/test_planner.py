"""The planner is a pure function: pattern and sizes in, steps out (tests/data/plan)."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from tests.support.paths import DATA
from tests.unit.language.resolve.statements import resolve_match
from vedette.language.plan.planner import plan_pattern
from vedette.language.plan.steps import (
    BindEdgeTargets,
    CheckType,
    ExpandEdges,
    FilterRows,
    FollowPath,
    PlanContext,
    PlanStep,
    ScanEdges,
    ScanNodes,
    SeekById,
    SeekByIndex,
)
from vedette.language.resolve.explain import explain_expression
from vedette.language.resolve.tree import ResolvedNode


class FixedSizes:
    def __init__(self, sizes: dict[str, float]) -> None:
        self.sizes = sizes

    def count(self, types: Iterable[str]) -> int:
        return int(sum(self.sizes.get(name, 0) for name in types))

    def average_degree(self, edge: str, position: int) -> float:
        return self.sizes.get(f"{edge}.{position}", 0.0)

    def elements_per_value(self, owner: str, attribute: str) -> float:
        return self.sizes.get(f"{owner}.{attribute}", 1.0)


def describe(step: PlanStep) -> str:
    match step:
        case ScanNodes(node=node):
            return f"scan {node.name}: {'|'.join(node.types)}"
        case ScanEdges(edge=edge):
            return f"scan {'|'.join(edge.edge_types)}"
        case SeekById(node=node, key=key):
            return f"seek {node.name} by id {explain_expression(key)}"
        case SeekByIndex(node=node, owner=owner, attribute=attribute, key=key):
            return f"seek {node.name} by {owner}.{attribute} = {explain_expression(key)}"
        case ExpandEdges(edge=edge, position=position):
            return f"expand {'|'.join(edge.edge_types)} at {position}"
        case BindEdgeTargets(edge=edge):
            return f"bind {'|'.join(edge.edge_types)}"
        case FollowPath(path=path, forward=forward):
            return f"follow {path.edge} {'forward' if forward else 'backward'}"
        case CheckType(node=node):
            return f"check {node.name}: {'|'.join(node.types)}"
        case FilterRows(condition=condition):
            return f"filter {explain_expression(condition)}"


def read_plans() -> list[tuple[str, str, str]]:
    blocks = re.split(r"^=== ", (DATA / "plan" / "plans.txt").read_text(), flags=re.MULTILINE)[1:]
    cases = []
    for block in blocks:
        title, _, rest = block.partition("\n")
        given, _, steps = rest.partition("->\n")
        cases.append((title, given, steps.strip()))
    return cases


@pytest.mark.parametrize(
    ("given", "expected"), [case[1:] for case in read_plans()], ids=[case[0] for case in read_plans()]
)
def test_plans(given: str, expected: str) -> None:
    sizes = dict(re.findall(r"([\w.]+) (\d+)", re.findall(r"^sizes: (.*)$", given, re.MULTILINE)[0]))
    text = "\n".join(line for line in given.splitlines() if line.startswith("MATCH"))
    _, query, _ = resolve_match(text)
    created: list[str] = []
    analysis, _, _ = resolve_match(text)
    context = PlanContext(
        analysis.schema,
        FixedSizes({name: float(size) for name, size in sizes.items()}),
        lambda owner, attribute: False,
        lambda owner, attribute: created.append(f"create index {owner}.{attribute}"),
    )
    anchored = re.findall(r"^long-lived from (\w+)$", given, re.MULTILINE)
    bound = frozenset(
        part.register
        for part in query.pattern.elements
        if isinstance(part, ResolvedNode) and part.name in anchored
    )
    plan = plan_pattern(query.pattern, context, bound=bound, long_lived=bool(anchored))
    assert [*dict.fromkeys(created), *map(describe, plan.steps)] == expected.splitlines()
    assert len(plan.steps) == len(plan.estimates) == len(plan.bound_before)


def test_each_step_knows_the_registers_bound_before_it() -> None:
    analysis, query, _ = resolve_match("MATCH t: Task, p: Person RETURN t")
    context = PlanContext(analysis.schema, FixedSizes({"Person": 5}), lambda *_: False, lambda *_: None)
    plan = plan_pattern(query.pattern, context, outer=frozenset({70}))
    assert plan.outer_registers == {70}
    assert plan.bound_before[0] == {70}
    assert plan.bound_before[0] < plan.bound_before[1]
