"""What `/metrics` says: figures of the engine and the gateway, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from vedette.gateway.collection_desk import CollectionDesk
from vedette.gateway.service import GatewayService
from vedette.pipeline.figures import pipeline_metrics, read_figures

__all__ = ["Figures", "metrics_text", "service_figures"]

Figures = Callable[[], Iterator[Metric]]


class _Figures:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        return self._figures()


def metrics_text(figures: Figures, *, names: bool = True) -> bytes:
    """The figures in Prometheus' text format; without `names` nothing says which databases and sources there are."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(figures if names else lambda: _nameless(figures())))
    return generate_latest(registry)


def _nameless(figures: Iterator[Metric]) -> Iterator[Metric]:
    names = {"database", "source"}
    return (
        metric for metric in figures if not any(names & sample.labels.keys() for sample in metric.samples)
    )


def _collection_figures(desk: CollectionDesk) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "vedette_collection_streams", "Subscriptions at the pipeline's registry", value=desk.streams
    )
    yield CounterMetricFamily(
        "vedette_collection_events", "Events of external collections", value=desk.events
    )
    yield CounterMetricFamily(
        "vedette_collection_resyncs", "Streams over collections that had to begin anew", value=desk.resyncs
    )


def service_figures(service: GatewayService) -> Figures:
    """Figures of one engine with its gateway, and of the pipeline beside it as it wrote them down."""

    def collect() -> Iterator[Metric]:
        board, server, engine = service.board, service.server, service.engine
        broker, load = engine.broker, int(service.board.watermarks.load)
        yield GaugeMetricFamily("vedette_connections", "Open connections", value=len(board.connections))
        yield GaugeMetricFamily("vedette_subscriptions", "Subscriptions here", value=board.subscriptions)
        yield CounterMetricFamily(
            "vedette_delivered_events", "Events handed to connections", value=board.delivered
        )
        yield GaugeMetricFamily(
            "vedette_outbox_bytes", "Bytes that wait for clients", value=server.waiting_bytes
        )
        yield GaugeMetricFamily("vedette_load", "0 normal, 1 low priority is shed, 2 all", value=load)
        yield GaugeMetricFamily(
            "vedette_inbox_requests", "Requests that wait for the engine", value=engine.waiting
        )
        yield GaugeMetricFamily("vedette_streams", "Watches behind all subscriptions", value=broker.streams)
        yield CounterMetricFamily("vedette_events", "Events of all streams", value=broker.events)
        if broker.collections is not None:
            yield from _collection_figures(broker.collections)
        resumes = CounterMetricFamily("vedette_resumes", "Resumes by how they ended", labels=["outcome"])
        for outcome, count in dict(broker.subscribing.resumes).items():
            resumes.add_metric([outcome], count)
        yield resumes
        window = GaugeMetricFamily(
            "vedette_window_events", "Events that can be replayed", labels=["database"]
        )
        size = GaugeMetricFamily("vedette_window_bytes", "Their bytes", labels=["database"])
        ticks = CounterMetricFamily("vedette_ticks", "Logical time", labels=["database"])
        for name, desk in list(broker.desks.items()):
            window.add_metric([name], len(desk.window))
            size.add_metric([name], desk.window.bytes)
            ticks.add_metric([name], desk.database.state.tick)
        yield from (window, size, ticks)
        pipeline = read_figures(service.directory) if service.directory is not None else None
        if pipeline is not None:
            yield from pipeline_metrics(pipeline)

    return collect
