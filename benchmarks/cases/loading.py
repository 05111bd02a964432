"""Opening a directory with a million nodes: time, memory, and pauses of the garbage collector."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import msgspec

from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.engines.seam import name_of, rank_of
from benchmarks.engines.vedette import SPAWN, VedetteEngine
from benchmarks.rounds import rate
from benchmarks.waiting import run_program

__all__ = ["CASES"]

_CHUNK = 10_000


def _write_nodes(engine: VedetteEngine, count: int) -> None:
    execute = engine.session.execute
    for start in range(0, count, _CHUNK):
        execute("BEGIN")
        for key in range(start, min(count, start + _CHUNK)):
            execute(SPAWN, key=key, name=name_of(key), rank=rank_of(key))
        execute("COMMIT")


def _loading(collects: str) -> Callable[[Setting], AbstractContextManager[Measure]]:
    """Each round is a new process, `benchmarks.opened`, that opens the directory written here."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        nodes = setting.scale.nodes
        engine = VedetteEngine(setting.folder)

        def write_all() -> None:
            _write_nodes(engine, nodes)
            engine.close()

        written = rate(nodes, write_all)

        def measure() -> tuple[float, ...]:
            # A copy, because the process changes the directory and every round must find the same.
            copy = setting.folder / "copy"
            shutil.copytree(setting.folder / "data", copy)
            command = [sys.executable, "-m", "benchmarks.opened", str(copy), str(nodes), collects]
            try:
                answer = run_program(command, _OPEN_SECONDS)
            finally:
                shutil.rmtree(copy)
            seen = msgspec.json.decode(answer, type=dict[str, float])
            return (written, seen["seconds"], seen["bytes"], seen["pause_ms"], seen["slowest_ms"])

        yield measure

    return start


_OPEN_SECONDS = 1_800.0
"""Time limit for one process that opens the directory and uses it."""
CASES = (
    Case(
        name="million",
        title="A directory of 1,000,000 nodes",
        metrics=(
            Metric(name="writing nodes, 10,000 a commit", unit="/s", more_is_better=True),
            Metric(name="opening the directory", unit="s", goal=40),
            Metric(name="memory per node", unit="bytes", goal=900),
            Metric(name="longest collection pause", unit="ms", goal=20),
            Metric(name="slowest statement", unit="ms"),
        ),
        rounds=lambda scale: scale.load_rounds,
        method=(
            "Nodes with two indexed attributes. Memory is the growth of the process's resident set over "
            "`vedette.open`, divided by the nodes, in a fresh process (code already loaded, nothing "
            "traced, nothing trimmed). Then 100,000 "
            "SPAWNs, look-ups, SETs and KILLs and a second of rest, while `gc.callbacks` times every collection and "
            "each statement is timed. Both contenders are Vedette, with and without its policy for Python's collector."
        ),
        contenders=(
            Contender(name="Vedette", start=_loading("managed")),
            Contender(
                name="manage_gc=False",
                start=_loading("python"),
                about="Vedette with Python's own collection policy",
            ),
        ),
    ),
)
