"""Group commit: order, durability before acknowledgement, shared flushes, failure, closing, no lost wake-ups."""

from __future__ import annotations

import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock, Thread

import pytest

from tests.support.waiting import wait_until
from vedette.errors import StoreError
from vedette.storage.group_commit import GroupCommitLogWriter, LogWriter, NullLogWriter
from vedette.storage.memory import MemoryStore
from vedette.storage.seam import Batch, JournalRow

TIMEOUT_SECONDS = 60.0
FULL = StoreError("E6001", "no space left", fields={"place": "here"})


class SlowStore(MemoryStore):
    """Counts its batches, is slow, can be blocked, and can be made to fail."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        super().__init__()
        self.open_for_writing()
        self.seconds = seconds
        self.batches: list[list[int]] = []
        self.threads: list[str] = []
        self.fail_at: int | None = None
        self.reached, self.open = Event(), Event()
        self.open.set()

    def append(self, batch: Batch) -> int:
        self.reached.set()
        assert self.open.wait(TIMEOUT_SECONDS)
        if self.seconds:
            time.sleep(self.seconds)
        if self.fail_at is not None and batch.sequence >= self.fail_at:
            raise FULL
        last = super().append(batch)
        self.batches.append([row.tick for row in batch.journal])
        self.threads.append(threading.current_thread().name)
        return last

    @property
    def sequences(self) -> list[int]:
        return [sequence for batch in self.batches for sequence in batch]


def encode(sequences: Sequence[int]) -> Batch:
    return Batch(
        sequence=sequences[-1],
        journal=[JournalRow(sequence, "t", "Task", "k", None, None, 0) for sequence in sequences],
    )


class Writer:
    """Appends like an engine: sequences under a lock, waiting outside."""

    def __init__(self, log_writer: LogWriter[int]) -> None:
        self.log_writer = log_writer
        self.lock = Lock()
        self.sequence = 0

    def submit(self) -> int:
        self.log_writer.wait_for_room(TIMEOUT_SECONDS)
        with self.lock:
            self.log_writer.append(self.sequence + 1, self.sequence + 1)
            self.sequence += 1
            return self.sequence

    def commit(self) -> int:
        sequence = self.submit()
        self.log_writer.wait_durable(sequence, TIMEOUT_SECONDS)
        assert self.log_writer.durable_sequence >= sequence
        return sequence


@contextmanager
def running(*targets: Callable[[], object]) -> Iterator[None]:
    """Run these functions in threads beside the block, and raise their errors."""
    problems: list[BaseException] = []

    def guarded(target: Callable[[], object]) -> None:
        try:
            target()
        except BaseException as problem:
            problems.append(problem)

    threads = [Thread(target=guarded, args=(target,), name=f"writer-{n}") for n, target in enumerate(targets)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive(), "somebody sleeps for ever"
    if problems:
        raise problems[0]


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def log_writer(store: SlowStore) -> Iterator[GroupCommitLogWriter[int]]:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0)
    yield log_writer
    store.open.set()
    log_writer.close()


# Waiting


def test_single_thread(store: SlowStore, log_writer: GroupCommitLogWriter[int]) -> None:
    writer = Writer(log_writer)
    with running(lambda: [writer.commit() for _ in range(20)]):
        pass
    assert store.batches == [[sequence] for sequence in range(1, 21)]
    assert set(store.threads) == {"writer-0"}, "whoever finds no flush running leads"
    assert (log_writer.durable_sequence, store.info().sequence, log_writer.failed) == (20, 20, None)


def test_main_thread_waits_but_never_leads(store: SlowStore, log_writer: GroupCommitLogWriter[int]) -> None:
    writer = Writer(log_writer)
    assert [writer.commit() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert set(store.threads) == {"vedette-flush-default"}


def test_nothing_is_acknowledged_before_it_is_durable(
    store: SlowStore, log_writer: GroupCommitLogWriter[int]
) -> None:
    store.open.clear()
    sequence = Writer(log_writer).submit()
    with pytest.raises(TimeoutError, match="sequence 1 is not durable yet"):
        log_writer.wait_durable(sequence, 0.05)
    assert log_writer.durable_sequence == 0
    store.open.set()
    log_writer.wait_durable(sequence, TIMEOUT_SECONDS)
    assert log_writer.durable_sequence == 1


def test_commits_during_a_flush_share_the_next(
    store: SlowStore, log_writer: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(log_writer)
    store.open.clear()
    with running(*[writer.commit] * 16):
        assert store.reached.wait(TIMEOUT_SECONDS)
        wait_until(lambda: writer.sequence == 16)
        store.open.set()
    assert store.sequences == list(range(1, 17))
    assert len(store.batches) == 2


def test_many_threads_keep_order_and_share_flushes() -> None:
    store = SlowStore(seconds=0.002)
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0)
    writer = Writer(log_writer)
    with running(*[lambda: [writer.commit() for _ in range(50)]] * 32):
        pass
    log_writer.close()
    assert store.sequences == list(range(1, 1_601))
    assert len(store.batches) < 400


def test_reader_waits_for_the_commits_it_saw(store: SlowStore, log_writer: GroupCommitLogWriter[int]) -> None:
    writer = Writer(log_writer)
    with running(lambda: [writer.commit() for _ in range(3)]):
        pass
    log_writer.wait_durable(2)
    log_writer.wait_durable(0)
    with pytest.raises(ValueError, match="sequence 4 was never submitted, the last was 3"):
        log_writer.wait_durable(4)
    with pytest.raises(ValueError, match="sequence 4 was never submitted"):
        log_writer.call_when_durable(4, lambda _: None)


def test_commit_without_waiter_is_flushed_soon(
    store: SlowStore, log_writer: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(log_writer)
    writer.submit()
    wait_until(lambda: log_writer.durable_sequence == 1)
    writer.submit()
    writer.submit()
    wait_until(lambda: log_writer.durable_sequence == 3)


def test_timeout_of_one_waiter_does_not_affect_others(
    store: SlowStore, log_writer: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(log_writer)
    store.open.clear()
    first = writer.submit()

    def impatient() -> None:
        sequence = writer.submit()
        with pytest.raises(TimeoutError):
            log_writer.wait_durable(sequence, 0.02)

    with running(lambda: log_writer.wait_durable(first, TIMEOUT_SECONDS)):
        assert store.reached.wait(TIMEOUT_SECONDS)
        with running(*[impatient] * 4):
            pass
        with running(writer.commit):
            wait_until(lambda: writer.sequence == 6)
            store.open.set()
    assert log_writer.durable_sequence == 6


@contextmanager
def interrupted_main_thread() -> Iterator[None]:
    """Send SIGINT to this thread until one signal has raised KeyboardInterrupt.

    One signal is not enough: CPython loses the wake-up of a signal that arrives just before a lock starts to block.
    """
    raised = Event()

    def interrupt(*_: object) -> None:
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt

    def send(thread: int) -> None:
        while not raised.wait(0.05):
            signal.pthread_kill(thread, signal.SIGINT)

    before = signal.signal(signal.SIGINT, interrupt)
    sender = Thread(target=send, args=(threading.get_ident(),))
    try:
        sender.start()
        yield
    except KeyboardInterrupt:
        pass
    else:
        pytest.fail("the block ended before it was interrupted")
    finally:
        raised.set()
        sender.join()
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_interrupts_the_wait_but_not_the_write(
    store: SlowStore, log_writer: GroupCommitLogWriter[int]
) -> None:
    assert threading.current_thread() is threading.main_thread()
    writer = Writer(log_writer)
    store.open.clear()
    sequence = writer.submit()
    with interrupted_main_thread():
        log_writer.wait_durable(sequence)
    store.open.set()
    log_writer.wait_durable(sequence, TIMEOUT_SECONDS)
    assert (writer.commit(), store.sequences, log_writer.failed) == (2, [1, 2], None)


# Callbacks


def test_callbacks(store: SlowStore, log_writer: GroupCommitLogWriter[int]) -> None:
    writer = Writer(log_writer)
    received: list[tuple[int, StoreError | None]] = []

    def record(sequence: int, error: StoreError | None) -> None:
        received.append((sequence, error))

    for _ in range(5):
        sequence = writer.submit()
        log_writer.call_when_durable(sequence, partial(record, sequence))
    wait_until(lambda: len(received) == 5)
    assert received == [(sequence, None) for sequence in range(1, 6)]
    log_writer.call_when_durable(3, lambda error: received.append((3, error)))
    assert received[-1] == (3, None), "at once, when it is durable already"


def test_callback_without_flush_now_runs_after_the_next_flush(
    store: SlowStore, log_writer: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(log_writer)
    called: list[str] = []

    def commit() -> None:
        sequence = writer.submit()
        log_writer.call_when_durable(
            sequence, lambda _: called.append(threading.current_thread().name), flush_now=False
        )
        log_writer.wait_durable(sequence, TIMEOUT_SECONDS)

    with running(*[commit] * 8):
        pass
    assert len(called) == 8
    sequence = writer.submit()  # no thread waits for this commit: it is flushed within the delay
    log_writer.call_when_durable(sequence, lambda _: called.append("late"), flush_now=False)
    wait_until(lambda: called[-1] == "late")


def test_failing_callback_does_not_affect_others(
    store: SlowStore, log_writer: GroupCommitLogWriter[int], caplog: pytest.LogCaptureFixture
) -> None:
    writer, received = Writer(log_writer), Event()
    store.open.clear()
    log_writer.call_when_durable(writer.submit(), lambda _: 1 / 0)
    log_writer.call_when_durable(writer.submit(), lambda _: received.set())
    with caplog.at_level(logging.ERROR):
        store.open.set()
        assert received.wait(TIMEOUT_SECONDS)
    assert [record.__dict__["action"] for record in caplog.records] == ["commit.callback_failed"]
    writer.commit()


# Failure


def test_failed_flush_is_final(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0)
    writer = Writer(log_writer)
    for _ in range(3):
        writer.commit()
    store.open.clear()
    store.reached.clear()
    store.fail_at = 4
    codes: list[str | None] = []

    def fails() -> None:
        with pytest.raises(StoreError) as caught:
            writer.commit()
        codes.append(caught.value.code)

    with running(*[fails] * 8):
        assert store.reached.wait(TIMEOUT_SECONDS)
        wait_until(lambda: writer.sequence == 11)
        log_writer.call_when_durable(11, lambda error: codes.append(error.code if error else None))
        store.open.set()
    assert codes == ["E6001"] * 9, "those in the flush and those behind it"
    assert (log_writer.durable_sequence, store.info().sequence, store.sequences) == (3, 3, [1, 2, 3])
    assert log_writer.failed is FULL

    log_writer.wait_durable(3)  # durable commits stay durable
    for later in (
        lambda: log_writer.append(12, 12),
        lambda: log_writer.wait_durable(11),
        lambda: log_writer.wait_durable(4),
    ):
        with pytest.raises(StoreError, match="no space left") as caught:
            later()
        assert caught.value is not FULL
        assert caught.value.fields == FULL.fields
    received: list[StoreError | None] = []
    log_writer.call_when_durable(11, received.append)
    assert received[0] is not None
    log_writer.close()
    log_writer.close()


def test_encoding_error_fails_the_waiters(store: SlowStore, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(sequences: Sequence[int]) -> Batch:
        raise KeyError("title")

    log_writer = GroupCommitLogWriter(store, encode=refuse, sequence=0)
    with (
        pytest.raises(StoreError, match=r"were not written: KeyError$"),
        caplog.at_level(logging.CRITICAL),
    ):
        Writer(log_writer).commit()
    assert log_writer.failed is not None
    log_writer.close()


def test_failure_ends_waits_for_room(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0, max_queued=2, resume_below=1)
    writer = Writer(log_writer)
    store.fail_at = 1
    store.open.clear()
    writer.submit()
    writer.submit()

    def write_for_ever() -> None:
        while True:
            writer.submit()

    def refused() -> None:
        with pytest.raises(StoreError, match="no space left"):
            write_for_ever()

    with running(refused):
        store.open.set()
    log_writer.close()


# Limits, modes, closing


def test_full_queue_blocks_until_resume_below(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0, max_queued=10, resume_below=5)
    store.open.clear()
    log_writer.append(1, 1)
    log_writer.call_when_durable(1, lambda _: None)
    assert store.reached.wait(TIMEOUT_SECONDS)
    for sequence in range(2, 12):
        log_writer.wait_for_room(0)
        log_writer.append(sequence, sequence)
    with pytest.raises(TimeoutError, match="10 commits are queued"):
        log_writer.wait_for_room(0.02)
    with running(lambda: log_writer.wait_for_room(TIMEOUT_SECONDS)):
        store.open.set()
    log_writer.wait_durable(11, TIMEOUT_SECONDS)
    log_writer.close()


def test_relaxed_flushes_soon_without_waiting(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0, durability="relaxed")
    writer = Writer(log_writer)
    store.open.clear()
    received: list[StoreError | None] = []
    for _ in range(100):
        log_writer.call_when_durable(writer.submit(), received.append)
    log_writer.wait_durable(100)
    assert (received, log_writer.durable_sequence) == ([None] * 100, 0)
    store.open.set()
    wait_until(lambda: log_writer.durable_sequence == 100)
    assert len(store.batches) <= 3
    writer.submit()
    log_writer.close()
    assert store.info().sequence == 101


def test_relaxed_reports_a_failed_flush(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(
        store, encode=encode, sequence=0, durability="relaxed", max_flush_delay_seconds=0.001
    )
    store.fail_at = 1
    log_writer.append(1, 1)
    wait_until(lambda: log_writer.failed is not None)
    with pytest.raises(StoreError, match="no space left"):
        log_writer.wait_durable(1)
    with pytest.raises(StoreError, match="no space left"):
        log_writer.append(2, 2)
    log_writer.close()


def test_close_flushes_and_refuses_later_commits(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0, max_flush_delay_seconds=1_000)
    for sequence in range(1, 6):
        log_writer.append(sequence, sequence)
    log_writer.close()
    assert (store.info().sequence, log_writer.durable_sequence) == (5, 5)
    with pytest.raises(StoreError) as caught:
        log_writer.append(6, 6)
    assert caught.value.code == "E6005"
    log_writer.wait_durable(5)
    log_writer.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vedette-flush")]


def test_close_reports_a_failed_flush(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0, max_flush_delay_seconds=1_000)
    store.fail_at = 1
    log_writer.append(1, 1)
    with pytest.raises(StoreError, match="no space left"):
        log_writer.close()
    log_writer.close()


def test_unused_writer_has_no_thread(store: SlowStore) -> None:
    log_writer = GroupCommitLogWriter(store, encode=encode, sequence=0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vedette-flush")]
    log_writer.close()


def test_null_log_writer() -> None:
    log_writer: LogWriter[int] = NullLogWriter(7)
    assert log_writer.durable_sequence == 7
    log_writer.wait_for_room()
    log_writer.append(8, 8)
    log_writer.wait_durable(8)
    received: list[StoreError | None] = []
    log_writer.call_when_durable(8, received.append)
    log_writer.close()
    assert (log_writer.durable_sequence, received, log_writer.failed) == (8, [None], None)


# Stress


@pytest.mark.parametrize("seed", range(6))
def test_no_wakeup_is_lost(seed: int) -> None:
    """Threads that wait, time out, register a callback or end, while the interpreter switches threads as often as
    possible.
    """
    store = SlowStore(seconds=0.0001 * (seed % 3))
    # The long delay prevents that a delayed flush hides a lost wake-up.
    log_writer = GroupCommitLogWriter(
        store, encode=encode, sequence=0, max_queued=8, resume_below=2, max_flush_delay_seconds=1_000
    )
    writer = Writer(log_writer)
    received = Lock(), [0, 0]

    def called(error: StoreError | None) -> None:
        with received[0]:
            received[1][1] += 1

    def session(number: int) -> None:
        rng = random.Random(seed * 100 + number)
        for _ in range(150):
            match rng.choice(["wait", "wait", "callback", "hasty"]):
                case "wait":
                    writer.commit()
                case "callback":
                    with received[0]:
                        received[1][0] += 1
                    log_writer.call_when_durable(writer.submit(), called)
                case "hasty":
                    sequence = writer.submit()
                    try:
                        log_writer.wait_durable(sequence, rng.choice([0, 0.0001, 0.001]))
                    except TimeoutError:
                        log_writer.wait_durable(sequence, TIMEOUT_SECONDS)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with running(*[lambda number=number: session(number) for number in range(12)]):
            pass
        log_writer.close()
    finally:
        sys.setswitchinterval(before)
    assert store.sequences == list(range(1, 1_801))
    assert received[1][0] == received[1][1]
