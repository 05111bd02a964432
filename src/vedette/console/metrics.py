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


class _Figures:
    def __init__(self, figures: MetricsSource) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        return self._figures()


def metrics_text(figures: MetricsSource, *, names: bool = True) -> bytes:
    """Encode the metrics in Prometheus' text format. Without `names`, omit metrics with database or source names."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(figures if names else lambda: _nameless(figures())))
    return generate_latest(registry)


def _nameless(figures: Iterator[Metric]) -> Iterator[Metric]:
    names = {"database", "source"}
    return (
        metric for metric in figures if not any(names & sample.labels.keys() for sample in metric.samples)
    )


def _collection_figures(desk: CollectionBroker) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "vedette_collection_streams", "Subscriptions registered with the pipeline", value=desk.streams
    )
    yield CounterMetricFamily(
        "vedette_collection_events", "Events of external collections", value=desk.events
    )
    yield CounterMetricFamily(
        "vedette_collection_resyncs", "Collection streams that had to resync", value=desk.resyncs
    )


def _engine_figures(engine: EngineThread) -> Iterator[Metric]:
    broker = engine.broker
    yield GaugeMetricFamily("vedette_inbox_requests", "Requests queued for the engine", value=engine.waiting)
    yield GaugeMetricFamily("vedette_streams", "Watches behind all subscriptions", value=broker.streams)
    yield CounterMetricFamily("vedette_events", "Events of all streams", value=broker.events)
    resumes = CounterMetricFamily("vedette_resumes", "Resumes by outcome", labels=["outcome"])
    for outcome, count in dict(broker.subscribing.resumes).items():
        resumes.add_metric([outcome], count)
    yield resumes


_DATABASE_GAUGES: Mapping[str, tuple[str, Callable[[Tenant], float]]] = {
    "window_events": ("Events in the replay window", lambda desk: len(desk.window)),
    "window_bytes": ("Bytes of the events in the replay window", lambda desk: desk.window.bytes),
    "lag_commits": (
        "Commits that are not yet durable; their events are not yet published",
        lambda desk: desk.database.log_writer.submitted_sequence - desk.database.log_writer.durable_sequence,
    ),
}
_DATABASE_COUNTERS: Mapping[str, tuple[str, Callable[[Tenant], float]]] = {
    "ticks": ("Logical time", lambda desk: desk.database.state.tick),
    "filter_candidates": ("Filters evaluated for changes", lambda desk: desk.candidates),
    "filter_matches": ("Filters that matched changes", lambda desk: desk.matches),
}


def _database_figures(desks: Mapping[str, Tenant]) -> Iterator[Metric]:
    """Metrics by database. Events of the graph are partition 0."""
    for name, (about, value) in _DATABASE_GAUGES.items():
        gauge = GaugeMetricFamily(f"vedette_{name}", about, labels=["database"])
        for database, desk in desks.items():
            gauge.add_metric([database], value(desk))
        yield gauge
    for name, (about, value) in _DATABASE_COUNTERS.items():
        counter = CounterMetricFamily(f"vedette_{name}", about, labels=["database"])
        for database, desk in desks.items():
            counter.add_metric([database], value(desk))
        yield counter


def service_metrics(service: GatewayService) -> MetricsSource:
    """Return the metrics of an engine, its gateways, and the pipeline according to its status file."""

    def collect() -> Iterator[Metric]:
        broker = service.engine.broker
        yield from gateway_metrics(_gateways(service))
        yield from _engine_figures(service.engine)
        yield from _database_figures(dict(broker.tenants))
        if broker.collections is not None:
            yield from _collection_figures(broker.collections)
        pipeline = read_figures(service.directory) if service.directory is not None else None
        if pipeline is not None:
            yield from pipeline_metrics(pipeline)

    return collect


def _gateways(service: GatewayService) -> dict[str, link.GatewayStats]:
    """Return statistics by gateway name. `engine`: sockets and HTTP of this process; `local`: command lines; then the
    workers. A restarted worker replaces the leaving one of the same name.
    """
    found = {"engine": service.server.figures(), "local": service.local.figures()}
    return found | {port.name: port.figures for port in service.links.ports if port.figures is not None}
