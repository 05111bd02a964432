"""Watches that share a shape do not share constants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vedette


def test_equal_filters_keep_their_own_constants() -> None:
    """The filters have the same text but different constants. Found by the oracle."""
    with vedette.open(":memory:") as db:
        db.define("node T { n: Int, s: String }")
        session = db.session()
        session.run('SPAWN a: T { n = 1, s = "a" }; SPAWN b: T { n = 5, s = "z" }')
        long = session.watch('WATCH t: T WHERE NOT (t.n IN [8, 9]) [filter: t.s < "b"] RETURN t.n')
        short = session.watch('WATCH t: T WHERE NOT (t.n IN []) [filter: t.s < "b"] RETURN t.n')
        for watch in (long, short):
            (initial,) = watch.poll()
            assert initial.matches == ({"t.n": 1},)


ONTOLOGY = """
node Task { title: String, n: Int = 0 }
node Project { name: String }
edge of(task: Task, project: Project)
"""


def shapes(watches: list[vedette.WatchHandle]) -> int:
    return len({id(watch.watch.shape) for watch in watches})


def received(watch: vedette.WatchHandle) -> list[Any]:
    return [event.match["t.title"] for event in watch.poll() if event.match is not None]


@pytest.fixture
def session() -> Iterator[vedette.Session]:
    with vedette.open(":memory:", environment={}) as db, db.session() as session:
        db.define(ONTOLOGY)
        for name in ("a", "b", "c"):
            session.execute(f'SPAWN {name}: Project {{ name = "{name}" }}')
        yield session


def test_name_spelling_and_element_ids_do_not_change_the_shape(
    session: vedette.Session,
) -> None:
    watches = [
        session.watch(
            f"{name}_tasks = WATCH t: Task,{' ' * width}of(t, #{name})"
            f" [initial: none, filter: t.n < {width}] RETURN t.title"
        )
        for width, name in enumerate(("a", "b", "c"), 3)
    ]
    assert shapes(watches) == 1
    session.execute('SPAWN t: Task { title = "for b" }')
    session.execute("LINK of(#t, #b)")
    assert [received(watch) for watch in watches] == [[], ["for b"], []]
    ids = [session.bindings[name] for name in ("a", "b", "c")]
    patterns = session.execute("MATCH w: _Watch RETURN w.pattern").rows
    assert [pattern for (pattern,) in patterns] == [
        f"{name}_tasks = WATCH t: Task, of(t, #{id}) [initial: none, filter: t.n < {width}] RETURN t.title"
        for width, (name, id) in enumerate(zip("abc", ids, strict=True), 3)
    ]


def test_element_ids_in_options_and_actions_are_per_watch(session: vedette.Session) -> None:
    session.run('SPAWN x: Task { title = "x", n = 1 }; SPAWN y: Task { title = "y", n = 2 }')
    watches = [
        session.watch(
            f"WATCH t: Task [initial: none, filter: t.n > #{name}.n, ordering: attribute(t.n + #{name}.n)]"
            f" ON MATCH DO LINK of(t, #{project}) RETURN t.title"
        )
        for name, project in (("x", "a"), ("y", "b"))
    ]
    assert shapes(watches) == 1
    session.execute('SPAWN t: Task { title = "two", n = 2 }')
    session.execute('SPAWN t: Task { title = "three", n = 3 }')
    assert [received(watch) for watch in watches] == [["two", "three"], ["three"]]
    linked = session.execute("MATCH of(t, p) RETURN t.title, p.name ORDER BY p.name, t.title").rows
    assert linked == [("three", "a"), ("two", "a"), ("three", "b")]


def test_altered_filter_with_an_element_of_another_watch(session: vedette.Session) -> None:
    session.run('SPAWN x: Task { title = "x", n = 1 }; SPAWN y: Task { title = "y", n = 5 }')
    first, second = (
        session.watch(f"WATCH t: Task WHERE t.n > #{name}.n [initial: none] RETURN t.title") for name in "xy"
    )
    second.alter("[filter: t.n > #x.n + 6]")
    session.run('SPAWN t: Task { title = "six", n = 6 }; SPAWN t: Task { title = "nine", n = 9 }')
    assert received(first) == ["six", "nine"]
    assert received(second) == ["nine"]
    ((pattern,),) = session.execute("MATCH w: _Watch WHERE w.id = $id RETURN w.pattern", id=second.id).rows
    assert "[initial: none, filter: t.n > #x.n + 6]" in pattern


def test_returned_elements_keep_their_columns(session: vedette.Session) -> None:
    watches = [session.watch(f"WATCH t: Task, of(t, #{name}) RETURN t.title, #{name}.name") for name in "ab"]
    session.execute('SPAWN t: Task { title = "t" }')
    session.execute("LINK of(#t, #b)")
    assert [event.match for event in watches[1].poll()[1:]] == [{"t.title": "t", "name": "b"}]


def test_restored_watches_keep_their_constants(tmp_path: Path) -> None:
    with vedette.open(tmp_path, environment={}) as db, db.session() as session:
        db.define(ONTOLOGY)
        for name in ("a", "b"):
            session.execute(f'SPAWN {name}: Project {{ name = "{name}" }}')
            session.execute(
                f"of_{name} = WATCH t: Task, of(t, #{name}) [delivery: reliable, initial: none] RETURN t.title"
            )
        session.execute("ALTER WATCH #of_b SET [filter: #a.name != t.title]")
        ends = dict(session.bindings)
    with vedette.open(tmp_path, environment={}) as db, db.session() as session:
        for name in ("a", "b"):
            session.execute("SPAWN t: Task { title = $name }", name=name)
            session.execute("LINK of(#t, #$end)", end=ends["b"])
        watches = [session.attach(f"of_{name}") for name in ("a", "b")]
        assert [received(watch) for watch in watches] == [[], ["b"]]


def test_unused_shapes_are_removed(session: vedette.Session) -> None:
    kept = session.watch("kept = WATCH kept: Task [initial: none] RETURN kept.title")
    for number in range(2000):
        session.watch(f"WATCH t{number}: Task [buffer: {number + 1}] RETURN t{number}.title").cancel()
    watching = session.database.watching
    assert len(watching.compiled_watches) < 1000
    session.database.define("node Other { n: Int }")
    session.execute('SPAWN t: Task { title = "t" }')
    assert len(kept.poll()) == 1
    kept.alter('[filter: kept.title = "u"]')
    assert [event.type for event in kept.poll()] == ["removed"]


def test_watch_stored_with_literal_ids_is_restored(tmp_path: Path) -> None:
    """In that version an element that pattern and filter both name was one constant."""
    with vedette.open(tmp_path, environment={}) as db, db.session() as session:
        db.define(ONTOLOGY)
        session.execute('SPAWN b: Project { name = "b" }')
        watch = session.watch(
            "w = WATCH t: Task, of(t, #b) [delivery: reliable, initial: none] RETURN t.title"
        )
        watch.alter("[filter: #b.name != t.title]")
        durable, end = db.default.watching.durable_watches, session.bindings["b"]
        with db.default.lock:
            key, value = durable._facts(watch.watch, watch.watch.details.request)
            facts = json.loads(value)
            assert facts["constants"][-2:] == [end, end]
            del facts["constants"][-1]
            durable._note((key, json.dumps(facts)))
    with vedette.open(tmp_path, environment={}) as db, db.session() as session:
        for title in ("b", "c"):
            session.execute("SPAWN t: Task { title = $title }", title=title)
            session.execute("LINK of(#t, #$end)", end=end)
        assert received(session.attach("w")) == ["c"]
