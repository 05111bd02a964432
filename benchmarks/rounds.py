"""Rounds in which the contenders take turns, so that noise affects all of them; and statistics of the samples.

Taking turns does not compensate for a stall that is longer than a turn: it hits one contender. Cases that wait for the
disk therefore have many short rounds, and `unsteady` reports when even that was not enough. No sample is discarded.
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
"""Spread above which a ratio is only approximate."""

Progress = Callable[[int, int, str], object]
"""Called before each measurement with the number done, the total number, and the next contender."""


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rate(count: int, work: Callable[[], object]) -> float:
    """Return the rate per second."""
    return count / seconds(work)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def run_case(case: Case, scale: Scale, folder: Path, progress: Progress) -> list[Outcome]:
    """Start every contender, measure them in turns, and group the numbers by metric.

    A contender that fails is dropped, and the outcome states the reason; the others continue.
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
    """Return every name once per round; each round starts with another."""
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


# Statistics of the samples


def median_of(series: Series) -> float | None:
    return median(series.samples) if series.samples else None


def spread(series: Series) -> float | None:
    """Return the spread of the rounds: half the interquartile range relative to the median."""
    middle = median_of(series)
    if not middle or len(set(series.samples)) < 3:
        return None  # too few, or one measurement that every round repeats
    ordered = sorted(series.samples)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / 2 / middle


def unsteady(outcome: Outcome, series: Series) -> bool:
    """Return True if the rounds of either side are too few or too far apart to quote their ratio."""
    spreads = [spread(each) for each in (outcome.series[0], series)]
    return any(each is None or each > UNSTEADY for each in spreads)


def ratio(outcome: Outcome, series: Series) -> float | None:
    """Return how many times better Vedette is: the median ratio over rounds measured side by side."""
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
