"""The runner gives up on a case whose process does not report."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from benchmarks.case import Case, Contender, Metric, Outcome
from benchmarks.runner import follow_case
from benchmarks.waiting import WaitTimeoutError

CASE = Case(
    name="x",
    title="X",
    metrics=(Metric(name="m", unit="s"),),
    contenders=(Contender(name="Vedette", start=lambda _: None),),  # type: ignore[arg-type,return-value]
)


def pipe() -> tuple[Any, Any]:
    return multiprocessing.get_context("spawn").Pipe(duplex=False)


def test_timeout_names_the_step() -> None:
    listening, speaking = pipe()
    speaking.send(("progress", (1, 9, "Vedette gets ready")))
    seen: list[Any] = []
    with pytest.raises(WaitTimeoutError, match="the end of the step 'Vedette gets ready': not within"):
        follow_case(CASE, listening, lambda *output: seen.append(output), 0.05)
    assert seen == [(1, 9, "Vedette gets ready")]


def test_crashed_process_is_reported() -> None:
    listening, speaking = pipe()
    speaking.close()
    (outcome,) = follow_case(CASE, listening, lambda *_: None, 60)
    assert outcome.problem == "its process died"


def test_outcomes_are_returned() -> None:
    listening, speaking = pipe()
    outcome = Outcome(case="x", title="X", method="", metric=CASE.metrics[0], series=[])
    speaking.send(("outcomes", [outcome]))
    assert follow_case(CASE, listening, lambda *_: None, 60) == [outcome]
