"""Measures Vedette and comparable systems: `make bench`, or `python -m benchmarks --help`.

    scale.py      sizes of a run: FULL, QUICK
    case.py       the records Metric, Contender, Case and Outcome
    rounds.py     rounds in which the contenders take turns; medians, spreads, ratios
    cases/        one file per group of cases; cases/__init__.py lists them all
    engines/      the contenders, each with the same interface (engines/seam.py)
    runner.py     one process per case; progress
    machine.py    the machine and the revision
    table.py      the table in the terminal
    page.py       docs/design/benchmarks.md

Nothing here asserts a time: a time is valid for one machine and one moment, a ratio carries over better.
"""
