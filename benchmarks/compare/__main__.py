"""python -m benchmarks.compare BASE [--new COMMIT] [--quick] [--only CASE …] [--rounds N] [--json FILE].

The exit code is 0 when no metric is slower, 1 when the whole interval of one lies more than 5 % above 1, and 2 when a
case could not be measured.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.compare.checkouts import Checkout, full_commit, is_dirty, two_checkouts
from benchmarks.compare.report import Comparison, common_cases, compare, current_name, exit_code, table
from benchmarks.compare.side import CaseSide, case_names
from benchmarks.scale import FULL, QUICK

__all__ = ["main"]

MIN_ROUNDS = 6
"""With fewer pairs there is no interval of 95 % (`benchmarks.compare.report`)."""


def _arguments(words: Sequence[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.compare", description="Compare two commits.")
    parser.add_argument("base", metavar="BASE", help="the old commit")
    parser.add_argument("--new", default="HEAD", metavar="COMMIT", help="the new commit; default HEAD")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", nargs="+", action="extend", metavar="CASE", help="only these cases")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"pairs of rounds; default at least {MIN_ROUNDS}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparisons there as well")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    asked = _arguments(words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a log file has no width of its own
    try:
        old, new = full_commit(asked.base), full_commit(asked.new)
    except ValueError as error:
        console.print(str(error), style="red")
        return 2
    if is_dirty():
        console.print("Uncommitted changes are not measured: commit them first.", style="yellow")
    found: list[Comparison] = []
    problems: dict[str, str] = {}
    with two_checkouts(old, new, lambda text: console.print(text, style="dim")) as (before, after):
        cases, others = common_cases(case_names(before), case_names(after))
        cases, unknown = _chosen(cases, asked.only)
        if unknown:
            console.print(f"No such case in both commits: {', '.join(unknown)}.", style="red")
            return 2
        if others and not asked.only:
            console.print(f"In one commit only, not compared: {', '.join(others)}.", style="yellow")
        for names in cases:
            console.print(f"Measuring {names[1]} …", style="dim")
            try:
                found += _measure(before, after, names, asked)
            except Exception as error:  # the other cases are still measured
                problems[names[1]] = str(error)
                console.print(f"{names[1]}: {error}", style="red")
    console.print(table(found, f"{new[:12]} (new) against {old[:12]} (old)"))
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return exit_code(found, problems)


def _chosen(
    cases: list[tuple[str, str]], only: Sequence[str] | None
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the cases that are asked for, by their old or new names, and the names that no case has."""
    if not only:
        return cases, []
    requested = {current_name(name): name for name in only}
    chosen = [pair for pair in cases if current_name(pair[1]) in requested]
    known = {current_name(pair[1]) for pair in chosen}
    return chosen, [name for current, name in requested.items() if current not in known]


def _measure(before: Checkout, after: Checkout, names: tuple[str, str], asked: Namespace) -> list[Comparison]:
    """Measure one case in turns: old, new, old, new."""
    scale = QUICK if asked.quick else FULL
    with ExitStack() as stack:
        sides = [
            stack.enter_context(CaseSide(checkout, name, scale=scale.name, step_seconds=scale.step_seconds))
            for checkout, name in zip((before, after), names, strict=True)
        ]
        rounds = asked.rounds or max(MIN_ROUNDS, *(side.wanted_rounds for side in sides))
        for _ in range(rounds):
            for side in sides:
                side.measure()
        return compare(names[1], sides[0].samples(), sides[1].samples())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
