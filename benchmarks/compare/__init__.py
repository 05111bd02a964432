"""Compare two commits: `make bench-compare BASE=<commit>`.

Each commit is checked out into a temporary folder (`git worktree`) and gets an environment and a compiled core of its
own. For each case a process per checkout sets up the case once; then the processes measure in turns: old, new, old,
new. A change of the machine's speed that lasts longer than a round hits both. Each pair of rounds gives one ratio; the
median of the ratios and its interval are the result.

    __main__    the command line
    checkouts   worktrees and environments
    measure     the program that runs inside a checkout, with the benchmarks of that checkout
    side        one such process, seen from the command
    report      ratios, intervals, table and exit code; no I/O
"""

from __future__ import annotations

__all__: list[str] = []
