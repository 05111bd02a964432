"""Metrics: what `/metrics` shows of given figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vedette.console.metrics import metrics_text, service_metrics
from vedette.gateway.service import CollectionStats, DatabaseStats, ServiceStats
from vedette.gateway.wire.broker_link import GatewayStats
from vedette.gateway.wire.counters import Counters


def text(*, names: bool = True) -> list[str]:
    counters = Counters(opened=3, closed={4000: 2})
    counters.delays_of("shop").add(0.003, 5)
    gateway = GatewayStats(
        connections=1, subscriptions=2, outbox_bytes=3, outbox_limit_bytes=4, load=1, counters=counters
    )
    database = DatabaseStats(
        window_events=1, window_bytes=2, lag_commits=3, ticks=4, filter_candidates=5, filter_matches=6
    )
    stats = ServiceStats(
        inbox_requests=7,
        streams=8,
        events=9,
        resumes={"ok": 10},
        databases={"shop": database},
        collections=CollectionStats(streams=11, events=12, resyncs=13),
        gateways={"engine": gateway},
    )
    service: Any = SimpleNamespace(stats=lambda: stats, directory=None)
    return metrics_text(service_metrics(service), names=names).decode().splitlines()


def test_every_figure_is_shown_with_its_labels():
    lines = text()
    for line in (
        'vedette_connections{gateway="engine"} 1.0',
        'vedette_closed_connections_total{code="4000",gateway="engine"} 2.0',
        'vedette_window_events{database="shop"} 1.0',
        'vedette_filter_matches_total{database="shop"} 6.0',
        'vedette_resumes_total{outcome="ok"} 10.0',
        "vedette_inbox_requests 7.0",
        "vedette_collection_resyncs_total 13.0",
        'vedette_delivery_seconds_bucket{gateway="engine",le="0.004"} 5.0',
        'vedette_database_delivery_seconds_count{database="shop"} 5.0',
    ):
        assert line in lines, line


def test_metrics_with_database_names_can_be_left_out():
    assert not [line for line in text(names=False) if "shop" in line]
    assert "vedette_inbox_requests 7.0" in text(names=False)


def test_each_metric_has_one_help_line():
    helps = [line.split()[2] for line in text() if line.startswith("# HELP")]
    assert len(helps) == len(set(helps))
