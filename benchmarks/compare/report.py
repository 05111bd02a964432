"""Ratios, intervals, table and exit code of a comparison. No I/O.

A ratio says how many times as much the new commit costs: 1.10 is 10 % slower (or larger), 0.90 is 10 % faster. Round
number i of the old commit and round number i of the new one form a pair, because they were measured side by side.

The interval is the nonparametric confidence interval of the median: two order statistics of the sorted ratios, chosen
so that the true median lies between them with a probability of at least 95 %. With fewer than six pairs no such two
exist, and the interval is the range of all ratios.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

__all__ = [
    "CONFIDENCE",
    "MAX_SLOWDOWN",
    "RENAMED_CASES",
    "Comparison",
    "Interval",
    "MetricSamples",
    "common_cases",
    "compare",
    "current_name",
    "exit_code",
    "median_interval",
    "pair_ratios",
    "table",
    "verdict",
]

CONFIDENCE = 0.95
MAX_SLOWDOWN = 1.05
"""A case fails when its whole interval lies above this ratio."""
RENAMED_CASES: Mapping[str, str] = {
    "told": "delivery-latency",
    "everybody-back": "reconnect-storm",
    "crowd": "connections",
}
"""Old name ▸ new name of cases, so that commits before and after the renaming can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSamples:
    """The rounds of one metric of one contender in one checkout."""

    contender: str
    metric: str
    unit: str
    more_is_better: bool
    samples: tuple[float, ...]
    """One value a round, in the order of the rounds."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of one case in both commits."""

    case: str
    contender: str
    metric: str
    unit: str
    old: float
    """Median of the old commit, in `unit`."""
    new: float
    ratio: float
    """Median of the ratios of the pairs."""
    interval: Interval
    pairs: int


def current_name(case: str) -> str:
    """Return the present name of a case."""
    return RENAMED_CASES.get(case, case)


def common_cases(old: Sequence[str], new: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the cases of both commits, as (old name, new name) in the order of the new commit, and all others."""
    by_current = {current_name(name): name for name in old}
    both = [(by_current[current_name(name)], name) for name in new if current_name(name) in by_current]
    shared = {name for pair in both for name in pair}
    return both, [name for name in (*old, *new) if name not in shared]


def pair_ratios(old: Sequence[float], new: Sequence[float], *, more_is_better: bool) -> list[float]:
    """Return the cost of the new commit as a multiple of the old one, pair by pair.

    A pair without a positive, finite value on both sides is left out: it has no ratio.
    """
    pairs = [(a, b) for a, b in zip(old, new, strict=False) if _is_usable(a) and _is_usable(b)]
    return [a / b if more_is_better else b / a for a, b in pairs]


def _is_usable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the interval that holds the median with this confidence; the range when there are too few values."""
    ordered = sorted(values)
    cut = 0
    while _coverage(len(ordered), cut + 1) >= confidence:
        cut += 1
    return Interval(ordered[cut], ordered[len(ordered) - 1 - cut])


def _coverage(count: int, cut: int) -> float:
    """Return the probability that the median lies inside when `cut` values at each end are left out.

    The number of values below the median is binomial with p = 1/2.
    """
    return 1 - 2 * sum(math.comb(count, below) for below in range(cut + 1)) / 2.0**count


def compare(case: str, old: Sequence[MetricSamples], new: Sequence[MetricSamples]) -> list[Comparison]:
    """Compare the metrics of one case; a metric that only one commit has is left out.

    Names of contenders and metrics may differ between commits. A metric is found by its name, else by its position
    if the other commit has the same number of metrics and the same unit there.
    """
    found: list[Comparison] = []
    for position, after in enumerate(new):
        before = _counterpart(after, position, old, len(new))
        if before is None:
            continue
        ratios = pair_ratios(before.samples, after.samples, more_is_better=after.more_is_better)
        if not ratios:
            continue
        found.append(
            Comparison(
                case=case,
                contender=after.contender,
                metric=after.metric,
                unit=after.unit,
                old=median(before.samples),
                new=median(after.samples),
                ratio=median(ratios),
                interval=median_interval(ratios),
                pairs=len(ratios),
            )
        )
    return found


def _counterpart(
    expected: MetricSamples, position: int, others: Sequence[MetricSamples], count: int
) -> MetricSamples | None:
    for other in others:
        if (other.contender, other.metric, other.unit) == (
            expected.contender,
            expected.metric,
            expected.unit,
        ):
            return other
    if len(others) == count and others[position].unit == expected.unit:
        return others[position]
    return None


def verdict(comparison: Comparison) -> str:
    """Return "slower" when the whole interval is more than 5 % above 1, "faster" when it is below 1; else "same"."""
    if comparison.interval.low > MAX_SLOWDOWN:
        return "slower"
    if comparison.interval.high < 1.0:
        return "faster"
    return "same"


def exit_code(comparisons: Sequence[Comparison], problems: Mapping[str, str]) -> int:
    """Return 2 when a case could not be measured or there is none, 1 when a metric is slower, else 0."""
    if problems or not comparisons:
        return 2
    return int(any(verdict(comparison) == "slower" for comparison in comparisons))


_STYLES = {"slower": "bold red", "faster": "green", "same": "dim"}


def table(comparisons: Sequence[Comparison], title: str) -> Table:
    """Return the comparisons as a table, one row for each metric."""
    made = Table(title=title, title_justify="left")
    for name, justify in (("case", "left"), ("metric", "left"), ("old", "right"), ("new", "right")):
        made.add_column(name, justify=justify)  # type: ignore[arg-type]
    made.add_column("new / old", justify="right")
    made.add_column("interval", justify="right")
    made.add_column("pairs", justify="right")
    made.add_column("")
    for each in comparisons:
        word = verdict(each)
        made.add_row(
            each.case,
            f"{each.contender}: {each.metric}, {each.unit}",
            _number(each.old),
            _number(each.new),
            f"{each.ratio:.3f}",
            f"{each.interval.low:.3f} to {each.interval.high:.3f}",
            str(each.pairs),
            word,
            style=_STYLES[word],
        )
    return made


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.4g}"
