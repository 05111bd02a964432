"""Formats numbers, the same in the terminal and on the page."""

from __future__ import annotations

from benchmarks.case import Metric, Outcome, Series
from benchmarks.rounds import median_of, ratio, spread, unsteady

__all__ = ["goal_words", "ratio_words", "value_words", "verdict"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def value_words(metric: Metric, series: Series) -> str:
    """ "41,200 /s ± 3%": the median, and half the interquartile range."""
    middle = median_of(series)
    if middle is None:
        return "—"
    apart = spread(series)
    return f"{_number(middle)} {metric.unit}" + ("" if apart is None else f" ± {apart * 100:.0f}%")


def goal_words(metric: Metric) -> str:
    if metric.times is not None:
        return "ahead of all" if metric.against == "all" else f"≥ {metric.times:g}× {metric.against}"
    if metric.goal is None:
        return ""
    return f"{'≥' if metric.more_is_better else '<'} {metric.goal:,g} {metric.unit}"


def verdict(outcome: Outcome) -> bool | None:
    """Return True if the median reaches the goal, or None without a goal or a number."""
    metric = outcome.metric
    if metric.times is not None:
        named = metric.against.split(" and ")
        peers = [s for s in outcome.series[1:] if metric.against == "all" or s.contender in named]
        reached = [times for peer in peers if (times := ratio(outcome, peer)) is not None]
        return min(reached) >= metric.times if reached else None
    middle = median_of(outcome.series[0])
    if middle is None or metric.goal is None:
        return None
    return middle >= metric.goal if metric.more_is_better else middle < metric.goal


def ratio_words(outcome: Outcome, series: Series) -> str:
    """Return how many times better Vedette is than the other; "≈" marks an approximate ratio."""
    times = ratio(outcome, series)
    if times is None:
        return "—"
    rough = "≈" if unsteady(outcome, series) else ""
    return rough + (f"{times:.2f}×" if times < 10 else f"{times:.0f}×")
