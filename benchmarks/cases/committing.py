"""Durable commits: each is on the disk when it is acknowledged, from one thread, many threads, and many tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from itertools import count as counting
from pathlib import Path
from threading import Barrier, Lock, Thread

from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.engines.cozo import CozoEngine
from benchmarks.engines.seam import Engine, name_of, rank_of
from benchmarks.engines.sqlite import INSERT, SqliteEngine
from benchmarks.engines.surreal import CREATE, DEFINITIONS, SurrealEngine, person, surreal_url
from benchmarks.engines.vedette import SPAWN, VedetteEngine
from benchmarks.machine import SyncProbe
from benchmarks.rounds import rate
from benchmarks.waiting import join_thread

__all__ = ["CASES"]

Start = Callable[[Setting], AbstractContextManager[Measure]]
Write = Callable[[int], object]
"""Write the person with this key and return when the write is durable."""

# The disk itself


@contextmanager
def _bare_disk(setting: Setting) -> Iterator[Measure]:
    """Upper bound for one sync per commit. Stalls of the disk are visible here, too."""
    count = setting.scale.commits
    with SyncProbe(setting.folder) as probe:
        yield lambda: (rate(count, lambda: probe.sync(count)),)


# One after the other


def _one_by_one(make: Callable[[Path], Engine], share: float = 1) -> Start:
    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        count = int(setting.scale.commits * share)
        starts = counting(0, count)
        with closing(make(setting.folder)) as engine:
            yield lambda: (rate(count, lambda: engine.insert(next(starts), count)),)

    return start


_START_SECONDS = 60.0
"""Time limit until all threads are ready."""
_WRITE_SECONDS = 1_800.0
"""Time limit for the commits of one thread in one round."""


# From many threads


def _write_from_threads(writes: list[Write], first: int, count: int) -> None:
    """Every thread writes its part; all threads start together."""
    share = count // len(writes)
    barrier = Barrier(len(writes) + 1)

    def work(number: int, write: Write) -> None:
        barrier.wait(_START_SECONDS)
        for key in range(first + number * share, first + (number + 1) * share):
            write(key)

    threads = [Thread(target=work, args=entry, daemon=True) for entry in enumerate(writes)]
    for thread in threads:
        thread.start()
    barrier.wait(_START_SECONDS)
    for thread in threads:
        join_thread(thread, f"{share} commits of one thread", _WRITE_SECONDS)


@contextmanager
def _vedette_threads(setting: Setting) -> Iterator[Measure]:
    count = setting.scale.shared_commits
    starts = counting(0, count)
    with closing(VedetteEngine(setting.folder)) as engine:

        def writer() -> Write:
            execute = engine.db.session().execute
            return lambda key: execute(SPAWN, key=key, name=name_of(key), rank=rank_of(key))

        writes = [writer() for _ in range(setting.scale.writers)]
        yield lambda: (rate(count, lambda: _write_from_threads(writes, next(starts), count)),)


@contextmanager
def _sqlite_threads(setting: Setting) -> Iterator[Measure]:
    """One connection shared by all threads: with one each they would only wait for the lock of the file."""
    count = setting.scale.shared_commits // 4
    starts = counting(0, count)
    turn = Lock()
    with closing(SqliteEngine(setting.folder)) as engine:

        def write(key: int) -> None:
            with turn:
                engine.db.execute(INSERT, (key, name_of(key), rank_of(key)))

        writes: list[Write] = [write] * setting.scale.writers
        yield lambda: (rate(count, lambda: _write_from_threads(writes, next(starts), count)),)


# From many tasks


async def _write_from_tasks(writes: list[Callable[[int], Awaitable[object]]], first: int, count: int) -> None:
    share = count // len(writes)

    async def work(number: int, write: Callable[[int], Awaitable[object]]) -> None:
        for key in range(first + number * share, first + (number + 1) * share):
            await write(key)

    await asyncio.gather(*[work(*entry) for entry in enumerate(writes)])


@contextmanager
def _vedette_tasks(setting: Setting) -> Iterator[Measure]:
    count = setting.scale.shared_commits
    starts = counting(0, count)
    with closing(VedetteEngine(setting.folder)) as engine, asyncio.Runner() as runner:

        def writer() -> Callable[[int], Awaitable[object]]:
            execute = engine.db.async_session().execute
            return lambda key: execute(SPAWN, key=key, name=name_of(key), rank=rank_of(key))

        writes = [writer() for _ in range(setting.scale.writers)]
        yield lambda: (rate(count, lambda: runner.run(_write_from_tasks(writes, next(starts), count))),)


@contextmanager
def _surreal_tasks(setting: Setting) -> Iterator[Measure]:
    count = setting.scale.shared_commits // 8
    starts = counting(0, count)
    with asyncio.Runner() as runner:
        db = import_module("surrealdb").AsyncSurreal(surreal_url(setting.folder, sync=True))
        runner.run(db.connect())
        runner.run(db.use("bench", "bench"))
        runner.run(db.query(DEFINITIONS))
        writes = [lambda key: db.query(CREATE, person(key))] * setting.scale.writers
        yield lambda: (rate(count, lambda: runner.run(_write_from_tasks(writes, next(starts), count))),)
        runner.run(db.close())


# The cases

_FULL = "write-ahead log, synchronous=FULL: one fdatasync a commit"
_DISK = Contender(name="the bare disk", start=_bare_disk, about="4 KiB overwritten, fdatasync, and again")
_SURREAL_SYNC = "SurrealKV with SURREAL_SYNC_DATA=true, which is not its default: one fsync a commit"

CASES = (
    Case(
        name="durable-one",
        title="Durable inserts one by one, one thread",
        metrics=(Metric(name="durable commits, 1 thread", unit="/s", more_is_better=True),),
        method="Every commit waits for its own sync, so this is the disk's number more than anybody's.",
        rounds=lambda scale: scale.disk_rounds,
        contenders=(
            Contender(
                name="Vedette", start=_one_by_one(VedetteEngine), about="durability=fsync: one fdatasync"
            ),
            Contender(name="SQLite", start=_one_by_one(SqliteEngine), about=_FULL),
            Contender(
                name="CozoDB",
                start=_one_by_one(CozoEngine, 0.1),
                about="its SQLite storage, a rollback journal: four fdatasyncs a commit",
            ),
            Contender(name="SurrealDB", start=_one_by_one(SurrealEngine, 0.5), about=_SURREAL_SYNC),
            _DISK,
        ),
    ),
    Case(
        name="durable-threads",
        title="Durable inserts from 32 threads",
        metrics=(Metric(name="durable commits, 32 threads", unit="/s", goal=8_000, more_is_better=True),),
        method="32 sessions on 32 threads, each statement a commit; commits that wait at the same time share a sync.",
        rounds=lambda scale: scale.disk_rounds,
        contenders=(
            Contender(name="Vedette", start=_vedette_threads, about="durability=fsync"),
            Contender(name="SQLite", start=_sqlite_threads, about=f"one connection and a lock; {_FULL}"),
            _DISK,
        ),
    ),
    Case(
        name="durable-tasks",
        title="Durable inserts from 32 asyncio sessions",
        metrics=(Metric(name="durable commits, 32 tasks", unit="/s", goal=12_000, more_is_better=True),),
        method="32 asynchronous sessions on one event loop, each statement a commit.",
        rounds=lambda scale: scale.disk_rounds,
        contenders=(
            Contender(name="Vedette", start=_vedette_tasks, about="durability=fsync"),
            Contender(name="SurrealDB", start=_surreal_tasks, about=_SURREAL_SYNC),
            _DISK,
        ),
    ),
    Case(
        name="unsynced",
        title="Inserts one by one on disk without waiting for it, one thread",
        metrics=(Metric(name="commits not waited for", unit="/s", more_is_better=True),),
        method=(
            "What is acknowledged survives the end of the process in SQLite, CozoDB and SurrealDB, and may be lost "
            "with Vedette's last 50 ms; a power cut may cost any of them their last commits."
        ),
        rounds=lambda scale: scale.disk_rounds,
        contenders=(
            Contender(
                name="Vedette",
                start=_one_by_one(lambda folder: VedetteEngine(folder, "relaxed"), 5),
                about="durability=relaxed: written within 50 ms",
            ),
            Contender(
                name="SQLite",
                start=_one_by_one(lambda folder: SqliteEngine(folder, "NORMAL"), 5),
                about="write-ahead log, synchronous=NORMAL: synced at checkpoints",
            ),
            Contender(
                name="CozoDB",
                start=_one_by_one(lambda folder: CozoEngine(folder, "rocksdb"), 2),
                about="its RocksDB storage: no sync at all was seen (strace)",
            ),
            Contender(
                name="SurrealDB",
                start=_one_by_one(lambda folder: SurrealEngine(folder, sync=False)),
                about="SurrealKV as it comes: no sync at all was seen (strace)",
            ),
        ),
    ),
)
