"""Watch cases written by hand: known difficulties of incremental queries, and every bug that the oracle found."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import pytest

from tests.properties.models.watch_oracle import Oracle
from vedette.errors import TransactionError, VedetteError, WatchError

TASKS = """
node Person { name: String?, level: Int?, boss: Person? }
node Task { title: String?, points: Int?, weight: Float?, owner: Person? }
node Bug : Task { severity: Int? }
edge assigned(task: Task, person: Person) { hours: Int? }
edge follows(from: Person, to: Person)
edge friends(one: Person, other: Person) [symmetric]
edge urgent(task: Task)
edge review(task: Task, by: Person, for: Person)
edge comment(on: edge<assigned>, by: Person)
"""


@pytest.fixture
def oracle() -> Any:
    with Oracle(TASKS) as made:
        yield made


def types(new_events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in new_events]


# Counts and sums


def test_count_over_join_follows_change_of_last_element(oracle: Oracle) -> None:
    oracle.do(
        'SPAWN ann: Person { name = "ann", level = 1 }', 'SPAWN bob: Person { name = "bob", level = 2 }'
    )
    oracle.do('SPAWN t1: Task { title = "one" }', "LINK assigned(#t1, #ann)", "LINK follows(#ann, #bob)")
    counted = oracle.start_watch(
        "t: Task, assigned(t, p), follows(p, q)",
        "t.title AS k0, COUNT(*) AS n, SUM(q.level) AS levels",
        kind="groups",
        keys=1,
    )
    oracle.do("SET #bob.level = 5")
    assert counted.new_events() == [
        {
            "type": "changed",
            "match": {"k0": "one", "n": 1, "levels": 5},
            "prev": {"k0": "one", "n": 1, "levels": 2},
        }
    ]
    oracle.do("LINK follows(#ann, #ann)", "KILL #bob")
    assert types(counted.new_events()) == ["changed", "changed"]
    oracle.do("UNLINK follows(#ann, #ann)")
    assert types(counted.new_events()) == ["removed"]


def test_aggregates_count_parallel_edges(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 3 }", "SPAWN ann: Person { level = 1 }")
    counted = oracle.start_watch("assigned(t, p)", "COUNT(*) AS n, SUM(t.points) AS sum", kind="groups")
    distinct = oracle.start_watch("assigned(t, p)", "t.points AS points", kind="distinct")
    rows = oracle.start_watch("assigned(t, p)", "t.points AS points", ids="t p")
    oracle.do("LINK assigned(#t1, #ann) AS e1", "LINK assigned(#t1, #ann) AS e2")
    assert [event["match"] for event in counted.new_events()] == [{"n": 1, "sum": 3}, {"n": 2, "sum": 6}]
    assert types(rows.new_events()) == types(distinct.new_events()) == ["added"]
    oracle.do("UNLINK #e1")
    assert [event["match"] for event in counted.new_events()] == [{"n": 1, "sum": 3}]
    assert rows.new_events() == distinct.new_events() == []
    oracle.do("UNLINK #e2")
    assert [event["match"] for event in counted.new_events()] == [{"n": 0, "sum": None}]
    assert types(rows.new_events()) == types(distinct.new_events()) == ["removed"]


def test_parallel_edges_that_exist_before_the_watch(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 3 }", "SPAWN ann: Person")
    oracle.do("LINK assigned(#t1, #ann) AS e1", "LINK assigned(#t1, #ann) AS e2")
    distinct = oracle.start_watch("assigned(t, p)", "t.points AS points", kind="distinct")
    rows = oracle.start_watch("assigned(t, p)", "t.points AS points", ids="t p")
    oracle.together("UNLINK #e1", "UNLINK #e2")
    assert types(rows.new_events()) == types(distinct.new_events()) == ["removed"]


def test_sums_of_floats_do_not_drift(oracle: Oracle) -> None:
    summed = oracle.start_watch("t: Task", "SUM(t.weight) AS sum, AVG(t.weight) AS mean", kind="groups")
    weights = (0.1, 1e16, 0.2, -1e16, 0.3, 1e300, 5e-324)
    for number, weight in enumerate(weights):
        oracle.do(f"SPAWN w{number}: Task {{ weight = {weight!r} }}".replace("e+", "e"))
    for number in (5, 1, 3, 0, 6, 2, 4):
        oracle.do(f"KILL #w{number}")
    assert summed.new_events()[-1]["match"] == {"sum": None, "mean": None}


def test_row_changes_group_when_its_key_changes(oracle: Oracle) -> None:
    oracle.do('SPAWN t1: Task { title = "a", points = 1 }', 'SPAWN t2: Task { title = "b", points = 2 }')
    grouped = oracle.start_watch("t: Task", "t.title AS k0, MAX(t.points) AS most", kind="groups", keys=1)
    oracle.do('SET #t1.title = "b"')
    assert types(grouped.new_events()) == ["removed"]
    oracle.do("SET #t2.points = 0")
    assert grouped.new_events()[0]["match"] == {"k0": "b", "most": 1}


def test_filtered_counts(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task")
    returns = "COUNT(*) AS n, COUNT(t WHERE t.points > 2) AS many, COUNT(DISTINCT t.points) AS different"
    counted = oracle.start_watch("t: Task", returns, kind="groups")
    oracle.do("SET #t1.points = 3", "SET #t2.points = 3", "KILL #t1")
    expected = [(2, 1, 1), (2, 2, 1), (1, 1, 1)]
    assert [tuple(event["match"].values()) for event in counted.new_events()] == expected


def test_collected_lists_do_not_depend_on_evaluation_order(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person", "SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 1 }")
    oracle.do("LINK assigned(#t1, #ann)", "LINK assigned(#t2, #ann)")
    oracle.start_watch("p: Person", "COLLECT(t: Task, assigned(t, p)) AS tasks", kind="distinct")
    rows = oracle.start_watch("p: Person", "COLLECT(t: Task, assigned(t, p)) AS tasks", ids="p")
    collected = oracle.start_watch("t: Task", "COLLECT(t.points) AS all", kind="groups")
    different = oracle.start_watch("t: Task", "COLLECT(DISTINCT t.points) AS all", kind="groups")
    oracle.do("SET #t1.points = 2", "SET #t1.points = 1", 'SET #ann.name = "ann"')
    assert (
        types(rows.new_events())
        == types(collected.new_events())
        == types(different.new_events())
        == ["changed", "changed"]
    )
    oracle.together("SET #t1.points = 2", "SPAWN t3: Task { points = 1 }")
    oracle.together("SET #t1.points = 1", "SET #t2.points = 2")
    assert types(different.new_events()) == ["changed"]


def test_nan_values() -> None:
    with Oracle("node A { f: Float?, s: String? }") as oracle:
        system = oracle.session(None)
        system.execute("SPAWN a: A { f = $nan }", nan=math.nan)
        system.execute("SPAWN b: A { f = $nan }", nan=float("nan"))
        for op in ("=", "!=", "<", "<=", ">", ">="):
            for value in (math.nan, 1.0):
                text = f"a: A WHERE a.f {op} $p RETURN a.f AS f"
                initial = system.watch(f"WATCH {text}", p=value).poll()[0]
                assert len(initial.matches or ()) == len(system.execute(f"MATCH {text}", p=value).rows)
        rows = system.watch("WATCH a: A RETURN a AS a, a.f + 1.0 AS more")
        grouped = system.watch("WATCH a: A RETURN a.f AS f, COUNT(*) AS n, SUM(a.f) AS sum, MAX(a.f) AS most")
        distinct = system.watch("WATCH a: A RETURN DISTINCT a.f AS f")
        low = system.watch("WATCH a: A WHERE a.f <= $p RETURN a.s AS s", p=1.0)
        assert [len(each.poll()[0].matches or ()) for each in (rows, grouped, distinct, low)] == [2, 1, 1, 0]
        system.execute("SET #a.f = $nan", nan=float("nan"))
        assert [each.poll() for each in (rows, grouped, distinct, low)] == [[], [], [], []]
        system.execute("SET #a.f = 1.0")
        assert [[event.type for event in each.poll()] for each in (rows, grouped, distinct, low)] == [
            ["changed"],
            ["changed", "added"],
            ["added"],
            ["added"],
        ]
        system.execute("SET #b.f = 1.0")
        assert [event.type for event in distinct.poll()] == ["removed"]
        assert sorted(event.type for event in grouped.poll()) == ["changed", "removed"]


# Elements created in every order

BUILDING = (
    'SPAWN ann: Person { name = "ann", level = 2 }',
    "SPAWN bob: Person { level = 1 }",
    "SPAWN t1: Task { points = 3 }",
    "LINK assigned(#t1, #ann) AS e1",
    "LINK follows(#ann, #bob) AS e2",
    "LINK urgent(#t1) AS e3",
)


def test_elements_created_in_every_order() -> None:
    ends = set()
    for order in permutations(BUILDING):
        seen = " ".join(order)
        if any(seen.index(f"#{name}") < seen.index(f"SPAWN {name}") for name in ("ann", "bob", "t1")):
            continue
        with Oracle(TASKS) as oracle:
            joined = oracle.start_watch(
                "assigned(t, p), follows(p, q), urgent(t)", "q.level AS level", ids="t p q"
            )
            absent = oracle.start_watch(
                "t: Task", "t.points AS points", where="NOT EXISTS(assigned(t, _))", ids="t"
            )
            counted = oracle.start_watch(
                "assigned(t, p), follows(p, q)", "SUM(t.points) AS sum", kind="groups"
            )
            oracle.do(*order)
            last = [each.new_events()[-1] for each in (joined, counted)]
            assert not absent.expected()
            ends.add(repr(last))
    assert len(ends) == 1


def test_elements_deleted_in_every_order() -> None:
    for order in permutations(("UNLINK #e1", "UNLINK #e2", "UNLINK #e3", "KILL #bob")):
        with Oracle(TASKS) as oracle:
            oracle.do(*BUILDING)
            joined = oracle.start_watch(
                "assigned(t, p), follows(p, q), urgent(t)", "q.level AS level", ids="t p q"
            )
            absent = oracle.start_watch(
                "p: Person", "p.name AS name", where="NOT EXISTS(follows(p, _))", ids="p"
            )
            gone = order.index("KILL #bob") < order.index("UNLINK #e2")
            oracle.do(*(text for text in order if not (gone and text == "UNLINK #e2")))
            assert types(joined.new_events()) == ["removed"]
            assert "added" in types(absent.new_events())


# Paths


def test_edge_in_the_middle_of_a_path(oracle: Oracle) -> None:
    oracle.do(*(f"SPAWN p{number}: Person {{ level = {number} }}" for number in range(5)))
    reached = oracle.start_watch("follows+(a, b)", "a.level AS a, b.level AS b", ids="a b")
    bounded = oracle.start_watch("follows+(a, b) [depth: 2]", "COUNT(*) AS n", kind="groups")
    loose = oracle.start_watch("follows*(a, b)", "a.level AS k0, COUNT(*) AS n", kind="groups", keys=1)
    ends = oracle.start_watch("follows+(a, _)", "COUNT(*) AS n", kind="groups")
    who = oracle.start_watch("follows+(a, _)", "a.level AS level", ids="a")
    oracle.do("LINK follows(#p0, #p1) AS e1", "LINK follows(#p2, #p3) AS e3", "LINK follows(#p3, #p4) AS e4")
    assert types(reached.new_events()) == ["added"] * 4
    oracle.do("LINK follows(#p1, #p2) AS e2")
    assert types(reached.new_events()) == ["added"] * 6
    assert types(who.new_events()) == ["added"] * 4
    oracle.do("LINK follows(#p1, #p3) AS e5")
    assert reached.new_events() == []
    oracle.do("UNLINK #e2")
    assert types(reached.new_events()) == ["removed"] * 2
    oracle.do("KILL #p3")
    assert bounded.new_events()[-1]["match"] == ends.new_events()[-1]["match"] == {"n": 1}
    assert loose.new_events()


def test_path_of_length_zero_needs_only_an_element(oracle: Oracle) -> None:
    pairs = oracle.start_watch("follows*(_, _)", "COUNT(*) AS n", kind="groups")
    oracle.do("SPAWN ann: Person", "SPAWN bob: Person", "LINK follows(#ann, #bob)", "KILL #bob")
    assert [event["match"]["n"] for event in pairs.new_events()] == [1, 2, 3, 1]


def test_paths_with_cycles(oracle: Oracle) -> None:
    oracle.do(*(f"SPAWN p{number}: Person {{ level = {number} }}" for number in range(3)))
    members = oracle.start_watch("follows+(a, a)", "a.level AS level", ids="a")
    acyclic = oracle.start_watch("p: Person", "p.level AS level", where="NOT EXISTS(follows+(p, p))", ids="p")
    oracle.do("LINK follows(#p0, #p1) AS e1", "LINK follows(#p1, #p2) AS e2")
    assert members.new_events() == acyclic.new_events() == []
    oracle.do("LINK follows(#p2, #p0) AS e3")
    assert types(members.new_events()) == ["added"] * 3
    assert types(acyclic.new_events()) == ["removed"] * 3
    oracle.do("LINK follows(#p1, #p1) AS e4", "UNLINK #e2")
    assert types(members.new_events()) == ["removed"] * 2
    oracle.do("KILL #p1")
    assert types(acyclic.new_events()) == ["added"] * 2


def test_paths_along_symmetric_edges(oracle: Oracle) -> None:
    oracle.do(*(f"SPAWN p{number}: Person {{ level = {number} }}" for number in range(4)))
    near = oracle.start_watch("friends+(#p0, x)", "x.level AS level", ids="x")
    oracle.do("LINK friends(#p1, #p0) AS e1", "LINK friends(#p2, #p3) AS e2", "LINK friends(#p3, #p1) AS e3")
    assert sorted(event["match"]["level"] for event in near.new_events()) == [0, 1, 2, 3]
    oracle.do("UNLINK #e1")
    assert types(near.new_events()) == ["removed"] * 4


def test_path_of_length_zero_checks_types_of_both_ends(oracle: Oracle) -> None:
    with Oracle("node A { s: String? }\nnode B { s: String?, b: Bool? }\nedge to(x: A, y: B)") as other:
        other.do("SPAWN a: A", "SPAWN b: B { b = true }", "LINK to(#a, #b)")
        other.start_watch("to*(x, y)", "x._type AS x, y._type AS y", where="y.b = true", ids="x y")
        other.do("SET #b.b = false", "SET #b.b = true", 'SET #a.s = "a"', "KILL #a")


# Rows that enter and leave


def test_deleting_an_element_that_no_longer_matched_sends_nothing(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 5 }", 'SPAWN t2: Task { title = "x", points = 5 }')
    big = oracle.start_watch("t: Task", "t.title AS title", where="t.points > 3", ids="t")
    oracle.do("SET #t1.points = 1")
    assert types(big.new_events()) == ["removed"]
    oracle.do("KILL #t1")
    assert big.new_events() == []
    oracle.together("SET #t2.points = 1", 'SET #t2.title = "y"', "KILL #t2")
    assert big.new_events() == [{"type": "removed", "match": {"title": "x"}}]


def test_match_that_leaves_and_returns_in_one_transaction(oracle: Oracle) -> None:
    oracle.do('SPAWN t1: Task { title = "x", points = 5 }')
    big = oracle.start_watch("t: Task", "t.title AS title", where="t.points > 3", ids="t")
    counted = oracle.start_watch("t: Task", "COUNT(*) AS n", where="t.points > 3", kind="groups")
    oracle.together("SET #t1.points = 1", "SET #t1.points = 9")
    assert big.new_events() == counted.new_events() == []
    oracle.together("SET #t1.points = 1", 'SET #t1.title = "y"', "SET #t1.points = 9")
    assert big.new_events() == [{"type": "changed", "match": {"title": "y"}, "prev": {"title": "x"}}]
    assert counted.new_events() == []


def test_changes_undone_within_a_transaction_send_nothing(oracle: Oracle) -> None:
    every = oracle.start_watch("t: Task", "t.points AS points", ids="t")
    oracle.together("SPAWN t1: Task { points = 1 }", "KILL #t1")
    oracle.do("BEGIN", "SPAWN t2: Task { points = 2 }", "ROLLBACK")
    oracle.do("BEGIN", "SPAWN t3: Task { points = 3 }", "SAVEPOINT here", "SET #t3.points = 4")
    oracle.do("ROLLBACK TO here", "COMMIT")
    assert every.new_events() == [{"type": "added", "match": {"points": 3}}]


def test_match_gained_by_one_element_and_lost_by_another(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person { level = 1 }", "SPAWN bob: Person { level = 2 }", "SPAWN t1: Task")
    either = oracle.start_watch(
        "t: Task", "t.points AS points", where="EXISTS(assigned(t, p)) OR EXISTS(review(t, r, _))", ids="t"
    )
    oracle.do("LINK assigned(#t1, #ann) AS e1")
    assert types(either.new_events()) == ["added"]
    oracle.together("UNLINK #e1", "LINK review(#t1, #bob, #ann) AS e2")
    assert either.new_events() == []
    oracle.do("LINK assigned(#t1, #bob)", "KILL #ann", "SET #bob.level = 3")
    assert either.new_events() == []
    oracle.do("KILL #bob")
    assert types(either.new_events()) == ["removed"]


def test_integer_one_and_true_differ() -> None:
    with Oracle("node A { v: Int | Bool | Float }") as oracle:
        oracle.do("SPAWN a: A { v = 1 }")
        whole = oracle.start_watch("a: A", "a AS a", ids="a")
        value = oracle.start_watch("a: A", "a.v AS v", ids="a")
        oracle.do("SET #a.v = true", "SET #a.v = 1.0", "SET #a.v = 1.0")
        assert types(whole.new_events()) == types(value.new_events()) == ["changed", "changed"]


# NOT EXISTS


def test_not_exists_ends_with_element_and_edge_in_one_transaction(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    idle = oracle.start_watch("t: Task", "t.points AS points", where="NOT EXISTS(assigned(t, p))", ids="t")
    oracle.together("SPAWN ann: Person", "LINK assigned(#t1, #ann)")
    assert types(idle.new_events()) == ["removed"]
    oracle.do("KILL #ann")
    assert types(idle.new_events()) == ["added"]


def test_nested_not_exists(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task", "SPAWN ann: Person { level = 1 }", "LINK assigned(#t1, #ann)")
    where = "NOT EXISTS(assigned(t, p) WHERE NOT EXISTS(follows(p, q) WHERE q.level > 1))"
    fine = oracle.start_watch("t: Task", "t.points AS points", where=where, ids="t")
    oracle.together("SPAWN bob: Person { level = 2 }", "LINK follows(#ann, #bob)")
    assert types(fine.new_events()) == ["added"]
    oracle.do("SET #bob.level = 0")
    assert types(fine.new_events()) == ["removed"]
    oracle.do("KILL #ann")
    assert types(fine.new_events()) == ["added"]


def test_constants_inside_nested_patterns_of_every_clause(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person { level = 1 }", "SPAWN bob: Person", "SPAWN t1: Task")
    oracle.do("LINK follows(#ann, #ann)")
    for name in ("ann", "bob"):
        oracle.start_watch("t: Task", f"COUNT(p: Person, follows(#{name}, p)) AS n", ids="t")
        oracle.start_watch("t: Task", f"EXISTS(follows(#{name}, p) WHERE p.level > 2) AS high", ids="t")
        oracle.start_watch("t: Task", "t.points AS points", filter=f"EXISTS(follows(#{name}, p))", ids="t")
        oracle.start_watch("t: Task", "t.points AS points", where=f"NOT assigned(t, #{name})", ids="t")
    oracle.do("LINK follows(#bob, #ann)", "SET #ann.level = 3", "LINK assigned(#t1, #bob)", "KILL #ann")


# Symmetric edges


def test_symmetric_edges_with_constant_target(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person { level = 1 }", "SPAWN bob: Person { level = 2 }")
    one = oracle.start_watch("friends(#ann, x)", "x.level AS level", ids="x")
    other = oracle.start_watch("friends(#bob, x)", "x.level AS level", ids="x")
    counted = oracle.start_watch("friends(x, #bob)", "COUNT(*) AS n", kind="groups")
    oracle.do("LINK friends(#ann, #bob) AS e1")
    assert [each.new_events()[0]["match"] for each in (one, other, counted)] == [
        {"level": 2},
        {"level": 1},
        {"n": 1},
    ]
    oracle.do("LINK friends(#bob, #bob) AS e2", "UNLINK #e1")
    assert types(other.new_events()) == ["added", "removed"]


def test_symmetric_edge_is_one_match_in_the_matching_order(oracle: Oracle) -> None:
    oracle.do(
        "SPAWN ann: Person { level = 1 }", "SPAWN bob: Person { level = 2 }", "LINK friends(#ann, #bob)"
    )
    turned = oracle.start_watch("friends(a, b)", "a.level AS a, b.level AS b", where="a.level > 1", ids="a b")
    counted = oracle.start_watch("friends(a, b)", "COUNT(*) AS n", where="a.level >= 1", kind="groups")
    nested = oracle.start_watch("friends(a, b)", "a.level AS a", where="EXISTS(follows(a, _))", ids="a b")
    oracle.do("SET #ann.level = 3")
    assert sorted(types(turned.new_events())) == ["added", "removed"]
    oracle.do("LINK follows(#bob, #bob) AS e1")
    assert [event["match"] for event in nested.new_events()] == [{"a": 2}]
    oracle.do("LINK follows(#ann, #ann) AS e2")
    assert sorted(types(nested.new_events())) == ["added", "removed"]
    assert counted.new_events() == []


# Edges


def test_edges_about_edges_and_ternary_edges(oracle: Oracle) -> None:
    oracle.do(
        "SPAWN t1: Task", "SPAWN ann: Person { level = 1 }", "LINK assigned(#t1, #ann) AS e1 { hours = 1 }"
    )
    commented = oracle.start_watch("comment(e, p)", "e.hours AS hours, p.level AS level", ids="e p")
    edges = oracle.start_watch("e: assigned", "e.hours AS hours", where="NOT EXISTS(comment(e, _))", ids="e")
    reviewed = oracle.start_watch("review(t, p, p) AS r", "p.level AS level", ids="r t p")
    any_edge = oracle.start_watch("e: edge<any>(t, p)", "e._type AS type", where="t:Task", ids="e t p")
    oracle.do("LINK comment(#e1, #ann)", "SET #e1.hours = 2", "LINK review(#t1, #ann, #ann)")
    assert types(commented.new_events()) == ["added", "changed"]
    assert types(edges.new_events()) == ["removed"]
    oracle.do("UNLINK #e1")
    assert types(commented.new_events()) == types(any_edge.new_events()) == ["removed"]
    oracle.do("KILL #ann")
    assert types(reviewed.new_events()) == ["added", "removed"]


def test_attributes_read_through_references(oracle: Oracle) -> None:
    oracle.do('SPAWN ann: Person { name = "ann" }', "SPAWN t1: Task { owner = #ann }")
    owned = oracle.start_watch("t: Task", "t.owner.name AS name", ids="t")
    boss = oracle.start_watch("t: Task", "t.points AS points", where='t.owner.boss.name = "bob"', ids="t")
    oracle.do('SET #ann.name = "anna"', 'SPAWN bob: Person { name = "bob" }', "SET #ann.boss = #bob")
    assert types(owned.new_events()) == ["changed"]
    assert types(boss.new_events()) == ["added"]
    oracle.do("KILL #bob", "KILL #ann")
    assert types(boss.new_events()) == ["removed"]
    assert [event["match"] for event in owned.new_events()] == [{"name": None}]


def test_type_is_checked_before_its_attributes_are_read() -> None:
    ontology = "node A { s: String? }\nnode B { s: String?, n: Int?, f: Float? }\nedge to(x: any, y: any)"
    with Oracle(ontology) as oracle:
        oracle.do("SPAWN a: A", "SPAWN b: B { f = 1.0 }", "LINK to(#a, #b)", "LINK to(#b, #a)")
        oracle.start_watch("to(#a, x), x: B", "x.f AS f", where="x.f > 0.0", ids="x")
        oracle.start_watch("to(x, y), y: B", "y.f AS f", where="y.f > 0.0 AND x.s = null", ids="x y")
        oracle.do("SET #b.f = 2.0", 'SET #a.s = "a"', "UNLINK to(#a, _)")


# Uncommitted writes (visibility: immediate)


def test_immediate_watch_sees_uncommitted_writes_and_rollback(oracle: Oracle) -> None:
    at_once = oracle.start_watch("t: Task", "t.points AS points", ids="t", immediate=True)
    counted = oracle.start_watch("t: Task", "SUM(t.points) AS sum", kind="groups", immediate=True)
    oracle.do("BEGIN", "SPAWN t1: Task { points = 1 }", "SAVEPOINT here", "SET #t1.points = 2")
    assert types(at_once.new_events()) == ["added", "changed"]
    oracle.do("ROLLBACK TO here")
    assert at_once.new_events()[-1]["match"] == {"points": 1}
    oracle.do("ROLLBACK")
    assert types(at_once.new_events()) == ["removed"]
    assert [event["match"]["sum"] for event in counted.new_events()] == [1, 2, 1, None]


def test_immediate_joins_across_open_transactions(oracle: Oracle) -> None:
    joined = oracle.start_watch("t: Task, p: Person", "p.level AS level", ids="t p", immediate=True)
    oracle.do("BEGIN")
    oracle.do("BEGIN", session=1)
    oracle.do("SPAWN t1: Task")
    oracle.do("SPAWN ann: Person { level = 1 }", session=1)
    assert types(joined.new_events()) == ["added"]
    later = oracle.start_watch("t: Task, p: Person", "p.level AS level", ids="t p", immediate=True)
    oracle.do("COMMIT")
    oracle.do("ROLLBACK", session=1)
    assert types(joined.new_events()) == types(later.new_events()) == ["removed"]
    oracle.do("SPAWN bob: Person { level = 2 }", session=1)
    assert types(joined.new_events()) == ["added"]


def test_two_open_transactions_write_one_element(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    seen = oracle.start_watch("t: Task", "t.points AS points", ids="t", immediate=True)
    oracle.do("BEGIN", "SET #t1.points = 2")
    oracle.do("BEGIN", "SET #t1.points = 3", session=1)
    oracle.do("COMMIT")
    with pytest.raises(TransactionError, match="E5002"):
        oracle.do("COMMIT", session=1)
    oracle.check("the conflict")
    assert [event["match"]["points"] for event in seen.new_events()] == [2, 3, 2]


def test_immediate_watch_sees_writes_of_triggers(oracle: Oracle) -> None:
    seen = oracle.start_watch("p: Person", "p.level AS level", ids="p", immediate=True)
    oracle.session(None).watch("WATCH t: Task ON MATCH DO SPAWN p: Person { level = t.points }")
    oracle.do("SPAWN t1: Task { points = 4 }")
    assert seen.new_events() == [{"type": "added", "match": {"level": 4}}]


def test_rolled_back_savepoint_hides_no_committed_write(oracle: Oracle) -> None:
    """After ROLLBACK TO, another session may write the elements that the savepoint had written."""
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 1 }")
    seen = oracle.start_watch("t: Task", "t.points AS points", ids="t", immediate=True)
    oracle.do("BEGIN", "SAVEPOINT here", "SET #t1.points = 2", "KILL #t2", "ROLLBACK TO here")
    assert types(seen.new_events()) == ["changed", "removed", "changed", "added"]
    oracle.do("SET #t1.points = 3", "KILL #t2", session=1)
    assert types(seen.new_events()) == ["changed", "removed"]
    oracle.do("SET #t1.points = 4")
    assert [event["match"]["points"] for event in seen.new_events()] == [4]
    oracle.do("ROLLBACK")
    assert [event["match"]["points"] for event in seen.new_events()] == [3]


def test_immediate_watch_sees_rules_at_commit_and_rejected_commit_undone() -> None:
    rules = """
        rule mark: t: Task WHERE t.points = 9 => SET t.title = "nine", SPAWN p: Person { level = 9 }
        constraint small: t: Task => t.points < 20
    """
    with Oracle(TASKS + rules) as oracle:
        tasks = oracle.start_watch("t: Task", "t.points AS points, t.title AS title", ids="t", immediate=True)
        people = oracle.start_watch("p: Person", "COUNT(*) AS n", kind="groups", immediate=True)
        oracle.together("SPAWN t1: Task { points = 9 }")
        assert [event["match"]["title"] for event in tasks.new_events()] == [None, "nine"]
        oracle.do("BEGIN", "SET #t1.points = 30", "SPAWN t2: Task")
        with pytest.raises(VedetteError, match="small"):
            oracle.do("COMMIT")
        oracle.check("the refusal")
        assert types(tasks.new_events()) == ["changed", "added", "changed", "removed"]
        with pytest.raises(VedetteError, match="small"):
            oracle.do("SET #t1.points = 40")
        oracle.check("the refusal")
        assert types(tasks.new_events()) == ["changed", "changed"]
        assert [event["match"]["n"] for event in people.new_events()] == [1]


def test_define_ends_open_transactions(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    seen = oracle.start_watch("t: Task", "t AS t", ids="t", immediate=True)
    oracle.do("BEGIN", "SET #t1.points = 2", "SPAWN t2: Task")
    seen.new_events()
    oracle.db.define("node Person { name: String?, level: Int?, boss: Person?, room: Int = 1 }")
    oracle.check("define")
    assert types(seen.new_events()) == ["changed", "removed"]
    with pytest.raises(TransactionError, match="E5005"):
        oracle.do("COMMIT")
    oracle.check("the refusal")
    oracle.do("SET #t1.points = 3")
    assert types(seen.new_events()) == ["changed"]


def test_later_of_two_uncommitted_writes_is_rolled_back(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    seen = oracle.start_watch("t: Task", "t.points AS points", ids="t", immediate=True)
    oracle.do("BEGIN", "SET #t1.points = 2")
    oracle.do("BEGIN", "SET #t1.points = 3", "SPAWN t2: Task { points = 7 }", "ROLLBACK", session=1)
    oracle.do("COMMIT")
    assert [event["match"]["points"] for event in seen.new_events()] == [2, 3, 7, 2, 7]


def test_initial_since_includes_uncommitted_writes(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 2 }")
    oracle.do("BEGIN", "SET #t1.points = 5", "SPAWN t3: Task { points = 3 }")
    text = "WATCH t: Task [initial: since(0), visibility: immediate] RETURN {}"
    reader = oracle.session(None)
    rows, sums = reader.watch(text.format("t.points")), reader.watch(text.format("SUM(t.points) AS sum"))
    events = [(event.type, (event.match or {})["t.points"]) for event in rows.poll()]
    assert events == [("added", 2), ("changed", 5), ("added", 3)]
    assert [(event.match or {})["sum"] for event in sums.poll()] == [3, 10]
    oracle.do("ROLLBACK")
    assert [(event.type, (event.match or {})["t.points"]) for event in rows.poll()] == [
        ("changed", 1),
        ("removed", 3),
    ]
    assert [(event.match or {})["sum"] for event in sums.poll()] == [3]


def test_uncommitted_events_beyond_the_buffer_arrive_as_snapshot(oracle: Oracle) -> None:
    text = "WATCH t: Task [visibility: immediate, delivery: reliable, buffer: 2] RETURN t.points"
    watch = oracle.session(None).watch(text)
    oracle.do("BEGIN", *(f"SPAWN t{n}: Task {{ points = {n} }}" for n in range(5)))
    events = [event for _ in range(5) for event in watch.poll()]
    assert types([event.to_dict() for event in events]) == ["initial", "added", "initial"]
    assert sorted(row["t.points"] for row in events[-1].matches or ()) == [0, 1, 2, 3, 4]
    oracle.do("ROLLBACK")
    assert types([event.to_dict() for event in watch.poll()]) == ["removed"] * 5


def test_actions_run_only_for_committed_matches(oracle: Oracle) -> None:
    with pytest.raises(WatchError, match=r"E8009.*visibility"):
        oracle.session(None).watch("WATCH t: Task [visibility: immediate] ON MATCH DO SET t.points = 1")


# ALTER WATCH with another filter


def test_events_of_a_new_filter_follow_earlier_events_of_the_match(oracle: Oracle) -> None:
    """With ordering by attribute, events of one match keep their order, including events caused by ALTER WATCH."""
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 5 }")
    text = "WATCH t: Task [ordering: attribute(t.points DESC), initial: none] RETURN t.points"
    watch = oracle.session(None).watch(text)
    oracle.do("SET #t1.points = 2", "SET #t2.points = 6")
    watch.alter("[filter: t.points > 2]")
    events = [(event.type, (event.match or {})["t.points"]) for event in watch.poll()]
    assert events == [("changed", 6), ("changed", 2), ("removed", 2)]


def test_rejected_filter_changes_nothing(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 0 }")
    kept = oracle.start_watch("t: Task", "t.points AS points", where="t.points >= 0", ids="t")
    for refused in ("assigned(t, #nobody)", "10 / t.points > 1", "t.colour = 1"):
        with pytest.raises(VedetteError):
            oracle.session(None).execute(f"ALTER WATCH #{kept.handle.id} SET [filter: {refused}]")
    oracle.do("SET #t1.points = 1")
    assert types(kept.new_events()) == ["changed"]
