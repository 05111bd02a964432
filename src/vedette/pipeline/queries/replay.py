"""A capture through the matcher once more, and two matchers beside each other (seed §7).

Replay runs as a Spark batch: deduplicate and sequence are real operators here, since a capture may be put together from
several pieces. Shadow runs the replay with two installed versions and compares match sets, routes and latency.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from vedette.clock import SystemClock
from vedette.errors import PipelineError
from vedette.pipeline.match import match
from vedette.pipeline.normalize import normalize
from vedette.pipeline.queries.capture import take_index
from vedette.pipeline.queries.shadow import find_candidate
from vedette.pipeline.schema import JOURNAL
from vedette.pipeline.sequence import sequence
from vedette.pipeline.spark_progress import shown_progress
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.topology import fuse
from vedette.subscriptions.index.versions import latest_version

__all__ = ["Comparison", "compare", "replay", "shadow"]

MATCHED = pa.schema(
    [
        ("offset", pa.int64()),
        ("subscription", pa.int64()),
        ("reason", pa.string()),
        ("gateway", pa.int32()),
        ("batch_ms", pa.float64()),  # of the batch that the change was in
    ]
)
_SPARK = "`offset` bigint, subscription bigint, reason string, gateway int, batch_ms double"


def replay(session: SparkSession, capture: str, out: str) -> None:
    """Match a capture against its index and write who is told what, as Parquet."""
    with tempfile.TemporaryDirectory(prefix="vedette-replay-") as folder:
        index = Path(folder)
        take_index(session, capture, index)
        _match(session, capture, index, out)


def _match(session: SparkSession, capture: str, index: Path, out: str) -> None:
    context = PipelineConfig(journal_url="", registry_url="", index_folder=index)
    kept = session.read.parquet(f"{capture}/changes")
    if "shed" not in kept.columns:  # a capture of an earlier release
        kept = kept.withColumn("shed", lit(False))
    changes = (
        kept.select(*[field.name for field in JOURNAL])
        .dropDuplicates(["source", "event_id"])
        .repartition("partition")
        .sortWithinPartitions("partition", "epoch", "seq")
    )
    found = changes.mapInArrow(_through(context, latest_version(index)), _SPARK)
    found.write.mode("overwrite").parquet(out)


def _through(
    context: PipelineConfig, version: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    run = fuse((normalize, sequence, match))

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock = SystemClock()
        for batch in batches:
            pinned = batch.set_column(
                batch.schema.get_field_index("version"),
                JOURNAL.field("version"),
                pa.array([version] * batch.num_rows, pa.int64()),
            )
            begin = clock.monotonic()
            found = run(pinned, context).to_pylist()
            spent = (clock.monotonic() - begin) * 1000
            rows = [
                {
                    "offset": row["offset"],
                    "subscription": number,
                    "reason": reason,
                    "gateway": row["gateway"],
                    "batch_ms": spent,
                }
                for row in found
                for reason in ("enter", "update", "leave")
                for number in row[reason]
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=MATCHED)

    return through


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two matchers said about the same changes."""

    matched_by_both: int
    only_current: int
    only_candidate: int
    routed_differently: int
    """Told by both, by another gateway."""
    current_ms: float
    candidate_ms: float
    """Medians over batches."""

    @property
    def divergence(self) -> float:
        """The share of answers that are not the same."""
        differing = self.only_current + self.only_candidate + self.routed_differently
        return differing / max(1, self.matched_by_both + self.only_current + self.only_candidate)


def compare(present: str, candidate: str) -> Comparison:
    """Hold two outputs of `replay` against each other."""
    one, other = (_answers(folder) for folder in (present, candidate))
    shared = one[0].keys() & other[0].keys()
    return Comparison(
        matched_by_both=len(shared),
        only_current=len(one[0].keys() - shared),
        only_candidate=len(other[0].keys() - shared),
        routed_differently=sum(one[0][answer] != other[0][answer] for answer in shared),
        current_ms=one[1],
        candidate_ms=other[1],
    )


def _answers(folder: str) -> tuple[dict[tuple[int, int, str], int], float]:
    rows = pq.read_table(folder).to_pylist()
    times = sorted({row["batch_ms"] for row in rows})
    answers = {(row["offset"], row["subscription"], row["reason"]): row["gateway"] for row in rows}
    return answers, times[len(times) // 2] if times else 0.0


def shadow(session: SparkSession, capture: str, candidate: Path, work: Path) -> Comparison:
    """Replay a capture here and with the candidate (see `find_candidate`), and compare."""
    present, other = str(work / "present"), str(work / "candidate")
    found = find_candidate(candidate, work)  # before the work, if there is none
    with shown_progress(session, "this version"):
        replay(session, capture, present)
    done = subprocess.run(  # noqa: S603 - the program that was asked for
        found.command("replay", capture, "--out", other),
        env=found.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PipelineError("E6303", f"the candidate did not replay the capture: {done.stderr[-500:]}")
    return compare(present, other)
