"""Run each case in a process of its own: with a fresh heap, and so that a crash ends one case only.

The process reports each step: a contender that gets ready, or one measurement. A step that takes longer than the limit
of the scale ends the case with an error. The process is then asked to stop, so that it stops the servers that it
started, and killed when it does not.
"""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import mkdtemp
from types import FrameType
from typing import Any, NoReturn

from benchmarks.case import Case, Outcome, Series
from benchmarks.cases import CASES
from benchmarks.rounds import Progress, run_case
from benchmarks.scale import Scale
from benchmarks.waiting import WaitTimeoutError

__all__ = ["RESULTS", "run_apart"]

RESULTS = Path(__file__).parent / "results"
"""Git-ignored, and on the disk of the source: a temporary folder may be in memory."""
STOP_SECONDS = 120.0
"""Time limit for a case to stop its servers."""


def run_apart(case: Case, scale: Scale, progress: Progress) -> list[Outcome]:
    """Run the case in a new process."""
    context = multiprocessing.get_context("spawn")
    listening, speaking = context.Pipe(duplex=False)
    folder = Path(mkdtemp(prefix=f"{case.name}-", dir=RESULTS))
    process = context.Process(target=_run, args=(case.name, scale, folder, speaking))
    process.start()
    speaking.close()
    try:
        return follow_case(case, listening, progress, scale.step_seconds)
    except WaitTimeoutError as error:
        process.terminate()
        return _nothing(case, str(error))
    finally:
        _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def follow_case(
    case: Case, listening: Connection[Any, Any], progress: Progress, step_seconds: float
) -> list[Outcome]:
    """Read the reports of the case's process until its outcomes; raise when a step takes too long."""
    step = "starting the process"
    while True:
        try:
            if not listening.poll(step_seconds):
                raise WaitTimeoutError(f"the end of the step '{step}'", step_seconds)
            kind, said = listening.recv()
        except EOFError:
            return _nothing(case, "its process died")
        if kind == "progress":
            step = str(said[2])
            progress(*said)
        elif kind == "outcomes":
            return list(said)
        else:
            return _nothing(case, str(said))


def _stop(process: BaseProcess) -> None:
    """Wait for the end of the process; end it by force when it does not end."""
    process.join(STOP_SECONDS)
    if process.is_alive():
        process.kill()
        process.join(STOP_SECONDS)


def _nothing(case: Case, problem: str) -> list[Outcome]:
    series = [Series(contender=c.name, about=c.about, samples=[]) for c in case.contenders]
    return [
        Outcome(
            case=case.name,
            title=case.title,
            method=case.method,
            metric=metric,
            series=series,
            problem=problem,
        )
        for metric in case.metrics
    ]


def _run(name: str, scale: Scale, folder: Path, speaking: Connection[Any, Any]) -> None:
    signal.signal(signal.SIGTERM, _raise_exit)
    (case,) = _named(CASES, name)
    try:
        outcomes = run_case(case, scale, folder, lambda *said: speaking.send(("progress", said)))
        speaking.send(("outcomes", outcomes))
    except BaseException:
        speaking.send(("problem", traceback.format_exc(limit=-3)))
        raise


def _raise_exit(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process through its `finally` blocks, which stop the servers of the contenders."""
    sys.exit("stopped by the runner")


def _named(cases: Sequence[Case], name: str) -> list[Case]:
    return [case for case in cases if case.name == name]
