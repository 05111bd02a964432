"""Records of cases, metrics, contenders and their outcomes."""

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
    """Folder and sizes that a contender may use."""

    scale: Scale
    folder: Path
    """An empty folder on a real disk, used by this contender only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    """What the number means; the label of its row in the table."""
    unit: str
    """Unit of the number: "/s", "µs", "ms", "s", "bytes"."""
    goal: float | None = None
    """The goal in the same unit, or None."""
    more_is_better: bool = False
    times: float | None = None
    """A goal that is a ratio to the contender `against`, to several ("one and another"), or to "all"."""
    against: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    start: Callable[[Setting], AbstractContextManager[Measure]]
    """Context manager that sets up the contender, yields a function that measures one round, and cleans up."""
    about: str = ""
    """What a reader must know to judge the number, above all its durability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    """Name of the case, for --only."""
    title: str
    metrics: tuple[Metric, ...]
    contenders: tuple[Contender, ...]
    """Contenders, Vedette first. Ratios are relative to Vedette."""
    rounds: Callable[[Scale], int] = field(default=lambda scale: scale.rounds)
    method: str = ""
    """How the case is measured, for the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The samples of one contender for one metric, one per round."""

    contender: str
    about: str
    samples: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one metric of one case."""

    case: str
    title: str
    method: str
    metric: Metric
    series: list[Series]
    """Samples of the contenders, Vedette first."""
    problem: str = ""
    """Why samples are missing. Contenders that failed are named here, too."""
