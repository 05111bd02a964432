"""How fast Vedette is, beside others doing the same: `make bench`, or `python -m benchmarks --help`.

    scale.py      how much is measured: FULL, QUICK
    case.py       the records: Metric, Contender, Case, and what came out: Outcome
    rounds.py     rounds in which the contenders take turns; medians, spreads, ratios
    cases/        one file per group of cases; cases/__init__.py lists them all
    engines/      the contenders, each behind the same few verbs (engines/seam.py)
    runner.py     one process per case; progress
    machine.py    where it ran
    table.py      the table in the terminal
    page.py       docs/design/benchmarks.md

Nothing here asserts a time: a number belongs to the machine and the minute it was taken on, a ratio travels better.
"""
