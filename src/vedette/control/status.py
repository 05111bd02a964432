"""The status of a pipeline, written by its driver and shown by `/metrics`. Needs no Spark.

Per-partition lag, events per second, match hit rate, Bloom false-positive rate, broadcast ratio. Queue watermarks and
resumes belong to the gateway: `vedette_load`, `vedette_resumes`. Any process reads the status from `pipeline.json` in
the data directory: the pipeline's own port, and `serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from vedette.clock import Clock, SystemClock
from vedette.sources.records import FIRST_SCAN
from vedette.values import timestamp_to_ms

__all__ = [
    "STATUS_FILE",
    "PartitionFigures",
    "PipelineFigures",
    "figures_served",
    "figures_text",
    "pipeline_metrics",
    "read_figures",
]

STATUS_FILE = "pipeline.json"
SILENCE_SECONDS = 90.0
"""A pipeline writes its status twice a second; only the start of Spark and a restart delay take longer."""
_MODES = {"normal": 0, "shedding": 1, "degraded": 2}
_STATES = {"starting": 0, "running": 1, "restarting": 2, "stopped": 3}


class PartitionFigures(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    source: str
    lag_changes: int
    """Undelivered changes in the journal."""
    lag_seconds: float
    """Age of the oldest of them, in seconds."""
    delivery_p99_seconds: float
    """p99 of the last minute, in seconds."""
    state: str
    """live, stale or catching-up: whether all changes of the source are in the journal."""
    reason: str = ""
    """Reason of the state."""
    mode: str
    """normal, shedding or degraded: whether all changes are delivered."""


class PipelineFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since the start of the pipeline, and its current state."""

    state: str
    pid: int = 0
    """Process id of the driver."""
    restarts: int = 0
    offset: int | None = None
    behind: int | None = None
    index_version: int | None = None
    batch_ms: float | None = None
    index: str = "sure"
    fan_out: int = 0
    events_per_second: float = 0.0
    match_hit_rate: float = 0.0
    """Matches divided by candidates proposed by the index."""
    bloom_false_positive_rate: float = 0.0
    """Absent keys that passed the Bloom filters, divided by all absent keys."""
    broadcast_ratio: float = 0.0
    """Unfiltered deliveries divided by all deliveries."""
    subscriptions: int = 0
    gateways: int = 0
    totals: dict[str, float] = {}
    """Sums of the counters of all tasks, by name (`pipeline.task.Counters`), and of the windows query."""
    partitions: list[PartitionFigures] = []
    problem: str = ""


def read_figures(home: Path, clock: Clock | None = None) -> PipelineFigures | None:
    """None if no pipeline ran in this data directory or the file is unreadable. A killed pipeline cannot update the
    file, so a status older than STALE_AFTER_SECONDS counts as stopped."""
    path = home / STATUS_FILE
    try:
        figures = msgspec.json.decode(path.read_bytes(), type=PipelineFigures)
        silent = timestamp_to_ms((clock or SystemClock()).now()) / 1000 - path.stat().st_mtime
    except (OSError, msgspec.MsgspecError):
        return None
    if silent < SILENCE_SECONDS or figures.state == "stopped":
        return figures
    problem = f"nothing was heard of it for {silent:.0f} s"
    return msgspec.structs.replace(figures, state="stopped", problem=problem)


_COUNTERS: Mapping[str, str] = {
    "changes": "Changes that went through matching",
    "matches": "Subscriptions that were told, over all changes",
    "candidates": "Pairs of an image and a subscription that the index proposed",
    "deliveries": "Changes handed to gateways, once for each gateway",
    "broadcast": "Deliveries that were unfiltered, because the index was unsure",
    "undeliverable": "Deliveries to gateways that were gone",
    "quarantined": "Changes that could not be used",
    "faults": "Filters that had no value for a document",
    "skipped": "Changes of degraded partitions, which nobody is told",
    "shed": "Matches of low priority that were passed over",
    "repeated": "Changes of tasks that ran before and failed",
    "told": "Events that window ends told",
    "late": "Changes that came after their window had ended",
}
_TOTAL_NAMES = {"repeated": "retried_changes", "told": "window_events"}
"""Metrics whose name differs from that of the total."""
_GAUGES: Mapping[str, str] = {
    "events_per_second": "Changes a second, of the last batches",
    "match_hit_rate": "Matches among all candidates that the index proposed",
    "bloom_false_positive_rate": "Keys let through among those that no subscription has",
    "broadcast_ratio": "Unfiltered deliveries among all, of the last batches",
    "fan_out": "Gateways that get changes unfiltered; 0 while the index is sure",
    "subscriptions": "Subscriptions in the registry",
    "gateways": "Gateways with a lease",
    "restarts": "How often the query was started again",
}


def pipeline_metrics(figures: PipelineFigures) -> Iterator[Metric]:
    """The status as Prometheus metrics."""
    yield GaugeMetricFamily(
        "vedette_pipeline_state",
        "0 starting, 1 running, 2 restarting, 3 stopped",
        value=_STATES.get(figures.state, 2),
    )
    for name, about in _COUNTERS.items():
        total = figures.totals.get(_TOTAL_NAMES.get(name, name), 0)
        yield CounterMetricFamily(f"vedette_pipeline_{name}", about, value=total)
    for name, about in _GAUGES.items():
        yield GaugeMetricFamily(f"vedette_pipeline_{name}", about, value=getattr(figures, name))
    if figures.batch_ms is not None:
        yield GaugeMetricFamily("vedette_pipeline_batch_ms", "Of the last batch", value=figures.batch_ms)
    labels = ["source", "partition"]
    shown: dict[str, tuple[str, Callable[[PartitionFigures], float]]] = {
        "lag_changes": ("Changes that nobody was told yet", lambda p: p.lag_changes),
        "lag_seconds": ("The age of the oldest of them", lambda p: p.lag_seconds),
        "delivery_p99_seconds": ("p99 of the lag over the last minute", lambda p: p.delivery_p99_seconds),
        "stale": ("1 while changes were lost at the source and are not made up for", _is_stale),
        "mode": (
            "0 normal, 1 low priority is passed over, 2 nothing is told",
            lambda p: _MODES.get(p.mode, 0),
        ),
    }
    for name, (about, value) in shown.items():
        family = GaugeMetricFamily(f"vedette_pipeline_partition_{name}", about, labels=labels)
        for partition in figures.partitions:
            family.add_metric([partition.source, str(partition.partition)], value(partition))
        yield family


def _is_stale(partition: PartitionFigures) -> float:
    """The first scan of a source may take hours; no change is lost meanwhile."""
    return float(partition.state != "live" and partition.reason != FIRST_SCAN)


class _Collected:
    def __init__(self, figures: Callable[[], PipelineFigures | None]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        return pipeline_metrics(figures) if figures is not None else iter(())


def _registry(figures: Callable[[], PipelineFigures | None]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(figures))
    return registry


def figures_text(figures: PipelineFigures) -> bytes:
    """In the Prometheus text format."""
    return generate_latest(_registry(lambda: figures))


@contextmanager
def figures_served(home: Path, port: int) -> Iterator[None]:
    """Serve `/metrics` on a loopback port, for a pipeline that runs without `serve`; port 0 disables it."""
    if not port:
        yield
        return
    server, thread = start_http_server(port, addr="127.0.0.1", registry=_registry(lambda: read_figures(home)))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
