"""Hostile or unusual use of watches and consumers."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vedette
from tests.support.databases import FULL, Disk, opened_on
from tests.support.paths import ROOT
from vedette.clock import SystemClock
from vedette.engine.session.watch_feed import WatchFeed
from vedette.testing import ManualClock

HUGE = "999999999d"
ONTOLOGY = """
node Task { title: String = "x", status: String = "todo", priority: Int = 0, score: Float? }
node Memo { text: String, readers: String = "all" }
node Note { text: String }
node Person { name: String? }
policy watching: ON META SPAWN(_Watch) ALLOW IF true
policy memos: ON MATCH(m: Memo) ALLOW IF m.readers = "all"
policy kills: ON KILL(m: Memo) ALLOW IF m.readers = "all"
policy notes: ON SPAWN(n: Note) ALLOW IF true
"""


@pytest.fixture
def db() -> Iterator[vedette.Vedette]:
    settings = vedette.Settings(block_timeout_seconds=0.05, retained_commits=100)
    with vedette.open(":memory:", clock=ManualClock(), settings=settings) as instance:
        instance.define(ONTOLOGY)
        yield instance


@pytest.fixture
def s(db: vedette.Vedette) -> vedette.Session:
    return db.session()


def person(s: vedette.Session) -> str:
    return str(s.execute("SPAWN p: Person {} RETURNING id").rows[0][0])


def code_of(statement: str, s: vedette.Session, **params: object) -> str:
    try:
        s.execute(statement, **params)
    except vedette.VedetteError as error:
        return error.code
    return "ok"


# Time


def test_timer_in_a_thousand_years_does_not_block_earlier_ones() -> None:
    clock, kept = SystemClock(), []
    late = clock.call_at(clock.monotonic() + 1e12, lambda: kept.append("late"))
    listener = clock.call_at(clock.monotonic() + 0.01, lambda: kept.append("soon"))
    while not kept:
        clock.call_at(clock.monotonic(), lambda: None)
    assert kept == ["soon"]
    late.cancel()
    listener.cancel()


@pytest.mark.parametrize(
    "options",
    [
        f"mode: consume, ack_timeout: {HUGE}",
        f"window: tumbling({HUGE})",
        f"window: sliding({HUGE}, 1s)",
        f"window: sliding(1s, {HUGE})",
    ],
)
def test_duration_beyond_the_calendar_is_refused(s: vedette.Session, options: str) -> None:
    assert code_of(f"WATCH t: Task [{options}] RETURN t.title", s) == "E8009"


@pytest.mark.parametrize("statement", ["EXTEND $i [by: {}]", "NACK $i [delay: {}]"], ids=["extend", "nack"])
@pytest.mark.parametrize("span", [HUGE, "-5s", "NULL"])
def test_leases_and_delays_are_validated(s: vedette.Session, statement: str, span: str) -> None:
    s.execute("SPAWN t: Task {}")
    event = s.watch("WATCH t: Task [mode: consume] RETURN t.title").poll()[-1]
    with pytest.raises(vedette.WatchError) as caught:
        s.execute(statement.format(span), i=event.delivery_id)
    assert caught.value.code == "E8009"
    assert f"got {span}" in str(caught.value)


# Rights


def test_withdrawn_delivery_is_not_repeated_after_reattach(db: vedette.Vedette, s: vedette.Session) -> None:
    s.execute("SPAWN t: Task {}")
    first = db.session()
    text = 'q = WATCH t: Task WHERE t.status = "todo" [mode: consume, delivery: reliable] RETURN t.title'
    first.watch(text).poll()
    first.close()
    s.execute('MATCH t: Task SET t.status = "cancelled"')
    assert s.attach("q").poll() == []


def test_hidden_delivery_is_not_repeated_after_reattach(db: vedette.Vedette, s: vedette.Session) -> None:
    ann = person(s)
    s.execute('SPAWN m: Memo { text = "lunch" }')
    one = db.session(actor=ann)
    one.watch("q = WATCH m: Memo [mode: consume, delivery: reliable] RETURN m.text").poll()
    one.close()
    s.execute('MATCH m: Memo SET m.readers = "board"')
    assert db.session(actor=ann).attach("q").poll() == []


def test_ack_does_not_reveal_hidden_elements(db: vedette.Vedette, s: vedette.Session) -> None:
    answers = []
    for change in ('MATCH m: Memo SET m.readers = "board"', "MATCH m: Memo KILL m"):
        s.execute('SPAWN m: Memo { text = "lunch" }')
        actor = db.session(actor=person(s))
        event = actor.watch("WATCH m: Memo [mode: consume] RETURN m.text").poll()[-1]
        s.execute(change)
        answers.append(code_of("ACK $i", actor, i=event.delivery_id))
        left = s.execute("MATCH m: Memo RETURN m").rows
        assert len(left) == (1 if "SET" in change else 0)
        actor.close()
    assert answers == ["ok", "ok"]


def test_watch_names_of_other_actors_are_not_revealed(db: vedette.Vedette, s: vedette.Session) -> None:
    s.watch("merger = WATCH t: Task [delivery: reliable] RETURN t.title")
    spy, codes = db.session(actor=person(s)), []
    for name in ("merger", "nothing"):
        with pytest.raises(vedette.WatchError) as caught:
            spy.attach(name)
        codes.append(caught.value.code)
    assert codes == ["E8002", "E8002"]


@pytest.mark.parametrize("delivery", ["best_effort", "reliable"])
def test_watch_ends_when_its_actor_is_deleted(db: vedette.Vedette, s: vedette.Session, delivery: str) -> None:
    ann = person(s)
    watch = db.session(actor=ann).watch(f"WATCH m: Memo [delivery: {delivery}, initial: none] RETURN m.text")
    s.execute(f"KILL #{ann}")
    s.execute('SPAWN m: Memo { text = "later" }')
    assert watch.poll() == []
    assert [error.code for error in watch.errors()] == ["E7003"]
    assert watch.status == "cancelled"


def test_trigger_of_a_deleted_actor_does_not_fire(db: vedette.Vedette, s: vedette.Session) -> None:
    ann = person(s)
    session = db.session(actor=ann)
    session.execute("WATCH m: Memo ON MATCH DO SPAWN n: Note { text = m.text }")
    session.close()
    s.execute(f"KILL #{ann}")
    s.execute('SPAWN m: Memo { text = "later" }')
    assert s.execute("MATCH n: Note RETURN n.text").rows == []


def test_blocking_watch_of_an_actor_is_limited(db: vedette.Vedette, s: vedette.Session) -> None:
    eve = db.session(actor=person(s))
    watch = eve.watch("WATCH m: Memo [buffer: 1, on_full: block, initial: none] RETURN m.text")
    s.execute('SPAWN m: Memo { text = "one" }')
    s.execute('SPAWN m: Memo { text = "two" }')
    assert watch.status == "cancelled"
    assert [error.code for error in watch.errors()] == ["E8005"]


# Memory


@pytest.mark.parametrize("how", ["idle", "paused", "full", "detached"])
def test_queued_element_that_changes_uses_constant_memory(how: str) -> None:
    """Runs in a separate process, because other threads of the test process allocate memory too."""
    program = f"from {__name__} import grown_bytes; print(grown_bytes({how!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=200
    )
    assert int(done.stdout) < 100_000


def grown_bytes(how: str) -> int:
    """Return the bytes that 1,200 changes of a queued element add after 1,200 earlier ones."""
    settings = vedette.Settings(block_timeout_seconds=0.05, retained_commits=100)
    with vedette.open(":memory:", clock=ManualClock(), settings=settings) as db:
        db.define(ONTOLOGY)
        s, reader = db.session(), db.session()
        s.execute("SPAWN a: Task {}")
        delivery = "reliable" if how == "detached" else "best_effort"
        watch = reader.watch(
            f"WATCH t: Task [mode: consume, buffer: 1, delivery: {delivery}] RETURN t.title, t.priority"
        )
        if how == "full":
            assert len(watch.poll()) == 2
            s.execute("SPAWN b: Task {}")
        if how == "paused":
            watch.pause()
        if how == "detached":
            reader.close()

        def churn(times: int) -> int:
            for number in range(times):
                s.execute("MATCH t: Task SET t.priority = $number", number=number)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        before = churn(1_200)
        return churn(1_200) - before


def test_ended_watches_are_removed(s: vedette.Session) -> None:
    for number in range(1_500):
        s.watch("WATCH t: Task WHERE t.priority = $number RETURN t.title", number=number).cancel()
    assert s.execute("MATCH w: _Watch RETURN COUNT(*)").rows == [(1_000,)]


# The store


def test_failed_store_delivers_nothing_and_shows_dead_letters(tmp_path: Path) -> None:
    disk = Disk()
    with opened_on(disk, str(tmp_path / "data")) as db:
        db.define("node Task { n: Int = 0 }")
        s = db.session()
        s.run("SPAWN t: Task { n = 1 }; SPAWN u: Task { n = 2 }")
        watch = s.watch("q = WATCH t: Task [mode: consume, max_redeliveries: 0] RETURN t.n")
        one, two = (event.delivery_id for event in watch.poll()[1:])
        s.execute("NACK $i [no_retry]", i=one)
        alarm = s.watch("WATCH l: _DeadLetter [initial: none] RETURN l.failure_reason")
        disk.breaks = FULL
        with pytest.raises(vedette.StoreError):
            s.execute("NACK $i [no_retry]", i=two)
        disk.breaks = None
        assert s.execute("MATCH t: Task RETURN t.n").rows == [(2,)]
        assert len(s.execute("MATCH l: _DeadLetter RETURN l.id").rows) == 1
        assert alarm.poll() == []
        assert watch.poll() == []


# Other cases


def test_nan_is_ordered(s: vedette.Session) -> None:
    watch = s.watch("WATCH t: Task [initial: none, ordering: attribute(t.score)] RETURN t.score AS score")
    for value in (1.0, math.nan, None, -1.0, math.inf):
        s.execute("SPAWN t: Task { score = $value }", value=value)
    received = [event.match["score"] for event in watch.poll() if event.match is not None]
    upwards = [-1.0, 1.0, math.inf, "NaN", None]
    for direction, numbers in (("ASC", upwards), ("DESC", upwards[::-1])):
        rows = [
            row[0] for row in s.execute(f"MATCH t: Task RETURN t.score ORDER BY t.score {direction}").rows
        ]
        assert [_named(value) for value in rows] == numbers
    assert [_named(value) for value in received] == upwards


def _named(value: float | None) -> float | str | None:
    return "NaN" if value is not None and math.isnan(value) else value


def test_trigger_chain_error_names_the_trigger(s: vedette.Session) -> None:
    watch = s.watch("WATCH t: Task ON MATCH DO SPAWN u: Task {}")
    s.execute("SPAWN t: Task {}")
    (error,) = watch.errors()
    assert error.fields["handle"] == watch.id
    assert "WHERE" in str(error)


@pytest.mark.parametrize(("on_full", "left"), [("drop", 2), ("error", 0)])
def test_reduced_buffer_drops_surplus_events(s: vedette.Session, on_full: str, left: int) -> None:
    watch = s.watch(f"WATCH t: Task [initial: none, on_full: {on_full}] RETURN t.title")
    for _ in range(10):
        s.execute("SPAWN t: Task {}")
    watch.alter("[buffer: 2]")
    events = watch.poll()
    assert len(events) == left
    assert not events or events[0].dropped == 8


def test_alter_with_unknown_option_lists_the_options(s: vedette.Session) -> None:
    watch = s.watch("WATCH t: Task RETURN t.title")
    with pytest.raises(vedette.WatchError, match="buffer, delivery, filter, on_full") as caught:
        watch.alter("[nosuch: 1]")
    assert caught.value.code == "E8009"


# Arguments and failures


@pytest.mark.parametrize("limit", [-1, 1.5, "all"])
@pytest.mark.parametrize("mode", ["watch", "consume"])
def test_poll_with_limit_zero_takes_no_event(s: vedette.Session, mode: str, limit: object) -> None:
    handle = s.watch(f"WATCH t: Task [mode: {mode}] RETURN t.title")
    s.execute("SPAWN t: Task {}")
    with pytest.raises((vedette.VedetteError, TypeError)):  # the compiled core refuses the type
        handle.poll(limit)  # type: ignore[arg-type]
    assert len(handle.poll()) == 2


def test_next_accepts_any_valid_timeout(s: vedette.Session) -> None:
    handle = s.watch("WATCH t: Task RETURN t.title")
    first = handle.next(timeout=math.inf)
    assert first is not None
    assert first.type == "initial"
    assert handle.next(timeout=-1) is None
    with pytest.raises(vedette.VedetteError, match="E8009"):
        handle.next(timeout=math.nan)


@pytest.mark.parametrize("span", [math.nan, math.inf, 1e18, -1, True, "5s"])
def test_invalid_extension_is_refused_and_keeps_the_delivery(s: vedette.Session, span: Any) -> None:
    s.execute("SPAWN t: Task {}")
    handle = s.watch("WATCH t: Task [mode: consume] RETURN t.title")
    event = handle.poll()[1]
    for use in (lambda: handle.nack(event, delay=span), lambda: handle.extend(event, by=span)):
        with pytest.raises(vedette.VedetteError, match="E8009"):
            use()
    handle.ack(event)


def test_nack_without_retry_rejects_a_value(s: vedette.Session) -> None:
    s.execute("SPAWN t: Task {}")
    handle = s.watch("WATCH t: Task [mode: consume] RETURN t.title")
    event = handle.poll()[1]
    assert code_of("NACK $id [no_retry: false]", s, id=event.delivery_id) == "E8009"
    with pytest.raises(vedette.VedetteError, match="E8009"):
        s.nack(str(event.delivery_id), cause=5)  # type: ignore[arg-type]
    handle.ack(event)
    assert s.execute("MATCH l: _DeadLetter RETURN COUNT(*)").rows == [(0,)]


@pytest.mark.parametrize(
    "options", ["initial: since(0)", "mode: consume, dead_letter: #box", "visibility: immediate"]
)
def test_failed_watch_creation_leaves_nothing_behind(
    db: vedette.Vedette, s: vedette.Session, options: str
) -> None:
    s.run("SPAWN t: Task { priority = 0 }; SPAWN t: Task { priority = 1 }")
    returns = "1 / t.priority AS x" if "consume" in options else "SUM(1 / t.priority) AS x"
    assert code_of(f"w = WATCH t: Task [{options}] RETURN {returns}", s) not in ("ok", "E8009")
    watching = db.default.watching
    assert s.execute("MATCH w: _Watch RETURN COUNT(*)").rows == [(0,)]
    assert "w" not in s.bindings
    assert not watching.by_session.get(s.id)
    assert not watching.consuming.dead_letter_destinations
    assert not watching.committed_index.shapes


# Readers that block writers


def held_up(s: vedette.Session) -> bool:
    return code_of("SPAWN t: Task {}", s) == "E8005"


def filled(s: vedette.Session, reader: vedette.Session, more: str) -> vedette.WatchHandle:
    handle = reader.watch(
        f"w = WATCH t: Task [on_full: block, buffer: 2, initial: none{more}] RETURN t.title"
    )
    assert not held_up(s)
    assert not held_up(s)
    assert held_up(s)
    return handle


def test_detached_reader_blocks_no_writer(db: vedette.Vedette, s: vedette.Session) -> None:
    reader = db.session()
    filled(s, reader, ", delivery: reliable")
    reader.close()
    assert not held_up(s)
    assert not held_up(s)
    again = db.session().attach("w")
    assert len([*again.poll(), *again.poll()]) == 4


def test_detached_reader_blocks_no_writer_after_a_restart(tmp_path: Path) -> None:
    settings = vedette.Settings(block_timeout_seconds=0.05)
    with vedette.open(tmp_path, settings=settings, environment={}) as db:
        db.define(ONTOLOGY)
        filled(db.session(), db.session(), ", delivery: reliable")
    with vedette.open(tmp_path, settings=settings, environment={}) as db:
        assert not held_up(db.session())
        again = db.session().attach("w")
        assert len([*again.poll(), *again.poll()]) == 3


def test_unread_trigger_drops_its_events(db: vedette.Vedette, s: vedette.Session) -> None:
    reader = db.session()
    text = 'ON MATCH DO SPAWN n: Note { text = "n" } RETURN t.title'
    reader.execute(f"w = WATCH t: Task [on_full: block, buffer: 2, initial: none] {text}")
    reader.close()
    for _ in range(9):
        assert not held_up(s)
    again = db.session().attach("w")
    assert [(event.position, event.dropped) for event in again.poll()] == [(8, 7), (9, 0)]
    assert s.execute("MATCH n: Note RETURN COUNT(*)").rows == [(9,)]


@pytest.mark.parametrize("options", ["[buffer: 3]", "[on_full: drop]"])
def test_larger_or_dropping_buffer_releases_writers(
    db: vedette.Vedette, s: vedette.Session, options: str
) -> None:
    handle = filled(s, db.session(), "")
    handle.alter(options)
    assert not held_up(s)


def test_reading_server_releases_writers(db: vedette.Vedette, s: vedette.Session) -> None:
    reader = db.session()
    handle = filled(s, reader, ", delivery: reliable")
    assert len(WatchFeed(reader, handle).take()) == 2
    assert not held_up(s)
