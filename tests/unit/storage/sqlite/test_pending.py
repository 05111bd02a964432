"""Pending batches: small batches are stored as one row and applied to the tables later, invisibly to readers."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event as Flag
from threading import Thread, current_thread, get_ident
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.waiting import wait_until
from vedette.errors import StoreError
from vedette.storage.memory import MemoryStore
from vedette.storage.seam import Batch, ElementRecord, JournalRow, Store
from vedette.storage.sqlite.background import BackgroundWorker
from vedette.storage.sqlite.connection import WAL_BYTES
from vedette.storage.sqlite.pending import decode_pending, encode_pending, merge_batches
from vedette.storage.sqlite.store import SqliteStore


class StillMover:
    """A worker that does nothing; the test applies batches itself."""

    def __init__(self, move: Callable[[], int], name: str) -> None:
        self.move, self.name = move, name

    def request(self, *, soon: bool = True) -> None:
        """Ignored."""

    def close(self) -> None:
        """Nothing to stop."""


def node(id: str, **attributes: object) -> ElementRecord:
    return ElementRecord(id, "Task", repr(attributes).encode())


def edge(id: str, *targets: str) -> ElementRecord:
    return ElementRecord(id, "joins", b"{}", targets)


def row(tick: int, key: str, **more: object) -> JournalRow:
    return JournalRow(tick, f"t{tick}", "Task", key, None, b'{"n":1}', tick, **more)  # type: ignore[arg-type]


def pending(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        (count,) = db.execute("SELECT count(*) FROM pending").fetchone()
    return int(count)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """A store without a background worker."""
    with patch("vedette.storage.sqlite.store.BackgroundWorker", StillMover):
        store = SqliteStore(path)
    store.open_for_writing()
    yield store
    store.close()


# Random batches

NODES = [f"n{number}" for number in range(5)]
EDGES = [f"e{number}" for number in range(4)]
batches = st.fixed_dictionaries(
    {
        "nodes": st.dictionaries(st.sampled_from(NODES), st.integers(0, 9), max_size=4),
        "edges": st.sets(st.sampled_from(EDGES)),
        "deletes": st.sets(st.sampled_from(NODES + EDGES), max_size=3),
        "facts": st.dictionaries(st.sampled_from("kl"), st.sampled_from(["", "1", "2"])),
        "event": st.booleans(),
        "defines": st.booleans(),
    }
)
steps = st.lists(batches | st.sampled_from(["enter", "enter", "close", "crash", "trim"]), max_size=12)


blank: dict[str, Any] = {
    "nodes": {},
    "edges": set(),
    "deletes": set(),
    "facts": {},
    "event": False,
    "defines": False,
}


def batch_of(parts: dict[str, Any], tick: int, present: dict[str, ElementRecord]) -> Batch:
    """As the seam requires: edges target existing edges and are deleted with them."""
    gone = set(parts["deletes"]) - set(parts["nodes"])
    for id in EDGES:
        if id in present and not gone.isdisjoint(present[id].targets or ()):
            gone.add(id)
    puts = [node(id, n=value) for id, value in parts["nodes"].items()]
    there = {id for id in EDGES if id in present} - gone
    for id in sorted(parts["edges"] - gone):
        lower = [each for each in EDGES[: EDGES.index(id)] if each in there]
        puts.append(present[id] if id in there else edge(id, "n0", *lower))
        there.add(id)
    touched = [record.id for record in puts]
    return Batch(
        sequence=tick,
        puts=puts,
        deletes=sorted(gone),
        journal=[row(tick, id, seq=tick) for id in touched]
        + [row(tick, "x", source="shop", event_id=f"ev{tick}")] * parts["event"],
        definitions=[f"node N{tick} {{}}"] if parts["defines"] else [],
        meta=tuple(parts["facts"].items()),
    )


def compare(store: Store, twin: Store) -> None:
    ours, theirs = store.info(), twin.info()
    assert (ours.sequence, ours.definitions, ours.meta) == (theirs.sequence, theirs.definitions, theirs.meta)
    records = list(store.elements())
    assert sorted(records, key=lambda r: r.id) == sorted(twin.elements(), key=lambda r: r.id)
    places = {record.id: place for place, record in enumerate(records)}
    for record in records:
        assert all(places[target] < places[record.id] for target in record.targets or () if target in places)
    assert store.last_offset() == twin.last_offset()
    first = twin.last_offset() - len(journal(twin))
    for limit in (1, 3, 1_000):
        assert list(store.read(first, limit)) == list(twin.read(first, limit))


def journal(store: Store) -> list[JournalRow]:
    try:
        return list(store.read(0, 1_000))
    except StoreError as problem:
        return list(store.read(problem.fields["first"] - 1, 1_000))


@settings(max_examples=80, deadline=None)
@given(history=steps)
@example(history=[blank | {"edges": {"e0"}, "deletes": {"e3"}}, blank | {"edges": {"e3"}}, "enter"])
@example(
    history=[
        blank | {"edges": {"e3"}, "defines": True},
        blank | {"edges": {"e0"}, "deletes": {"e3"}},
        blank | {"edges": {"e3"}},
        "enter",
        "close",
    ]
)
def test_readers_see_pending_and_applied_batches_alike(history: list[dict[str, Any] | str]) -> None:
    with ExitStack() as stack:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # the test needs no durable syncs
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))
        for name, value in {
            "BackgroundWorker": StillMover,
            "APPLY_CHUNK_ROWS": 3,
            "MAX_PENDING_BATCH_ROWS": 7,
        }.items():
            stack.enter_context(patch(f"vedette.storage.sqlite.store.{name}", value))
        path, number = folder / "0.sqlite", 0
        store, twin = SqliteStore(path), MemoryStore()
        store.open_for_writing()
        twin.open_for_writing()
        for tick, step in enumerate(history, 1):
            if isinstance(step, dict):
                batch = batch_of(step, tick, {record.id: record for record in twin.elements()})
                assert store.append(batch) == twin.append(batch)
            elif step == "enter":
                store._apply_chunk()
            elif step == "trim":
                assert store.trim(tick - 2) == twin.trim(tick - 2)
            else:
                if step == "crash":  # copies of the files at this moment
                    number += 1
                    for file in folder.glob(f"{path.name}*"):
                        shutil.copy(file, folder / file.name.replace(path.name, f"{number}.sqlite"))
                    path = folder / f"{number}.sqlite"
                store.close()
                store = SqliteStore(path)
                compare(store, twin)  # before any write
                twin = twin.reopen()
                assert store.open_for_writing().boot_count == twin.open_for_writing().boot_count
            compare(store, twin)
        store.close()
        assert pending(path) == 0


# Which batches are pending


def test_large_batch_applies_pending_ones(store: SqliteStore, path: Path) -> None:
    store.append(Batch(sequence=1, puts=[node("a")], journal=[row(1, "a")]))
    assert pending(path) == 1
    store.append(Batch(sequence=2, puts=[node(f"n{n}") for n in range(100)]))
    assert pending(path) == 0
    assert len(list(store.elements())) == 101


def test_many_deletes_are_pending_first(store: SqliteStore, path: Path) -> None:
    ids = [f"n{n}" for n in range(500)]
    store.append(Batch(sequence=1, puts=[node(id) for id in ids], journal=[row(1, id) for id in ids]))
    store.append(Batch(sequence=2, deletes=ids[:200], journal=[row(2, id) for id in ids[:200]]))
    assert pending(path) == 1
    for _ in range(2):  # before and after the batch is applied
        assert [record.id for record in store.elements()] == ids[200:]
        assert [line.key for line in store.read(500, 1_000)] == ids[:200]
        store._apply_chunk()
    assert pending(path) == 0


def test_relaxed_store_uses_no_pending_batches(path: Path) -> None:
    store = SqliteStore(path, durability="relaxed")
    store.open_for_writing()
    store.append(Batch(sequence=1, puts=[node("a")]))
    assert pending(path) == 0
    store.close()


def test_pending_rows_are_limited(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.storage.sqlite.store.MAX_PENDING_ROWS", 20)
    for tick in range(1, 100):
        store.append(Batch(sequence=tick, puts=[node(f"n{tick}")]))
    assert pending(path) <= 11


def test_pending_batch_is_validated(store: SqliteStore, path: Path) -> None:
    store.append(Batch(sequence=5))
    with pytest.raises(StoreError, match="but the batch has sequence"):
        store.append(Batch(sequence=4))
    other = SqliteStore(path)
    assert other.open_for_writing().sequence == 5
    with pytest.raises(StoreError) as caught:
        store.append(Batch(sequence=6))
    assert caught.value.code == "E6002"
    other.close()


def test_fenced_store_applies_nothing(store: SqliteStore, path: Path) -> None:
    store.append(Batch(sequence=1, puts=[node("a")]))
    other = SqliteStore(path)
    other.open_for_writing()
    other.append(Batch(sequence=2, puts=[node("b")]))
    with pytest.raises(StoreError) as caught:
        store._apply_chunk()
    assert caught.value.code == "E6002"
    assert {record.id for record in other.elements()} == {"a", "b"}
    other.close()


def test_damaged_pending_batch_is_refused(store: SqliteStore, path: Path) -> None:
    store.append(Batch(sequence=1, puts=[node("a")]))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE pending SET batch = substr(batch, 1, 5)")
    with pytest.raises(StoreError) as caught:
        store.info()
    assert caught.value.code == "E6004"


def test_pending_batch_round_trip() -> None:
    batch = Batch(
        sequence=3,
        puts=[node("a", text="é"), edge("e", "a", "a")],
        deletes=["b"],
        journal=[row(3, "a", cause="why", source="s", partition=2, seq=9)],
        meta=[("k", "")],
    )
    kept = decode_pending(encode_pending(41, batch))
    assert (kept.offset, kept.last_offset) == (41, 42)
    effect = merge_batches([kept])
    assert (effect.sequence, effect.puts, effect.deletes) == (3, batch.puts, batch.deletes)
    assert effect.journal == [batch.journal[0]._replace(offset=42)]
    assert dict(effect.meta) == {"k": ""}
    for blob in (b"", b"\x90", encode_pending(1, batch)[:-1], b"nonsense"):
        with pytest.raises(ValueError, match=r".+"):
            decode_pending(blob)


# The background worker


def test_pending_batches_are_applied_in_the_background(path: Path) -> None:
    store = SqliteStore(path)
    store.open_for_writing()
    for tick in range(1, 60):
        store.append(Batch(sequence=tick, puts=[node(f"n{tick}")], journal=[row(tick, f"n{tick}")]))
    wait_until(lambda: pending(path) == 0)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*), max(tick) FROM journal").fetchone() == (59, 59)
    store.close()


def test_wal_is_extended_ahead_of_writes(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    store.open_for_writing()
    log = path.with_name(f"{path.name}-wal")
    for tick in range(1, 601):
        store.append(Batch(sequence=tick, puts=[node(f"n{tick}")]))
    wait_until(lambda: log.stat().st_size >= WAL_BYTES)
    for tick in range(601, 801):
        store.append(Batch(sequence=tick, puts=[node(f"n{tick}")]))
    copy = tmp_path / "copy.sqlite"
    for file in (path, log):
        shutil.copy(file, copy.with_name(file.name.replace(path.name, copy.name)))
    store.close()
    again = SqliteStore(copy)
    assert again.open_for_writing().sequence == 800
    assert len(list(again.elements())) == 800
    again.close()


def test_worker_retries_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.storage.sqlite.background.RETRY_SECONDS", 0.001)
    calls: list[int] = []
    done = Flag()

    def move() -> int:
        calls.append(get_ident())
        if len(calls) < 3:
            raise StoreError("E6001", "no space left")
        done.set()
        return 0

    mover = BackgroundWorker(move, "test")
    mover.request()
    assert done.wait(60)
    mover.close()
    assert len(set(calls)) == 1


def test_worker_stops_when_the_store_is_fenced() -> None:
    def move() -> int:
        raise StoreError("E6002", "opened by another engine")

    mover = BackgroundWorker(move, "test")
    mover.request()
    assert mover._thread is not None
    mover._thread.join(60)
    assert not mover._thread.is_alive()
    mover.close()


@pytest.mark.parametrize(
    ("busy", "late", "left"),
    [(False, False, 0), (False, True, 0), (True, False, 900), (True, True, 200)],
    ids=["quiet", "quiet and late", "more comes", "more comes and it is late"],
)
def test_worker_steps_while_requests_arrive(busy: bool, late: bool, left: int) -> None:
    """While requests arrive, the worker waits for an idle moment.

    After the maximum delay it works, but leaves a small remainder.
    """
    waiting = [1_000]

    def move() -> int:
        waiting[0] -= 100
        mover._asked += busy
        return waiting[0]

    mover = BackgroundWorker(move, "test")
    mover._since = time.monotonic() - (1e9 if late else -1e9)
    mover._work()
    assert waiting == [left]
    assert (mover._since is None) == (left < 900)


def test_idle_worker_ends_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vedette.storage.sqlite.background.THREAD_IDLE_SECONDS", 0.01)
    threads: list[Thread] = []

    def move() -> int:
        threads.append(current_thread())
        return 0

    mover = BackgroundWorker(move, "test")
    for count in (1, 2):
        mover.request()
        wait_until(lambda: len(threads) == count and mover._thread is None)  # noqa: B023 - used at once
    assert threads[0] is not threads[1]
    mover.close()


def test_unused_worker_has_no_thread() -> None:
    mover = BackgroundWorker(lambda: 0, "test")
    mover.close()
    assert mover._thread is None
