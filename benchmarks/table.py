"""The table in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.case import Outcome
from benchmarks.record import Run
from benchmarks.wording import goal_words, ratio_words, value_words, verdict

__all__ = ["print_run"]


def print_run(run: Run, console: Console) -> None:
    machine = run.machine
    console.print(
        f"{machine.date} · {machine.processor}, {machine.cores} cores · {machine.python} · {machine.revision} · "
        f"{machine.file_system}, {machine.syncs_per_second:,.0f} syncs/s · "
        f"load {machine.load_before:.1f} before, {run.load_after:.1f} after",
        style="dim",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in (
        ("", "left"),
        ("Vedette", "right"),
        ("goal", "right"),
        ("", "left"),
        ("beside", "left"),
    ):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for outcome in run.outcomes:
        table.add_row(*_row(outcome, judged=outcome.case not in run.quick_cases))
    console.print(table)
    if run.revision_after != machine.revision:
        console.print(f"The source changed during the run, to {run.revision_after}.", style="red")
    if run.scale != "full":
        console.print("A quick run: goals are meant for full ones.", style="dim")
    for problem in dict.fromkeys(f"{o.case}: {o.problem}" for o in run.outcomes if o.problem):
        console.print(problem, style="red", markup=False)


def _row(outcome: Outcome, *, judged: bool) -> tuple[str, str, str, str, str]:
    reached = verdict(outcome) if judged else None
    mark = "" if reached is None else "[green]met[/]" if reached else "[red]missed[/]"
    beside = [
        f"{series.contender} {value_words(outcome.metric, series)} ({ratio_words(outcome, series)})"
        for series in outcome.series[1:]
    ]
    ours = value_words(outcome.metric, outcome.series[0])
    return outcome.metric.name, ours, goal_words(outcome.metric), mark, " · ".join(beside)
