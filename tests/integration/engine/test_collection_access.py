"""Policies about external collections: how the engine evaluates them, and when listeners are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import vedette
from vedette.engine.collection_access import (
    CollectionRulesListener,
    check_collection_access,
    collection_rules,
)
from vedette.engine.database import Database
from vedette.errors import AnalysisError, PolicyError, WatchError
from vedette.policy.collection_policies import MAX_LISTED_VALUES

ONTOLOGY = """
node User { name: String, admin: Bool = false, region: String?, age: Int = 0 }
node Member { who: User, team: String? }
edge knows(a: User, b: User)
policy watching: ON META SPAWN(_Watch) ALLOW IF true
policy users: ON MATCH(u: User) ALLOW IF u = current_actor()
"""


@pytest.fixture
def database() -> Iterator[Database]:
    with vedette.open(":memory:") as instance:
        instance.define(ONTOLOGY)
        yield instance.default


def spawn(database: Database, text: str, **params: Any) -> str:
    with database.session() as session:
        id: str = session.execute(text + " RETURNING id", params).rows[0][0]
        return id


def rules(database: Database, actor: str, condition: str, *, allow: bool = True) -> str:
    """Return what a policy with this condition decides for the actor."""
    database.define(
        f"policy subject: ON MATCH(o: shop::orders) {'ALLOW' if allow else 'DENY'} IF {condition}"
    )
    sights = collection_rules(database, actor, ["shop::orders"])
    assert sights is not None
    (rule,) = sights["shop::orders"]
    assert (rule.allow, rule.attribute) == (allow, None)
    return rule.condition


@pytest.mark.parametrize(
    ("condition", "received"),
    [
        ("o.owner = current_actor()", 'o.owner = "ANN"'),
        ("target() = current_actor().region", 'o = "north"'),
        ("o.n > 1 + 2 AND NOT o.locked", "o.n > 3 AND NOT o.locked"),
        ("EXISTS(me: User WHERE me = current_actor() AND me.admin)", "FALSE"),
        ("o.x IS NULL OR EXISTS(knows(current_actor(), _))", "o.x IS NULL OR FALSE"),
        (
            "EXISTS(m: Member WHERE m.who = current_actor() AND m.team = o.a.team)",
            'o.a.team IN ["red", NULL]',
        ),
        ("EXISTS(m: Member WHERE o.by = m.who AND m.team IS NULL)", 'o.by IN ["ANN"]'),
        (
            "EXISTS(m: Member WHERE m.team = o.team) AND o.n = 1",
            'o.team IN ["red", NULL, "blue"] AND o.n = 1',
        ),
        ("o.owner IN COLLECT(u: User WHERE u.admin)", "o.owner IN []"),
        ('operation() = "MATCH" AND target_type() = "shop::orders" AND o.n = 1', "TRUE AND o.n = 1"),
        ("o:User OR o.n = 1", "FALSE OR o.n = 1"),
        ("1 / current_actor().age > 0 AND o.n = 1", "FALSE"),
    ],
)
def test_conditions_without_document_are_evaluated_first(database: Database, condition: str, received: str):
    ann = spawn(database, 'SPAWN u: User { name = "Ann", region = "north" }')
    bob = spawn(database, 'SPAWN u: User { name = "Bob" }')
    for who, team in ((ann, "red"), (ann, None), (bob, "blue")):
        spawn(database, "SPAWN m: Member { who = $who, team = $team }", who=who, team=team)
    assert rules(database, ann, condition).replace(ann, "ANN") == received


def test_failing_deny_condition_hides(database: Database):
    ann = spawn(database, 'SPAWN u: User { name = "Ann" }')
    assert rules(database, ann, "1 / current_actor().age > 0", allow=False) == "TRUE"


@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS(m: Member WHERE m.team = o.team AND m.who = o.who)",
        "EXISTS(m: Member WHERE m.team < o.team)",
        "EXISTS(u: User, knows(u, o))",
        "EXISTS(a: User, b: User WHERE a.age + b.age = o.n)",
        "COUNT(m: Member WHERE m.team = o.team) > 1",
        "lower(o.name) = 'x'".replace("'", '"'),
        "o.until > now()",
    ],
)
def test_conditions_that_documents_cannot_decide_hide_everything(database: Database, condition: str):
    """The policy is accepted; a watch that needs it is refused."""
    ann = spawn(database, 'SPAWN u: User { name = "Ann" }')
    with pytest.raises(WatchError, match="E8001 WATCH_PATTERN_DENIED: Watch pattern denied"):
        rules(database, ann, condition)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("ON SPAWN(o: shop::orders) ALLOW IF true", "E2009"),
        ("ON LINK(_, o: shop::orders) ALLOW IF true", "E2009"),
        ("ON MATCH(o: shop::orders).id DENY IF true", "E2002"),
        ("ON MATCH(o: shop::orders) ALLOW IF p.x = 1", "E2004"),
        ("ON MATCH(o: shop::orders) ALLOW IF EXISTS(u: Nobody)", "E2001"),
        ("ON MATCH(o: shop::orders) ALLOW IF o.x = $given", "E2008"),
    ],
)
def test_define_rejects_invalid_collection_policies(database: Database, policy: str, code: str):
    with pytest.raises(AnalysisError, match=code):
        database.define(f"policy wrong: {policy}")


def test_policy_may_cover_nodes_and_collections(database: Database):
    """The policy applies to nodes and documents independently."""
    database.define('policy both: ON MATCH(x: User | shop::orders) ALLOW IF x.name = "Bob"')
    ann = spawn(database, 'SPAWN u: User { name = "Ann" }')
    with database.session(ann) as session:
        watch = session.watch("WATCH u: User RETURN u.name")
        spawn(database, 'SPAWN u: User { name = "Bob" }')
        spawn(database, 'SPAWN u: User { name = "Eve" }')
        initial, *events = watch.poll()
        assert initial.matches == ({"u.name": "Ann"},)
        assert [event.match for event in events] == [{"u.name": "Bob"}]
    assert collection_rules(database, ann, ["shop::returns"]) == {"shop::returns": ()}


def test_watch_permission(database: Database):
    ann = spawn(database, 'SPAWN u: User { name = "Ann" }')

    def check(*attributes: str) -> object:
        return check_collection_access(database, ann, ["shop::orders"], attributes, "a watch")

    with pytest.raises(WatchError, match="E8001"):
        check()
    database.define(
        "policy some: ON MATCH(o: shop::orders) ALLOW IF o.n = 1 "
        "policy score: ON MATCH(o: shop::orders).score DENY IF true "
        "policy note: ON MATCH(o: shop::orders).note ALLOW IF o.n = 2"
    )
    assert check("n", "note")
    with pytest.raises(WatchError, match="E8001"):
        check("score")
    database.define("policy none: ON META SPAWN(_Watch) DENY IF current_actor().admin")
    assert check()
    with database.session() as session:
        session.execute("MATCH u: User SET u.admin = true")
    with pytest.raises(WatchError, match="E8001"):
        check()
    with database.session() as session:
        session.execute("MATCH u: User KILL u")
    with pytest.raises(PolicyError, match="E7003"):
        check()


def test_listener_is_called_when_access_may_change(database: Database):
    ann = spawn(database, 'SPAWN u: User { name = "Ann" }')
    database.define(
        "policy teams: ON MATCH(o: shop::orders) ALLOW IF "
        "EXISTS(m: Member WHERE m.who = current_actor() AND m.team = o.team)"
    )
    rung: list[str] = []
    listener = CollectionRulesListener(database, lambda: rung.append("rung"))
    with database.session() as session:
        session.execute('MATCH u: User SET u.name = "Another"')
        assert not rung
        session.execute("SPAWN m: Member { who = $who }", who=ann)
        assert rung.pop() == "rung"
        database.define("node Other { n: Int }")
        assert rung.pop() == "rung"
        listener.actors.add(ann)
        session.execute("MATCH m: Member KILL m")
        rung.clear()
        session.execute("MATCH u: User KILL u")
        assert rung == ["rung"]
        listener.close()
        database.define("node Another { n: Int }")
        assert rung == ["rung"]


@pytest.mark.parametrize(("teams", "answered"), [(MAX_LISTED_VALUES, True), (MAX_LISTED_VALUES + 1, False)])
def test_comparison_with_too_many_values_is_refused(database: Database, teams: int, answered: bool) -> None:
    """Distinct values count: a team may have any number of members."""
    ann = spawn(database, 'SPAWN u: User { name = "Ann" }')
    with database.session() as session:
        session.execute("BEGIN")
        for number in range(2 * teams):
            session.execute("SPAWN m: Member { who = $who, team = $team }", who=ann, team=str(number % teams))
        session.execute("COMMIT")
    database.define(
        "policy subject: ON MATCH(o: shop::orders) ALLOW IF EXISTS(m: Member WHERE m.team = o.team)"
    )
    if answered:
        assert collection_rules(database, ann, ["shop::orders"]) is not None
    else:
        with pytest.raises(WatchError, match="E8001"):
            collection_rules(database, ann, ["shop::orders"])
