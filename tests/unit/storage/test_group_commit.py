"""Group commit: order, durability before acknowledgement, shared flushes, failure, closing, no lost wake-ups."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread

import pytest

from vedette.errors import StoreError
from vedette.storage.group_commit import GroupCommitLogWriter, LogWriter, NullLogWriter
from vedette.storage.memory import MemoryStore
from vedette.storage.seam import Batch, JournalRow

PATIENCE = 60.0
FULL = StoreError("E6001", "no space left", fields={"place": "here"})


class SlowStore(MemoryStore):
    """Counts its batches, takes its time, waits at a gate, and fails when told."""

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
        assert self.open.wait(PATIENCE)
        if self.seconds:
            time.sleep(self.seconds)
        if self.fail_at is not None and batch.sequence >= self.fail_at:
            raise FULL
        last = super().append(batch)
        self.batches.append([row.tick for row in batch.journal])
        self.threads.append(threading.current_thread().name)
        return last

    @property
    def ticks(self) -> list[int]:
        return [tick for batch in self.batches for tick in batch]


def encode(ticks: Sequence[int]) -> Batch:
    return Batch(
        sequence=ticks[-1], journal=[JournalRow(tick, "t", "Task", "k", None, None, 0) for tick in ticks]
    )


class Writer:
    """What an engine does: ticks and submissions under its lock, waiting outside."""

    def __init__(self, gate: LogWriter[int]) -> None:
        self.gate = gate
        self.lock = Lock()
        self.tick = 0

    def submit(self) -> int:
        self.gate.wait_for_room(PATIENCE)
        with self.lock:
            self.gate.append(self.tick + 1, self.tick + 1)
            self.tick += 1
            return self.tick

    def commit(self) -> int:
        tick = self.submit()
        self.gate.wait_durable(tick, PATIENCE)
        assert self.gate.durable_sequence >= tick
        return tick


@contextmanager
def running(*targets: Callable[[], object]) -> Iterator[None]:
    """Run these in threads beside the block; what they raise is raised here."""
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
        thread.join(PATIENCE)
        assert not thread.is_alive(), "somebody sleeps for ever"
    if problems:
        raise problems[0]


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come to pass")


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def gate(store: SlowStore) -> Iterator[GroupCommitLogWriter[int]]:
    gate = GroupCommitLogWriter(store, encode=encode, tick=0)
    yield gate
    store.open.set()
    gate.close()


# ---------------------------------------------------------------- waiting


def test_one_thread(store: SlowStore, gate: GroupCommitLogWriter[int]) -> None:
    writer = Writer(gate)
    with running(lambda: [writer.commit() for _ in range(20)]):
        pass
    assert store.batches == [[tick] for tick in range(1, 21)]
    assert set(store.threads) == {"writer-0"}, "whoever finds no flush running leads"
    assert (gate.durable_sequence, store.info().sequence, gate.failed) == (20, 20, None)


def test_the_main_thread_waits_but_never_leads(store: SlowStore, gate: GroupCommitLogWriter[int]) -> None:
    writer = Writer(gate)
    assert [writer.commit() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert set(store.threads) == {"vedette-flush-default"}


def test_nothing_is_acknowledged_before_it_is_durable(
    store: SlowStore, gate: GroupCommitLogWriter[int]
) -> None:
    store.open.clear()
    tick = Writer(gate).submit()
    with pytest.raises(TimeoutError, match="tick 1 is not durable yet"):
        gate.wait_durable(tick, 0.05)
    assert gate.durable_sequence == 0
    store.open.set()
    gate.wait_durable(tick, PATIENCE)
    assert gate.durable_sequence == 1


def test_those_who_come_during_a_flush_share_the_next(
    store: SlowStore, gate: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(gate)
    store.open.clear()
    with running(*[writer.commit] * 16):
        assert store.reached.wait(PATIENCE)
        eventually(lambda: writer.tick == 16)
        store.open.set()
    assert store.ticks == list(range(1, 17))
    assert len(store.batches) == 2


def test_many_threads_keep_order_and_share_flushes() -> None:
    store = SlowStore(seconds=0.002)
    gate = GroupCommitLogWriter(store, encode=encode, tick=0)
    writer = Writer(gate)
    with running(*[lambda: [writer.commit() for _ in range(50)]] * 32):
        pass
    gate.close()
    assert store.ticks == list(range(1, 1_601))
    assert len(store.batches) < 400


def test_a_read_waits_for_what_it_saw(store: SlowStore, gate: GroupCommitLogWriter[int]) -> None:
    writer = Writer(gate)
    with running(lambda: [writer.commit() for _ in range(3)]):
        pass
    gate.wait_durable(2)
    gate.wait_durable(0)
    with pytest.raises(ValueError, match="tick 4 was never submitted, the last was 3"):
        gate.wait_durable(4)
    with pytest.raises(ValueError, match="tick 4 was never submitted"):
        gate.call_when_durable(4, lambda _: None)


def test_a_commit_that_nobody_waits_for_becomes_durable_soon(
    store: SlowStore, gate: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(gate)
    writer.submit()
    eventually(lambda: gate.durable_sequence == 1)
    writer.submit()
    writer.submit()
    eventually(lambda: gate.durable_sequence == 3)


def test_a_waiter_that_gives_up_leaves_the_others_in_peace(
    store: SlowStore, gate: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(gate)
    store.open.clear()
    first = writer.submit()

    def impatient() -> None:
        tick = writer.submit()
        with pytest.raises(TimeoutError):
            gate.wait_durable(tick, 0.02)

    with running(lambda: gate.wait_durable(first, PATIENCE)):
        assert store.reached.wait(PATIENCE)
        with running(*[impatient] * 4):
            pass
        with running(writer.commit):
            eventually(lambda: writer.tick == 6)
            store.open.set()
    assert gate.durable_sequence == 6


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


def test_ctrl_c_interrupts_the_waiting_and_not_the_writing(
    store: SlowStore, gate: GroupCommitLogWriter[int]
) -> None:
    assert threading.current_thread() is threading.main_thread()
    writer = Writer(gate)
    store.open.clear()
    tick = writer.submit()
    with interrupted_main_thread():
        gate.wait_durable(tick)
    store.open.set()
    gate.wait_durable(tick, PATIENCE)
    assert (writer.commit(), store.ticks, gate.failed) == (2, [1, 2], None)


# ---------------------------------------------------------------- callbacks


def test_callbacks(store: SlowStore, gate: GroupCommitLogWriter[int]) -> None:
    writer = Writer(gate)
    told: list[tuple[int, StoreError | None]] = []
    for _ in range(5):
        tick = writer.submit()
        gate.call_when_durable(tick, lambda error, tick=tick: told.append((tick, error)))  # type: ignore[misc]
    eventually(lambda: len(told) == 5)
    assert told == [(tick, None) for tick in range(1, 6)]
    gate.call_when_durable(3, lambda error: told.append((3, error)))
    assert told[-1] == (3, None), "at once, when it is durable already"


def test_whoever_is_in_no_hurry_is_called_by_the_one_who_waits(
    store: SlowStore, gate: GroupCommitLogWriter[int]
) -> None:
    writer = Writer(gate)
    called: list[str] = []

    def commit() -> None:
        tick = writer.submit()
        gate.call_when_durable(
            tick, lambda _: called.append(threading.current_thread().name), flush_now=False
        )
        gate.wait_durable(tick, PATIENCE)

    with running(*[commit] * 8):
        pass
    assert len(called) == 8
    tick = writer.submit()  # nobody waits for this one: within the delay, then
    gate.call_when_durable(tick, lambda _: called.append("late"), flush_now=False)
    eventually(lambda: called[-1] == "late")


def test_a_loop_can_be_woken_once_per_flush() -> None:
    store = SlowStore(seconds=0.002)

    async def sessions(count: int, commits: int) -> int:
        loop = asyncio.get_running_loop()
        waiting: dict[int, asyncio.Future[None]] = {}
        wakes = 0

        def durable(upto: int, error: StoreError | None) -> None:
            nonlocal wakes
            wakes += 1
            for tick in [tick for tick in waiting if tick <= upto]:
                waiting.pop(tick).set_result(None)

        gate = GroupCommitLogWriter(
            store, encode=encode, tick=0, on_flush=lambda *flush: loop.call_soon_threadsafe(durable, *flush)
        )
        writer = Writer(gate)

        async def session() -> None:
            for _ in range(commits):
                tick = writer.submit()
                waiting[tick] = loop.create_future()
                gate.call_when_durable(tick, lambda _: None)
                await waiting[tick]

        await asyncio.wait_for(asyncio.gather(*[session() for _ in range(count)]), PATIENCE)
        gate.close()
        return wakes

    wakes = asyncio.run(sessions(32, 20))
    assert store.ticks == list(range(1, 641))
    assert wakes <= len(store.batches) < 100


def test_a_callback_that_fails_harms_nobody(
    store: SlowStore, gate: GroupCommitLogWriter[int], caplog: pytest.LogCaptureFixture
) -> None:
    writer, told = Writer(gate), Event()
    store.open.clear()
    gate.call_when_durable(writer.submit(), lambda _: 1 / 0)
    gate.call_when_durable(writer.submit(), lambda _: told.set())
    with caplog.at_level(logging.ERROR):
        store.open.set()
        assert told.wait(PATIENCE)
    assert [record.__dict__["action"] for record in caplog.records] == ["flush.callback_failed"]
    writer.commit()


# ---------------------------------------------------------------- failure


def test_a_failed_flush_stops_everything(store: SlowStore) -> None:
    flushes: list[tuple[int, StoreError | None]] = []
    gate = GroupCommitLogWriter(store, encode=encode, tick=0, on_flush=lambda *flush: flushes.append(flush))
    writer = Writer(gate)
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
        assert store.reached.wait(PATIENCE)
        eventually(lambda: writer.tick == 11)
        gate.call_when_durable(11, lambda error: codes.append(error.code if error else None))
        store.open.set()
    assert codes == ["E6001"] * 9, "those in the flush and those behind it"
    assert (gate.durable_sequence, store.info().sequence, store.ticks) == (3, 3, [1, 2, 3])
    assert gate.failed is FULL
    assert flushes[-1] == (3, FULL)

    gate.wait_durable(3)  # what was durable stays so
    for later in (lambda: gate.append(12, 12), lambda: gate.wait_durable(11), lambda: gate.wait_durable(4)):
        with pytest.raises(StoreError, match="no space left") as caught:
            later()
        assert caught.value is not FULL
        assert caught.value.fields == FULL.fields
    told: list[StoreError | None] = []
    gate.call_when_durable(11, told.append)
    assert told[0] is not None
    gate.close()
    gate.close()


def test_a_batch_that_cannot_be_encoded_fails_its_waiters(
    store: SlowStore, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(ticks: Sequence[int]) -> Batch:
        raise KeyError("title")

    gate = GroupCommitLogWriter(store, encode=refuse, tick=0)
    with (
        pytest.raises(StoreError, match=r"could not be written: KeyError$"),
        caplog.at_level(logging.CRITICAL),
    ):
        Writer(gate).commit()
    assert gate.failed is not None
    gate.close()


def test_a_failure_frees_those_who_wait_for_room(store: SlowStore) -> None:
    gate = GroupCommitLogWriter(store, encode=encode, tick=0, max_queued=2, resume_below=1)
    writer = Writer(gate)
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
    gate.close()


# ---------------------------------------------------------------- bounds, modes, closing


def test_a_full_queue_holds_writers_back_until_it_is_low(store: SlowStore) -> None:
    gate = GroupCommitLogWriter(store, encode=encode, tick=0, max_queued=10, resume_below=5)
    store.open.clear()
    gate.append(1, 1)
    gate.call_when_durable(1, lambda _: None)
    assert store.reached.wait(PATIENCE)
    for tick in range(2, 12):
        gate.wait_for_room(0)
        gate.append(tick, tick)
    with pytest.raises(TimeoutError, match="10 commits are queued"):
        gate.wait_for_room(0.02)
    with running(lambda: gate.wait_for_room(PATIENCE)):
        store.open.set()
    gate.wait_durable(11, PATIENCE)
    gate.close()


def test_relaxed_does_not_wait_but_flushes_soon(store: SlowStore) -> None:
    gate = GroupCommitLogWriter(store, encode=encode, tick=0, durability="relaxed")
    writer = Writer(gate)
    store.open.clear()
    told: list[StoreError | None] = []
    for _ in range(100):
        gate.call_when_durable(writer.submit(), told.append)
    gate.wait_durable(100)
    assert (told, gate.durable_sequence) == ([None] * 100, 0)
    store.open.set()
    eventually(lambda: gate.durable_sequence == 100)
    assert len(store.batches) <= 3
    writer.submit()
    gate.close()
    assert store.info().sequence == 101


def test_relaxed_says_so_when_a_flush_failed(store: SlowStore) -> None:
    gate = GroupCommitLogWriter(
        store, encode=encode, tick=0, durability="relaxed", max_flush_delay_seconds=0.001
    )
    store.fail_at = 1
    gate.append(1, 1)
    eventually(lambda: gate.failed is not None)
    with pytest.raises(StoreError, match="no space left"):
        gate.wait_durable(1)
    with pytest.raises(StoreError, match="no space left"):
        gate.append(2, 2)
    gate.close()


def test_closing_flushes_what_is_left_and_refuses_the_rest(store: SlowStore) -> None:
    gate = GroupCommitLogWriter(store, encode=encode, tick=0, max_flush_delay_seconds=1_000)
    for tick in range(1, 6):
        gate.append(tick, tick)
    gate.close()
    assert (store.info().sequence, gate.durable_sequence) == (5, 5)
    with pytest.raises(StoreError) as caught:
        gate.append(6, 6)
    assert caught.value.code == "E6005"
    gate.wait_durable(5)
    gate.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vedette-flush")]


def test_closing_says_when_the_rest_could_not_be_written(store: SlowStore) -> None:
    gate = GroupCommitLogWriter(store, encode=encode, tick=0, max_flush_delay_seconds=1_000)
    store.fail_at = 1
    gate.append(1, 1)
    with pytest.raises(StoreError, match="no space left"):
        gate.close()
    gate.close()


def test_a_gate_that_was_never_used_has_no_thread(store: SlowStore) -> None:
    gate = GroupCommitLogWriter(store, encode=encode, tick=0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vedette-flush")]
    gate.close()


def test_the_gate_of_a_database_that_keeps_nothing() -> None:
    gate: LogWriter[int] = NullLogWriter(7)
    assert gate.durable_sequence == 7
    gate.wait_for_room()
    gate.append(8, 8)
    gate.wait_durable(8)
    told: list[StoreError | None] = []
    gate.call_when_durable(8, told.append)
    gate.close()
    assert (gate.durable_sequence, told, gate.failed) == (8, [None], None)


# ---------------------------------------------------------------- stress


@pytest.mark.parametrize("seed", range(6))
def test_no_wake_up_is_lost(seed: int) -> None:
    """Threads that wait, give up, ask for a callback or go away, with the interpreter switching as often as it can."""
    store = SlowStore(seconds=0.0001 * (seed % 3))
    # The long delay: nothing is saved by the flush that comes anyhow.
    gate = GroupCommitLogWriter(
        store, encode=encode, tick=0, max_queued=8, resume_below=2, max_flush_delay_seconds=1_000
    )
    writer = Writer(gate)
    told = Lock(), [0, 0]

    def called(error: StoreError | None) -> None:
        with told[0]:
            told[1][1] += 1

    def session(number: int) -> None:
        rng = random.Random(seed * 100 + number)
        for _ in range(150):
            match rng.choice(["wait", "wait", "callback", "hasty"]):
                case "wait":
                    writer.commit()
                case "callback":
                    with told[0]:
                        told[1][0] += 1
                    gate.call_when_durable(writer.submit(), called)
                case "hasty":
                    tick = writer.submit()
                    try:
                        gate.wait_durable(tick, rng.choice([0, 0.0001, 0.001]))
                    except TimeoutError:
                        gate.wait_durable(tick, PATIENCE)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with running(*[lambda number=number: session(number) for number in range(12)]):
            pass
        gate.close()
    finally:
        sys.setswitchinterval(before)
    assert store.ticks == list(range(1, 1_801))
    assert told[1][0] == told[1][1]
