"""The loop that keeps a reader going, when what it reads breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event as Flag

import pytest

from vedette.clock import SystemClock
from vedette.errors import SourceError, VedetteError
from vedette.sources import reader_supervisor as keeping
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.reader import MAX_APPEND_BYTES, chunks
from vedette.sources.reader_loop import run_reader
from vedette.sources.reader_supervisor import ReaderSupervisor
from vedette.sources.records import FIRST_SCAN, Source
from vedette.sources.source_options import validate_source

SOURCE = Source(name="x", kind="mongodb", address="")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[CollectionJournal]:
    journal = open_journal(tmp_path)
    journal.add_source(SOURCE)
    journal.append("x", [], "somewhere")
    yield journal
    journal.close()


class Care:
    def __init__(self) -> None:
        self.failures: list[str] = []

    def seconds_until_allowed(self) -> float:
        return 0.0

    def record_success(self) -> None: ...

    def record_failure(self, error: VedetteError) -> float:
        self.failures.append(error.code)
        return 0.0

    def unregister(self) -> None: ...


class Steps:
    """Does what it is told, one thing a call, and stops at the end."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps, self.stop = list(steps), Flag()

    def _step(self) -> None:
        step = self.steps.pop(0)
        if not self.steps:
            self.stop.set()
        step()

    def start(self, *, scan: bool) -> None:
        self._step()

    def poll(self, seconds: float) -> tuple[int, int]:
        self._step()
        return 0, 0

    def release_server_resources(self) -> None: ...

    def close(self) -> None: ...


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_a_gap_that_cannot_be_bridged_now_is_tried_again(journal: CollectionJournal):
    lost, down = failing(SourceError("E6105", "lost")), failing(SourceError("E6104", "down"))
    reader, care = Steps(lost, down, down, lambda: None, lambda: None), Care()
    run_reader(reader, journal, SOURCE, reader.stop, SystemClock(), care)
    assert care.failures == ["E6104", "E6104"]
    assert {partition.state for partition in journal.partitions()} == {"live"}


@pytest.mark.parametrize(("reason", "begun"), [(FIRST_SCAN, 0), ("a scan bridges the gap", 1)])
def test_a_reader_that_was_killed_on_the_way_to_live(journal: CollectionJournal, reason: str, begun: int):
    """Its token is there, and the word that all is well is not: nothing would be delivered any more."""
    journal.set_state("x", "catching-up", reason)
    reader = Steps(*[lambda: None] * (begun + 1))
    run_reader(reader, journal, SOURCE, reader.stop, SystemClock(), Care())
    assert {(p.state, p.reason) for p in journal.partitions()} == {("live", "")}
    assert reader.steps == []


def test_what_is_no_error_of_ours_is_told_as_one(journal: CollectionJournal):
    reader, care = Steps(failing(RecursionError("deep")), failing(ValueError("odd")), lambda: None), Care()
    run_reader(reader, journal, SOURCE, reader.stop, SystemClock(), care)
    assert care.failures == ["E6104", "E6104"]


def test_a_source_that_is_added_anew_gets_a_reader_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between two looks of the keeper it was removed, and another is there under its name."""
    opened: list[str] = []
    running = Flag()

    class Idle(Steps):
        def poll(self, seconds: float) -> tuple[int, int]:
            running.wait(0.001)
            return 0, 0

        def start(self, *, scan: bool) -> None: ...

    def open_idle(source: Source, *_: object) -> Idle:
        opened.append(source.address)
        return Idle(lambda: None)

    monkeypatch.setattr(keeping, "open_reader", open_idle)
    journal = open_journal(tmp_path)
    keeper = ReaderSupervisor(str(tmp_path), SystemClock(), Random(1))
    for address in ("one", "two"):
        journal.add_source(Source(name="x", kind="mongodb", address=address))
        while address not in opened:
            keeper.reconcile()
            running.wait(0.005)
        journal.set_paused("x", True)
        keeper.reconcile()
        journal.remove_source("x")
    keeper.close()
    journal.close()
    assert opened == ["one", "two"]


@pytest.mark.parametrize("option", ["events_per_second", "bytes_per_second"])
@pytest.mark.parametrize("value", ["much", "0", "-5", "nan"])
def test_a_rate_that_is_none_is_refused_when_the_source_is_added(option: str, value: str):
    with pytest.raises(SourceError, match=f"E6101.*{option}"):
        validate_source(Source(name="x", kind="mongodb", address="mongodb://here", options={option: value}))


def test_chunks_end_where_they_are_large():
    sizes = [1, MAX_APPEND_BYTES, 1, 1, MAX_APPEND_BYTES - 1, 1]
    assert list(chunks(sizes, size_of=lambda size: size)) == [
        [1, MAX_APPEND_BYTES],
        [1, 1, MAX_APPEND_BYTES - 1],
        [1],
    ]
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
