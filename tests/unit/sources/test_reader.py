"""The reader loop with readers that fail."""

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


class RecordingHealth:
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
    """A reader with one scripted action per poll; it stops the loop at the end."""

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


def test_failed_gap_recovery_is_retried(journal: CollectionJournal):
    lost, down = failing(SourceError("E6105", "lost")), failing(SourceError("E6104", "down"))
    reader, health = Steps(lost, down, down, lambda: None, lambda: None), RecordingHealth()
    run_reader(reader, journal, SOURCE, reader.stop, SystemClock(), health)
    assert health.failures == ["E6104", "E6104"]
    assert {partition.state for partition in journal.partitions()} == {"live"}


@pytest.mark.parametrize(("reason", "started"), [(FIRST_SCAN, 0), ("a scan bridges the gap", 1)])
def test_reader_killed_before_the_state_is_live(journal: CollectionJournal, reason: str, started: int):
    """The token is stored and the state is not live yet. Without recovery nothing would be delivered any more."""
    journal.set_state("x", "catching-up", reason)
    reader = Steps(*[lambda: None] * (started + 1))
    run_reader(reader, journal, SOURCE, reader.stop, SystemClock(), RecordingHealth())
    assert {(p.state, p.reason) for p in journal.partitions()} == {("live", "")}
    assert reader.steps == []


def test_unexpected_exception_becomes_a_source_error(journal: CollectionJournal):
    reader, health = (
        Steps(failing(RecursionError("deep")), failing(ValueError("odd")), lambda: None),
        RecordingHealth(),
    )
    run_reader(reader, journal, SOURCE, reader.stop, SystemClock(), health)
    assert health.failures == ["E6104", "E6104"]


def test_source_that_is_added_again_gets_a_new_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Between two calls of `reconcile` the source was removed, and another one was added under its name."""
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
    supervisor = ReaderSupervisor(str(tmp_path), SystemClock(), Random(1))
    for address in ("one", "two"):
        journal.add_source(Source(name="x", kind="mongodb", address=address))
        while address not in opened:
            supervisor.reconcile()
            running.wait(0.005)
        journal.set_paused("x", True)
        supervisor.reconcile()
        journal.remove_source("x")
    supervisor.close()
    journal.close()
    assert opened == ["one", "two"]


@pytest.mark.parametrize("option", ["events_per_second", "bytes_per_second"])
@pytest.mark.parametrize("value", ["much", "0", "-5", "nan"])
def test_invalid_rate_is_refused_by_validation(option: str, value: str):
    with pytest.raises(SourceError, match=f"E6101.*{option}"):
        validate_source(Source(name="x", kind="mongodb", address="mongodb://here", options={option: value}))


def test_chunks_end_at_the_size_limit():
    sizes = [1, MAX_APPEND_BYTES, 1, 1, MAX_APPEND_BYTES - 1, 1]
    assert list(chunks(sizes, size_of=lambda size: size)) == [
        [1, MAX_APPEND_BYTES],
        [1, 1, MAX_APPEND_BYTES - 1],
        [1],
    ]
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
