"""Group commit: concurrent commits share one flush, and nobody is told "done" before the disk is.

    engine thread, under the engine's lock     gate.submit(tick, commit)     in tick order; never waits
    the same caller, after it let go           gate.wait(tick)               or gate.notify(tick, callback)

Leader and followers. Whoever waits and finds no flush running takes all that is queued and flushes it, encoding
included; whoever comes meanwhile joins the next. When a flush ends, the waiters that it made durable are woken, and one
of the others to lead the next. A background thread leads when nobody may: for callbacks, for commits that nobody waits
for (within `delay_seconds`), and for the main thread, which a Ctrl-C may hit between any two steps: it only ever waits.

A failed flush is final: its waiters and all later ones get the error, `submit` refuses. The engine then reads the store
again (`Store.facts`, `Store.elements`) and makes a new gate.

Bounds come in a pair. With `high` commits queued the gate is full until a flush has brought them down to `low`. Since
`submit` must not wait, writers call `admit()` before they take the engine's lock; a queue can pass `high` only by as
many commits as there are writers between the two calls.
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

__all__ = ["DurableCallback", "FlushHook", "GroupCommitLogWriter", "LogWriter", "NullLogWriter"]

Commit = TypeVar("Commit")
Commit_contra = TypeVar("Commit_contra", contravariant=True)

DurableCallback = Callable[[StoreError | None], object]
"""Called once: with None when the commit is durable, with the error if it never will be."""
FlushHook = Callable[[int, StoreError | None], object]
"""Called once per flush, after its callbacks, with the durable sequence and the error of a failed flush."""

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

    def append(self, tick: int, commit: Commit_contra) -> None:
        """Queue a commit. Sequences increase from call to call. Never waits for the disk."""
        ...

    def wait_durable(self, tick: int, timeout: float | None = None) -> None:
        """Return when the sequence is durable. Raises StoreError if it never will be, TimeoutError if it takes too
        long."""
        ...

    def call_when_durable(self, tick: int, callback: DurableCallback, *, flush_now: bool = True) -> None:
        """Call back when the sequence is durable: immediately in this thread, or later in the thread that led the
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

    def __init__(self, tick: int = 0) -> None:
        self.durable_sequence = tick

    @property
    def submitted_sequence(self) -> int:
        return self.durable_sequence

    @property
    def failed(self) -> StoreError | None:
        return None

    def wait_for_room(self, timeout: float | None = None) -> None:
        """There is always room."""

    def append(self, tick: int, commit: Commit) -> None:  # noqa: ARG002 - nothing is kept
        self.durable_sequence = tick

    def wait_durable(self, tick: int, timeout: float | None = None) -> None:
        """No-op: nothing becomes more durable."""

    def call_when_durable(self, tick: int, callback: DurableCallback, *, flush_now: bool = True) -> None:  # noqa: ARG002 - see wait
        callback(None)

    def close(self) -> None:
        """No-op: nothing is queued."""


class _Waiter:
    """A thread that waits for a sequence. It sleeps on `wake_lock` until another thread releases it."""

    __slots__ = ("may_lead", "sequence", "wake_lock")

    def __init__(self, tick: int, may_lead: bool) -> None:
        self.sequence, self.may_lead = tick, may_lead
        self.wake_lock = Lock()
        self.wake_lock.acquire()


class GroupCommitLogWriter(Generic[Commit]):
    """The log writer of a durable database; implements LogWriter."""

    def __init__(
        self,
        store: Store,
        *,
        encode: Callable[[Sequence[Commit]], Batch],
        tick: int,
        durability: Durability = "fsync",
        max_queued: int = 10_000,
        resume_below: int = 5_000,
        max_flush_delay_seconds: float = 0.05,
        on_flush: FlushHook | None = None,
        name: str = "default",
    ) -> None:
        """`encode` runs in the leading thread, outside all locks. `tick` is the sequence that the store was loaded
        with."""
        self.durable_sequence = tick
        self._store, self._encode, self._on_flush = store, encode, on_flush
        self._relaxed = durability == "relaxed"
        self._high, self._low, self._delay = max_queued, resume_below, max_flush_delay_seconds
        self._lock = Lock()
        self._ledger: FlushQueue[Commit] = FlushQueue(tick)
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
        return self._ledger.submitted

    @property
    def failed(self) -> StoreError | None:
        return self._ledger.error

    def wait_for_room(self, timeout: float | None = None) -> None:
        if not self._full:
            return
        with self._lock:
            if not self._has_room.wait_for(lambda: not self._full or self._closing, timeout):
                raise TimeoutError(
                    f"{len(self._ledger.queued)} commits are queued, and the disk does not keep up"
                )

    def append(self, tick: int, commit: Commit) -> None:
        with self._lock:
            self._check_usable()
            self._ledger.submit(tick, commit)
            if len(self._ledger.queued) >= self._high:
                self._full = True
            if self._background is None:
                self._background = Thread(target=self._run, name=self._name, daemon=True)
                self._background.start()
            elif self._idle or self._full:
                self._idle = False
                self._work_available.notify()

    def wait_durable(self, tick: int, timeout: float | None = None) -> None:
        if tick <= self.durable_sequence:
            return
        if self._relaxed:
            self._check_reachable(tick)
        else:
            self._wait(tick, timeout)

    def call_when_durable(self, tick: int, callback: DurableCallback, *, flush_now: bool = True) -> None:
        error = None
        with self._lock:
            if tick > self.durable_sequence and self.failed is None and not self._relaxed:
                self._check_reachable(tick)
                self._callbacks.append((tick, callback))
                if flush_now and self._ledger.can_flush:
                    self._work_available.notify()
                return
            if tick > self.durable_sequence and self.failed is not None:
                error = _copy_error(self.failed)
        callback(error)

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._has_room.notify_all()
            left = 0 if self.failed else self._ledger.submitted
        try:
            self._wait(left, None)
        finally:
            with self._lock:
                self._ledger.close()
                self._work_available.notify_all()
            if self._background not in {None, current_thread()}:
                self._background.join()

    # ------------------------------------------------------------ waiting and leading

    def _wait(self, tick: int, timeout: float | None) -> None:
        end = None if timeout is None else _real_time.monotonic() + timeout
        may_lead = get_ident() != main_thread().ident
        while True:
            with self._lock:
                if tick <= self.durable_sequence:
                    return
                self._check_reachable(tick)
                if may_lead and self._ledger.can_flush:
                    turn: _Waiter | list[Commit] = self._ledger.begin_flush()
                else:
                    turn = self._add_waiter(tick, may_lead)
            if isinstance(turn, _Waiter):
                self._block(turn, end)
            else:
                self._flush(turn)

    def _add_waiter(self, tick: int, may_lead: bool) -> _Waiter:
        sleeper = _Waiter(tick, may_lead)
        self._waiters.append(sleeper)
        if self._ledger.can_flush:
            self._work_available.notify()
        return sleeper

    def _block(self, sleeper: _Waiter, end: float | None) -> None:
        """Sleep until woken (because the sequence is durable, or to lead the next flush), or until the timeout."""
        try:
            left = -1 if end is None else max(0.0, end - _real_time.monotonic())
            woken = sleeper.wake_lock.acquire(timeout=left)
        except BaseException:
            self._cancel_wait(sleeper)
            raise
        if not woken and self._cancel_wait(sleeper):
            raise TimeoutError(f"tick {sleeper.sequence} is not durable yet")

    def _cancel_wait(self, sleeper: _Waiter) -> bool:
        """Leave without having been woken. Returns False if it was too late; then the lead is passed on."""
        with self._lock:
            if sleeper in self._waiters:
                self._waiters.remove(sleeper)
                return True
            self._wake_next_leader()
            return False

    def _flush(self, commits: Sequence[Commit]) -> None:
        error = self._append(commits)
        with self._lock:
            if error is None:
                self._ledger.complete_flush()
            else:
                self._ledger.fail_flush(error)
            self.durable_sequence = self._ledger.durable
            sleepers, callbacks = self._pop_completed(error is not None)
            if self._full and len(self._ledger.queued) <= self._low:
                self._full = False
                self._has_room.notify_all()
            self._wake_next_leader()
        for sleeper in sleepers:
            sleeper.wake_lock.release()
        self._run_callbacks(callbacks, error)

    def _append(self, commits: Sequence[Commit]) -> StoreError | None:
        try:
            self._store.append(self._encode(commits))
        except StoreError as problem:
            return problem
        except BaseException as problem:
            log.exception("A flush failed outside the store", extra={"action": "flush.failed"})
            # The text of the problem may quote data; the log has the traceback.
            error = StoreError("E6001", f"the commits could not be written: {type(problem).__name__}")
            error.__cause__ = problem
            return error
        return None

    def _pop_completed(self, everyone: bool) -> tuple[list[_Waiter], list[DurableCallback]]:
        """Remove and return the waiters and callbacks that the last flush completed."""
        if not self._waiters and not self._callbacks:
            return [], []
        tick = self._ledger.submitted if everyone else self._ledger.durable
        sleepers = [sleeper for sleeper in self._waiters if sleeper.sequence <= tick]
        callbacks = [callback for due, callback in self._callbacks if due <= tick]
        self._waiters = [sleeper for sleeper in self._waiters if sleeper.sequence > tick]
        self._callbacks = [entry for entry in self._callbacks if entry[0] > tick]
        return sleepers, callbacks

    def _wake_next_leader(self) -> None:
        """If commits are queued, choose a thread to flush them: a waiter, or the background thread."""
        if not self._ledger.can_flush:
            return
        leader = next((sleeper for sleeper in self._waiters if sleeper.may_lead), None)
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
                log.exception("A commit callback failed", extra={"action": "flush.callback_failed"})
        if self._on_flush is None:
            return
        try:
            self._on_flush(self.durable_sequence, error)
        except Exception:
            log.exception("A flush hook failed", extra={"action": "flush.hook_failed"})

    # ------------------------------------------------------------ the background thread

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
        while self._ledger.state in {FlushState.IDLE, FlushState.FLUSHING}:
            if self._ledger.can_flush and (overdue or self._is_flush_requested()):
                return self._ledger.begin_flush()
            if self._ledger.queued:
                # Half the limit: a commit may arrive just after a flush began without it.
                last = self._ledger.flushing
                self._work_available.wait(self._delay / 2)
                overdue = self._ledger.flushing == last
            else:
                self._wait_while_idle()
        return None

    def _wait_while_idle(self) -> None:
        """Nothing to do. While other threads lead, check again soon; if it stays quiet, sleep until the next append.

        Waking this thread at every commit would only show that another thread leads, and both would contend for the
        GIL.
        """
        last = self._ledger.submitted
        self._work_available.wait(self._delay / 4)
        if self._ledger.submitted == last and not self._closing:
            self._idle = True
            self._work_available.wait()

    def _is_flush_requested(self) -> bool:
        """True if the flush should begin now instead of a little later with more commits."""
        return bool(self._callbacks) or bool(self._waiters) or self._full or self._closing

    # ------------------------------------------------------------ refusals

    def _check_usable(self) -> None:
        if self._ledger.error is not None:
            raise _copy_error(self._ledger.error)
        if self._closing:
            raise StoreError("E6005", "the database is closed: open it again")

    def _check_reachable(self, tick: int) -> None:
        if self._ledger.error is not None:
            raise _copy_error(self._ledger.error)
        if tick > self._ledger.submitted:
            raise ValueError(f"tick {tick} was never submitted, the last was {self._ledger.submitted}")


def _copy_error(error: StoreError) -> StoreError:
    """A copy of the error for another listener: raising one exception twice mixes up its tracebacks."""
    copy = StoreError(error.code, error.text, fields=error.fields)
    copy.__cause__ = error
    return copy
