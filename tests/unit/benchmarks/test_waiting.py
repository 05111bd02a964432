"""Bounded waits of the benchmarks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from threading import Event, Thread

import pytest

from benchmarks.waiting import (
    WaitTimeoutError,
    join_thread,
    read_line,
    run_program,
    stop_process,
    wait_for,
    wait_until,
    wait_until_async,
)


def test_a_condition_that_comes_true_ends_the_wait() -> None:
    answers = iter([False, False, True])
    wait_until(lambda: next(answers), "the third answer", 60, pause=0)
    answers = iter([False, False, True])
    asyncio.run(wait_until_async(lambda: next(answers), "the third answer", 60, pause=0))


def test_a_condition_that_stays_false_is_an_error_that_names_it() -> None:
    with pytest.raises(WaitTimeoutError, match=r"^the moon: not within 0\.01 s$"):
        wait_until(lambda: False, "the moon", 0.01)
    with pytest.raises(WaitTimeoutError, match="the moon"):
        asyncio.run(wait_until_async(lambda: False, "the moon", 0.01, pause=0.001))
    with pytest.raises(WaitTimeoutError, match="the moon"):
        asyncio.run(wait_for(asyncio.sleep(60), "the moon", 0.01))


def test_a_thread_that_does_not_end_is_an_error() -> None:
    stop = Event()
    thread = Thread(target=stop.wait, args=(60,), daemon=True)
    thread.start()
    with pytest.raises(WaitTimeoutError, match="the reader"):
        join_thread(thread, "the reader", 0.01)
    stop.set()
    join_thread(thread, "the reader", 60)


def test_lines_of_a_process_are_waited_for_with_a_limit() -> None:
    program = "import time; print('one', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert read_line(process.stdout, "the first line", 60) == "one\n"
        with pytest.raises(WaitTimeoutError, match="the second line"):
            read_line(process.stdout, "the second line", 0.01)
        stop_process(process)
    assert process.returncode is not None


def test_a_program_that_fails_or_takes_too_long_is_an_error() -> None:
    assert run_program([sys.executable, "-c", "print(7)"], 60) == "7\n"
    with pytest.raises(RuntimeError, match="the reason"):
        run_program([sys.executable, "-c", "raise SystemExit('the reason')"], 60)
    with pytest.raises(WaitTimeoutError, match="not within"):
        run_program([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)


def test_a_process_that_ignores_the_request_to_stop_is_killed() -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(1, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stop_process(process, 0.2)
    assert process.returncode == -9
