"""One process per case: a fresh heap and collector for each, and a contender that crashes takes only its case along."""

from __future__ import annotations

import multiprocessing
import shutil
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from benchmarks.case import Case, Outcome, Series
from benchmarks.cases import CASES
from benchmarks.rounds import Progress, run_case
from benchmarks.scale import Scale

__all__ = ["RESULTS", "run_apart"]

RESULTS = Path(__file__).parent / "results"
"""Git-ignored, and on the disk that the source is on: a temporary folder may well be memory."""


def run_apart(case: Case, scale: Scale, progress: Progress) -> list[Outcome]:
    """Run the case in a process of its own."""
    context = multiprocessing.get_context("spawn")
    listening, speaking = context.Pipe(duplex=False)
    folder = Path(mkdtemp(prefix=f"{case.name}-", dir=RESULTS))
    process = context.Process(target=_run, args=(case.name, scale, folder, speaking))
    process.start()
    speaking.close()
    try:
        return _follow(case, listening, progress)
    finally:
        process.join()
        shutil.rmtree(folder, ignore_errors=True)


def _follow(case: Case, listening: Connection[Any, Any], progress: Progress) -> list[Outcome]:
    while True:
        try:
            kind, said = listening.recv()
        except EOFError:
            return _nothing(case, "its process died")
        if kind == "progress":
            progress(*said)
        elif kind == "outcomes":
            return list(said)
        else:
            return _nothing(case, str(said))


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
    (case,) = _named(CASES, name)
    try:
        outcomes = run_case(case, scale, folder, lambda *said: speaking.send(("progress", said)))
        speaking.send(("outcomes", outcomes))
    except BaseException:
        speaking.send(("problem", traceback.format_exc(limit=-3)))
        raise


def _named(cases: Sequence[Case], name: str) -> list[Case]:
    return [case for case in cases if case.name == name]
