"""Group commit: concurrent commits share one flush, and no result is released before its commit is durable.

    with the engine lock held       LogWriter.append(sequence, commit)    in sequence order; never waits
    after the lock was released     LogWriter.wait_durable(sequence)      or call_when_durable(sequence, callback)

Leader and followers. A waiting thread that finds no flush running leads one: it takes, encodes and flushes everything
that is queued. Threads that arrive meanwhile join the next flush. When a flush ends, the leader wakes the waiters whose
commits are durable, and one of the others to lead the next flush. A background thread leads for callbacks, for commits
that no thread waits for (within `max_flush_delay_seconds`), and for the main thread. The main thread only waits, so
that Ctrl-C never interrupts a write.

A failed flush is final: its waiters and all later ones get the error, and `append` raises. The engine then reads the
store again (`Store.info`, `Store.elements`) and creates a new log writer.

With `max_queued` commits queued the writer is full until a flush has reduced them to `resume_below`. Because `append`
must not wait, writers call `wait_for_room` before they take the engine lock. The queue can exceed `max_queued` by at
most the number of threads between these two calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition, Lock, Thread, current_thread, get_ident, main_thread
from typing import Generic, Protocol, TypeVar

from vedette.clock import SystemClock
from vedette.errors import StoreError
from vedette.storage.flush_queue import FlushQueue, FlushState
from vedette.storage.seam import Batch, Durability, Store

__all__ = ["DurableCallback", "GroupCommitLogWriter", "LogWriter", "NullLogWriter"]

Commit = TypeVar("Commit")
Commit_contra = TypeVar("Commit_contra", contravariant=True)

DurableCallback = Callable[[StoreError | None], object]
"""Called once: with None when the commit is durable, with the error if it never will be."""

log = logging.getLogger(__name__)
_real_time = SystemClock()


class LogWriter(Protocol[Commit_contra]):
    """Makes commits durable and reports when they are."""

    @property
    def durable_sequence(self) -> int:
        """The highest durable sequence. It never decreases and may be read without a lock."""
        ...

    @property
    def submitted_sequence(self) -> int:
        """The highest sequence that was appended, durable or not."""
        ...

    @property
    def failed(self) -> StoreError | None: ...

    def wait_for_room(self, timeout: float | None = None) -> None:
        """Wait while the queue is full. Call it before taking the engine lock. Raises TimeoutError if it stays full."""
        ...

    def append(self, sequence: int, commit: Commit_contra) -> None:
        """Queue a commit. Sequences increase from call to call. Never waits for the disk."""
        ...

    def wait_durable(self, sequence: int, timeout: float | None = None) -> None:
        """Wait until the sequence is durable.

        Raises StoreError if it never will be, and TimeoutError after `timeout` seconds.
        """
        ...

    def call_when_durable(self, sequence: int, callback: DurableCallback, *, flush_now: bool = True) -> None:
        """Call `callback` when the sequence is durable, at once in this thread or later in the thread that led the
        flush.

        Without `flush_now` no flush is started, because the caller is about to wait for the sequence.
        """
        ...

    def close(self) -> None:
        """Flush the rest. Idempotent."""
        ...


class NullLogWriter(Generic[Commit]):
    """The log writer of a database without a store: every commit counts as durable."""

    __slots__ = ("durable_sequence",)

    def __init__(self, sequence: int = 0) -> None:
        self.durable_sequence = sequence

    @property
    def submitted_sequence(self) -> int:
        return self.durable_sequence

    @property
    def failed(self) -> StoreError | None:
        return None

    def wait_for_room(self, timeout: float | None = None) -> None:
        """There is always room."""

    def append(self, sequence: int, commit: Commit) -> None:  # noqa: ARG002 - nothing is kept
        self.durable_sequence = sequence

    def wait_durable(self, sequence: int, timeout: float | None = None) -> None:
        """No-op: nothing becomes more durable."""

    def call_when_durable(self, sequence: int, callback: DurableCallback, *, flush_now: bool = True) -> None:  # noqa: ARG002 - see wait
        callback(None)

    def close(self) -> None:
        """No-op: nothing is queued."""


class _Waiter:
    """A thread that waits for a sequence. It sleeps on `wake_lock` until another thread releases it."""

    __slots__ = ("may_lead", "sequence", "wake_lock")

    def __init__(self, sequence: int, may_lead: bool) -> None:
        self.sequence, self.may_lead = sequence, may_lead
        self.wake_lock = Lock()
        self.wake_lock.acquire()


class GroupCommitLogWriter(Generic[Commit]):
    """The log writer of a durable database; implements LogWriter."""

    def __init__(
        self,
        store: Store,
        *,
        encode: Callable[[Sequence[Commit]], Batch],
        sequence: int,
        durability: Durability = "fsync",
        max_queued: int = 10_000,
        resume_below: int = 5_000,
        max_flush_delay_seconds: float = 0.05,
        name: str = "default",
    ) -> None:
        """`encode` runs in the leading thread, outside all locks.

        `sequence` is the last durable sequence of the store.
        """
        self.durable_sequence = sequence
        self._store, self._encode = store, encode
        self._relaxed = durability == "relaxed"
        self._high, self._low, self._delay = max_queued, resume_below, max_flush_delay_seconds
        self._lock = Lock()
        self._queue: FlushQueue[Commit] = FlushQueue(sequence)
        self._waiters: list[_Waiter] = []
        self._callbacks: list[tuple[int, DurableCallback]] = []
        self._has_room = Condition(self._lock)
        self._full = False
        self._closing = False
        self._work_available = Condition(self._lock)
        self._idle = False
        self._name = f"vedette-flush-{name}"
        self._background: Thread | None = None

    @property
    def submitted_sequence(self) -> int:
        return self._queue.submitted

    @property
    def failed(self) -> StoreError | None:
        return self._queue.error

    def wait_for_room(self, timeout: float | None = None) -> None:
        if not self._full:
            return
        with self._lock:
            if not self._has_room.wait_for(lambda: not self._full or self._closing, timeout):
                raise TimeoutError(
                    f"{len(self._queue.queued)} commits are queued, because the disk is too slow"
                )

    def append(self, sequence: int, commit: Commit) -> None:
        with self._lock:
            self._check_usable()
            self._queue.submit(sequence, commit)
            if len(self._queue.queued) >= self._high:
                self._full = True
            if self._background is None:
                self._background = Thread(target=self._run, name=self._name, daemon=True)
                self._background.start()
            elif self._idle or self._full:
                self._idle = False
                self._work_available.notify()

    def wait_durable(self, sequence: int, timeout: float | None = None) -> None:
        if sequence <= self.durable_sequence:
            return
        if self._relaxed:
            self._check_reachable(sequence)
        else:
            self._wait(sequence, timeout)

    def call_when_durable(self, sequence: int, callback: DurableCallback, *, flush_now: bool = True) -> None:
        error = None
        with self._lock:
            if sequence > self.durable_sequence and self.failed is None and not self._relaxed:
                self._check_reachable(sequence)
                self._callbacks.append((sequence, callback))
                if flush_now and self._queue.can_flush:
                    self._work_available.notify()
                return
            if sequence > self.durable_sequence and self.failed is not None:
                error = _copy_error(self.failed)
        callback(error)

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._has_room.notify_all()
            left = 0 if self.failed else self._queue.submitted
        try:
            self._wait(left, None)
        finally:
            with self._lock:
                self._queue.close()
                self._work_available.notify_all()
            if self._background not in {None, current_thread()}:
                self._background.join()

    # Waiting and leading

    def _wait(self, sequence: int, timeout: float | None) -> None:
        end = None if timeout is None else _real_time.monotonic() + timeout
        may_lead = get_ident() != main_thread().ident
        while True:
            with self._lock:
                if sequence <= self.durable_sequence:
                    return
                self._check_reachable(sequence)
                if may_lead and self._queue.can_flush:
                    role: _Waiter | list[Commit] = self._queue.begin_flush()
                else:
                    role = self._add_waiter(sequence, may_lead)
            if isinstance(role, _Waiter):
                self._block(role, end)
            else:
                self._flush(role)

    def _add_waiter(self, sequence: int, may_lead: bool) -> _Waiter:
        waiter = _Waiter(sequence, may_lead)
        self._waiters.append(waiter)
        if self._queue.can_flush:
            self._work_available.notify()
        return waiter

    def _block(self, waiter: _Waiter, end: float | None) -> None:
        """Sleep until woken (because the sequence is durable, or to lead the next flush), or until the timeout."""
        try:
            left = -1 if end is None else max(0.0, end - _real_time.monotonic())
            woken = waiter.wake_lock.acquire(timeout=left)
        except BaseException:
            self._cancel_wait(waiter)
            raise
        if not woken and self._cancel_wait(waiter):
            raise TimeoutError(f"sequence {waiter.sequence} is not durable yet")

    def _cancel_wait(self, waiter: _Waiter) -> bool:
        """Remove a waiter that was not woken. Return False if it was woken meanwhile; the lead is then passed on."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return True
            self._wake_next_leader()
            return False

    def _flush(self, commits: Sequence[Commit]) -> None:
        error = self._append(commits)
        with self._lock:
            if error is None:
                self._queue.complete_flush()
            else:
                self._queue.fail_flush(error)
            self.durable_sequence = self._queue.durable
            waiters, callbacks = self._pop_completed(error is not None)
            if self._full and len(self._queue.queued) <= self._low:
                self._full = False
                self._has_room.notify_all()
            self._wake_next_leader()
        for waiter in waiters:
            waiter.wake_lock.release()
        self._run_callbacks(callbacks, error)

    def _append(self, commits: Sequence[Commit]) -> StoreError | None:
        try:
            self._store.append(self._encode(commits))
        except StoreError as problem:
            return problem
        except BaseException as problem:
            log.exception("A flush failed outside the store", extra={"action": "flush.failed"})
            # The text of the problem may quote data; the log has the traceback.
            error = StoreError("E6001", f"the commits were not written: {type(problem).__name__}")
            error.__cause__ = problem
            return error
        return None

    def _pop_completed(self, everyone: bool) -> tuple[list[_Waiter], list[DurableCallback]]:
        """Remove and return the waiters and callbacks that the last flush completed."""
        if not self._waiters and not self._callbacks:
            return [], []
        sequence = self._queue.submitted if everyone else self._queue.durable
        waiters = [waiter for waiter in self._waiters if waiter.sequence <= sequence]
        callbacks = [callback for due, callback in self._callbacks if due <= sequence]
        self._waiters = [waiter for waiter in self._waiters if waiter.sequence > sequence]
        self._callbacks = [entry for entry in self._callbacks if entry[0] > sequence]
        return waiters, callbacks

    def _wake_next_leader(self) -> None:
        """If commits are queued, choose a thread to flush them: a waiter, or the background thread."""
        if not self._queue.can_flush:
            return
        leader = next((waiter for waiter in self._waiters if waiter.may_lead), None)
        if leader is not None:
            self._waiters.remove(leader)
            leader.wake_lock.release()
        else:
            self._work_available.notify()

    def _run_callbacks(self, callbacks: Sequence[DurableCallback], error: StoreError | None) -> None:
        for callback in callbacks:
            try:
                callback(None if error is None else _copy_error(error))
            except Exception:
                log.exception("A commit callback failed", extra={"action": "commit.callback_failed"})

    # The background thread

    def _run(self) -> None:
        while True:
            with self._lock:
                commits = self._next_flush()
            if commits is None:
                return
            self._flush(commits)

    def _next_flush(self) -> list[Commit] | None:
        """Sleep until there is something to flush; None after close."""
        overdue = False
        while self._queue.state in {FlushState.IDLE, FlushState.FLUSHING}:
            if self._queue.can_flush and (overdue or self._is_flush_requested()):
                return self._queue.begin_flush()
            if self._queue.queued:
                # Half the limit: a commit may arrive just after a flush began without it.
                last = self._queue.flushing
                self._work_available.wait(self._delay / 2)
                overdue = self._queue.flushing == last
            else:
                self._wait_while_idle()
        return None

    def _wait_while_idle(self) -> None:
        """Wait while there is nothing to flush.

        While other threads lead, check again soon. If it stays quiet, sleep until the next append. Waking this thread
        at every commit would only show that another thread leads, and both would contend for the GIL.
        """
        last = self._queue.submitted
        self._work_available.wait(self._delay / 4)
        if self._queue.submitted == last and not self._closing:
            self._idle = True
            self._work_available.wait()

    def _is_flush_requested(self) -> bool:
        """True if the flush should begin now instead of a little later with more commits."""
        return bool(self._callbacks) or bool(self._waiters) or self._full or self._closing

    # Errors

    def _check_usable(self) -> None:
        if self._queue.error is not None:
            raise _copy_error(self._queue.error)
        if self._closing:
            raise StoreError("E6005", "the database is closed: open it again")

    def _check_reachable(self, sequence: int) -> None:
        if self._queue.error is not None:
            raise _copy_error(self._queue.error)
        if sequence > self._queue.submitted:
            raise ValueError(f"sequence {sequence} was never submitted, the last was {self._queue.submitted}")


def _copy_error(error: StoreError) -> StoreError:
    """Return a copy of the error for another waiter, because raising one exception twice mixes its tracebacks."""
    copy = StoreError(error.code, error.text, fields=error.fields)
    copy.__cause__ = error
    return copy
