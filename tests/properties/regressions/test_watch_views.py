"""Watches of actors, written by hand: a change of visibility arrives as `added`, `removed` or `changed`."""

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


def types(new_events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in new_events]


def test_edge_to_the_actor_grants_and_revokes_visibility() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        seen = oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="ann")
        counted = oracle.start_watch("t: Task", "COUNT(*) AS n", kind="groups", actor="ann")
        other = oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="bob")
        oracle.do("LINK cleared(#ann, #t1) AS e1", "LINK cleared(#ann, #t2) AS e2")
        assert types(seen.new_events()) == ["added", "added"]
        assert counted.new_events()[-1]["match"] == {"n": 2}
        oracle.together('SET #t1.title = "uno"', "UNLINK #e1")
        assert seen.new_events() == [{"type": "removed", "match": {"title": "one"}}]
        assert other.new_events() == []


def test_hidden_attributes() -> None:
    hiding = "policy points: ON MATCH(x: Task).points DENY IF NOT EXISTS(cleared(current_actor(), x))"
    with team(PEOPLE, ALL_TASKS, hiding) as oracle:
        rows = oracle.start_watch("t: Task", "t.points AS points", ids="t", actor="ann")
        high = oracle.start_watch("t: Task", "t.title AS title", where="t.points > 1", ids="t", actor="ann")
        unknown = oracle.start_watch(
            "t: Task", "t.title AS title", where="t.points = null", ids="t", actor="ann"
        )
        oracle.do("LINK cleared(#ann, #t2) AS e1")
        assert rows.new_events() == [{"type": "changed", "match": {"points": 2}, "prev": {"points": None}}]
        assert (types(high.new_events()), types(unknown.new_events())) == (["added"], ["removed"])
        oracle.do("SET #t1.points = 9", "UNLINK #e1")
        assert types(rows.new_events()) == ["changed"]


def test_policy_on_supertype_or_subtype() -> None:
    secrets = (
        "policy secrets: ON MATCH(x: Secret) DENY IF NOT EXISTS(cleared(y, x) WHERE y = current_actor())"
    )
    with team(PEOPLE, ALL_TASKS, secrets) as oracle:
        seen = oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="ann")
        oracle.start_watch("t: Secret", "t.title AS title", ids="t", actor="ann")
        oracle.start_watch("t: any", "t._type AS type", ids="t", actor="ann")
        oracle.do("LINK cleared(#ann, #t2) AS e1", "LINK cleared(#bob, #t2)", "UNLINK #e1")
        assert types(seen.new_events()) == ["added", "removed"]


def test_policy_variables_do_not_clash_with_watch_variables() -> None:
    names = "policy named: ON MATCH(x: Task) ALLOW IF EXISTS(cleared(y, x), follows(y, z) WHERE z.level > 1)"
    with team(PEOPLE, names) as oracle:
        seen = oracle.start_watch("x: Person, y: Task, z: Person", "y.title AS y", ids="x y z", actor="ann")
        oracle.do("LINK cleared(#bob, #t1)", "LINK follows(#bob, #ann)", "SET #ann.level = 3")
        assert types(seen.new_events()) == ["added"] * 4


def test_policies_on_edges() -> None:
    hours = "policy hours: ON MATCH(e: assigned) DENY IF e.hours > 5"
    follows = "policy follows_too: ON MATCH(e: assigned) DENY IF EXISTS(follows(current_actor(), _))"
    with team(PEOPLE, ALL_TASKS, hours, follows) as oracle:
        oracle.do(
            "LINK assigned(#t1, #ann) AS e1 { hours = 9 }", "LINK assigned(#t1, #ann) AS e2 { hours = 1 }"
        )
        rows = oracle.start_watch("assigned(t, p)", "t.title AS title", ids="t p", actor="ann")
        counted = oracle.start_watch("assigned(t, p) AS e", "SUM(e.hours) AS sum", kind="groups", actor="ann")
        oracle.do("SET #e1.hours = 2")
        assert rows.new_events() == []
        assert counted.new_events()[-1]["match"] == {"sum": 3}
        oracle.do("SET #e2.hours = 7", "SET #e1.hours = 8")
        assert types(rows.new_events()) == ["removed"]
        oracle.do("SET #e1.hours = 0", "LINK follows(#ann, #bob)")
        assert types(rows.new_events()) == ["added", "removed"]


def test_visible_edge_to_hidden_element() -> None:
    shown = "policy shown: ON MATCH(e: assigned) ALLOW IF e.hours > 1"
    with team("policy self: ON MATCH(x: Person) ALLOW IF x = current_actor()", ALL_TASKS, shown) as oracle:
        oracle.do("LINK assigned(#t1, #bob) AS e1 { hours = 2 }", "LINK follows(#ann, #bob)")
        bob: dict[str, Any] = {"values": (oracle.id_of("bob"),), "ids": "t", "actor": "ann"}
        one = oracle.start_watch("assigned(t, $p0)", "t.title AS title", **bob)
        any_one = oracle.start_watch("assigned(t, _)", "t.title AS title", ids="t", actor="ann")
        counted = oracle.start_watch("assigned+(t, _)", "COUNT(*) AS n", kind="groups", actor="ann")
        oracle.do("SET #e1.hours = 1", "SET #e1.hours = 3")
        assert types(one.new_events()) == types(any_one.new_events()) == ["removed", "added"]
        assert [event["match"]["n"] for event in counted.new_events()] == [0, 1]


def test_wildcard_target_must_be_visible() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        oracle.do("LINK assigned(#t1, #ann)", "LINK note({ MATCH e: assigned RETURN e }, #bob)")
        busy = oracle.start_watch("assigned(_, p)", "p.name AS name", ids="p", actor="ann")
        tested = oracle.start_watch(
            "p: Person", "p.name AS name", where="assigned(_, p)", ids="p", actor="ann"
        )
        noted = oracle.start_watch("note(_, p)", "p.name AS name", ids="p", actor="ann")
        oracle.do("LINK cleared(#ann, #t1) AS e1")
        assert (
            types(busy.new_events()) == types(tested.new_events()) == types(noted.new_events()) == ["added"]
        )
        oracle.do("UNLINK #e1")
        assert (
            types(busy.new_events()) == types(tested.new_events()) == types(noted.new_events()) == ["removed"]
        )


def test_elements_of_nested_patterns_must_be_visible() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        oracle.do("LINK assigned(#t1, #ann)", "LINK assigned(#t2, #ann)")
        where = "NOT EXISTS(assigned(t, p) WHERE t.points > 1)"
        idle = oracle.start_watch("p: Person", "p.name AS name", where=where, ids="p", actor="bob")
        counted = oracle.start_watch("p: Person", "COUNT(t: Task, assigned(t, p)) AS n", ids="p", actor="bob")
        twice = oracle.start_watch(
            "p: Person",
            "p.name AS name",
            where="EXISTS(follows(p, q) WHERE NOT EXISTS(assigned(t, q)))",
            ids="p",
            actor="bob",
        )
        oracle.do("LINK follows(#bob, #ann)", "LINK cleared(#bob, #t2) AS e1")
        assert types(idle.new_events()) == ["removed"]
        assert counted.new_events()[-1]["match"] == {"n": 1}
        assert types(twice.new_events()) == ["added", "removed"]
        oracle.do("UNLINK #e1", "KILL #t2")
        assert types(idle.new_events()) == types(twice.new_events()) == ["added"]


def test_actor_dependent_count_is_not_a_shared_key() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        oracle.do("LINK cleared(#ann, #t1)")
        one = oracle.start_watch(
            "p: Person", "p.level AS n", where="COUNT(t: Task) = 1", ids="p", actor="ann"
        )
        none = oracle.start_watch(
            "p: Person", "p.level AS n", where="COUNT(t: Task) < 1", ids="p", actor="bob"
        )
        oracle.do("SET #bob.level = 3")
        assert types(one.new_events()) == types(none.new_events()) == ["changed"]


def test_referenced_element_must_be_visible() -> None:
    people = "policy some: ON MATCH(x: Person) ALLOW IF x = current_actor() OR follows(current_actor(), x)"
    with team(people, ALL_TASKS) as oracle:
        oracle.do("SET #t1.owner = #bob")
        owned = oracle.start_watch("t: Task", "t.owner.name AS name", ids="t", actor="ann")
        nobody = oracle.start_watch(
            "t: Task", "t.title AS t", where="t.owner.name = null", ids="t", actor="ann"
        )
        oracle.do("LINK follows(#ann, #bob) AS e1", 'SET #bob.name = "robert"')
        assert [event["match"]["name"] for event in owned.new_events()] == ["bob", "robert"]
        assert types(nobody.new_events()) == ["removed"]
        oracle.do("UNLINK #e1")
        assert types(nobody.new_events()) == ["added"]


def test_every_element_of_a_path_must_be_visible() -> None:
    people = "policy some: ON MATCH(x: Person) ALLOW IF x.level < 5"
    with team(people, ALL_TASKS) as oracle:
        oracle.do("SPAWN cid: Person { level = 3 }", "LINK follows(#ann, #bob)", "LINK follows(#bob, #cid)")
        reached = oracle.start_watch("follows+(#ann, x)", "x.level AS level", ids="x", actor="ann")
        oracle.do("SET #bob.level = 9")
        assert types(reached.new_events()) == ["removed", "removed"]
        oracle.do("SET #bob.level = 4")
        assert types(reached.new_events()) == ["added", "added"]


def test_unnamed_end_of_a_path() -> None:
    """The end of a visible edge may be hidden, in either direction of the path."""
    shown = "policy shown: ON MATCH(e: follows) ALLOW IF true"
    with team("policy self: ON MATCH(x: Person) ALLOW IF x = current_actor()", ALL_TASKS, shown) as oracle:
        oracle.do("LINK follows(#ann, #bob) AS e1", "SPAWN cid: Person", "LINK follows(#bob, #cid)")
        cid = oracle.id_of("cid")
        counts: dict[str, Any] = {"kind": "groups", "actor": "ann"}
        patterns = ("follows+(x, $p0)", "x: Person, follows+(x, $p0)", "follows*(x, $p0)", "follows+(_, $p0)")
        followed = [oracle.start_watch(text, "COUNT(*) AS n", values=(cid,), **counts) for text in patterns]
        anyone = oracle.start_watch("follows+(_, _)", "COUNT(*) AS n", **counts)
        assert [reader.expected() for reader in followed] == [[{"n": n}] for n in (1, 1, 1, 2)]
        assert anyone.expected() == [{"n": 3}]
        oracle.do("UNLINK #e1")
        assert [reader.expected() for reader in followed] == [[{"n": n}] for n in (0, 0, 0, 1)]


def test_symmetric_edge_with_one_hidden_order() -> None:
    people = "policy some: ON MATCH(x: Person).level DENY IF x.level > 5"
    with team(PEOPLE, people) as oracle:
        oracle.do("LINK friends(#ann, #bob)")
        oracle.start_watch("friends(a, b)", "a.name AS a", where="a.level < b.level", ids="a b", actor="ann")
        counted = oracle.start_watch(
            "friends(a, b)", "COUNT(*) AS n", where="a.level > 1", kind="groups", actor="bob"
        )
        oracle.do("SET #bob.level = 9", "SET #ann.level = 4", "SET #bob.level = 2")
        assert [event["match"]["n"] for event in counted.new_events()] == [0, 1]


def test_condition_independent_of_the_element_grants_whole_type() -> None:
    gate = "policy gate: ON MATCH(x: Task) ALLOW IF EXISTS(g: Person WHERE g.level = 7)"
    with team(PEOPLE, gate) as oracle:
        oracle.do("SET #ann.level = 7")
        seen = oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="bob")
        oracle.do("SET #ann.level = 6", "SET #bob.level = 7")
        assert types(seen.new_events()) == ["removed", "removed", "added", "added"]


def test_type_hidden_from_the_actor_cannot_be_watched() -> None:
    with team(PEOPLE) as oracle, pytest.raises(WatchError, match="E8001"):
        oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="ann")


# Schema changes


def test_policies_defined_after_the_watch() -> None:
    with Oracle(TEAM.replace("policy watching: ON META SPAWN(_Watch) ALLOW IF true\n", "")) as oracle:
        oracle.do('SPAWN ann: Person { name = "ann" }', 'SPAWN t1: Task { title = "one", points = 1 }')
        start_watch: dict[str, Any] = {
            "rows": oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="ann"),
            "count": oracle.start_watch("t: Task", "COUNT(*) AS n", kind="groups", actor="ann"),
            "distinct": oracle.start_watch("t: Task", "t.title AS title", kind="distinct", actor="ann"),
            "system": oracle.start_watch("t: Task", "t.title AS title", ids="t"),
        }
        oracle.db.define("\n".join((PEOPLE, CLEARED)))
        oracle.check("define")
        assert (
            types(start_watch["rows"].new_events())
            == types(start_watch["distinct"].new_events())
            == ["removed"]
        )
        assert start_watch["count"].new_events()[-1]["match"] == {"n": 0}
        oracle.do("LINK cleared(#ann, #t1)", 'SPAWN t2: Task { title = "two" }')
        assert (
            types(start_watch["rows"].new_events())
            == types(start_watch["distinct"].new_events())
            == ["added"]
        )
        oracle.db.define(ALL_TASKS)
        oracle.check("define")
        assert start_watch["count"].new_events()[-1]["match"] == {"n": 2}
        assert types(start_watch["system"].new_events()) == ["added"]


def test_filter_change_after_a_later_policy_about_the_actor() -> None:
    """Values in policies are not constants of the watch; the constants of the watch keep their numbers."""
    with team(PEOPLE, ALL_TASKS) as oracle:
        oracle.do("LINK cleared(#ann, #t1)")
        more: dict[str, Any] = {"actor": "ann", "other": "NOT follows(#bob, current_actor())"}
        rows = oracle.start_watch("t: Task, p: Person", "t.title AS t, p.name AS p", ids="t p", **more)
        counted = oracle.start_watch("t: Task", "COUNT(*) AS n", kind="groups", where="t != #t1", **more)
        oracle.db.define("policy mine: ON MATCH(x: Task) DENY IF NOT EXISTS(cleared(current_actor(), x))")
        oracle.check("define")
        assert types(rows.new_events()) == ["removed", "removed"]
        assert counted.new_events()[-1]["match"] == {"n": 0}
        for reader in (rows, counted):
            reader.alter()
        oracle.check("alter")
        oracle.do("LINK cleared(#ann, #t2)", "LINK follows(#bob, #ann)")
        assert types(rows.new_events()) == ["added"] * 2 + ["removed"] * 4
        assert [event["match"]["n"] for event in counted.new_events()] == [1, 0]


@pytest.mark.parametrize("actor", [None, "ann"])
def test_attributes_and_types_defined_after_the_watch(actor: str | None) -> None:
    with team(PEOPLE, ALL_TASKS) as oracle:
        rows = oracle.start_watch("t: Task", "t AS t", ids="t", actor=actor)
        distinct = oracle.start_watch("t: Task", "t AS t", kind="distinct", actor=actor)
        grouped = oracle.start_watch("t: Task", "t AS k0, COUNT(*) AS n", kind="groups", keys=1, actor=actor)
        counted = oracle.start_watch("t: Task", "COUNT(*) AS n", kind="groups", actor=actor)
        task = "node Task { title: String?, points: Int?, owner: Person?"
        for grown in ("node Chore : Task { room: String? }", f"{task}, room: String? }}"):
            oracle.db.define(grown)
            oracle.check("define")
        assert (
            rows.new_events() == distinct.new_events() == grouped.new_events() == counted.new_events() == []
        )
        oracle.db.define(f"{task}, room: String?, size: Int = 3 }}")
        oracle.check("define")
        assert types(rows.new_events()) == types(grouped.new_events()) == ["changed", "changed"]
        assert sorted(types(distinct.new_events())) == ["added", "added", "removed", "removed"]
        oracle.do('SPAWN t3: Chore { title = "sweep" }', "SET #t1.size = 4", "KILL #t2")
        assert types(rows.new_events()) == ["added", "changed", "removed"]
        assert counted.new_events()[-1]["match"] == {"n": 2}


def test_policy_applies_to_a_shape_without_watches() -> None:
    with team(PEOPLE, CLEARED) as oracle:
        first = oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="ann")
        first.handle.cancel()
        oracle.readers.clear()
        oracle.db.define("node Chore : Task { room: String? }")
        second = oracle.start_watch("t: Task", "t.title AS title", ids="t", actor="ann")
        assert second.expected() == []


def test_failing_condition_affects_no_other_watch() -> None:
    with team(PEOPLE, ALL_TASKS) as oracle:
        risky = oracle.session(None).watch("WATCH t: Task WHERE 10 / t.points > 2 RETURN t.title AS title")
        fine = oracle.start_watch("t: Task", "t.points AS points", ids="t")
        oracle.do("SET #t1.points = 0")
        assert types(fine.new_events()) == ["changed"]
        assert risky.status == "cancelled"
        assert all(isinstance(error, VedetteError) for error in risky.errors())
