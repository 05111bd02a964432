"""Watches of actors, by hand: whatever changes what an actor may see arrives as `added`, `removed` or `changed`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.properties.models.watch_oracle import Oracle
from vedette.errors import VedetteError, WatchError

TEAM = """
node Person { name: String?, level: Int? }
node Task { title: String?, points: Int?, owner: Person? }
node Secret : Task { code: String? }
edge assigned(task: Task, person: Person) { hours: Int? }
edge follows(from: Person, to: Person)
edge cleared(person: Person, task: Task)
edge friends(one: Person, other: Person) [symmetric]
edge note(on: edge<assigned>, by: Person)
policy watching: ON META SPAWN(_Watch) ALLOW IF true
"""
PEOPLE = "policy people: ON MATCH(x: Person) ALLOW IF true"
ALL_TASKS = "policy tasks: ON MATCH(x: Task) ALLOW IF true"
CLEARED = "policy cleared_tasks: ON MATCH(x: Task) ALLOW IF EXISTS(cleared(current_actor(), x))"


def team(*policies: str) -> Oracle:
    oracle = Oracle("\n".join((TEAM, *policies)))
    oracle.do(
        'SPAWN ann: Person { name = "ann", level = 1 }', 'SPAWN bob: Person { name = "bob", level = 2 }'
    )
    oracle.do(
        'SPAWN t1: Task { title = "one", points = 1 }', 'SPAWN t2: Secret { title = "two", points = 2 }'
    )
    return oracle


def types(news: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in news]


def test_an_edge_to_the_actor_opens_and_shuts() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        seen = oracle.follow("t: Task", "t.title AS title", ids="t", actor="ann")
        counted = oracle.follow("t: Task", "COUNT(*) AS n", kind="groups", actor="ann")
        other = oracle.follow("t: Task", "t.title AS title", ids="t", actor="bob")
        oracle.do("LINK cleared(#ann, #t1) AS e1", "LINK cleared(#ann, #t2) AS e2")
        assert types(seen.news()) == ["added", "added"]
        assert counted.news()[-1]["match"] == {"n": 2}
        oracle.together('SET #t1.title = "uno"', "UNLINK #e1")
        assert seen.news() == [{"type": "removed", "match": {"title": "one"}}]
        assert other.news() == []


def test_hidden_attributes() -> None:
    hiding = "policy points: ON MATCH(x: Task).points DENY IF NOT EXISTS(cleared(current_actor(), x))"
    with team(PEOPLE, ALL_TASKS, hiding) as oracle:
        rows = oracle.follow("t: Task", "t.points AS points", ids="t", actor="ann")
        high = oracle.follow("t: Task", "t.title AS title", where="t.points > 1", ids="t", actor="ann")
        unknown = oracle.follow("t: Task", "t.title AS title", where="t.points = null", ids="t", actor="ann")
        oracle.do("LINK cleared(#ann, #t2) AS e1")
        assert rows.news() == [{"type": "changed", "match": {"points": 2}, "prev": {"points": None}}]
        assert (types(high.news()), types(unknown.news())) == (["added"], ["removed"])
        oracle.do("SET #t1.points = 9", "UNLINK #e1")
        assert types(rows.news()) == ["changed"]


def test_a_policy_about_a_supertype_or_a_subtype() -> None:
    secrets = (
        "policy secrets: ON MATCH(x: Secret) DENY IF NOT EXISTS(cleared(y, x) WHERE y = current_actor())"
    )
    with team(PEOPLE, ALL_TASKS, secrets) as oracle:
        seen = oracle.follow("t: Task", "t.title AS title", ids="t", actor="ann")
        oracle.follow("t: Secret", "t.title AS title", ids="t", actor="ann")
        oracle.follow("t: any", "t._type AS type", ids="t", actor="ann")
        oracle.do("LINK cleared(#ann, #t2) AS e1", "LINK cleared(#bob, #t2)", "UNLINK #e1")
        assert types(seen.news()) == ["added", "removed"]


def test_names_in_a_policy_are_its_own() -> None:
    names = "policy named: ON MATCH(x: Task) ALLOW IF EXISTS(cleared(y, x), follows(y, z) WHERE z.level > 1)"
    with team(PEOPLE, names) as oracle:
        seen = oracle.follow("x: Person, y: Task, z: Person", "y.title AS y", ids="x y z", actor="ann")
        oracle.do("LINK cleared(#bob, #t1)", "LINK follows(#bob, #ann)", "SET #ann.level = 3")
        assert types(seen.news()) == ["added"] * 4


def test_policies_about_edges() -> None:
    hours = "policy hours: ON MATCH(e: assigned) DENY IF e.hours > 5"
    follows = "policy follows_too: ON MATCH(e: assigned) DENY IF EXISTS(follows(current_actor(), _))"
    with team(PEOPLE, ALL_TASKS, hours, follows) as oracle:
        oracle.do(
            "LINK assigned(#t1, #ann) AS e1 { hours = 9 }", "LINK assigned(#t1, #ann) AS e2 { hours = 1 }"
        )
        rows = oracle.follow("assigned(t, p)", "t.title AS title", ids="t p", actor="ann")
        counted = oracle.follow("assigned(t, p) AS e", "SUM(e.hours) AS sum", kind="groups", actor="ann")
        oracle.do("SET #e1.hours = 2")
        assert rows.news() == []
        assert counted.news()[-1]["match"] == {"sum": 3}
        oracle.do("SET #e2.hours = 7", "SET #e1.hours = 8")
        assert types(rows.news()) == ["removed"]
        oracle.do("SET #e1.hours = 0", "LINK follows(#ann, #bob)")
        assert types(rows.news()) == ["added", "removed"]


def test_an_edge_that_is_shown_to_an_element_that_is_not() -> None:
    shown = "policy shown: ON MATCH(e: assigned) ALLOW IF e.hours > 1"
    with team("policy self: ON MATCH(x: Person) ALLOW IF x = current_actor()", ALL_TASKS, shown) as oracle:
        oracle.do("LINK assigned(#t1, #bob) AS e1 { hours = 2 }", "LINK follows(#ann, #bob)")
        bob: dict[str, Any] = {"values": (oracle.id_of("bob"),), "ids": "t", "actor": "ann"}
        one = oracle.follow("assigned(t, $p0)", "t.title AS title", **bob)
        any_one = oracle.follow("assigned(t, _)", "t.title AS title", ids="t", actor="ann")
        counted = oracle.follow("assigned+(t, _)", "COUNT(*) AS n", kind="groups", actor="ann")
        oracle.do("SET #e1.hours = 1", "SET #e1.hours = 3")
        assert types(one.news()) == types(any_one.news()) == ["removed", "added"]
        assert [event["match"]["n"] for event in counted.news()] == [0, 1]


def test_what_is_behind_a_wildcard_must_be_visible() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        oracle.do("LINK assigned(#t1, #ann)", "LINK note({ MATCH e: assigned RETURN e }, #bob)")
        busy = oracle.follow("assigned(_, p)", "p.name AS name", ids="p", actor="ann")
        tested = oracle.follow("p: Person", "p.name AS name", where="assigned(_, p)", ids="p", actor="ann")
        noted = oracle.follow("note(_, p)", "p.name AS name", ids="p", actor="ann")
        oracle.do("LINK cleared(#ann, #t1) AS e1")
        assert types(busy.news()) == types(tested.news()) == types(noted.news()) == ["added"]
        oracle.do("UNLINK #e1")
        assert types(busy.news()) == types(tested.news()) == types(noted.news()) == ["removed"]


def test_what_a_nested_pattern_looks_at_must_be_visible() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        oracle.do("LINK assigned(#t1, #ann)", "LINK assigned(#t2, #ann)")
        where = "NOT EXISTS(assigned(t, p) WHERE t.points > 1)"
        idle = oracle.follow("p: Person", "p.name AS name", where=where, ids="p", actor="bob")
        counted = oracle.follow("p: Person", "COUNT(t: Task, assigned(t, p)) AS n", ids="p", actor="bob")
        twice = oracle.follow(
            "p: Person",
            "p.name AS name",
            where="EXISTS(follows(p, q) WHERE NOT EXISTS(assigned(t, q)))",
            ids="p",
            actor="bob",
        )
        oracle.do("LINK follows(#bob, #ann)", "LINK cleared(#bob, #t2) AS e1")
        assert types(idle.news()) == ["removed"]
        assert counted.news()[-1]["match"] == {"n": 1}
        assert types(twice.news()) == ["added", "removed"]
        oracle.do("UNLINK #e1", "KILL #t2")
        assert types(idle.news()) == types(twice.news()) == ["added"]


def test_what_an_actor_counts_is_no_key_for_others() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        oracle.do("LINK cleared(#ann, #t1)")
        one = oracle.follow("p: Person", "p.level AS n", where="COUNT(t: Task) = 1", ids="p", actor="ann")
        none = oracle.follow("p: Person", "p.level AS n", where="COUNT(t: Task) < 1", ids="p", actor="bob")
        oracle.do("SET #bob.level = 3")
        assert types(one.news()) == types(none.news()) == ["changed"]


def test_what_a_reference_leads_to_must_be_visible() -> None:
    people = "policy some: ON MATCH(x: Person) ALLOW IF x = current_actor() OR follows(current_actor(), x)"
    with team(people, ALL_TASKS) as oracle:
        oracle.do("SET #t1.owner = #bob")
        owned = oracle.follow("t: Task", "t.owner.name AS name", ids="t", actor="ann")
        nobody = oracle.follow("t: Task", "t.title AS t", where="t.owner.name = null", ids="t", actor="ann")
        oracle.do("LINK follows(#ann, #bob) AS e1", 'SET #bob.name = "robert"')
        assert [event["match"]["name"] for event in owned.news()] == ["bob", "robert"]
        assert types(nobody.news()) == ["removed"]
        oracle.do("UNLINK #e1")
        assert types(nobody.news()) == ["added"]


def test_a_path_needs_all_that_it_passes() -> None:
    people = "policy some: ON MATCH(x: Person) ALLOW IF x.level < 5"
    with team(people, ALL_TASKS) as oracle:
        oracle.do("SPAWN cid: Person { level = 3 }", "LINK follows(#ann, #bob)", "LINK follows(#bob, #cid)")
        reached = oracle.follow("follows+(#ann, x)", "x.level AS level", ids="x", actor="ann")
        oracle.do("SET #bob.level = 9")
        assert types(reached.news()) == ["removed", "removed"]
        oracle.do("SET #bob.level = 4")
        assert types(reached.news()) == ["added", "added"]


def test_the_end_of_a_path_that_no_variable_stands_for() -> None:
    """Where the edge is shown its end need not be, whichever way the path is followed."""
    shown = "policy shown: ON MATCH(e: follows) ALLOW IF true"
    with team("policy self: ON MATCH(x: Person) ALLOW IF x = current_actor()", ALL_TASKS, shown) as oracle:
        oracle.do("LINK follows(#ann, #bob) AS e1", "SPAWN cid: Person", "LINK follows(#bob, #cid)")
        cid = oracle.id_of("cid")
        counts: dict[str, Any] = {"kind": "groups", "actor": "ann"}
        patterns = ("follows+(x, $p0)", "x: Person, follows+(x, $p0)", "follows*(x, $p0)", "follows+(_, $p0)")
        followed = [oracle.follow(text, "COUNT(*) AS n", values=(cid,), **counts) for text in patterns]
        anyone = oracle.follow("follows+(_, _)", "COUNT(*) AS n", **counts)
        assert [follower.expected() for follower in followed] == [[{"n": n}] for n in (1, 1, 1, 2)]
        assert anyone.expected() == [{"n": 3}]
        oracle.do("UNLINK #e1")
        assert [follower.expected() for follower in followed] == [[{"n": n}] for n in (0, 0, 0, 1)]


def test_symmetric_edges_of_which_one_order_is_hidden() -> None:
    people = "policy some: ON MATCH(x: Person).level DENY IF x.level > 5"
    with team(PEOPLE, people) as oracle:
        oracle.do("LINK friends(#ann, #bob)")
        oracle.follow("friends(a, b)", "a.name AS a", where="a.level < b.level", ids="a b", actor="ann")
        counted = oracle.follow(
            "friends(a, b)", "COUNT(*) AS n", where="a.level > 1", kind="groups", actor="bob"
        )
        oracle.do("SET #bob.level = 9", "SET #ann.level = 4", "SET #bob.level = 2")
        assert [event["match"]["n"] for event in counted.news()] == [0, 1]


def test_a_gate_opens_for_everyone() -> None:
    gate = "policy gate: ON MATCH(x: Task) ALLOW IF EXISTS(g: Person WHERE g.level = 7)"
    with team(PEOPLE, gate) as oracle:
        oracle.do("SET #ann.level = 7")
        seen = oracle.follow("t: Task", "t.title AS title", ids="t", actor="bob")
        oracle.do("SET #ann.level = 6", "SET #bob.level = 7")
        assert types(seen.news()) == ["removed", "removed", "added", "added"]


def test_a_type_that_nobody_shows_cannot_be_watched() -> None:
    with team(PEOPLE) as oracle, pytest.raises(WatchError, match="E8001"):
        oracle.follow("t: Task", "t.title AS title", ids="t", actor="ann")


# A schema that grows


def test_policies_that_arrive_later() -> None:
    with Oracle(TEAM.replace("policy watching: ON META SPAWN(_Watch) ALLOW IF true\n", "")) as oracle:
        oracle.do('SPAWN ann: Person { name = "ann" }', 'SPAWN t1: Task { title = "one", points = 1 }')
        follow: dict[str, Any] = {
            "rows": oracle.follow("t: Task", "t.title AS title", ids="t", actor="ann"),
            "count": oracle.follow("t: Task", "COUNT(*) AS n", kind="groups", actor="ann"),
            "distinct": oracle.follow("t: Task", "t.title AS title", kind="distinct", actor="ann"),
            "system": oracle.follow("t: Task", "t.title AS title", ids="t"),
        }
        oracle.db.define("\n".join((PEOPLE, CLEARED)))
        oracle.check("define")
        assert types(follow["rows"].news()) == types(follow["distinct"].news()) == ["removed"]
        assert follow["count"].news()[-1]["match"] == {"n": 0}
        oracle.do("LINK cleared(#ann, #t1)", 'SPAWN t2: Task { title = "two" }')
        assert types(follow["rows"].news()) == types(follow["distinct"].news()) == ["added"]
        oracle.db.define(ALL_TASKS)
        oracle.check("define")
        assert follow["count"].news()[-1]["match"] == {"n": 2}
        assert types(follow["system"].news()) == ["added"]


def test_a_policy_that_arrives_later_speaks_of_the_actor_and_the_filter_changes() -> None:
    """What policies mention is no constant of the watch: constants stay what they were."""
    with team(PEOPLE, ALL_TASKS) as oracle:
        oracle.do("LINK cleared(#ann, #t1)")
        more: dict[str, Any] = {"actor": "ann", "other": "NOT follows(#bob, current_actor())"}
        rows = oracle.follow("t: Task, p: Person", "t.title AS t, p.name AS p", ids="t p", **more)
        counted = oracle.follow("t: Task", "COUNT(*) AS n", kind="groups", where="t != #t1", **more)
        oracle.db.define("policy mine: ON MATCH(x: Task) DENY IF NOT EXISTS(cleared(current_actor(), x))")
        oracle.check("define")
        assert types(rows.news()) == ["removed", "removed"]
        assert counted.news()[-1]["match"] == {"n": 0}
        for follower in (rows, counted):
            follower.alter()
        oracle.check("alter")
        oracle.do("LINK cleared(#ann, #t2)", "LINK follows(#bob, #ann)")
        assert types(rows.news()) == ["added"] * 2 + ["removed"] * 4
        assert [event["match"]["n"] for event in counted.news()] == [1, 0]


@pytest.mark.parametrize("actor", [None, "ann"])
def test_attributes_and_types_that_arrive_later(actor: str | None) -> None:
    with team(PEOPLE, ALL_TASKS) as oracle:
        rows = oracle.follow("t: Task", "t AS t", ids="t", actor=actor)
        distinct = oracle.follow("t: Task", "t AS t", kind="distinct", actor=actor)
        grouped = oracle.follow("t: Task", "t AS k0, COUNT(*) AS n", kind="groups", keys=1, actor=actor)
        counted = oracle.follow("t: Task", "COUNT(*) AS n", kind="groups", actor=actor)
        task = "node Task { title: String?, points: Int?, owner: Person?"
        for grown in ("node Chore : Task { room: String? }", f"{task}, room: String? }}"):
            oracle.db.define(grown)
            oracle.check("define")
        assert rows.news() == distinct.news() == grouped.news() == counted.news() == []
        oracle.db.define(f"{task}, room: String?, size: Int = 3 }}")
        oracle.check("define")
        assert types(rows.news()) == types(grouped.news()) == ["changed", "changed"]
        assert sorted(types(distinct.news())) == ["added", "added", "removed", "removed"]
        oracle.do('SPAWN t3: Chore { title = "sweep" }', "SET #t1.size = 4", "KILL #t2")
        assert types(rows.news()) == ["added", "changed", "removed"]
        assert counted.news()[-1]["match"] == {"n": 2}


def test_a_shape_that_nobody_uses_is_guarded_all_the_same() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        first = oracle.follow("t: Task", "t.title AS title", ids="t", actor="ann")
        first.handle.cancel()
        oracle.followers.clear()
        oracle.db.define("node Chore : Task { room: String? }")
        second = oracle.follow("t: Task", "t.title AS title", ids="t", actor="ann")
        assert second.expected() == []


def test_a_condition_that_cannot_be_evaluated_hurts_nobody_else() -> None:
    with team(PEOPLE, ALL_TASKS) as oracle:
        risky = oracle.session(None).watch("WATCH t: Task WHERE 10 / t.points > 2 RETURN t.title AS title")
        fine = oracle.follow("t: Task", "t.points AS points", ids="t")
        oracle.do("SET #t1.points = 0")
        assert types(fine.news()) == ["changed"]
        assert risky.status == "cancelled"
        assert all(isinstance(error, VedetteError) for error in risky.errors())
