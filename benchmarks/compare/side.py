"""One side of a comparison: the process that measures a case inside a checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Self

from benchmarks.compare.checkouts import Checkout, environment
from benchmarks.compare.report import MetricSamples
from benchmarks.waiting import read_line, stop_process

__all__ = ["CaseSide", "case_names"]

_PROGRAM = Path(__file__).with_name("measure.py")
_LIST_SECONDS = 120.0
_END_SECONDS = 120.0


def case_names(checkout: Checkout) -> list[str]:
    """Return the names of the cases of a checkout."""
    done = subprocess.run(
        _command(checkout, "--list"),
        cwd=checkout.folder,
        env=_environment(checkout),
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIST_SECONDS,
    )
    answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    if not isinstance(answer, list):
        raise RuntimeError(f"the {checkout.name} commit lists no cases: {answer or done.stderr[-300:]}")
    return answer


class CaseSide:
    """The process of one case in one checkout. Enter it to set up the case; `measure` runs one round."""

    def __init__(self, checkout: Checkout, case: str, *, scale: str, step_seconds: float) -> None:
        self._checkout, self._case, self._step_seconds = checkout, case, step_seconds
        self._folder = Path(mkdtemp(prefix=f"{case}-", dir=checkout.folder))
        self._process = subprocess.Popen(
            _command(checkout, case, scale, str(self._folder)),
            cwd=checkout.folder,
            env=_environment(checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._metrics: list[dict[str, Any]] = []
        self._rounds: list[list[float]] = []
        self.wanted_rounds = 0
        """How often the case asks to be measured."""

    def __enter__(self) -> Self:
        try:
            answer = self._answer("the set-up")
        except BaseException:
            self.close()
            raise
        self._metrics, self.wanted_rounds = answer["metrics"], int(answer["rounds"])
        return self

    def measure(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._rounds.append(self._answer("a round")["samples"])

    def samples(self) -> list[MetricSamples]:
        """Return the rounds by metric."""
        return [
            MetricSamples(**metric, samples=tuple(values[place] for values in self._rounds))
            for place, metric in enumerate(self._metrics)
        ]

    def _answer(self, what: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        what = f"{what} of {self._case} in the {self._checkout.name} commit"
        line = read_line(self._process.stdout, what, self._step_seconds)
        if not line:
            raise RuntimeError(f"{what}: the process ended")
        answer = dict(json.loads(line))
        if "problem" in answer:
            raise RuntimeError(f"{what}: {answer['problem']}")
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process: the end of its input lets it stop its servers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            stop_process(self._process)
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _command(checkout: Checkout, *words: str) -> list[str]:
    return [str(checkout.python), "-P", str(_PROGRAM), *words]


def _environment(checkout: Checkout) -> dict[str, str]:
    return {**environment(), "PYTHONPATH": str(checkout.folder)}
