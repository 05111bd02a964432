"""Several threads may wait on one handle: each event goes to one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import vedette
from tests.support.databases import in_thread
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.session.watch_handle import WatchHandle

READERS, CHANGES = 4, 200


@pytest.fixture
def db() -> Iterator[Vedette]:
    with vedette.open(":memory:", environment={}) as db:
        db.define("node Job { n: Int }")
        yield db


def taken(handle: WatchHandle, enough: int) -> list[int]:
    """Return what one reader receives until the watch ends. The reader of the last event ends it for all."""
    mine = []
    while (event := handle.next(timeout=TIMEOUT_SECONDS)) is not None:
        if event.match is not None:
            mine.append(event.match["j.n"])
        if event.position == enough:
            handle.cancel()
    return mine


@pytest.mark.parametrize("at_once", [1, 50])
def test_event_goes_to_one_reader_and_the_end_to_all(db: Vedette, at_once: int):
    with db.session() as reading, db.session() as writing:
        handle = reading.watch("WATCH j: Job [initial: none] RETURN j.n")
        readers = [in_thread(lambda: taken(handle, CHANGES)) for _ in range(READERS)]
        for start in range(0, CHANGES, at_once):
            writing.execute("BEGIN")
            for n in range(start, start + at_once):
                writing.execute("SPAWN j: Job { n = $n }", n=n)
            writing.execute("COMMIT")
        got = [n for reader in readers for n in reader.result(TIMEOUT_SECONDS)]
    assert sorted(got) == list(range(CHANGES))


def test_each_waiting_reader_gets_a_job(db: Vedette):
    with db.session() as reading, db.session() as writing:
        handle = reading.watch("WATCH j: Job [mode: consume, buffer: 10] RETURN j.n")
        assert handle.next(timeout=TIMEOUT_SECONDS) is not None, "the empty initial"
        readers = [in_thread(lambda: handle.next(timeout=TIMEOUT_SECONDS)) for _ in range(READERS)]
        writing.execute("BEGIN")
        for n in range(READERS):
            writing.execute("SPAWN j: Job { n = $n }", n=n)
        writing.execute("COMMIT")
        events = [reader.result(TIMEOUT_SECONDS) for reader in readers]
    assert sorted(event.match["j.n"] for event in events if event is not None and event.match) == list(
        range(READERS)
    )
