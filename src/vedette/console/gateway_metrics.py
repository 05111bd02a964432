"""Metrics of gateways: the one in this process, and workers as last reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from vedette.gateway.wire.broker_link import GatewayStats
from vedette.gateway.wire.counters import DELAY_BOUNDS, LatencyHistogram

__all__ = ["gateway_metrics"]

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
        for name, figures in gateways.items():
            gauge.add_metric([name], getattr(figures, field))
        yield gauge
    for field, (metric, about) in _COUNTERS.items():
        counter = CounterMetricFamily(metric, about, labels=["gateway"])
        for name, figures in gateways.items():
            counter.add_metric([name], getattr(figures.counters, field))
        yield counter
    for field, (metric, about, label) in _COUNTED.items():
        counter = CounterMetricFamily(metric, about, labels=["gateway", label])
        for name, figures in gateways.items():
            for value, count in dict(getattr(figures.counters, field)).items():
                counter.add_metric([name, str(value)], count)
        yield counter
    yield from _delays(gateways)


def _delays(gateways: Mapping[str, GatewayStats]) -> Iterator[Metric]:
    """Yield latency from commit to socket: by gateway, and by database across all gateways."""
    about = "Time from the commit of an event to the sockets of its receivers"
    by_gateway = HistogramMetricFamily("vedette_delivery_seconds", about, labels=["gateway"])
    databases: dict[str, LatencyHistogram] = {}
    for name, figures in gateways.items():
        together = LatencyHistogram()
        for database, delays in dict(figures.counters.delays).items():
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
