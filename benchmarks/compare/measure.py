"""Measure one case of the checkout that this program is started in: its own contenders, without the peers.

    python -P measure.py --list                 print the names of all cases as JSON
    python -P measure.py CASE SCALE FOLDER      SCALE is "quick" or "full"; FOLDER is empty

In the second form each line of standard input asks for one round; the end of input ends the program. Each line of
standard output is a JSON object: first `metrics` and `rounds`, then `samples` for each round, or `problem`.

The program runs with the benchmarks of an older or newer commit, so it imports nothing but the standard library and
that commit's `benchmarks`. `_attribute` lists the places of a name in all commits that can be compared.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

__all__: list[str] = []

OURS = "vedette"
"""Our contenders have names that begin with this word, in any case."""


def _attribute(name: str, *modules: str) -> Any:
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this commit has no {name} in {' or '.join(modules)}")


def all_cases() -> tuple[Any, ...]:
    return tuple(_attribute("CASES", "benchmarks.cases"))


def scale_named(name: str) -> Any:
    return _attribute(
        name.upper(), "benchmarks.scale", "benchmarks.harness.sizes", "benchmarks.harness.scale"
    )


def setting(scale: Any, folder: Path) -> Any:
    """Return the record that a contender is started with; its fields are the folder and the sizes."""
    kind = _attribute("Setting", "benchmarks.case", "benchmarks.harness.case")
    return kind(**{field.name: folder if field.name == "folder" else scale for field in fields(kind)})


def measure(name: str, scale_name: str, folder: Path, say: Any) -> None:
    (case,) = [case for case in all_cases() if case.name == name]
    scale = scale_named(scale_name)
    ours = [contender for contender in case.contenders if contender.name.lower().startswith(OURS)]
    metrics = [
        {
            "contender": contender.name,
            "metric": metric.name,
            "unit": metric.unit,
            "more_is_better": metric.more_is_better,
        }
        for contender in ours
        for metric in case.metrics
    ]
    with ExitStack() as stack:
        rounds = []
        for number, contender in enumerate(ours):
            place = folder / str(number)
            place.mkdir()
            rounds.append(stack.enter_context(contender.start(setting(scale, place))))
        say({"metrics": metrics, "rounds": case.rounds(scale)})
        for _ in sys.stdin:
            say({"samples": [value for run in rounds for value in run()]})


def main(words: list[str]) -> int:
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("stopped")
    )  # through `finally`, which stops the servers
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a case may print; only answers go to the output

    def say(answer: object) -> None:
        print(json.dumps(answer), file=output, flush=True)

    try:
        if words == ["--list"]:
            say([case.name for case in all_cases()])
        else:
            measure(words[0], words[1], Path(words[2]), say)
    except Exception as error:
        say({"problem": f"{type(error).__name__}: {str(error)[:300]}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
