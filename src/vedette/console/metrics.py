"""Metrics of the engine, the gateway in this process and the workers, collected when `/metrics` is read.

A worker reports its statistics once a second; `/metrics` shows the last report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from vedette.control.metrics import pipeline_metrics
from vedette.control.status import read_status
from vedette.gateway.service import CollectionStats, DatabaseStats, GatewayService, ServiceStats
from vedette.gateway.wire.broker_link import GatewayStats
from vedette.gateway.wire.counters import DELAY_BOUNDS, LatencyHistogram

__all__ = ["MetricsSource", "gateway_metrics", "metrics_text", "service_metrics"]

MetricsSource = Callable[[], Iterator[Metric]]


class _Collector:
    def __init__(self, source: MetricsSource) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        return self._source()


def metrics_text(source: MetricsSource, *, names: bool = True) -> bytes:
    """Encode the metrics in Prometheus' text format. Without `names`, omit metrics with database or source names."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(source if names else lambda: _without_names(source())))
    return generate_latest(registry)


def _without_names(metrics: Iterator[Metric]) -> Iterator[Metric]:
    names = {"database", "source"}
    return (
        metric for metric in metrics if not any(names & sample.labels.keys() for sample in metric.samples)
    )


def _collection_metrics(stats: CollectionStats) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "vedette_collection_streams", "Subscriptions registered with the pipeline", value=stats.streams
    )
    yield CounterMetricFamily(
        "vedette_collection_events", "Events of external collections", value=stats.events
    )
    yield CounterMetricFamily(
        "vedette_collection_resyncs", "Collection streams that had to resync", value=stats.resyncs
    )


def _engine_metrics(stats: ServiceStats) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "vedette_inbox_requests", "Requests queued for the engine", value=stats.inbox_requests
    )
    yield GaugeMetricFamily("vedette_streams", "Watches behind all subscriptions", value=stats.streams)
    yield CounterMetricFamily("vedette_events", "Events of all streams", value=stats.events)
    resumes = CounterMetricFamily("vedette_resumes", "Resumes by outcome", labels=["outcome"])
    for outcome, count in stats.resumes.items():
        resumes.add_metric([outcome], count)
    yield resumes


_DATABASE_GAUGES = {
    "window_events": "Events in the replay window",
    "window_bytes": "Bytes of the events in the replay window",
    "lag_commits": "Commits that are not yet durable; their events are not yet published",
}
_DATABASE_COUNTERS = {
    "ticks": "Logical time",
    "filter_candidates": "Filters evaluated for changes",
    "filter_matches": "Filters that matched changes",
}
"""Fields of `DatabaseStats` with their help texts."""


def _database_metrics(databases: Mapping[str, DatabaseStats]) -> Iterator[Metric]:
    """Yield the metrics by database. Events of the graph are partition 0."""
    for field, help_text in _DATABASE_GAUGES.items():
        gauge = GaugeMetricFamily(f"vedette_{field}", help_text, labels=["database"])
        for name, stats in databases.items():
            gauge.add_metric([name], getattr(stats, field))
        yield gauge
    for field, help_text in _DATABASE_COUNTERS.items():
        counter = CounterMetricFamily(f"vedette_{field}", help_text, labels=["database"])
        for name, stats in databases.items():
            counter.add_metric([name], getattr(stats, field))
        yield counter


def service_metrics(service: GatewayService) -> MetricsSource:
    """Return the metrics of an engine, its gateways, and the pipeline according to its status file."""

    def collect() -> Iterator[Metric]:
        stats = service.stats()
        yield from gateway_metrics(stats.gateways)
        yield from _engine_metrics(stats)
        yield from _database_metrics(stats.databases)
        if stats.collections is not None:
            yield from _collection_metrics(stats.collections)
        pipeline = read_status(service.directory) if service.directory is not None else None
        if pipeline is not None:
            yield from pipeline_metrics(pipeline)

    return collect


_GAUGES = {
    "connections": "Open connections",
    "subscriptions": "Open subscriptions",
    "outbox_bytes": "Bytes waiting for clients",
    "outbox_limit_bytes": "Outbox limit: shedding of low priority starts at 70 %, of all at 90 %, and ends below 60 %",
    "load": "0 normal, 1 shedding low priority, 2 shedding all",
}
_COUNTERS = {
    "opened": ("vedette_opened_connections", "Authenticated connections"),
    "delivered": ("vedette_delivered_events", "Events sent to connections"),
    "replays": ("vedette_replays", "Replays of lagging subscriptions"),
}
_COUNTED = {
    "closed": ("vedette_closed_connections", "Connections closed by the gateway", "code"),
    "resyncs": ("vedette_resyncs", "Subscriptions that had to resync", "reason"),
    "refused": ("vedette_refused_messages", "Messages rejected by the gateway", "code"),
}


def gateway_metrics(gateways: Mapping[str, GatewayStats]) -> Iterator[Metric]:
    """Yield the metrics of gateways, given by name."""
    for field, about in _GAUGES.items():
        gauge = GaugeMetricFamily(f"vedette_{field}", about, labels=["gateway"])
        for name, stats in gateways.items():
            gauge.add_metric([name], getattr(stats, field))
        yield gauge
    for field, (metric, about) in _COUNTERS.items():
        counter = CounterMetricFamily(metric, about, labels=["gateway"])
        for name, stats in gateways.items():
            counter.add_metric([name], getattr(stats.counters, field))
        yield counter
    for field, (metric, about, label) in _COUNTED.items():
        counter = CounterMetricFamily(metric, about, labels=["gateway", label])
        for name, stats in gateways.items():
            for value, count in dict(getattr(stats.counters, field)).items():
                counter.add_metric([name, str(value)], count)
        yield counter
    yield from _delays(gateways)


def _delays(gateways: Mapping[str, GatewayStats]) -> Iterator[Metric]:
    """Yield latency from commit to socket: by gateway, and by database across all gateways."""
    about = "Time from the commit of an event to the sockets of its receivers"
    by_gateway = HistogramMetricFamily("vedette_delivery_seconds", about, labels=["gateway"])
    databases: dict[str, LatencyHistogram] = {}
    for name, stats in gateways.items():
        together = LatencyHistogram()
        for database, delays in dict(stats.counters.delays).items():
            together.merge(delays)
            databases.setdefault(database, LatencyHistogram()).merge(delays)
        by_gateway.add_metric([name], _buckets(together), together.seconds)
    yield by_gateway
    by_database = HistogramMetricFamily("vedette_database_delivery_seconds", about, labels=["database"])
    for database, delays in databases.items():
        by_database.add_metric([database], _buckets(delays), delays.seconds)
    yield by_database


def _buckets(delays: LatencyHistogram) -> list[tuple[str, float]]:
    ends = [*map(str, DELAY_BOUNDS), "+Inf"]
    return list(zip(ends, accumulate(delays.counts), strict=True))
