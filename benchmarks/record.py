"""A run as one record: the content of the JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from benchmarks.case import Outcome
from benchmarks.machine import Machine

__all__ = ["Run", "joined", "read_run", "write_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    machine: Machine
    scale: str
    """full or quick."""
    complete: bool
    """True if all cases were run."""
    seconds: float
    load_after: float
    """As `Machine.load_before`; the single thread of the run itself counts as one."""
    revision_after: str
    """Differs from `Machine.revision` if the source was changed during the run; the numbers then mix two versions."""
    outcomes: list[Outcome]
    measured: dict[str, str] = field(default_factory=dict)
    """For a run combined from several: when each case was measured, of which revision, under which load."""
    quick_cases: list[str] = field(default_factory=list)
    """For a combined run: cases measured at a smaller size. Their goals are not evaluated."""


def write_run(run: Run, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")


def read_run(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def joined(runs: Sequence[Run], names: Sequence[str]) -> Run:
    """Combine runs of some cases each, with cases in the order of `names`. A later result replaces an earlier one."""
    first, last = runs[0], runs[-1]
    outcomes: dict[str, list[Outcome]] = {}
    measured: dict[str, str] = {}
    quick: set[str] = set()
    for run in runs:
        for case in {outcome.case for outcome in run.outcomes}:
            outcomes[case] = [outcome for outcome in run.outcomes if outcome.case == case]
            measured[case] = run.measured.get(case) or _moment(run)
            quick.discard(case)
            if case in run.quick_cases or (run.scale != "full" and not run.measured):
                quick.add(case)
    return Run(
        machine=replace(first.machine, load_before=max(run.machine.load_before for run in runs)),
        scale=first.scale,
        complete=set(names) <= outcomes.keys(),
        seconds=sum(run.seconds for run in runs),
        load_after=max(run.load_after for run in runs),
        revision_after=last.revision_after,
        outcomes=[outcome for name in names for outcome in outcomes.get(name, ())],
        measured=measured if len(runs) > 1 else first.measured,
        quick_cases=sorted(quick) if len(runs) > 1 else first.quick_cases,
    )


def _moment(run: Run) -> str:
    machine = run.machine
    disk = f"{machine.syncs_per_second:,.0f} syncs a second"
    quick = ", a quick run: smaller than the case says, not a number to keep" if run.scale != "full" else ""
    load = f"load {machine.load_before:.1f} to {run.load_after:.1f}"
    return f"{machine.date} at `{machine.revision}`, {load}, {disk}{quick}"
