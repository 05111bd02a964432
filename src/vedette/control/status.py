"""The status of a pipeline: `pipeline.json` in the data directory. Needs no Spark.

The driver writes the file twice a second and replaces it atomically. Any process may read it: the pipeline's own
`/metrics` port, `vedette serve`, the console. Queue lengths and resumes belong to the gateway's metrics.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from vedette.clock import Clock, SystemClock
from vedette.values import timestamp_to_ms

__all__ = ["STATUS_FILE", "PartitionSummary", "PipelineStatus", "read_status", "write_status"]

STATUS_FILE = "pipeline.json"
STATUS_FORMAT = 2
"""Version of the file. A file of another version is ignored; a running pipeline replaces it within a second."""
STALE_AFTER_SECONDS = 90.0
"""A status older than this counts as stopped. Only the start of Spark and the delay before a restart take longer than
a second."""


class PartitionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a source. The field names are the keys of the JSON form."""

    partition: int
    source: str
    lag_changes: int
    """Undelivered changes in the journal."""
    lag_seconds: float
    """Age of the oldest undelivered change."""
    delivery_p99_seconds: float
    """99th percentile of the lag in the last minute."""
    state: str
    """live, stale or catching-up: whether all changes of the source are in the journal."""
    reason: str = ""
    """Reason of the state."""
    mode: str
    """normal, shedding or degraded: whether all changes are delivered."""


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since the start of the pipeline, and its current state. The field names are the keys of the JSON form."""

    format: int = STATUS_FORMAT
    state: str
    """starting, running, restarting or stopped."""
    pid: int = 0
    """Process id of the driver."""
    restarts: int = 0
    """How often the query was restarted."""
    offset: int | None = None
    """Journal offset up to which everything is delivered."""
    undelivered_changes: int | None = None
    """Changes in the journal after `offset`."""
    index_version: int | None = None
    """Version of the subscription index that the last batch used."""
    batch_ms: float | None = None
    """Duration of the last batch."""
    index: str = "sure"
    """sure, doubted or unsure (`index_health`)."""
    fan_out: int = 0
    """Number of gateways that receive each change unfiltered; 0 while the index is reliable."""
    events_per_second: float = 0.0
    """Of the last batches, like the three ratios."""
    match_hit_rate: float = 0.0
    """Matches divided by candidates that the index proposed."""
    bloom_false_positive_rate: float = 0.0
    """Absent keys that passed the Bloom filters, divided by all absent keys."""
    broadcast_ratio: float = 0.0
    """Unfiltered deliveries divided by all deliveries."""
    subscriptions: int = 0
    gateways: int = 0
    """Gateways with a live lease."""
    totals: dict[str, float] = {}
    """Sums of the counters of all tasks (`pipeline.task.Counters`) and of the windows query, by name."""
    partitions: list[PartitionSummary] = []
    problem: str = ""
    """Why the pipeline restarts or counts as stopped."""


def write_status(directory: Path, status: PipelineStatus) -> None:
    """Replace the status file atomically."""
    draft = directory / f".{STATUS_FILE}"
    draft.write_bytes(msgspec.json.encode(status))
    draft.rename(directory / STATUS_FILE)


def read_status(directory: Path, clock: Clock | None = None) -> PipelineStatus | None:
    """Return the status; None if no pipeline ran in this directory or the file is unreadable.

    A killed pipeline cannot update the file, so a status older than STALE_AFTER_SECONDS counts as stopped.
    """
    path = directory / STATUS_FILE
    try:
        status = msgspec.json.decode(path.read_bytes(), type=PipelineStatus)
        age = timestamp_to_ms((clock or SystemClock()).now()) / 1000 - path.stat().st_mtime
    except (OSError, msgspec.MsgspecError):
        return None
    if status.format != STATUS_FORMAT:
        return None
    if age < STALE_AFTER_SECONDS or status.state == "stopped":
        return status
    problem = f"the pipeline has not written its status for {age:.0f} s"
    return msgspec.structs.replace(status, state="stopped", problem=problem)
