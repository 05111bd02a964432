"""The status as Prometheus metrics."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, generate_latest

from tests.support.paths import DOCS
from vedette.control.metrics import StatusCollector, serve_metrics
from vedette.control.status import PartitionSummary, PipelineStatus, write_status
from vedette.sources.records import FIRST_SCAN


def text_of(status: PipelineStatus) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(lambda: status))
    return generate_latest(registry).decode()


def partition(state: str = "live", reason: str = "") -> PartitionSummary:
    return PartitionSummary(
        partition=1,
        source="shop",
        lag_changes=1,
        lag_seconds=0.5,
        delivery_p99_seconds=0.25,
        state=state,
        reason=reason,
        mode="normal",
    )


def test_the_served_metrics(tmp_path: Path):
    totals = {"changes": 200.0, "retried_changes": 3.0, "window_events": 4.0}
    status = PipelineStatus(state="running", totals=totals, partitions=[partition()])
    text = text_of(status)
    assert "vedette_pipeline_changes_total 200.0" in text
    assert "vedette_pipeline_repeated_total 3.0" in text
    assert "vedette_pipeline_told_total 4.0" in text
    assert 'vedette_pipeline_partition_lag_changes{partition="1",source="shop"} 1.0' in text
    write_status(tmp_path, status)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serve_metrics(tmp_path, port), urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.read().decode() == text


def test_a_first_scan_does_not_count_as_stale():
    """It may take hours, but no change is lost meanwhile."""

    def is_stale(state: str, reason: str) -> bool:
        status = PipelineStatus(state="running", partitions=[partition(state, reason)])
        return 'partition_stale{partition="1",source="shop"} 1.0' in text_of(status)

    assert not is_stale("live", "")
    assert not is_stale("catching-up", FIRST_SCAN)
    assert is_stale("catching-up", "a scan recovers from a gap")


def test_alerts_and_dashboard_use_existing_metrics():
    status = PipelineStatus(state="running", batch_ms=1.0)
    served = {line.split()[2] for line in text_of(status).splitlines() if line.startswith("# TYPE")}
    for file in ("alerts.yml", "dashboard.json"):
        used = set(re.findall(r"\bvedette_pipeline_\w+", (DOCS / "operations" / file).read_text()))
        assert used
        assert used <= served, file
