"""The command line: python -m benchmarks [--only NAME] [--quick] [--json FILE] [--markdown [FILE]] [--from FILE …]."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.case import Case, Outcome
from benchmarks.cases import CASES
from benchmarks.machine import describe, load, revision
from benchmarks.page import page
from benchmarks.record import Run, joined, read_run, write_run
from benchmarks.runner import RESULTS, run_apart
from benchmarks.scale import FULL, QUICK, Scale
from benchmarks.table import print_run

__all__ = ["main"]

_PAGE = Path(__file__).parents[1] / "docs" / "design" / "benchmarks.md"


def _arguments(words: Sequence[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks", description="Measure Vedette beside its peers.")
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}"
    )
    parser.add_argument("--quick", action="store_true", help="smaller, in less than a minute")
    parser.add_argument(
        "--json", type=Path, default=RESULTS / "latest.json", metavar="FILE", help="where the run goes"
    )
    parser.add_argument(
        "--from",
        dest="sources",
        type=Path,
        metavar="FILE",
        nargs="+",
        help="measure nothing, show this run; of several, all their cases",
    )
    parser.add_argument(
        "--markdown",
        nargs="?",
        type=Path,
        const=_PAGE,
        metavar="FILE",
        help=f"write the page, {_PAGE.name}, as well",
    )
    return parser.parse_args(words)


def _measure(cases: Sequence[Case], scale: Scale, console: Console, keep: Callable[[Run], None]) -> None:
    """Measure case by case and store the results after each, so that an interrupted run loses one case only."""
    RESULTS.mkdir(exist_ok=True)
    machine = describe(RESULTS)
    started = time.monotonic()
    outcomes: list[Outcome] = []
    columns = (
        TextColumn("{task.fields[case]:>16}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        for case in cases:
            task = bar.add_task("", case=case.name, total=None)

            def show_progress(done: int, total: int, who: str, task: object = task) -> None:
                bar.update(task, completed=done, total=total, description=who)  # type: ignore[arg-type]

            outcomes += run_apart(case, scale, show_progress)
            bar.remove_task(task)
            keep(
                Run(
                    machine=machine,
                    scale=scale.name,
                    complete=len(cases) == len(CASES) and case is cases[-1],
                    seconds=time.monotonic() - started,
                    load_after=load(),
                    revision_after=revision(),
                    outcomes=list(outcomes),
                )
            )


def main(words: Sequence[str]) -> int:
    asked = _arguments(words)
    console = Console()
    if asked.sources:
        run = joined([read_run(source) for source in asked.sources], [case.name for case in CASES])
    else:
        cases = [case for case in CASES if asked.only is None or case.name in asked.only]
        _measure(cases, QUICK if asked.quick else FULL, console, lambda run: write_run(run, asked.json))
        run = read_run(asked.json)
    print_run(run, console)
    if asked.markdown is not None:
        asked.markdown.write_text(page(run), encoding="utf-8")
        console.print(f"Written: {asked.markdown}", style="dim")
    return int(any(outcome.problem for outcome in run.outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
