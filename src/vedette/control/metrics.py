"""The status of a pipeline as Prometheus metrics, and an HTTP port that serves them. Needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from vedette.control.status import PartitionSummary, PipelineStatus, read_status
from vedette.sources.records import FIRST_SCAN

__all__ = ["StatusCollector", "pipeline_metrics", "serve_metrics"]

_MODES = {"normal": 0, "shedding": 1, "degraded": 2}
_STATES = {"starting": 0, "running": 1, "restarting": 2, "stopped": 3}
_COUNTERS: Mapping[str, tuple[str, str]] = {
    "changes": ("changes", "Changes that were matched"),
    "matches": ("matches", "Pairs of a change and a matching subscription"),
    "candidates": ("candidates", "Pairs of an image and a subscription that the index proposed"),
    "deliveries": ("deliveries", "Changes that gateways accepted, once per gateway"),
    "broadcast": ("broadcast", "Unfiltered deliveries, sent while the index was unreliable"),
    "undeliverable": ("undeliverable", "Deliveries to gateways whose lease expired"),
    "quarantined": ("quarantined", "Changes that could not be processed"),
    "faults": ("faults", "Filters that failed to evaluate for a document"),
    "skipped": ("skipped", "Changes of degraded partitions, which are not delivered"),
    "shed": ("shed", "Low-priority matches that were skipped because the partition lags"),
    "repeated": ("retried_changes", "Changes of tasks that ran again after a failure"),
    "told": ("window_events", "Events of window ends"),
    "late": ("late", "Changes that arrived after their window had ended"),
}
"""Metric name to the name of the total in the status, and the help text."""
_GAUGES: Mapping[str, str] = {
    "events_per_second": "Changes per second in the last batches",
    "match_hit_rate": "Share of the index's candidates that matched, in the last batches",
    "bloom_false_positive_rate": "Share of absent keys that passed the Bloom filters, in the last batches",
    "broadcast_ratio": "Share of deliveries that were unfiltered, in the last batches",
    "fan_out": "Gateways that receive each change unfiltered; 0 while the index is reliable",
    "subscriptions": "Subscriptions in the registry",
    "gateways": "Gateways with a live lease",
    "restarts": "Restarts of the query",
}


def _is_stale(partition: PartitionSummary) -> float:
    """The first scan of a source may take hours, but no change is lost meanwhile."""
    return float(partition.state != "live" and partition.reason != FIRST_SCAN)


_PARTITION_GAUGES: Mapping[str, tuple[str, Callable[[PartitionSummary], float]]] = {
    "lag_changes": ("Undelivered changes", lambda p: p.lag_changes),
    "lag_seconds": ("Age of the oldest undelivered change", lambda p: p.lag_seconds),
    "delivery_p99_seconds": (
        "99th percentile of the lag in the last minute",
        lambda p: p.delivery_p99_seconds,
    ),
    "stale": ("1 while changes were lost at the source and are not recovered", _is_stale),
    "mode": (
        "0 normal, 1 shedding low priority, 2 degraded: nothing is delivered",
        lambda p: _MODES.get(p.mode, 0),
    ),
}


def pipeline_metrics(status: PipelineStatus) -> Iterator[Metric]:
    """Return the status as Prometheus metrics."""
    yield GaugeMetricFamily(
        "vedette_pipeline_state",
        "0 starting, 1 running, 2 restarting, 3 stopped",
        value=_STATES.get(status.state, 2),
    )
    for name, (total, help_text) in _COUNTERS.items():
        yield CounterMetricFamily(f"vedette_pipeline_{name}", help_text, value=status.totals.get(total, 0))
    for name, help_text in _GAUGES.items():
        yield GaugeMetricFamily(f"vedette_pipeline_{name}", help_text, value=getattr(status, name))
    if status.batch_ms is not None:
        yield GaugeMetricFamily(
            "vedette_pipeline_batch_ms", "Duration of the last batch in milliseconds", value=status.batch_ms
        )
    for name, (help_text, value) in _PARTITION_GAUGES.items():
        family = GaugeMetricFamily(
            f"vedette_pipeline_partition_{name}", help_text, labels=["source", "partition"]
        )
        for partition in status.partitions:
            family.add_metric([partition.source, str(partition.partition)], value(partition))
        yield family


class StatusCollector:
    """Collects the metrics of the current status each time Prometheus asks."""

    def __init__(self, status: Callable[[], PipelineStatus | None]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        return pipeline_metrics(status) if status is not None else iter(())


@contextmanager
def serve_metrics(directory: Path, port: int) -> Iterator[None]:
    """Serve `/metrics` on a loopback port, for a pipeline that runs without `vedette serve`. Port 0 disables it."""
    if not port:
        yield
        return
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(lambda: read_status(directory)))
    server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
