"""Cases by hand: what is known to break engines that keep queries up to date, and every bug that the oracle found."""

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


def types(news: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in news]


# Counts and sums


def test_a_count_over_joined_parts_when_only_the_last_part_changes(oracle: Oracle) -> None:
    oracle.do(
        'SPAWN ann: Person { name = "ann", level = 1 }', 'SPAWN bob: Person { name = "bob", level = 2 }'
    )
    oracle.do('SPAWN t1: Task { title = "one" }', "LINK assigned(#t1, #ann)", "LINK follows(#ann, #bob)")
    counted = oracle.follow(
        "t: Task, assigned(t, p), follows(p, q)",
        "t.title AS k0, COUNT(*) AS n, SUM(q.level) AS levels",
        kind="groups",
        keys=1,
    )
    oracle.do("SET #bob.level = 5")
    assert counted.news() == [
        {
            "type": "changed",
            "match": {"k0": "one", "n": 1, "levels": 5},
            "prev": {"k0": "one", "n": 1, "levels": 2},
        }
    ]
    oracle.do("LINK follows(#ann, #ann)", "KILL #bob")
    assert types(counted.news()) == ["changed", "changed"]
    oracle.do("UNLINK follows(#ann, #ann)")
    assert types(counted.news()) == ["removed"]


def test_aggregates_count_parallel_edges(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 3 }", "SPAWN ann: Person { level = 1 }")
    counted = oracle.follow("assigned(t, p)", "COUNT(*) AS n, SUM(t.points) AS sum", kind="groups")
    distinct = oracle.follow("assigned(t, p)", "t.points AS points", kind="distinct")
    rows = oracle.follow("assigned(t, p)", "t.points AS points", ids="t p")
    oracle.do("LINK assigned(#t1, #ann) AS e1", "LINK assigned(#t1, #ann) AS e2")
    assert [event["match"] for event in counted.news()] == [{"n": 1, "sum": 3}, {"n": 2, "sum": 6}]
    assert types(rows.news()) == types(distinct.news()) == ["added"]
    oracle.do("UNLINK #e1")
    assert [event["match"] for event in counted.news()] == [{"n": 1, "sum": 3}]
    assert rows.news() == distinct.news() == []
    oracle.do("UNLINK #e2")
    assert [event["match"] for event in counted.news()] == [{"n": 0, "sum": None}]
    assert types(rows.news()) == types(distinct.news()) == ["removed"]


def test_parallel_edges_that_were_there_first(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 3 }", "SPAWN ann: Person")
    oracle.do("LINK assigned(#t1, #ann) AS e1", "LINK assigned(#t1, #ann) AS e2")
    distinct = oracle.follow("assigned(t, p)", "t.points AS points", kind="distinct")
    rows = oracle.follow("assigned(t, p)", "t.points AS points", ids="t p")
    oracle.together("UNLINK #e1", "UNLINK #e2")
    assert types(rows.news()) == types(distinct.news()) == ["removed"]


def test_sums_of_floats_do_not_drift(oracle: Oracle) -> None:
    summed = oracle.follow("t: Task", "SUM(t.weight) AS sum, AVG(t.weight) AS mean", kind="groups")
    weights = (0.1, 1e16, 0.2, -1e16, 0.3, 1e300, 5e-324)
    for number, weight in enumerate(weights):
        oracle.do(f"SPAWN w{number}: Task {{ weight = {weight!r} }}".replace("e+", "e"))
    for number in (5, 1, 3, 0, 6, 2, 4):
        oracle.do(f"KILL #w{number}")
    assert summed.news()[-1]["match"] == {"sum": None, "mean": None}


def test_a_group_moves_when_its_key_does(oracle: Oracle) -> None:
    oracle.do('SPAWN t1: Task { title = "a", points = 1 }', 'SPAWN t2: Task { title = "b", points = 2 }')
    grouped = oracle.follow("t: Task", "t.title AS k0, MAX(t.points) AS most", kind="groups", keys=1)
    oracle.do('SET #t1.title = "b"')
    assert types(grouped.news()) == ["removed"]
    oracle.do("SET #t2.points = 0")
    assert grouped.news()[0]["match"] == {"k0": "b", "most": 1}


def test_filtered_counts(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task")
    returns = "COUNT(*) AS n, COUNT(t WHERE t.points > 2) AS many, COUNT(DISTINCT t.points) AS different"
    counted = oracle.follow("t: Task", returns, kind="groups")
    oracle.do("SET #t1.points = 3", "SET #t2.points = 3", "KILL #t1")
    expected = [(2, 1, 1), (2, 2, 1), (1, 1, 1)]
    assert [tuple(event["match"].values()) for event in counted.news()] == expected


def test_collected_lists_do_not_depend_on_the_way_they_are_found(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person", "SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 1 }")
    oracle.do("LINK assigned(#t1, #ann)", "LINK assigned(#t2, #ann)")
    oracle.follow("p: Person", "COLLECT(t: Task, assigned(t, p)) AS tasks", kind="distinct")
    rows = oracle.follow("p: Person", "COLLECT(t: Task, assigned(t, p)) AS tasks", ids="p")
    collected = oracle.follow("t: Task", "COLLECT(t.points) AS all", kind="groups")
    different = oracle.follow("t: Task", "COLLECT(DISTINCT t.points) AS all", kind="groups")
    oracle.do("SET #t1.points = 2", "SET #t1.points = 1", 'SET #ann.name = "ann"')
    assert types(rows.news()) == types(collected.news()) == types(different.news()) == ["changed", "changed"]
    oracle.together("SET #t1.points = 2", "SPAWN t3: Task { points = 1 }")
    oracle.together("SET #t1.points = 1", "SET #t2.points = 2")
    assert types(different.news()) == ["changed"]


def test_not_a_number() -> None:
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


# Arrival in every order

BUILDING = (
    'SPAWN ann: Person { name = "ann", level = 2 }',
    "SPAWN bob: Person { level = 1 }",
    "SPAWN t1: Task { points = 3 }",
    "LINK assigned(#t1, #ann) AS e1",
    "LINK follows(#ann, #bob) AS e2",
    "LINK urgent(#t1) AS e3",
)


def test_arrival_in_every_order() -> None:
    ends = set()
    for order in permutations(BUILDING):
        seen = " ".join(order)
        if any(seen.index(f"#{name}") < seen.index(f"SPAWN {name}") for name in ("ann", "bob", "t1")):
            continue
        with Oracle(TASKS) as oracle:
            joined = oracle.follow(
                "assigned(t, p), follows(p, q), urgent(t)", "q.level AS level", ids="t p q"
            )
            absent = oracle.follow(
                "t: Task", "t.points AS points", where="NOT EXISTS(assigned(t, _))", ids="t"
            )
            counted = oracle.follow("assigned(t, p), follows(p, q)", "SUM(t.points) AS sum", kind="groups")
            oracle.do(*order)
            last = [each.news()[-1] for each in (joined, counted)]
            assert not absent.expected()
            ends.add(repr(last))
    assert len(ends) == 1


def test_leaving_in_every_order() -> None:
    for order in permutations(("UNLINK #e1", "UNLINK #e2", "UNLINK #e3", "KILL #bob")):
        with Oracle(TASKS) as oracle:
            oracle.do(*BUILDING)
            joined = oracle.follow(
                "assigned(t, p), follows(p, q), urgent(t)", "q.level AS level", ids="t p q"
            )
            absent = oracle.follow("p: Person", "p.name AS name", where="NOT EXISTS(follows(p, _))", ids="p")
            gone = order.index("KILL #bob") < order.index("UNLINK #e2")
            oracle.do(*(text for text in order if not (gone and text == "UNLINK #e2")))
            assert types(joined.news()) == ["removed"]
            assert "added" in types(absent.news())


# Paths


def test_an_edge_in_the_middle_of_a_path(oracle: Oracle) -> None:
    oracle.do(*(f"SPAWN p{number}: Person {{ level = {number} }}" for number in range(5)))
    reached = oracle.follow("follows+(a, b)", "a.level AS a, b.level AS b", ids="a b")
    bounded = oracle.follow("follows+(a, b) [depth: 2]", "COUNT(*) AS n", kind="groups")
    loose = oracle.follow("follows*(a, b)", "a.level AS k0, COUNT(*) AS n", kind="groups", keys=1)
    ends = oracle.follow("follows+(a, _)", "COUNT(*) AS n", kind="groups")
    who = oracle.follow("follows+(a, _)", "a.level AS level", ids="a")
    oracle.do("LINK follows(#p0, #p1) AS e1", "LINK follows(#p2, #p3) AS e3", "LINK follows(#p3, #p4) AS e4")
    assert types(reached.news()) == ["added"] * 4
    oracle.do("LINK follows(#p1, #p2) AS e2")
    assert types(reached.news()) == ["added"] * 6
    assert types(who.news()) == ["added"] * 4
    oracle.do("LINK follows(#p1, #p3) AS e5")
    assert reached.news() == []
    oracle.do("UNLINK #e2")
    assert types(reached.news()) == ["removed"] * 2
    oracle.do("KILL #p3")
    assert bounded.news()[-1]["match"] == ends.news()[-1]["match"] == {"n": 1}
    assert loose.news()


def test_a_path_of_no_edges_needs_no_more_than_an_element(oracle: Oracle) -> None:
    pairs = oracle.follow("follows*(_, _)", "COUNT(*) AS n", kind="groups")
    oracle.do("SPAWN ann: Person", "SPAWN bob: Person", "LINK follows(#ann, #bob)", "KILL #bob")
    assert [event["match"]["n"] for event in pairs.news()] == [1, 2, 3, 1]


def test_cycles(oracle: Oracle) -> None:
    oracle.do(*(f"SPAWN p{number}: Person {{ level = {number} }}" for number in range(3)))
    members = oracle.follow("follows+(a, a)", "a.level AS level", ids="a")
    acyclic = oracle.follow("p: Person", "p.level AS level", where="NOT EXISTS(follows+(p, p))", ids="p")
    oracle.do("LINK follows(#p0, #p1) AS e1", "LINK follows(#p1, #p2) AS e2")
    assert members.news() == acyclic.news() == []
    oracle.do("LINK follows(#p2, #p0) AS e3")
    assert types(members.news()) == ["added"] * 3
    assert types(acyclic.news()) == ["removed"] * 3
    oracle.do("LINK follows(#p1, #p1) AS e4", "UNLINK #e2")
    assert types(members.news()) == ["removed"] * 2
    oracle.do("KILL #p1")
    assert types(acyclic.news()) == ["added"] * 2


def test_paths_along_symmetric_edges(oracle: Oracle) -> None:
    oracle.do(*(f"SPAWN p{number}: Person {{ level = {number} }}" for number in range(4)))
    near = oracle.follow("friends+(#p0, x)", "x.level AS level", ids="x")
    oracle.do("LINK friends(#p1, #p0) AS e1", "LINK friends(#p2, #p3) AS e2", "LINK friends(#p3, #p1) AS e3")
    assert sorted(event["match"]["level"] for event in near.news()) == [0, 1, 2, 3]
    oracle.do("UNLINK #e1")
    assert types(near.news()) == ["removed"] * 4


def test_a_path_of_no_edges_has_the_types_of_both_ends(oracle: Oracle) -> None:
    with Oracle("node A { s: String? }\nnode B { s: String?, b: Bool? }\nedge to(x: A, y: B)") as other:
        other.do("SPAWN a: A", "SPAWN b: B { b = true }", "LINK to(#a, #b)")
        other.follow("to*(x, y)", "x._type AS x, y._type AS y", where="y.b = true", ids="x y")
        other.do("SET #b.b = false", "SET #b.b = true", 'SET #a.s = "a"', "KILL #a")


# Rows that move


def test_a_delete_of_what_left_the_filter_before(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 5 }", 'SPAWN t2: Task { title = "x", points = 5 }')
    big = oracle.follow("t: Task", "t.title AS title", where="t.points > 3", ids="t")
    oracle.do("SET #t1.points = 1")
    assert types(big.news()) == ["removed"]
    oracle.do("KILL #t1")
    assert big.news() == []
    oracle.together("SET #t2.points = 1", 'SET #t2.title = "y"', "KILL #t2")
    assert big.news() == [{"type": "removed", "match": {"title": "x"}}]


def test_out_of_the_filter_and_back_in_one_transaction(oracle: Oracle) -> None:
    oracle.do('SPAWN t1: Task { title = "x", points = 5 }')
    big = oracle.follow("t: Task", "t.title AS title", where="t.points > 3", ids="t")
    counted = oracle.follow("t: Task", "COUNT(*) AS n", where="t.points > 3", kind="groups")
    oracle.together("SET #t1.points = 1", "SET #t1.points = 9")
    assert big.news() == counted.news() == []
    oracle.together("SET #t1.points = 1", 'SET #t1.title = "y"', "SET #t1.points = 9")
    assert big.news() == [{"type": "changed", "match": {"title": "y"}, "prev": {"title": "x"}}]
    assert counted.news() == []


def test_what_never_was_and_what_was_taken_back(oracle: Oracle) -> None:
    every = oracle.follow("t: Task", "t.points AS points", ids="t")
    oracle.together("SPAWN t1: Task { points = 1 }", "KILL #t1")
    oracle.do("BEGIN", "SPAWN t2: Task { points = 2 }", "ROLLBACK")
    oracle.do("BEGIN", "SPAWN t3: Task { points = 3 }", "SAVEPOINT here", "SET #t3.points = 4")
    oracle.do("ROLLBACK TO here", "COMMIT")
    assert every.news() == [{"type": "added", "match": {"points": 3}}]


def test_in_by_one_way_and_out_by_another(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person { level = 1 }", "SPAWN bob: Person { level = 2 }", "SPAWN t1: Task")
    either = oracle.follow(
        "t: Task", "t.points AS points", where="EXISTS(assigned(t, p)) OR EXISTS(review(t, r, _))", ids="t"
    )
    oracle.do("LINK assigned(#t1, #ann) AS e1")
    assert types(either.news()) == ["added"]
    oracle.together("UNLINK #e1", "LINK review(#t1, #bob, #ann) AS e2")
    assert either.news() == []
    oracle.do("LINK assigned(#t1, #bob)", "KILL #ann", "SET #bob.level = 3")
    assert either.news() == []
    oracle.do("KILL #bob")
    assert types(either.news()) == ["removed"]


def test_one_and_true_are_not_the_same() -> None:
    with Oracle("node A { v: Int | Bool | Float }") as oracle:
        oracle.do("SPAWN a: A { v = 1 }")
        whole = oracle.follow("a: A", "a AS a", ids="a")
        value = oracle.follow("a: A", "a.v AS v", ids="a")
        oracle.do("SET #a.v = true", "SET #a.v = 1.0", "SET #a.v = 1.0")
        assert types(whole.news()) == types(value.news()) == ["changed", "changed"]


# Absence


def test_absence_ends_with_an_element_and_its_edge_in_one_transaction(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    idle = oracle.follow("t: Task", "t.points AS points", where="NOT EXISTS(assigned(t, p))", ids="t")
    oracle.together("SPAWN ann: Person", "LINK assigned(#t1, #ann)")
    assert types(idle.news()) == ["removed"]
    oracle.do("KILL #ann")
    assert types(idle.news()) == ["added"]


def test_absence_within_absence(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task", "SPAWN ann: Person { level = 1 }", "LINK assigned(#t1, #ann)")
    where = "NOT EXISTS(assigned(t, p) WHERE NOT EXISTS(follows(p, q) WHERE q.level > 1))"
    fine = oracle.follow("t: Task", "t.points AS points", where=where, ids="t")
    oracle.together("SPAWN bob: Person { level = 2 }", "LINK follows(#ann, #bob)")
    assert types(fine.news()) == ["added"]
    oracle.do("SET #bob.level = 0")
    assert types(fine.news()) == ["removed"]
    oracle.do("KILL #ann")
    assert types(fine.news()) == ["added"]


def test_constants_inside_nested_patterns_of_every_clause(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person { level = 1 }", "SPAWN bob: Person", "SPAWN t1: Task")
    oracle.do("LINK follows(#ann, #ann)")
    for name in ("ann", "bob"):
        oracle.follow("t: Task", f"COUNT(p: Person, follows(#{name}, p)) AS n", ids="t")
        oracle.follow("t: Task", f"EXISTS(follows(#{name}, p) WHERE p.level > 2) AS high", ids="t")
        oracle.follow("t: Task", "t.points AS points", filter=f"EXISTS(follows(#{name}, p))", ids="t")
        oracle.follow("t: Task", "t.points AS points", where=f"NOT assigned(t, #{name})", ids="t")
    oracle.do("LINK follows(#bob, #ann)", "SET #ann.level = 3", "LINK assigned(#t1, #bob)", "KILL #ann")


# Symmetric edges


def test_symmetric_edges_and_a_constant_end(oracle: Oracle) -> None:
    oracle.do("SPAWN ann: Person { level = 1 }", "SPAWN bob: Person { level = 2 }")
    one = oracle.follow("friends(#ann, x)", "x.level AS level", ids="x")
    other = oracle.follow("friends(#bob, x)", "x.level AS level", ids="x")
    counted = oracle.follow("friends(x, #bob)", "COUNT(*) AS n", kind="groups")
    oracle.do("LINK friends(#ann, #bob) AS e1")
    assert [each.news()[0]["match"] for each in (one, other, counted)] == [
        {"level": 2},
        {"level": 1},
        {"n": 1},
    ]
    oracle.do("LINK friends(#bob, #bob) AS e2", "UNLINK #e1")
    assert types(other.news()) == ["added", "removed"]


def test_symmetric_edges_count_once_in_the_order_that_fits(oracle: Oracle) -> None:
    oracle.do(
        "SPAWN ann: Person { level = 1 }", "SPAWN bob: Person { level = 2 }", "LINK friends(#ann, #bob)"
    )
    turned = oracle.follow("friends(a, b)", "a.level AS a, b.level AS b", where="a.level > 1", ids="a b")
    counted = oracle.follow("friends(a, b)", "COUNT(*) AS n", where="a.level >= 1", kind="groups")
    nested = oracle.follow("friends(a, b)", "a.level AS a", where="EXISTS(follows(a, _))", ids="a b")
    oracle.do("SET #ann.level = 3")
    assert sorted(types(turned.news())) == ["added", "removed"]
    oracle.do("LINK follows(#bob, #bob) AS e1")
    assert [event["match"] for event in nested.news()] == [{"a": 2}]
    oracle.do("LINK follows(#ann, #ann) AS e2")
    assert sorted(types(nested.news())) == ["added", "removed"]
    assert counted.news() == []


# Edges


def test_edges_on_edges_and_edges_of_three(oracle: Oracle) -> None:
    oracle.do(
        "SPAWN t1: Task", "SPAWN ann: Person { level = 1 }", "LINK assigned(#t1, #ann) AS e1 { hours = 1 }"
    )
    commented = oracle.follow("comment(e, p)", "e.hours AS hours, p.level AS level", ids="e p")
    edges = oracle.follow("e: assigned", "e.hours AS hours", where="NOT EXISTS(comment(e, _))", ids="e")
    reviewed = oracle.follow("review(t, p, p) AS r", "p.level AS level", ids="r t p")
    any_edge = oracle.follow("e: edge<any>(t, p)", "e._type AS type", where="t:Task", ids="e t p")
    oracle.do("LINK comment(#e1, #ann)", "SET #e1.hours = 2", "LINK review(#t1, #ann, #ann)")
    assert types(commented.news()) == ["added", "changed"]
    assert types(edges.news()) == ["removed"]
    oracle.do("UNLINK #e1")
    assert types(commented.news()) == types(any_edge.news()) == ["removed"]
    oracle.do("KILL #ann")
    assert types(reviewed.news()) == ["added", "removed"]


def test_references_that_are_followed(oracle: Oracle) -> None:
    oracle.do('SPAWN ann: Person { name = "ann" }', "SPAWN t1: Task { owner = #ann }")
    owned = oracle.follow("t: Task", "t.owner.name AS name", ids="t")
    boss = oracle.follow("t: Task", "t.points AS points", where='t.owner.boss.name = "bob"', ids="t")
    oracle.do('SET #ann.name = "anna"', 'SPAWN bob: Person { name = "bob" }', "SET #ann.boss = #bob")
    assert types(owned.news()) == ["changed"]
    assert types(boss.news()) == ["added"]
    oracle.do("KILL #bob", "KILL #ann")
    assert types(boss.news()) == ["removed"]
    assert [event["match"] for event in owned.news()] == [{"name": None}]


def test_a_type_is_checked_before_its_attributes_are_read() -> None:
    ontology = "node A { s: String? }\nnode B { s: String?, n: Int?, f: Float? }\nedge to(x: any, y: any)"
    with Oracle(ontology) as oracle:
        oracle.do("SPAWN a: A", "SPAWN b: B { f = 1.0 }", "LINK to(#a, #b)", "LINK to(#b, #a)")
        oracle.follow("to(#a, x), x: B", "x.f AS f", where="x.f > 0.0", ids="x")
        oracle.follow("to(x, y), y: B", "y.f AS f", where="y.f > 0.0 AND x.s = null", ids="x y")
        oracle.do("SET #b.f = 2.0", 'SET #a.s = "a"', "UNLINK to(#a, _)")


# Before the commit


def test_statements_are_seen_and_taken_back(oracle: Oracle) -> None:
    at_once = oracle.follow("t: Task", "t.points AS points", ids="t", immediate=True)
    counted = oracle.follow("t: Task", "SUM(t.points) AS sum", kind="groups", immediate=True)
    oracle.do("BEGIN", "SPAWN t1: Task { points = 1 }", "SAVEPOINT here", "SET #t1.points = 2")
    assert types(at_once.news()) == ["added", "changed"]
    oracle.do("ROLLBACK TO here")
    assert at_once.news()[-1]["match"] == {"points": 1}
    oracle.do("ROLLBACK")
    assert types(at_once.news()) == ["removed"]
    assert [event["match"]["sum"] for event in counted.news()] == [1, 2, 1, None]


def test_joins_across_open_transactions(oracle: Oracle) -> None:
    joined = oracle.follow("t: Task, p: Person", "p.level AS level", ids="t p", immediate=True)
    oracle.do("BEGIN")
    oracle.do("BEGIN", session=1)
    oracle.do("SPAWN t1: Task")
    oracle.do("SPAWN ann: Person { level = 1 }", session=1)
    assert types(joined.news()) == ["added"]
    later = oracle.follow("t: Task, p: Person", "p.level AS level", ids="t p", immediate=True)
    oracle.do("COMMIT")
    oracle.do("ROLLBACK", session=1)
    assert types(joined.news()) == types(later.news()) == ["removed"]
    oracle.do("SPAWN bob: Person { level = 2 }", session=1)
    assert types(joined.news()) == ["added"]


def test_two_transactions_and_one_element(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    seen = oracle.follow("t: Task", "t.points AS points", ids="t", immediate=True)
    oracle.do("BEGIN", "SET #t1.points = 2")
    oracle.do("BEGIN", "SET #t1.points = 3", session=1)
    oracle.do("COMMIT")
    with pytest.raises(TransactionError, match="E5002"):
        oracle.do("COMMIT", session=1)
    oracle.check("the conflict")
    assert [event["match"]["points"] for event in seen.news()] == [2, 3, 2]


def test_what_triggers_do_is_seen_at_once(oracle: Oracle) -> None:
    seen = oracle.follow("p: Person", "p.level AS level", ids="p", immediate=True)
    oracle.session(None).watch("WATCH t: Task ON MATCH DO SPAWN p: Person { level = t.points }")
    oracle.do("SPAWN t1: Task { points = 4 }")
    assert seen.news() == [{"type": "added", "match": {"level": 4}}]


def test_what_a_savepoint_takes_back_covers_nothing(oracle: Oracle) -> None:
    """Others may write what a transaction has taken its hands off again."""
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 1 }")
    seen = oracle.follow("t: Task", "t.points AS points", ids="t", immediate=True)
    oracle.do("BEGIN", "SAVEPOINT here", "SET #t1.points = 2", "KILL #t2", "ROLLBACK TO here")
    assert types(seen.news()) == ["changed", "removed", "changed", "added"]
    oracle.do("SET #t1.points = 3", "KILL #t2", session=1)
    assert types(seen.news()) == ["changed", "removed"]
    oracle.do("SET #t1.points = 4")
    assert [event["match"]["points"] for event in seen.news()] == [4]
    oracle.do("ROLLBACK")
    assert [event["match"]["points"] for event in seen.news()] == [3]


def test_rules_are_seen_at_the_commit_and_a_refused_commit_is_taken_back() -> None:
    rules = """
        rule mark: t: Task WHERE t.points = 9 => SET t.title = "nine", SPAWN p: Person { level = 9 }
        constraint small: t: Task => t.points < 20
    """
    with Oracle(TASKS + rules) as oracle:
        tasks = oracle.follow("t: Task", "t.points AS points, t.title AS title", ids="t", immediate=True)
        people = oracle.follow("p: Person", "COUNT(*) AS n", kind="groups", immediate=True)
        oracle.together("SPAWN t1: Task { points = 9 }")
        assert [event["match"]["title"] for event in tasks.news()] == [None, "nine"]
        oracle.do("BEGIN", "SET #t1.points = 30", "SPAWN t2: Task")
        with pytest.raises(VedetteError, match="small"):
            oracle.do("COMMIT")
        oracle.check("the refusal")
        assert types(tasks.news()) == ["changed", "added", "changed", "removed"]
        with pytest.raises(VedetteError, match="small"):
            oracle.do("SET #t1.points = 40")
        oracle.check("the refusal")
        assert types(tasks.news()) == ["changed", "changed"]
        assert [event["match"]["n"] for event in people.news()] == [1]


def test_a_definition_ends_open_transactions(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    seen = oracle.follow("t: Task", "t AS t", ids="t", immediate=True)
    oracle.do("BEGIN", "SET #t1.points = 2", "SPAWN t2: Task")
    seen.news()
    oracle.db.define("node Person { name: String?, level: Int?, boss: Person?, room: Int = 1 }")
    oracle.check("define")
    assert types(seen.news()) == ["changed", "removed"]
    with pytest.raises(TransactionError, match="E5005"):
        oracle.do("COMMIT")
    oracle.check("the refusal")
    oracle.do("SET #t1.points = 3")
    assert types(seen.news()) == ["changed"]


def test_one_of_two_transactions_wrote_later_and_is_rolled_back(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }")
    seen = oracle.follow("t: Task", "t.points AS points", ids="t", immediate=True)
    oracle.do("BEGIN", "SET #t1.points = 2")
    oracle.do("BEGIN", "SET #t1.points = 3", "SPAWN t2: Task { points = 7 }", "ROLLBACK", session=1)
    oracle.do("COMMIT")
    assert [event["match"]["points"] for event in seen.news()] == [2, 3, 7, 2, 7]


def test_looking_back_ends_with_what_is_being_written(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 2 }")
    oracle.do("BEGIN", "SET #t1.points = 5", "SPAWN t3: Task { points = 3 }")
    text = "WATCH t: Task [initial: since(0), visibility: immediate] RETURN {}"
    reader = oracle.session(None)
    rows, sums = reader.watch(text.format("t.points")), reader.watch(text.format("SUM(t.points) AS sum"))
    told = [(event.type, (event.match or {})["t.points"]) for event in rows.poll()]
    assert told == [("added", 2), ("changed", 5), ("added", 3)]
    assert [(event.match or {})["sum"] for event in sums.poll()] == [3, 10]
    oracle.do("ROLLBACK")
    assert [(event.type, (event.match or {})["t.points"]) for event in rows.poll()] == [
        ("changed", 1),
        ("removed", 3),
    ]
    assert [(event.match or {})["sum"] for event in sums.poll()] == [3]


def test_drafts_beyond_the_buffer_come_as_a_snapshot(oracle: Oracle) -> None:
    text = "WATCH t: Task [visibility: immediate, delivery: reliable, buffer: 2] RETURN t.points"
    watch = oracle.session(None).watch(text)
    oracle.do("BEGIN", *(f"SPAWN t{n}: Task {{ points = {n} }}" for n in range(5)))
    events = [event for _ in range(5) for event in watch.poll()]
    assert types([event.to_dict() for event in events]) == ["initial", "added", "initial"]
    assert sorted(row["t.points"] for row in events[-1].matches or ()) == [0, 1, 2, 3, 4]
    oracle.do("ROLLBACK")
    assert types([event.to_dict() for event in watch.poll()]) == ["removed"] * 5


def test_actions_need_something_committed(oracle: Oracle) -> None:
    with pytest.raises(WatchError, match=r"E8009.*visibility"):
        oracle.session(None).watch("WATCH t: Task [visibility: immediate] ON MATCH DO SET t.points = 1")


# Another filter


def test_what_another_filter_brings_stays_behind_what_came_before(oracle: Oracle) -> None:
    """Ordering by attribute: events of one match are never turned around, also those that were told anew."""
    oracle.do("SPAWN t1: Task { points = 1 }", "SPAWN t2: Task { points = 5 }")
    text = "WATCH t: Task [ordering: attribute(t.points DESC), initial: none] RETURN t.points"
    watch = oracle.session(None).watch(text)
    oracle.do("SET #t1.points = 2", "SET #t2.points = 6")
    watch.alter("[filter: t.points > 2]")
    told = [(event.type, (event.match or {})["t.points"]) for event in watch.poll()]
    assert told == [("changed", 6), ("changed", 2), ("removed", 2)]


def test_a_filter_that_is_refused_changes_nothing(oracle: Oracle) -> None:
    oracle.do("SPAWN t1: Task { points = 0 }")
    kept = oracle.follow("t: Task", "t.points AS points", where="t.points >= 0", ids="t")
    for refused in ("assigned(t, #nobody)", "10 / t.points > 1", "t.colour = 1"):
        with pytest.raises(VedetteError):
            oracle.session(None).execute(f"ALTER WATCH #{kept.handle.id} SET [filter: {refused}]")
    oracle.do("SET #t1.points = 1")
    assert types(kept.news()) == ["changed"]
