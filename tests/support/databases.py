"""Helpers for engine tests: a disk that can be blocked or broken, work in threads, and time limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Barrier, Event, Lock, Thread
from typing import Any, TypeVar, cast

import pytest

import vedette
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.engine.database import Database
from vedette.errors import StoreError
from vedette.storage.catalog import open_catalog
from vedette.storage.seam import Batch, Store, StoreCatalog

__all__ = ["FULL", "Disk", "all_at_once", "in_thread", "opened_on", "returned_too_early"]

FULL = StoreError("E6001", "no space left for the disk of this test: free some space and open it again")

T = TypeVar("T")


# A disk


class Disk:
    """Controls the stores of a catalog. `hold` blocks appends; `breaks` is raised instead of writing."""

    def __init__(self) -> None:
        self._free = Event()
        self._free.set()
        self._reached = Event()
        self._lock = Lock()
        self.breaks: BaseException | None = None
        self.breaks_after_writing: BaseException | None = None
        """If true, a failing append writes its batch nevertheless."""
        self.unreadable: StoreError | None = None
        self.batches: list[Batch] = []
        """The written batches, in order."""

    def hold(self) -> None:
        self._reached.clear()
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def wait_until_reached(self) -> None:
        """Wait until an append is blocked by `hold`."""
        assert self._reached.wait(TIMEOUT_SECONDS), "no append reached the disk"

    def write(self, store: Store, batch: Batch) -> int:
        if not self._free.is_set():
            self._reached.set()
            assert self._free.wait(TIMEOUT_SECONDS), "the test never released the disk"
        if self.breaks is not None:
            raise self.breaks
        last = store.append(batch)
        with self._lock:
            self.batches.append(batch)
        if self.breaks_after_writing is not None:
            raise self.breaks_after_writing
        return last


class _DiskStore:
    def __init__(self, store: Store, disk: Disk) -> None:
        self._store, self._disk = store, disk

    def append(self, batch: Batch) -> int:
        return self._disk.write(self._store, batch)

    def info(self) -> Any:
        if self._disk.unreadable is not None:
            raise self._disk.unreadable
        return self._store.info()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _DiskCatalog:
    def __init__(self, catalog: StoreCatalog, disk: Disk) -> None:
        self._catalog, self._disk = catalog, disk

    def open(self, name: str) -> Store:
        return cast(Store, _DiskStore(self._catalog.open(name), self._disk))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


@contextmanager
def opened_on(disk: Disk, location: str | os.PathLike[str], **settings: Any) -> Iterator[Vedette]:
    """Return a catalog whose stores write through `disk`.

    The disk is released at the end, so that closing never hangs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "vedette.engine.data_directory.open_catalog",
            lambda *place, **options: _DiskCatalog(open_catalog(*place, **options), disk),
        )
        db = vedette.open(location, environment={}, **settings)
    try:
        yield db
    finally:
        disk.release()
        db.close()


# Threads


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run the work in a thread and return its future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, daemon=True).start()
    return future


def all_at_once(*works: Callable[[], T]) -> list[T]:
    """Run all works concurrently, started together. Return their results, or raise the first error."""
    barrier = Barrier(len(works))

    def begun(work: Callable[[], T]) -> Callable[[], T]:
        def run() -> T:
            barrier.wait(TIMEOUT_SECONDS)
            return work()

        return run

    futures = [in_thread(begun(work)) for work in works]
    return [future.result(TIMEOUT_SECONDS) for future in futures]


def returned_too_early(database: Database, work: Callable[[], object]) -> tuple[Future[object], bool]:
    """Start the work. Return False when it waits for the disk, True when it ended without waiting."""
    came = Event()
    gate = database.log_writer
    wait, notify = gate.wait_durable, gate.call_when_durable

    def watched_wait(tick: int, timeout: float | None = None) -> None:
        came.set()
        wait(tick, timeout)

    def watched_notify(tick: int, callback: Any) -> None:
        notify(tick, callback)
        came.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "wait_durable", watched_wait)
        patch.setattr(gate, "call_when_durable", watched_notify)
        future = in_thread(work)
        future.add_done_callback(lambda _: came.set())
        assert came.wait(TIMEOUT_SECONDS), "it neither ended nor came to wait for the disk"
    return future, future.done()
