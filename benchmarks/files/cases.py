"""The cases. `benchmarks.files.__main__` runs each in a process of its own, which prints one line of JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Self

import numpy as np

from benchmarks.files.corpus import copy_sources
from benchmarks.files.ours import COLLECTION, WATCH, Parts, parts, running
from benchmarks.files.peers import PEERS
from benchmarks.waiting import WaitTimeoutError, join_thread, read_line, stop_process, wait_until
from vedette.search.file_queue.tasks import FileOperation, FileTask
from vedette.search.folders.process_memory import memory_usage

__all__ = ["CASES"]

Figures = Mapping[str, float | str]
_ROUNDS = 3
_SILENCE_SECONDS = 5.0
"""A burst has ended when nothing happens for this time, in seconds."""
_LIMIT_SECONDS = 1_800.0
"""Time limit in seconds for one phase of a case, for example the ingestion of all files."""
_EDIT_SECONDS = 60.0
"""Time limit in seconds for the effect of one edit."""


def burst(base: Path, count: int) -> Figures:
    """Create `count` files at once: seconds until raw `watchfiles` has reported all, and until all are tasks in the
    queue.

    Both sides run in turns, and the median of each counts: most of the time goes into creating the files, and varies.
    """
    rounds = range(_ROUNDS)
    watchfiles_seconds, queued = zip(
        *(_one_burst(base / str(number), count) for number in rounds), strict=True
    )
    raw, (ours, cpu, missed) = sorted(watchfiles_seconds)[_ROUNDS // 2], sorted(queued)[_ROUNDS // 2]
    return {
        "watchfiles_s": raw,
        "queued_s": ours,
        "queued_cpu_s": cpu,
        "ratio": ours / raw,
        "missed": missed,
    }


def _one_burst(base: Path, count: int) -> tuple[float, tuple[float, float, int]]:
    """Return the seconds of raw watchfiles, and for Vedette the seconds and CPU seconds until all files were queued,
    and the number of files that never were.
    """
    root = base / "root"
    root.mkdir(parents=True)
    raw = _watchfiles_seconds(base / "raw", count)
    with parts(base / "data", root) as daemon_parts:
        # the store opens while the daemon starts; measure a daemon that has been running
        daemon_parts.store.count_by_collection()
        daemon_parts.tables.pause_watch(WATCH)  # until the folder is watched
        with _WatchersOnly(daemon_parts):
            wait_until(
                lambda: daemon_parts.tables.watch(WATCH).last_scan is not None,
                "the first scan",
                _LIMIT_SECONDS,
            )
            daemon_parts.tables.resume_watch(WATCH)
            with _Writer(root, count) as writer, _Puts(daemon_parts, count) as puts:
                started_at, cpu = writer.start(), time.process_time()
                puts.complete.wait(_LIMIT_SECONDS)  # files that are missing then are counted
                ours, cpu = time.perf_counter() - started_at, time.process_time() - cpu
            return raw, (ours, cpu, count - daemon_parts.queue.depth())


def edit(base: Path, count: int) -> Figures:
    """Edit one of `count` watched files: seconds until its task is queued, and until a search finds the new text."""
    root, edits = base / "root", 40
    copy_sources(root, count)
    detected, found = [], []
    with parts(base / "data", root) as daemon_parts, running(daemon_parts):
        _wait_until_ingested(daemon_parts, count)
        paths = sorted(root.rglob("*.py"))[:: max(1, count // edits)][:edits]
        with _Puts(daemon_parts, edits) as puts:
            for number, path in enumerate(paths):
                words = f"zanzibar{number} quokka{number} marmalade{number}"
                time.sleep(0.3)  # wait until the edit before is processed
                started_at = time.perf_counter()
                path.write_text(f"# {words}\n")
                name = str(path)
                wait_until(lambda name=name: name in puts.put_times, f"the task of {name}", _EDIT_SECONDS)  # type: ignore[misc]
                found_words = partial(_is_found, daemon_parts, words)
                wait_until(found_words, f"a search that finds {name}", _EDIT_SECONDS, pause=0.02)
                found.append(time.perf_counter() - started_at)
                detected.append(puts.put_times[str(path)] - started_at)
    return {
        "detected_p50_ms": 1000 * float(np.quantile(detected, 0.5)),
        "detected_p99_ms": 1000 * float(np.quantile(detected, 0.99)),
        "searchable_p50_ms": 1000 * float(np.quantile(found, 0.5)),
        "searchable_p99_ms": 1000 * float(np.quantile(found, 0.99)),
    }


def first_ingest(base: Path, count: int) -> Figures:
    """Ingest `count` source files into an empty store, with the same embedder on all sides."""
    root = base / "root"
    size = copy_sources(root, count)
    figures: dict[str, float | str] = {"megabytes": size / 1e6}
    for name in PEERS:
        command = [sys.executable, "-m", "benchmarks.files.peers", name, str(root), str(base / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS)
        result = [line.split() for line in done.stdout.splitlines() if line.startswith("result ")]
        if not result:
            figures[name] = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
            continue
        for number, unit in enumerate(("s", "cpu_s", "chunks"), start=1):
            figures[f"{name}_{unit}"] = float(result[0][number])
    with parts(base / "data", root) as daemon_parts:
        started_at, cpu = time.perf_counter(), time.process_time()
        with running(daemon_parts):
            _wait_until_ingested(daemon_parts, count)
            figures |= {
                "vedette_s": time.perf_counter() - started_at,
                "vedette_cpu_s": time.process_time() - cpu,
            }
        figures["vedette_chunks"] = daemon_parts.store.count_by_collection()[COLLECTION]
    for name in PEERS:
        for unit in ("s", "cpu_s"):
            if f"{name}_{unit}" in figures:
                ratio = float(figures[f"{name}_{unit}"]) / float(figures[f"vedette_{unit}"])
                figures[f"ratio_{unit}_{name}"] = ratio
    return figures


def backlog(base: Path, count: int) -> Figures:
    """The first ingest by the daemon alone, and by the daemon with Spark, including the start of Spark."""
    root = base / "root"
    copy_sources(root, count)
    figures: dict[str, float | str] = {}
    for name, spark in (("alone", False), ("with_spark", True)):
        with parts(base / name, root, spark=spark) as daemon_parts:
            started_at, cpu = time.perf_counter(), time.process_time()
            with running(daemon_parts):
                _wait_until_ingested(daemon_parts, count)
                figures[f"{name}_s"] = time.perf_counter() - started_at
                figures[f"{name}_daemon_cpu_s"] = time.process_time() - cpu
            figures[f"{name}_chunks"] = daemon_parts.store.count_by_collection()[COLLECTION]
    return figures


def warm_restart(base: Path, count: int) -> Figures:
    """Start a daemon over `count` unchanged files: seconds until it has compared them all."""
    root = base / "root"
    copy_sources(root, count)
    with parts(base / "data", root) as daemon_parts, running(daemon_parts):
        _wait_until_ingested(daemon_parts, count)
        time.sleep(1.0)  # files written just now are scanned once more
    started_at = time.perf_counter()
    with parts(base / "data", root) as daemon_parts:
        before = daemon_parts.tables.watch(WATCH).last_scan
        opened = time.perf_counter() - started_at
        with running(daemon_parts):
            wait_until(
                lambda: daemon_parts.tables.watch(WATCH).last_scan != before, "the scan", _LIMIT_SECONDS
            )
            compared = time.perf_counter() - started_at
            queued = daemon_parts.queue.depth()
    return {"opened_s": opened, "compared_s": compared, "files_queued": queued}


def waiting(base: Path, count: int) -> Figures:
    """Memory of the daemon while `count` tasks are queued."""
    root = base / "root"
    root.mkdir()
    with parts(base / "data", root) as daemon_parts:
        empty = memory_usage().used_bytes
        for start in range(0, count, 1_000):
            daemon_parts.queue.put(
                [
                    FileTask(
                        path=f"{root}/folder/{number:08}.py",
                        watch_id=WATCH,
                        collection=COLLECTION,
                        operation=FileOperation.INGEST,
                        priority=number % 11,
                    )
                    for number in range(start, min(count, start + 1_000))
                ]
            )
        full = memory_usage().used_bytes
    return {"empty_MB": empty / 1e6, "waiting_MB": full / 1e6, "bytes_a_task": (full - empty) / count}


CASES: Mapping[str, Callable[[Path, int], Figures]] = {
    each.__name__: each for each in (burst, edit, first_ingest, backlog, warm_restart, waiting)
}


def _watchfiles_seconds(root: Path, count: int) -> float:
    from watchfiles import watch

    root.mkdir()
    stop, seen_paths, ready, saw_all = Event(), set[str](), Event(), Event()
    last_event_at = time.perf_counter()

    def collect_events() -> None:
        nonlocal last_event_at
        for batch in watch(
            root, stop_event=stop, debounce=50, step=20, rust_timeout=50, yield_on_timeout=True
        ):
            ready.set()
            if batch:
                seen_paths.update(path for _, path in batch if path.endswith(".txt"))
                last_event_at = time.perf_counter()
            if len(seen_paths) >= count:
                saw_all.set()

    thread = Thread(target=collect_events, daemon=True)
    thread.start()
    if not ready.wait(_LIMIT_SECONDS):
        raise WaitTimeoutError("the first answer of watchfiles", _LIMIT_SECONDS)
    with _Writer(root, count) as writer:
        started_at = writer.start()
        end = time.monotonic() + _LIMIT_SECONDS
        while not saw_all.wait(0.1) and (
            not seen_paths or time.perf_counter() - last_event_at < _SILENCE_SECONDS
        ):
            if time.monotonic() > end:
                raise WaitTimeoutError(
                    f"{count} files in watchfiles ({len(seen_paths)} reported)", _LIMIT_SECONDS
                )
    seconds = last_event_at - started_at
    stop.set()
    join_thread(thread, "the end of watchfiles", _EDIT_SECONDS)
    if not saw_all.is_set():  # inotify's queue overflowed, which it does not report
        print(f"raw watchfiles reported {len(seen_paths):,} of {count:,} files", file=sys.stderr)
    return seconds


class _Writer:
    """Creates the files in a process of its own, so that neither side shares an interpreter with it."""

    _PROGRAM = """
import pathlib, sys
root, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    (root / f"{number:06}.txt").write_bytes(b"words of a small file\\n")
"""

    def __init__(self, root: Path, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._PROGRAM, str(root), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        read_line(self._process.stdout, "the process that writes the files", _EDIT_SECONDS)
        return self

    def start(self) -> float:
        """Start creating the files. Return the time of the start."""
        started_at = time.perf_counter()
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return started_at

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            stop_process(self._process)
            raise


class _WatchersOnly:
    """The watchers of the daemon without its worker."""

    def __init__(self, daemon_parts: Parts) -> None:
        self._daemon = daemon_parts.daemon

    def __enter__(self) -> None:
        self._daemon._reconcile_watchers()

    def __exit__(self, *_: object) -> None:
        self._daemon.close()


def _wait_until_ingested(daemon_parts: Parts, count: int) -> None:
    wait_until(
        lambda: daemon_parts.tables.watch(WATCH).last_scan is not None and not daemon_parts.queue.depth(),
        f"the ingestion of {count} files",
        _LIMIT_SECONDS,
        pause=0.1,
    )
    paths = [str(path) for path in Path(daemon_parts.tables.watch(WATCH).config.path).rglob("*.py")]
    stored = len(daemon_parts.store.stored_files(COLLECTION, paths))
    assert stored >= 0.95 * count, f"{stored} of {count} files are stored"  # some are empty or not text


class _Puts:
    """Records which paths are put into the queue, and when each put was durable."""

    def __init__(self, daemon_parts: Parts, count: int) -> None:
        self._queue, self._count = daemon_parts.queue, count
        self.put_times: dict[str, float] = {}
        self.complete = Event()
        """Set when `count` paths were put."""

    def __enter__(self) -> Self:
        put = self._queue.put

        def recording_put(tasks: Sequence[FileTask]) -> None:
            put(tasks)
            now = time.perf_counter()
            self.put_times.update((task.path, now) for task in tasks)
            if len(self.put_times) >= self._count:
                self.complete.set()

        self._queue.put = recording_put  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        del self._queue.put  # the original method of the class


def _is_found(daemon_parts: Parts, words: str) -> bool:
    vector = daemon_parts.embedder.embed([words])[0]
    # five hits, because the embedder gives 12 and 21 the same vector
    hits = daemon_parts.store.search(COLLECTION, vector, daemon_parts.embedder.name, 5)
    return any(words in hit.text for hit in hits)


if __name__ == "__main__":
    base = Path(tempfile.mkdtemp(prefix="vedette-files-"))
    try:
        print(json.dumps(dict(CASES[sys.argv[1]](base, int(sys.argv[2])))), flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
