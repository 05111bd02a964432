"""Figures of gateways for `/metrics`: of the one in this process, and of the workers as they last reported them."""

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
    "subscriptions": "Subscriptions of its connections",
    "outbox_bytes": "Bytes that wait for clients",
    "outbox_limit_bytes": "How many may wait: low priority is shed at 70 %, all at 90 %, until 60 %",
    "load": "0 normal, 1 low priority is shed, 2 all",
}
_COUNTERS = {
    "opened": ("vedette_opened_connections", "Connections that have shown who they are"),
    "delivered": ("vedette_delivered_events", "Events handed to connections"),
    "replays": ("vedette_replays", "How often a subscription fell behind and was brought up"),
}
_COUNTED = {
    "closed": ("vedette_closed_connections", "Connections that the gateway closed", "code"),
    "resyncs": ("vedette_resyncs", "Subscriptions that were told to begin anew", "reason"),
    "refused": ("vedette_refused_messages", "Messages that the gateway answered with an error", "code"),
}


def gateway_metrics(gateways: Mapping[str, GatewayStats]) -> Iterator[Metric]:
    """`gateways`: by name."""
    for field, about in _GAUGES.items():
        gauge = GaugeMetricFamily(f"vedette_{field}", about, labels=["gateway"])
        for name, figures in gateways.items():
            gauge.add_metric([name], getattr(figures, field))
        yield gauge
    for field, (metric, about) in _COUNTERS.items():
        counter = CounterMetricFamily(metric, about, labels=["gateway"])
        for name, figures in gateways.items():
            counter.add_metric([name], getattr(figures.tally, field))
        yield counter
    for field, (metric, about, label) in _COUNTED.items():
        counter = CounterMetricFamily(metric, about, labels=["gateway", label])
        for name, figures in gateways.items():
            for value, count in dict(getattr(figures.tally, field)).items():
                counter.add_metric([name, str(value)], count)
        yield counter
    yield from _delays(gateways)


def _delays(gateways: Mapping[str, GatewayStats]) -> Iterator[Metric]:
    """From the commit to the sockets: by gateway, and by database over all gateways (seed §5: p99 a partition)."""
    about = "From the commit of an event to the sockets of its receivers"
    by_gateway = HistogramMetricFamily("vedette_delivery_seconds", about, labels=["gateway"])
    databases: dict[str, LatencyHistogram] = {}
    for name, figures in gateways.items():
        together = LatencyHistogram()
        for database, delays in dict(figures.tally.delays).items():
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
