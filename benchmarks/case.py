"""What is measured and what came out, as records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from benchmarks.scale import Scale

__all__ = ["Case", "Contender", "Measure", "Metric", "Outcome", "Series", "Setting"]

Measure: TypeAlias = Callable[[], tuple[float, ...]]
"""One round of one contender: a number for each metric of the case, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a contender may use."""

    scale: Scale
    folder: Path
    """An empty folder of its own, on a real disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    """What the number says; ends up as the line of the table."""
    unit: str
    """Behind the number: "/s", "µs", "ms", "s", "bytes"."""
    goal: float | None = None
    """In the same unit; None where nothing was asked for."""
    more_is_better: bool = False
    times: float | None = None
    """A goal that is a ratio: so many times as good as the contender `against`, as "one and another", or as "all"."""
    against: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    start: Callable[[Setting], AbstractContextManager[Measure]]
    """Sets up, gives what measures one round, clears away."""
    about: str = ""
    """What a reader must know to judge the number: above all, which durability it gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    """For --only."""
    title: str
    metrics: tuple[Metric, ...]
    contenders: tuple[Contender, ...]
    """Ours first; ratios are against it."""
    rounds: Callable[[Scale], int] = field(default=lambda scale: scale.rounds)
    method: str = ""
    """How it is measured, for the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The samples of one contender for one metric, a round each."""

    contender: str
    about: str
    samples: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out for one metric of one case."""

    case: str
    title: str
    method: str
    metric: Metric
    series: list[Series]
    """Ours first."""
    problem: str = ""
    """Why there are no samples, if there are none; contenders that failed alone are named here as well."""
