"""deliver_on: tick for consumers: work is delivered after the tick of its commit."""

from __future__ import annotations

import pytest

import vedette

TEXT = "WATCH j: Job [mode: consume, deliver_on: tick, initial: none] RETURN j.n"


def taken(handle: vedette.WatchHandle) -> list[int]:
    return [event.match["j.n"] for event in handle.poll() if event.match is not None]


def test_automatic_ticks_deliver_at_once() -> None:
    with vedette.open(":memory:") as db, db.session() as session:
        db.define("node Job { n: Int }")
        handle = session.watch(TEXT)
        session.execute("SPAWN j: Job { n = 1 }")
        assert taken(handle) == [1]


def test_work_waits_for_a_manual_tick() -> None:
    with vedette.open(":memory:", settings=vedette.Settings(tick="manual")) as db, db.session() as session:
        db.define("node Job { n: Int }")
        handle = session.watch(TEXT)
        session.execute("SPAWN j: Job { n = 1 }")
        assert taken(handle) == []
        session.execute("TICK")
        assert taken(handle) == [1]


@pytest.mark.parametrize("more", ["", ", ordering: attribute(j.n DESC)", ", serialize_by: j.n"])
def test_define_does_not_require_another_tick(more: str) -> None:
    with vedette.open(":memory:", settings=vedette.Settings(tick="manual")) as db, db.session() as session:
        db.define("node Job { n: Int }")
        handle = session.watch(TEXT.replace("]", f"{more}]"))
        session.execute("SPAWN j: Job { n = 1 }")
        session.execute("TICK")
        db.define("node Other {}")
        (held,) = (event for event in handle.poll() if event.match is not None)
        db.define("node Third {}")
        handle.nack(held)
        assert taken(handle) == [1]


def test_dead_letter_of_a_lost_consumer_runs_triggers() -> None:
    with vedette.open(":memory:") as db, db.session() as session:
        db.define("node Job { n: Int } node Alarm { rung: Bool = false }")
        session.run("SPAWN j: Job { n = 1 }; SPAWN a: Alarm {}")
        session.execute("WATCH a: Alarm WHERE NOT EXISTS(j: Job) ON MATCH DO SET a.rung = true")
        worker = db.session()
        handle = worker.watch("WATCH j: Job [mode: consume, max_redeliveries: 0] RETURN j.n")
        assert taken(handle) == [1]
        worker.close(lost=True)
        assert session.execute("MATCH a: Alarm RETURN a.rung").rows == [(True,)]
