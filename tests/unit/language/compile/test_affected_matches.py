"""The finder returns every match that a change can affect. tests/properties has the same with random changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.language.compile.small_graph import compiler, context_of, edge, node, people_and_tasks
from tests.unit.language.resolve.statements import resolve_match
from vedette.language.compile.affected_matches import AffectedMatchFinder
from vedette.language.compile.union_view import ElementChange, UnionView


def finder(text: str, **options: Any) -> AffectedMatchFinder:
    analysis, query, returns = resolve_match(text)
    return AffectedMatchFinder(
        query.pattern, returns.projections, compiler(), analysis.register_count, **options
    )


def identities(matches: AffectedMatchFinder, view: Any, *changes: ElementChange) -> set[tuple[str, ...]]:
    return {matches.identity_of(row) for row in matches.find(context_of(view), changes)}


OLD_ADA = people_and_tasks().elements["1"]
NEW_ADA = node("1", "Person", name="Ada", age=31)


def test_a_changed_element_affects_the_matches_that_contain_it() -> None:
    matches = finder("MATCH t: Task, p: Person, assigned_to(t, p) RETURN t, p")
    view = people_and_tasks().with_changes((OLD_ADA, NEW_ADA))
    assert identities(matches, view, (OLD_ADA, NEW_ADA)) == {("5", "1"), ("6", "1")}
    assert matches.is_affected_by_types(["Person"])
    assert not matches.is_affected_by_types(["knows"])


def test_before_and_after_differ_by_a_new_edge() -> None:
    matches = finder("MATCH t: Task, p: Person, assigned_to(t, p) RETURN t, p")
    change = (None, edge("20", "assigned_to", "5", "2"))
    old = people_and_tasks()
    before, after = matches.find_before_and_after(
        context_of(old), context_of(old.with_changes(change)), [change]
    )
    assert set(after) - set(before) == {("5", "2")}


def test_a_deleted_element_of_a_nested_pattern() -> None:
    matches = finder("MATCH p: Person WHERE NOT EXISTS(t: Task, assigned_to(t, p)) RETURN p")
    graph = people_and_tasks()
    deleted = (graph.elements["9"], None)
    assert identities(matches, graph.with_changes(deleted), deleted) == {("2",)}


def test_a_changed_edge_of_a_path() -> None:
    matches = finder("MATCH a: Person, b: Person, reports_to+(a, b) RETURN a, b")
    graph = people_and_tasks()
    change = (graph.elements["13"], None)
    before, after = matches.find_before_and_after(
        context_of(graph), context_of(graph.with_changes(change)), [change]
    )
    assert set(before) - set(after) == {("1", "4"), ("2", "4"), ("3", "4")}


def test_a_referenced_type_needs_a_full_scan() -> None:
    matches = finder("MATCH t: Task, p: Person, assigned_to(t, p) RETURN p.boss.name AS x")
    assert "Person" in matches.full_scan_types
    change = (None, node("30", "Person", name="Eve"))
    view = people_and_tasks().with_changes(change)
    assert len(identities(matches, view, change)) == 3


def test_irrelevant_attributes_are_skipped() -> None:
    matches = finder("MATCH p: Person RETURN p.name", relevant_attributes={1: {"Person": frozenset({0})}})
    change = (OLD_ADA, NEW_ADA)
    assert identities(matches, people_and_tasks().with_changes(change), change) == set()


def test_reevaluate_and_find_all() -> None:
    matches = finder("MATCH p: Person WHERE p.age > 30 RETURN p")
    graph = people_and_tasks()
    rows = matches.find_all(context_of(graph))
    assert {matches.identity_of(row) for row in rows} == {("2",), ("4",)}
    younger = graph.with_changes((graph.elements["2"], node("2", "Person", name="Ben", age=5)))
    assert matches.reevaluate(context_of(younger), rows[0]) is None


def test_a_call_restores_sink_and_view() -> None:
    matches = finder("MATCH p: Person WHERE EXISTS(t: Task, assigned_to(t, p)) RETURN p")
    graph = people_and_tasks()
    context = context_of(graph)
    context.sink = marker = object()
    matches.find(context, [(graph.elements["9"], None)])
    assert context.sink is marker
    assert context.view is graph


def test_a_union_view_shows_both_sides_of_the_changes() -> None:
    graph = people_and_tasks()
    deleted, created = graph.elements["9"], edge("20", "assigned_to", "5", "2")
    now = graph.with_changes((deleted, None))
    union = UnionView(now, [(deleted, None), (None, created)])
    assert union.get("9") is deleted
    assert union.get("20") is created
    assert union.get("1") is now.elements["1"]
    assert {each.id for each in union.edges_at("assigned_to", 1, "2")} == {"9", "20"}
    assert {each.id for each in union.scan(("assigned_to",))} == {"7", "8", "9", "20"}
    assert {"9", "20"} <= {each.id for each in union.incident("2")}


@pytest.mark.parametrize(("canonical", "expected"), [(True, {("2", "1")}), (False, {("2", "1"), ("1", "2")})])
def test_orientations_of_a_symmetric_edge(canonical: bool, expected: set[tuple[str, ...]]) -> None:
    matches = finder("MATCH a: Person, b: Person, knows(a, b) RETURN a", canonical_orientation=canonical)
    graph = people_and_tasks()
    assert identities(matches, graph, (None, graph.elements["10"])) == expected
