"""Bounded waits. A benchmark that waits for an event that never comes must end with an error that names the event.

Each function takes the text `what`, for the error, and the limit in seconds. The runner adds a limit for each step of
a case (`benchmarks.runner`), for waits inside a library.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from threading import Thread
from typing import IO, Any, TypeVar

__all__ = [
    "WaitTimeoutError",
    "join_thread",
    "read_line",
    "run_program",
    "stop_process",
    "wait_for",
    "wait_until",
    "wait_until_async",
]

T = TypeVar("T")


class WaitTimeoutError(RuntimeError):
    """An event did not happen in time."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what}: not within {seconds:g} s")


def wait_until(condition: Callable[[], bool], what: str, seconds: float, *, pause: float = 0.005) -> None:
    """Check the condition every `pause` seconds until it is true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise WaitTimeoutError(what, seconds)
        time.sleep(pause)


async def wait_until_async(
    condition: Callable[[], bool], what: str, seconds: float, *, pause: float = 0.02
) -> None:
    """As `wait_until`, for a coroutine."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise WaitTimeoutError(what, seconds)
        await asyncio.sleep(pause)


async def wait_for(awaited: Awaitable[T], what: str, seconds: float) -> T:
    """Return the result of the awaitable; cancel it after the time limit."""
    try:
        return await asyncio.wait_for(awaited, seconds)
    except TimeoutError as error:
        raise WaitTimeoutError(what, seconds) from error


def join_thread(thread: Thread, what: str, seconds: float) -> None:
    """Wait for the end of a thread."""
    thread.join(seconds)
    if thread.is_alive():
        raise WaitTimeoutError(what, seconds)


def read_line(stream: IO[Any], what: str, seconds: float) -> Any:
    """Return the next line of a pipe, empty at its end. After the time limit the reading thread keeps running."""
    lines: list[Any] = []
    reader = Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    join_thread(reader, what, seconds)
    return lines[0] if lines else stream.read(0)


def run_program(command: Sequence[str], seconds: float) -> str:
    """Run a program and return its output; raise with the end of its error output when it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise WaitTimeoutError(f"the end of `{' '.join(command[:4])} …`", seconds) from error
    if done.returncode:
        raise RuntimeError(done.stderr[-300:] or f"exit code {done.returncode}")
    return done.stdout


def stop_process(process: subprocess.Popen[Any], seconds: float = 60.0) -> None:
    """Ask a process to stop; kill it when it does not."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(seconds)
