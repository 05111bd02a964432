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
from vedette.storage.flush_queue import FlushLedger, FlushState
from vedette.storage.seam import Batch, Durability, Store

__all__ = ["Callback", "CommitGate", "FlushHook", "GroupCommit", "NullCommit"]

Commit = TypeVar("Commit")
Commit_contra = TypeVar("Commit_contra", contravariant=True)

Callback = Callable[[StoreError | None], object]
"""Told once: None when the commit is durable, the error when it never will be."""
FlushHook = Callable[[int, StoreError | None], object]
"""Told once per flush, after its callbacks: the durable tick, and the error of a flush that failed."""

log = logging.getLogger(__name__)
_real_time = SystemClock()


class CommitGate(Protocol[Commit_contra]):
    """What stands between a commit and its acknowledgement."""

    @property
    def durable_tick(self) -> int:
        """The highest tick that is durable; only ever rises; may be read without a lock."""
        ...

    @property
    def submitted_tick(self) -> int:
        """The highest tick that was submitted, durable or not."""
        ...

    @property
    def failed(self) -> StoreError | None: ...

    def admit(self, timeout: float | None = None) -> None:
        """Wait while the queue is full. Call it before taking the engine's lock; TimeoutError when it stays full."""
        ...

    def submit(self, tick: int, commit: Commit_contra) -> None:
        """Queue a commit. Ticks rise from call to call. Never waits for a disk."""
        ...

    def wait(self, tick: int, timeout: float | None = None) -> None:
        """Return when `tick` is durable. StoreError when it never will be, TimeoutError when it takes too long."""
        ...

    def notify(self, tick: int, callback: Callback, *, hurry: bool = True) -> None:
        """Call back when `tick` is durable: at once in this thread, or later in the one that led the flush.

        Without hurry nothing is done to bring that about: somebody is about to wait for the tick anyway.
        """
        ...

    def close(self) -> None:
        """Flush what is left. Closing twice is nothing."""
        ...


class NullCommit(Generic[Commit]):
    """The gate of a database that keeps nothing: always open."""

    __slots__ = ("durable_tick",)

    def __init__(self, tick: int = 0) -> None:
        self.durable_tick = tick

    @property
    def submitted_tick(self) -> int:
        return self.durable_tick

    @property
    def failed(self) -> StoreError | None:
        return None

    def admit(self, timeout: float | None = None) -> None:
        """There is always room."""

    def submit(self, tick: int, commit: Commit) -> None:  # noqa: ARG002 - nothing is kept
        self.durable_tick = tick

    def wait(self, tick: int, timeout: float | None = None) -> None:
        """Every tick is as durable as it will ever be."""

    def notify(self, tick: int, callback: Callback, *, hurry: bool = True) -> None:  # noqa: ARG002 - see wait
        callback(None)

    def close(self) -> None:
        """Nothing is left."""


class _Sleeper:
    """A thread that waits for a tick; `bed` is held until it shall wake."""

    __slots__ = ("bed", "may_lead", "tick")

    def __init__(self, tick: int, may_lead: bool) -> None:
        self.tick, self.may_lead = tick, may_lead
        self.bed = Lock()
        self.bed.acquire()


class GroupCommit(Generic[Commit]):
    """The gate of a durable database; the interface is CommitGate's."""

    def __init__(
        self,
        store: Store,
        *,
        encode: Callable[[Sequence[Commit]], Batch],
        tick: int,
        durability: Durability = "fsync",
        high: int = 10_000,
        low: int = 5_000,
        delay_seconds: float = 0.05,
        on_flush: FlushHook | None = None,
        name: str = "default",
    ) -> None:
        """`encode` runs in the thread that leads, outside all locks. `tick` is what the store was loaded with."""
        self.durable_tick = tick
        self._store, self._encode, self._on_flush = store, encode, on_flush
        self._relaxed = durability == "relaxed"
        self._high, self._low, self._delay = high, low, delay_seconds
        self._lock = Lock()
        self._ledger: FlushLedger[Commit] = FlushLedger(tick)
        self._sleepers: list[_Sleeper] = []
        self._callbacks: list[tuple[int, Callback]] = []
        self._room = Condition(self._lock)
        self._full = False
        self._closing = False
        self._bell = Condition(self._lock)
        self._idle = False
        self._name = f"vedette-flush-{name}"
        self._background: Thread | None = None

    @property
    def submitted_tick(self) -> int:
        return self._ledger.submitted

    @property
    def failed(self) -> StoreError | None:
        return self._ledger.error

    def admit(self, timeout: float | None = None) -> None:
        if not self._full:
            return
        with self._lock:
            if not self._room.wait_for(lambda: not self._full or self._closing, timeout):
                raise TimeoutError(
                    f"{len(self._ledger.waiting)} commits are queued, and the disk does not keep up"
                )

    def submit(self, tick: int, commit: Commit) -> None:
        with self._lock:
            self._check_usable()
            self._ledger.submit(tick, commit)
            if len(self._ledger.waiting) >= self._high:
                self._full = True
            if self._background is None:
                self._background = Thread(target=self._run, name=self._name, daemon=True)
                self._background.start()
            elif self._idle or self._full:
                self._idle = False
                self._bell.notify()

    def wait(self, tick: int, timeout: float | None = None) -> None:
        if tick <= self.durable_tick:
            return
        if self._relaxed:
            self._check_reachable(tick)
        else:
            self._wait(tick, timeout)

    def notify(self, tick: int, callback: Callback, *, hurry: bool = True) -> None:
        error = None
        with self._lock:
            if tick > self.durable_tick and self.failed is None and not self._relaxed:
                self._check_reachable(tick)
                self._callbacks.append((tick, callback))
                if hurry and self._ledger.can_begin:
                    self._bell.notify()
                return
            if tick > self.durable_tick and self.failed is not None:
                error = _again(self.failed)
        callback(error)

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._room.notify_all()
            left = 0 if self.failed else self._ledger.submitted
        try:
            self._wait(left, None)
        finally:
            with self._lock:
                self._ledger.close()
                self._bell.notify_all()
            if self._background not in {None, current_thread()}:
                self._background.join()

    # ------------------------------------------------------------ waiting and leading

    def _wait(self, tick: int, timeout: float | None) -> None:
        end = None if timeout is None else _real_time.monotonic() + timeout
        may_lead = get_ident() != main_thread().ident
        while True:
            with self._lock:
                if tick <= self.durable_tick:
                    return
                self._check_reachable(tick)
                if may_lead and self._ledger.can_begin:
                    turn: _Sleeper | list[Commit] = self._ledger.begin()
                else:
                    turn = self._lie_down(tick, may_lead)
            if isinstance(turn, _Sleeper):
                self._sleep(turn, end)
            else:
                self._flush(turn)

    def _lie_down(self, tick: int, may_lead: bool) -> _Sleeper:
        sleeper = _Sleeper(tick, may_lead)
        self._sleepers.append(sleeper)
        if self._ledger.can_begin:
            self._bell.notify()
        return sleeper

    def _sleep(self, sleeper: _Sleeper, end: float | None) -> None:
        """Until woken, because the tick is durable or to lead, or until the time is up."""
        try:
            left = -1 if end is None else max(0.0, end - _real_time.monotonic())
            woken = sleeper.bed.acquire(timeout=left)
        except BaseException:
            self._get_up(sleeper)
            raise
        if not woken and self._get_up(sleeper):
            raise TimeoutError(f"tick {sleeper.tick} is not durable yet")

    def _get_up(self, sleeper: _Sleeper) -> bool:
        """Leave without having been woken; False when that came too late, and then the lead is passed on."""
        with self._lock:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                return True
            self._pass_lead()
            return False

    def _flush(self, commits: Sequence[Commit]) -> None:
        error = self._append(commits)
        with self._lock:
            if error is None:
                self._ledger.done()
            else:
                self._ledger.fail(error)
            self.durable_tick = self._ledger.durable
            sleepers, callbacks = self._take_due(error is not None)
            if self._full and len(self._ledger.waiting) <= self._low:
                self._full = False
                self._room.notify_all()
            self._pass_lead()
        for sleeper in sleepers:
            sleeper.bed.release()
        self._announce(callbacks, error)

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

    def _take_due(self, everyone: bool) -> tuple[list[_Sleeper], list[Callback]]:
        """Those whom the flush that just ended concerns, no longer on our lists."""
        if not self._sleepers and not self._callbacks:
            return [], []
        tick = self._ledger.submitted if everyone else self._ledger.durable
        sleepers = [sleeper for sleeper in self._sleepers if sleeper.tick <= tick]
        callbacks = [callback for due, callback in self._callbacks if due <= tick]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper.tick > tick]
        self._callbacks = [entry for entry in self._callbacks if entry[0] > tick]
        return sleepers, callbacks

    def _pass_lead(self) -> None:
        """If there is something to flush, somebody must come and do it: a sleeper who may, or the background."""
        if not self._ledger.can_begin:
            return
        leader = next((sleeper for sleeper in self._sleepers if sleeper.may_lead), None)
        if leader is not None:
            self._sleepers.remove(leader)
            leader.bed.release()
        else:
            self._bell.notify()

    def _announce(self, callbacks: Sequence[Callback], error: StoreError | None) -> None:
        for callback in callbacks:
            try:
                callback(None if error is None else _again(error))
            except Exception:
                log.exception("A commit callback failed", extra={"action": "flush.callback_failed"})
        if self._on_flush is None:
            return
        try:
            self._on_flush(self.durable_tick, error)
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
        """Sleep until there is something to lead; None when there never will be."""
        overdue = False
        while self._ledger.state in {FlushState.IDLE, FlushState.FLUSHING}:
            if self._ledger.can_begin and (overdue or self._somebody_asks()):
                return self._ledger.begin()
            if self._ledger.waiting:
                # Half the bound: a commit may come just after a flush began that did not take it.
                last = self._ledger.flushing
                self._bell.wait(self._delay / 2)
                overdue = self._ledger.flushing == last
            else:
                self._doze()
        return None

    def _doze(self) -> None:
        """Nothing to do. While others lead, look again soon; only when it stays quiet, sleep until a submit rings.

        A bell at every commit would wake this thread just to find that somebody else had led, and the two would fight
        for the interpreter lock.
        """
        last = self._ledger.submitted
        self._bell.wait(self._delay / 4)
        if self._ledger.submitted == last and not self._closing:
            self._idle = True
            self._bell.wait()

    def _somebody_asks(self) -> bool:
        """Whether the flush should begin now and not a little later, with more in it."""
        return bool(self._callbacks) or bool(self._sleepers) or self._full or self._closing

    # ------------------------------------------------------------ refusals

    def _check_usable(self) -> None:
        if self._ledger.error is not None:
            raise _again(self._ledger.error)
        if self._closing:
            raise StoreError("E6005", "the database is closed: open it again")

    def _check_reachable(self, tick: int) -> None:
        if self._ledger.error is not None:
            raise _again(self._ledger.error)
        if tick > self._ledger.submitted:
            raise ValueError(f"tick {tick} was never submitted, the last was {self._ledger.submitted}")


def _again(error: StoreError) -> StoreError:
    """The same error for another listener: an exception that is raised twice mixes up its tracebacks."""
    copy = StoreError(error.code, error.text, fields=error.fields)
    copy.__cause__ = error
    return copy
