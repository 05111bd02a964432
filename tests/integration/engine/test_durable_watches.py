"""Durable watches across crashes, definitions, log trimming and full buffers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import vedette
from vedette.engine.data_directory import Vedette
from vedette.errors import WatchError
from vedette.testing import ManualClock

ONTOLOGY = """
node Person { name: String? }
node Task { title: String?, points: Int?, due: Timestamp? }
node Note { text: String? }
edge about(note: Note, task: Task)
edge cleared(person: Person, task: Task)
"""
MAY_WATCH = "policy watching: ON META SPAWN(_Watch) ALLOW IF true"
ALL = "policy all: ON * ALLOW IF true"


class Lives:
    """A directory and the processes that open it one after the other. `die` simulates a crash."""

    def __init__(self, place: Path, clock: ManualClock, **settings: Any) -> None:
        self._places = (place / f"life{number}" for number in count())
        self._clock, self._settings = clock, settings
        self._place = next(self._places)
        self._open: list[Vedette] = []
        self.db = self._live()

    def _live(self) -> Vedette:
        db = vedette.open(str(self._place), clock=self._clock, environment={}, **self._settings)
        self._open.append(db)
        return db

    def die(self) -> Vedette:
        """Only durable data is left: the next process opens a copy of it."""
        gate = self.db.database("default").log_writer
        gate.wait_durable(gate.submitted_sequence)
        former, self._place = self._place, next(self._places)
        shutil.copytree(former, self._place)
        self.db = self._live()
        return self.db

    def close(self) -> None:
        for db in self._open:
            db.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lives(tmp_path: Path, clock: ManualClock) -> Iterator[Lives]:
    made = Lives(tmp_path, clock, log_retention_seconds=3600.0)
    made.db.define(ONTOLOGY)
    yield made
    made.close()


def received(events: list[Any]) -> list[tuple[str, Any]]:
    return [(event.type, list((event.match or {}).values())) for event in events]


def notes(db: Vedette) -> list[str]:
    return sorted(row[0] for row in db.session().execute("MATCH n: Note RETURN n.text").rows)


def without_actions(db: Vedette) -> None:
    """Simulate a crash between each commit and its trigger actions."""
    db.database("default").watching.triggers.run_pending = lambda lock_scope: None  # type: ignore[method-assign]


# Triggers

NOTE = "ON MATCH DO SPAWN n: Note { text = t.title }"


@pytest.mark.parametrize("condition", ["t.points > 3", "t.due < now()"], ids=["plain", "time-dependent"])
def test_crash_between_commit_and_action(lives: Lives, clock: ManualClock, condition: str) -> None:
    session = lives.db.session()
    session.execute(f"WATCH t: Task WHERE {condition} {NOTE}")
    past = clock.now()
    clock.advance(10)
    session.execute('SPAWN a: Task { title = "one", points = 4, due = $past }', past=past)
    assert notes(lives.db) == ["one"]
    without_actions(lives.db)
    session.execute('SPAWN a: Task { title = "two", points = 4, due = $past }', past=past)
    session.execute('SPAWN a: Task { title = "three", points = 4, due = $past }', past=past)
    assert notes(lives.db) == ["one"]
    assert notes(lives.die()) == ["one", "three", "two"]
    assert notes(lives.die()) == ["one", "three", "two"]


def test_crash_before_the_first_action_of_a_time_dependent_watch(lives: Lives, clock: ManualClock) -> None:
    session = lives.db.session()
    session.execute('SPAWN a: Task { title = "later", due = $due }', due=clock.now())
    session.execute('SET #a.title = "late"')
    without_actions(lives.db)
    session.execute(f"WATCH t: Task WHERE t.due < now() AND t.points = 1 {NOTE}")
    clock.advance(5)
    session.execute("SET #a.points = 1")
    clock.advance(5)
    session.execute('SPAWN other: Task { title = "other" }')
    assert notes(lives.die()) == ["late"]


def test_actions_due_while_stopped_run_at_the_next_commit(lives: Lives, clock: ManualClock) -> None:
    session = lives.db.session()
    session.execute(f"WATCH t: Task WHERE t.due < now() {NOTE}")
    clock.advance(1)
    session.execute('SPAWN a: Task { title = "soon", due = $due }', due=clock.now())
    db = lives.die()
    clock.advance(60)
    assert notes(db) == []
    db.session().execute('SPAWN b: Person { name = "anyone" }')
    assert notes(db) == ["soon"]
    assert notes(lives.die()) == ["soon"]


def test_clock_tick_runs_actions(tmp_path: Path, clock: ManualClock) -> None:
    lives = Lives(tmp_path, clock, tick_interval_seconds=1.0)
    lives.db.define(ONTOLOGY)
    session = lives.db.session()
    session.execute(f"WATCH t: Task WHERE t.due < now() {NOTE}")
    clock.advance(0.5)
    session.execute('SPAWN a: Task { title = "due", due = $due }', due=clock.now())
    assert lives.db.database("default").state.graph.types.get("Note") in (None, {})
    clock.advance(2)
    assert len(lives.db.database("default").state.graph.types["Note"]) == 1
    assert notes(lives.die()) == ["due"]
    lives.close()


def test_actions_use_the_extended_ontology(lives: Lives) -> None:
    session = lives.db.session()
    session.execute(f"WATCH t: Task WHERE t.points > 3 {NOTE}")
    lives.db.define('node Note { text: String?, kind: String [required] = "trigger" }')
    session.execute('SPAWN a: Task { title = "one", points = 4 }')
    assert session.execute("MATCH n: Note RETURN n.text, n.kind").rows == [("one", "trigger")]


def test_actions_keep_their_bindings_after_filter_and_policy_changes(lives: Lives) -> None:
    admin = lives.db.session()
    admin.run('SPAWN ann: Person { name = "ann" }; SPAWN desk: Person; SPAWN other: Person')
    ann = lives.db.session(actor=admin.bindings["ann"])
    lives.db.define(f"{MAY_WATCH}\n{ALL}")
    ids = {"desk": admin.bindings["desk"], "other": admin.bindings["other"]}
    made = ann.watch(
        "WATCH t: Task WHERE t.points > 3 [filter: t.title != null] ON MATCH DO LINK cleared(#$desk, t)",
        desk=ids["desk"],
    )
    lives.db.define("policy more: ON MATCH(x: Task) DENY IF cleared(current_actor(), x)")
    ann.execute("ALTER WATCH #$w SET [filter: NOT cleared(current_actor(), t)]", w=made.id)
    ann.execute('SPAWN a: Task { title = "one", points = 4 }')
    assert admin.execute("MATCH cleared(p, t) RETURN p.id").rows == [(ids["desk"],)]
    again = lives.die().session()
    again.execute('SPAWN a: Task { title = "two", points = 4 }')
    assert again.execute("MATCH cleared(p, t) RETURN p.id").rows == [(ids["desk"],)] * 2


def test_reader_and_actions_have_separate_positions(lives: Lives) -> None:
    """Actions do not run again; unconfirmed events are redelivered."""
    session = lives.db.session()
    watch = session.watch(f"WATCH t: Task WHERE t.points > 3 [delivery: reliable] {NOTE} RETURN t.title")
    watch.poll()
    for title in ("one", "two", "three"):
        session.execute("SPAWN a: Task { title = $title, points = 4 }", title=title)
    assert received(watch.poll(limit=1)) == [("added", ["one"])]
    again = lives.die().session().attach(watch.id)
    assert received(again.poll()) == [("added", ["one"]), ("added", ["two"]), ("added", ["three"])]
    assert notes(lives.db) == ["one", "three", "two"]


def test_slow_reader_does_not_delay_actions(lives: Lives) -> None:
    session = lives.db.session()
    watch = session.watch(
        f"WATCH t: Task WHERE t.points > 3 [delivery: reliable, buffer: 2] {NOTE} RETURN t.title"
    )
    titles = [f"task {number}" for number in range(6)]
    for title in titles:
        session.execute("SPAWN a: Task { title = $title, points = 4 }", title=title)
    assert notes(lives.db) == titles
    events = [event for _ in range(9) for event in watch.poll()]
    assert received(events) == [("initial", []), *(("added", [title]) for title in titles)]
    assert [event.position for event in events] == [1, 2, 3, 4, 5, 6, 7]
    assert notes(lives.db) == titles


@pytest.mark.parametrize("more", ["", NOTE], ids=["reliable", "with actions"])
def test_time_dependent_match_while_the_buffer_is_full(lives: Lives, clock: ManualClock, more: str) -> None:
    session = lives.db.session()
    watch = session.watch(
        f"WATCH t: Task WHERE t.due < now() [delivery: reliable, buffer: 2] {more} RETURN t.title"
    )
    first, later = clock.now(), clock.now() + timedelta(seconds=60)
    clock.advance(1)
    for number in range(4):
        session.execute("SPAWN t: Task { title = $t, due = $due }", t=f"task {number}", due=first)
    session.execute('SPAWN t: Task { title = "later", due = $due }', due=later)
    clock.advance(100)
    session.execute('SPAWN t: Person { name = "anyone" }')
    rows: set[str] = set()
    for event in [event for _ in range(5) for event in watch.poll()]:
        if event.type == "initial":
            rows = {row["t.title"] for row in event.matches or ()}
        else:
            rows.add((event.match or {})["t.title"])
    assert rows == {"later", *(f"task {number}" for number in range(4))}
    assert notes(lives.db) == (sorted(rows) if more else [])


def test_since_with_time_dependent_matches(lives: Lives, clock: ManualClock) -> None:
    session = lives.db.session()
    session.execute('SPAWN t: Task { title = "due", due = $due }', due=clock.now() + timedelta(seconds=5))
    tick = lives.db.database("default").state.tick - 1
    clock.advance(10)
    session.execute('SPAWN p: Person { name = "anyone" }')
    late = session.watch(f"WATCH t: Task WHERE t.due < now() [initial: since({tick})] RETURN t.title")
    assert received(late.poll()) == [("added", ["due"])]


# Policies and definitions


def actor_of(db: Vedette) -> tuple[Any, Any]:
    admin = db.session()
    admin.run('SPAWN ann: Person { name = "ann" }; SPAWN one: Task { title = "one" }')
    return admin, db.session(actor=admin.bindings["ann"])


def test_policy_change_restarts_with_a_snapshot_after_a_crash(lives: Lives) -> None:
    lives.db.define(f"{MAY_WATCH}\npolicy cleared: ON MATCH(t: Task) ALLOW IF cleared(current_actor(), t)")
    admin, ann = actor_of(lives.db)
    watch = ann.watch("WATCH t: Task [delivery: reliable] RETURN t.title")
    assert watch.poll()[0].matches == ()
    lives.db.define("policy all_tasks: ON MATCH(t: Task) ALLOW IF true")
    assert received(watch.poll()) == [("added", ["one"])]
    db = lives.die()
    again = db.session(actor=admin.bindings["ann"]).attach(watch.id)
    (initial,) = again.poll()
    assert (initial.type, initial.matches, initial.dropped) == ("initial", ({"t.title": "one"},), 1)
    db.session().execute('SPAWN two: Task { title = "two" }')
    assert received(again.poll()) == [("added", ["two"])]


def test_past_views_of_an_actor_are_not_reconstructed(lives: Lives) -> None:
    admin, _ = actor_of(lives.db)
    tick = lives.db.database("default").state.tick - 1
    admin.execute('SPAWN two: Task { title = "two" }')
    lives.db.define(f"{MAY_WATCH}\npolicy all_tasks: ON MATCH(t: Task) ALLOW IF true")
    for db in (lives.db, lives.die()):
        actor = db.session(actor=admin.bindings["ann"])
        with pytest.raises(WatchError, match=r"E8009.*since.*policy"):
            actor.watch(f"WATCH t: Task [initial: since({tick})] RETURN t.title")
        system = db.session().watch(f"WATCH t: Task [initial: since({tick})] RETURN t.title")
        assert received(system.poll()) == [("added", ["two"])]


@pytest.mark.parametrize("what", ["attribute", "policy", "filter", "best effort"])
def test_full_buffer_and_a_policy_change(lives: Lives, what: str) -> None:
    lives.db.define(f"{MAY_WATCH}\npolicy all_tasks: ON MATCH(t: Task) ALLOW IF true")
    admin, ann = actor_of(lives.db)
    watch = ann.watch("WATCH t: Task [delivery: reliable, buffer: 2] RETURN t.title")
    for number in range(5):
        admin.execute("SPAWN t: Task { title = $title, points = 2 }", title=f"task {number}")
    match what:
        case "attribute":
            lives.db.define("node Task { title: String?, points: Int?, due: Timestamp?, room: String? }")
        case "policy":
            lives.db.define("policy small: ON MATCH(t: Task) DENY IF t.points < 2")
        case "filter":
            watch.alter('[filter: t.title != "nothing"]')
        case "best effort":
            watch.alter("[delivery: best_effort]")
    admin.execute('SPAWN t: Task { title = "last" }')
    rows: list[str] = []
    for event in [event for _ in range(9) for event in watch.poll()]:
        matched = event.matches if event.type == "initial" else (*({"t.title": t} for t in rows), event.match)
        assert event.type in ("initial", "added")
        rows = [row["t.title"] for row in matched]
    assert rows == ["one", *(f"task {number}" for number in range(5)), "last"]


def test_altered_filter_uses_the_actor_of_the_watch(lives: Lives) -> None:
    admin, ann = actor_of(lives.db)
    watch = ann.watch("WATCH t: Task RETURN t.title")
    watch.poll()
    admin.execute("ALTER WATCH #$w SET [filter: cleared(current_actor(), t)]", w=watch.id)
    admin.execute("LINK cleared(#ann, #one)")
    assert received(watch.poll()) == [("removed", ["one"]), ("added", ["one"])]


# The log


def chatter(db: Vedette, clock: ManualClock) -> None:
    """Let others write for hours, so that the log is trimmed."""
    session = db.session()
    for _ in range(3):
        session.execute('SPAWN p: Person { name = "someone" }')
        clock.advance(3700)
    session.close()


@pytest.mark.parametrize("more", ["", NOTE], ids=["reliable", "trigger"])
def test_quiet_watch_survives_log_trimming(lives: Lives, clock: ManualClock, more: str) -> None:
    session = lives.db.session()
    watch = session.watch(f"WATCH t: Task [delivery: reliable] {more} RETURN t.title")
    watch.poll()
    session.execute('SPAWN a: Task { title = "one" }')
    watch.poll()
    watch.poll()
    chatter(lives.db, clock)
    again = lives.die().session().attach(watch.id)
    lives.db.session().execute('SPAWN a: Task { title = "two" }')
    assert received(again.poll()) == [("added", ["two"])]
    assert again.errors() == []


def test_watch_behind_the_trimmed_log_ends(lives: Lives, clock: ManualClock) -> None:
    session = lives.db.session()
    watch = session.watch("WATCH t: Task [delivery: reliable] RETURN t.title")
    watch.poll()
    session.execute('SPAWN a: Task { title = "one" }')
    chatter(lives.db, clock)
    db = lives.die()
    with pytest.raises(WatchError, match="E8002"):
        db.session().attach(watch.id)
    other = db.session().watch("WATCH t: Task RETURN t.title")
    db.session().execute('SPAWN a: Task { title = "two" }')
    assert received(other.poll())[-1] == ("added", ["two"])


def test_overflow_of_since_does_not_affect_equal_watches(lives: Lives) -> None:
    session = lives.db.session()
    text = "WATCH t: Task [initial: since(0), buffer: $room, on_full: error] RETURN t.title"
    fine = session.watch(text, room=100)
    for number in range(5):
        session.execute("SPAWN t: Task { points = $n }", n=number)
    ended = session.watch(text, room=2)
    assert ended.status == "cancelled"
    assert [error.code for error in ended.errors()] == ["E8005"]
    session.execute('SPAWN t: Task { title = "heard" }')
    assert received(fine.poll())[-1] == ("added", ["heard"])


def test_unconfirmed_events_of_since_are_redelivered(lives: Lives) -> None:
    session = lives.db.session()
    session.run(
        'SPAWN a: Task { title = "one" }; SPAWN b: Task { title = "two" }; SPAWN c: Task { title = "three" }'
    )
    watch = session.watch("WATCH t: Task [initial: since(0), delivery: reliable] RETURN t.title")
    assert received(watch.poll()) == [("added", ["two"]), ("added", ["three"])]
    again = lives.die().session().attach(watch.id)
    lives.db.session().execute('SPAWN d: Task { title = "four" }')
    events = again.poll()
    assert received(events) == [("added", ["two"]), ("added", ["three"]), ("added", ["four"])]
    assert [event.position for event in events] == [1, 2, 3]


# Attaching


def test_only_durable_watches_can_be_attached(lives: Lives) -> None:
    owner, other = lives.db.session(), lives.db.session()
    passing = owner.watch("WATCH t: Task RETURN t.title")
    for session in (owner, other):
        with pytest.raises(WatchError, match="E8010"):
            session.attach(passing.id)
    owner.close()
    with pytest.raises(WatchError, match="E8002"):
        other.attach(passing.id)


# Names


def test_cancel_frees_the_name(lives: Lives) -> None:
    session = lives.db.session()
    first = session.watch("inbox = WATCH t: Task [delivery: reliable] RETURN t.title")
    first.cancel()
    second = session.watch("inbox = WATCH t: Task [delivery: reliable] RETURN t.title")
    assert lives.db.session().attach("inbox").id == second.id


def test_names_are_per_actor(lives: Lives) -> None:
    system = lives.db.session()
    actors = [system.execute("SPAWN a: Task RETURNING id").rows[0][0] for _ in range(2)]
    text = "inbox = WATCH t: Task [delivery: reliable] RETURN t.title"
    ids = [lives.db.session(actor=actor).watch(text).id for actor in actors]
    assert [lives.db.session(actor=actor).attach("inbox").id for actor in actors] == ids
    with pytest.raises(WatchError, match="E8002"):
        lives.db.session(actor=system.execute("SPAWN a: Task RETURNING id").rows[0][0]).attach("inbox")
    own = system.watch(text)
    assert system.attach("inbox").id == own.id


def test_trigger_ends_with_its_actor(lives: Lives) -> None:
    system = lives.db.session()
    actor = system.execute("SPAWN a: Person RETURNING id").rows[0][0]
    lives.db.session(actor=actor).execute(f"WATCH t: Task {NOTE}")
    system.execute(f"KILL #{actor}")
    assert system.execute("MATCH w: _Watch RETURN w.status").rows == [("cancelled",)]
    system.execute('SPAWN t: Task { title = "nobody acts" }')
    assert notes(lives.db) == []


# Altered watches


def test_buffered_events_survive_a_change_to_reliable(lives: Lives):
    session = lives.db.session()
    watch = session.watch("w = WATCH t: Task [initial: none] RETURN t.title")
    watch.pause()
    session.execute('SPAWN t: Task { title = "before" }')
    watch.alter("[delivery: reliable]")
    session.execute('SPAWN t: Task { title = "after" }')
    again = lives.die().session().attach("w")
    again.resume()
    (event,) = again.poll()
    assert event.type == "initial"
    assert [row["t.title"] for row in event.matches or ()] == ["before", "after"]
    assert (event.position, event.dropped) == (2, 1)


def test_trigger_keeps_positions_when_it_becomes_reliable(lives: Lives):
    session = lives.db.session()
    watch = session.watch(
        "w = WATCH t: Task [initial: none] ON MATCH DO SPAWN n: Note { text = t.title } RETURN t.title"
    )
    session.execute('SPAWN t: Task { title = "had" }')
    assert received(watch.poll()) == [("added", ["had"])]
    watch.alter("[delivery: reliable]")
    session.execute('SPAWN t: Task { title = "missed" }')
    db = lives.die()
    events = db.session().attach("w").poll()
    assert [(event.position, *received([event])) for event in events] == [(2, ("added", ["missed"]))]
    assert db.session().execute("MATCH n: Note RETURN COUNT(*)").rows == [(2,)]


@pytest.mark.parametrize("ended", [False, True])
def test_window_events_before_a_filter_change_survive_a_crash(lives: Lives, clock: ManualClock, ended: bool):
    session = lives.db.session()
    session.execute('SPAWN a: Task { title = "a", points = 1 }')
    watch = session.watch("w = WATCH t: Task [delivery: reliable, window: tumbling(10s)] RETURN t.title")
    watch.ack(*watch.poll())
    session.execute("KILL #a")
    watch.alter("[filter: t.points > 0]")
    session.execute('SPAWN b: Task { title = "b", points = 1 }')
    if ended:
        clock.advance(10)
        (event,) = watch.poll()
        assert [inner.type for inner in event.events or ()] == ["removed", "added"]
        watch.ack(event)
    again = lives.die().session().attach("w")
    clock.advance(10)
    events = again.poll()
    if ended:
        assert events == []  # it has received everything
    else:
        assert [[row["t.title"] for row in event.matches or ()] for event in events] == [["b"]]


@pytest.mark.parametrize("resumed", [False, True])
def test_matches_of_a_paused_trigger_survive_a_filter_change(lives: Lives, resumed: bool):
    session = lives.db.session()
    watch = session.watch("w = WATCH t: Task ON MATCH DO SPAWN n: Note { text = t.title }")
    watch.pause()
    session.execute('SPAWN t: Task { title = "waits", points = 1 }')
    watch.alter("[filter: t.points = 1]")
    if resumed:
        watch.resume()
    db = lives.die()
    again = db.session().attach("w")
    again.resume()
    acted = db.session().execute("MATCH n: Note RETURN n.text").rows
    errors = [(error.code, error.fields["dropped"]) for error in again.errors()]
    assert (acted, errors) == (([("waits",)], []) if resumed else ([], [("E8005", 1)]))
    assert lives.die().session().attach("w").errors() == []


def test_filter_change_runs_actions_while_the_reader_lags(lives: Lives):
    session = lives.db.session()
    session.execute('SPAWN t: Task { title = "old", points = 9 }')
    watch = session.watch(
        "WATCH t: Task [delivery: reliable, buffer: 1, initial: none, filter: t.points < 5]"
        " ON MATCH DO SPAWN n: Note { text = t.title } RETURN t.title"
    )
    session.execute('SPAWN t: Task { title = "one", points = 1 }')
    session.execute('SPAWN t: Task { title = "two", points = 2 }')
    watch.alter("[filter: t.points > 0]")
    assert sorted(session.execute("MATCH n: Note RETURN n.text").rows) == [("old",), ("one",), ("two",)]
    events = [*watch.poll(), *watch.poll()]
    assert [row["t.title"] for row in events[-1].matches or ()] == ["old", "one", "two"]
