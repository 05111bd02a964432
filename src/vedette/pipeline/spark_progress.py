"""Progress bar of a Spark batch on the terminal: completed tasks of its stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from typing import Any, Protocol

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["StageTally", "shown_progress"]

LOOK_SECONDS = 0.2


class Tracker(Protocol):
    """Stage information of Spark (`SparkContext.statusTracker`)."""

    def getActiveStageIds(self) -> Any: ...
    def getStageInfo(self, stageId: int) -> Any: ...


class StageTally:
    """Tasks of all stages that were ever active. Completed stages are queried once more."""

    def __init__(self) -> None:
        self._stages: dict[int, tuple[int, int]] = {}

    def look(self, tracker: Tracker) -> tuple[int, int]:
        """(completed, total); neither decreases."""
        for stage in {*self._stages, *tracker.getActiveStageIds()}:
            info = tracker.getStageInfo(stage)
            if info is not None:
                self._stages[stage] = (info.numCompletedTasks, info.numTasks)
            elif stage in self._stages:  # no longer known to Spark: completed
                self._stages[stage] = (self._stages[stage][1],) * 2
        return sum(done for done, _ in self._stages.values()), sum(all_ for _, all_ in self._stages.values())


@contextmanager
def shown_progress(session: SparkSession, what: str, console: Console | None = None) -> Iterator[None]:
    """Show a bar while the block runs, on a terminal only."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    tally, tracker, stop = StageTally(), session.sparkContext.statusTracker(), Flag()
    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def follow() -> None:
            while not stop.wait(LOOK_SECONDS):
                done, total = tally.look(tracker)
                bar.update(task, completed=done, total=total or None)

        thread = Thread(target=follow, name="vedette-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
