"""Rounds in which the contenders take turns, so that noise is everybody's; and what the samples say.

Taking turns does not even out a stall that is longer than a turn: it hits whoever is on, and keeps him on. So where the
disk is waited for there are many short rounds, and `unsteady` tells when even that was not enough. No sample is ever
thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.case import Case, Measure, Outcome, Series, Setting
from benchmarks.scale import Scale

__all__ = [
    "Progress",
    "median_of",
    "percentile",
    "rate",
    "ratio",
    "run_case",
    "seconds",
    "spread",
    "unsteady",
]

UNSTEADY = 0.2
"""Spread above which a ratio is only rough."""

Progress = Callable[[int, int, str], object]
"""Told before each measurement: how many are done, how many there will be, who is next."""


def seconds(work: Callable[[], object]) -> float:
    """How long it took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rate(count: int, work: Callable[[], object]) -> float:
    """How many a second."""
    return count / seconds(work)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def run_case(case: Case, scale: Scale, folder: Path, progress: Progress) -> list[Outcome]:
    """Start every contender, measure them in turns, and sort the numbers by metric.

    A contender that fails drops out, and the outcome says why; the others go on.
    """
    rounds = case.rounds(scale)
    total = (rounds + 1) * len(case.contenders)
    done = 0
    samples: dict[str, list[tuple[float, ...]]] = {contender.name: [] for contender in case.contenders}
    problems: list[str] = []
    with ExitStack() as stack:
        running: dict[str, Measure] = {}
        for contender in case.contenders:
            progress(done, total, f"{contender.name} gets ready")
            done += 1
            place = folder / f"{case.name}-{len(running)}"
            place.mkdir()
            try:
                setting = Setting(scale=scale, folder=place)
                running[contender.name] = stack.enter_context(contender.start(setting))
            except Exception as error:
                problems.append(_problem(contender.name, error))
        for name in _turns(list(running), rounds):
            progress(done, total, name)
            done += 1
            if name in running:
                try:
                    samples[name].append(running[name]())
                except Exception as error:
                    problems.append(_problem(name, error))
                    del running[name]
    return _by_metric(case, samples, "; ".join(problems))


def _turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Every name once a round, each round begun by another."""
    for number in range(rounds):
        first = number % max(1, len(names))
        yield from [*names[first:], *names[:first]]


def _by_metric(case: Case, samples: dict[str, list[tuple[float, ...]]], problem: str) -> list[Outcome]:
    return [
        Outcome(
            case=case.name,
            title=case.title,
            method=case.method,
            metric=metric,
            series=[
                Series(
                    contender=contender.name,
                    about=contender.about,
                    samples=[values[place] for values in samples[contender.name]],
                )
                for contender in case.contenders
            ],
            problem=problem,
        )
        for place, metric in enumerate(case.metrics)
    ]


def _problem(name: str, error: Exception) -> str:
    return f"{name}: {type(error).__name__}: {str(error)[:300]}"


# What the samples say


def median_of(series: Series) -> float | None:
    return median(series.samples) if series.samples else None


def spread(series: Series) -> float | None:
    """How far apart the rounds lie: half the distance of the quartiles, as a share of the median."""
    middle = median_of(series)
    if not middle or len(set(series.samples)) < 3:
        return None  # too few, or one measurement that every round repeats
    ordered = sorted(series.samples)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / 2 / middle


def unsteady(outcome: Outcome, series: Series) -> bool:
    """Whether the rounds of ours or theirs are too few or lie too far apart for their ratio to be quoted."""
    spreads = [spread(each) for each in (outcome.series[0], series)]
    return any(each is None or each > UNSTEADY for each in spreads)


def ratio(outcome: Outcome, series: Series) -> float | None:
    """How many times as good ours is: the median over the rounds of ours against theirs, measured side by side."""
    pairs = [
        (ours, theirs)
        for ours, theirs in zip(outcome.series[0].samples, series.samples, strict=False)
        if ours and theirs
    ]
    if not pairs:
        return None
    if outcome.metric.more_is_better:
        return median(ours / theirs for ours, theirs in pairs)
    return median(theirs / ours for ours, theirs in pairs)
