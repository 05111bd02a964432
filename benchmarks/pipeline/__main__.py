"""python -m benchmarks.pipeline [--quick]: events per second through normalize … route on two cores.

Two processes share one index, as Spark's workers do. `events/s` is by wall-clock time; `events/s a core` is by CPU
time, which depends less on other load. The last line is a linear scan over all subscriptions with the interpreter of
`common-expression-language`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.pipeline.shop import COLLECTION, Shop, orders, write_index
from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.match import match
from vedette.pipeline.normalize import normalize
from vedette.pipeline.route import route
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import PipelineConfig, Task
from vedette.pipeline.topology import fuse
from vedette.sources.images import decode_image
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.matcher import match_segments
from vedette.subscriptions.index.versions import open_version
from vedette.subscriptions.registry.registry import SubscriptionRegistry

__all__: list[str] = []

MATCHING = (normalize, deduplicate, sequence, match, route)
BATCH = 5_000
CORES = 2
ROUND_SECONDS = 1_800.0
"""Time limit of one round of one row."""
ROUNDS = 5
"""Rounds of all rows in turns, because the speed of the machine changes."""


class Row:
    """One row of the table: an index, matching orders, and the time of each round."""

    def __init__(self, shop: Shop, events: int, folder: Path) -> None:
        folder.mkdir()
        self._shop, self._events = shop, events
        self._size = write_index(shop, folder / "index")
        registry = SubscriptionRegistry(folder)
        self._config = PipelineConfig(
            journal_url="", registry_url=registry.address, index_folder=folder / "index"
        )
        registry.close()
        self._batches = orders(shop, events, batch=BATCH)
        self._walls: list[float] = []
        self.used: list[float] = []
        """CPU seconds of each round."""
        self._times: list[float] = []
        self._matches = 0

    def measure(self) -> None:
        """Run one round in two processes."""
        _shares[:] = [self._batches[share::CORES] for share in range(CORES)]
        with get_context("fork").Pool(CORES) as pool:
            work = [(self._config, share) for share in range(CORES)]
            found = pool.starmap_async(_work, work, chunksize=1).get(ROUND_SECONDS)
        self._walls.append(max(sum(share[0]) for share in found))
        self.used.append(sum(share[1] for share in found))
        self._times += [spent for share in found for spent in share[0]]
        self._matches = sum(share[2] for share in found)

    def figures(self) -> dict[str, float]:
        return {
            "events/s": self._events / median(self._walls),
            "events/s a core": self._events / median(self.used),
            "p99 of a batch, ms": 1000 * float(np.quantile(self._times, 0.99)),
            "matches/event": self._matches / self._events,
            "bytes/subscription": self._size / self._shop.subscriptions,
            "Bloom, % wrong": 100 * false_positives(self._config, self._batches[0]),
        }


_shares: list[Sequence[pa.RecordBatch]] = []
"""Batches of each process. They are set before the processes fork."""


def _work(config: PipelineConfig, share: int) -> tuple[list[float], float, int]:
    """Return the seconds of each batch, the CPU seconds in total, and the number of matches."""
    run, task, times, matches = fuse(MATCHING), Task.start(config), [], 0
    run(_shares[share][0], task)  # maps the index, compiles the shapes
    used = time.process_time()
    for batch in _shares[share]:
        begin = time.perf_counter()
        found = run(batch, task)
        times.append(time.perf_counter() - begin)
        matches += sum(len(found[name].flatten()) for name in ("enter", "update", "leave"))
    return times, time.process_time() - used, matches


def false_positives(config: PipelineConfig, batch: object) -> float:
    segments, dead = open_version(config.index_folder, 1).collection("t", COLLECTION)
    rows = batch.to_pylist()  # type: ignore[attr-defined]
    changes = [
        DocumentChange(
            row["offset"], row["key"], row["op"], decode_image(row["before"]), decode_image(row["after"])
        )
        for row in rows
    ]
    counts = match_segments(segments, dead, ImageBatch("t", COLLECTION, changes)).counts
    return counts.false_positives / max(counts.absent_keys, 1)


def linear_scan(shop: Shop, events: int) -> float:
    """Return events per second if a CEL interpreter in Rust evaluates every subscription for every event."""
    import cel

    chance = Random(shop.seed)
    programs = [cel.compile(shop.source(number, chance)) for number in range(shop.subscriptions)]
    documents = [shop.order(chance) for _ in range(events)]
    begin = time.perf_counter()
    for document in documents:
        context = cel.Context()
        context.add_variable("doc", document)
        for program in programs:
            program.execute(context)
    return events / (time.perf_counter() - begin)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    quick = parser.parse_args(words).quick
    sizes, events = ((1_000, 100_000), 20_000) if quick else ((1_000, 100_000, 1_000_000), 50_000)
    table = Table(title=f"normalize … route, {CORES} processes")
    table.add_column("subscriptions")
    with tempfile.TemporaryDirectory() as folder:
        rows = {size: Row(Shop(size), events, Path(folder) / str(size)) for size in sizes}
        for _ in range(ROUNDS):
            for row in rows.values():
                row.measure()
        figures = {size: row.figures() for size, row in rows.items()}
    for name in figures[sizes[0]]:
        table.add_column(name, justify="right")
    for size, values in figures.items():
        table.add_row(
            f"{size:,}", *(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values.values())
        )
    console = Console()
    console.print(table)
    few, many = rows[sizes[0]].used, rows[sizes[-1]].used
    growth = sorted(one / other for one, other in zip(few, many, strict=True))
    console.print(
        f"events/s a core at {sizes[-1]:,} against {sizes[0]:,}, round by round: {median(growth):.2f} (median) "
        f"({', '.join(f'{ratio:.2f}' for ratio in growth)})"
    )
    scanned = linear_scan(Shop(10_000 if quick else 100_000), 3)
    console.print(
        f"a linear scan of {10_000 if quick else 100_000:,} with common-expression-language: {scanned:,.2f} events/s; "
        f"Vedette at 100,000: {figures[100_000]['events/s a core'] / scanned:,.0f} times as many on one core"
    )


if __name__ == "__main__":
    main()
