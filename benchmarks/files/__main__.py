"""python -m benchmarks.files [--quick] [CASE …]: run each case in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from rich.console import Console
from rich.table import Table

__all__: list[str] = []

SIZES = {
    "burst": (20_000, 2_000),
    "edit": (10_000, 300),
    "first_ingest": (10_000, 300),
    "backlog": (10_000, 1_500),
    "warm_restart": (10_000, 300),
    "waiting": (100_000, 5_000),
}
CASE_SECONDS = 7_200
"""Time limit of one case."""
GOALS = {
    "burst": "ratio at most 1.5, none missed",
    "edit": "searchable p99 under 2,000 ms, detected under 300 ms",
    "first_ingest": "ratios above 1",
    "backlog": "decides what goes to Spark",
    "warm_restart": "under 3 s, nothing queued",
    "waiting": "under 500 MB",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("cases", nargs="*", choices=[*SIZES, []])
    options.add_argument("--quick", action="store_true", help="small sizes: does it work at all")
    options.add_argument("--files", type=int, help="this size instead")
    given = options.parse_args()
    table = Table("case", "size", "figures", "goal")
    for name in given.cases or SIZES:
        size = given.files or SIZES[name][given.quick]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.files.cases", name, str(size)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=CASE_SECONDS,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        shown = "\n".join(
            f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in found.items()
        )
        table.add_row(name, f"{size:,}", shown, GOALS[name])
        print(name, json.dumps(found), file=sys.stderr)
    Console().print(table)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
