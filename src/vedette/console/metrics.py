"""Metrics of the engine and its gateways, collected when `/metrics` is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from vedette.console.gateway_metrics import gateway_metrics
from vedette.control.status import pipeline_metrics, read_figures
from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.collections.broker import CollectionBroker
from vedette.gateway.service import GatewayService
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link

__all__ = ["MetricsSource", "metrics_text", "service_metrics"]

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


def _collection_metrics(broker: CollectionBroker) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "vedette_collection_streams", "Subscriptions registered with the pipeline", value=broker.streams
    )
    yield CounterMetricFamily(
        "vedette_collection_events", "Events of external collections", value=broker.events
    )
    yield CounterMetricFamily(
        "vedette_collection_resyncs", "Collection streams that had to resync", value=broker.resyncs
    )


def _engine_metrics(engine: EngineThread) -> Iterator[Metric]:
    broker = engine.broker
    yield GaugeMetricFamily("vedette_inbox_requests", "Requests queued for the engine", value=engine.waiting)
    yield GaugeMetricFamily("vedette_streams", "Watches behind all subscriptions", value=broker.streams)
    yield CounterMetricFamily("vedette_events", "Events of all streams", value=broker.events)
    resumes = CounterMetricFamily("vedette_resumes", "Resumes by outcome", labels=["outcome"])
    for outcome, count in dict(broker.graph_subscriber.resumes).items():
        resumes.add_metric([outcome], count)
    yield resumes


_DATABASE_GAUGES: Mapping[str, tuple[str, Callable[[Tenant], float]]] = {
    "window_events": ("Events in the replay window", lambda tenant: len(tenant.window)),
    "window_bytes": ("Bytes of the events in the replay window", lambda tenant: tenant.window.bytes),
    "lag_commits": (
        "Commits that are not yet durable; their events are not yet published",
        lambda tenant: (
            tenant.database.log_writer.submitted_sequence - tenant.database.log_writer.durable_sequence
        ),
    ),
}
_DATABASE_COUNTERS: Mapping[str, tuple[str, Callable[[Tenant], float]]] = {
    "ticks": ("Logical time", lambda tenant: tenant.database.state.tick),
    "filter_candidates": ("Filters evaluated for changes", lambda tenant: tenant.candidates),
    "filter_matches": ("Filters that matched changes", lambda tenant: tenant.matches),
}


def _database_metrics(tenants: Mapping[str, Tenant]) -> Iterator[Metric]:
    """Metrics by database. Events of the graph are partition 0."""
    for name, (about, value) in _DATABASE_GAUGES.items():
        gauge = GaugeMetricFamily(f"vedette_{name}", about, labels=["database"])
        for database, tenant in tenants.items():
            gauge.add_metric([database], value(tenant))
        yield gauge
    for name, (about, value) in _DATABASE_COUNTERS.items():
        counter = CounterMetricFamily(f"vedette_{name}", about, labels=["database"])
        for database, tenant in tenants.items():
            counter.add_metric([database], value(tenant))
        yield counter


def service_metrics(service: GatewayService) -> MetricsSource:
    """Return the metrics of an engine, its gateways, and the pipeline according to its status file."""

    def collect() -> Iterator[Metric]:
        broker = service.engine.broker
        yield from gateway_metrics(_gateways(service))
        yield from _engine_metrics(service.engine)
        yield from _database_metrics(dict(broker.tenants))
        if broker.collections is not None:
            yield from _collection_metrics(broker.collections)
        pipeline = read_figures(service.directory) if service.directory is not None else None
        if pipeline is not None:
            yield from pipeline_metrics(pipeline)

    return collect


def _gateways(service: GatewayService) -> dict[str, link.GatewayStats]:
    """Return statistics by gateway name. `engine`: sockets and HTTP of this process; `local`: command lines; then the
    workers. A restarted worker replaces the leaving one of the same name.
    """
    found = {"engine": service.server.stats(), "local": service.local.stats()}
    return found | {port.name: port.stats for port in service.links.ports if port.stats is not None}
