"""The status file: its keys, and when it counts as out of date."""

from __future__ import annotations

import os
from pathlib import Path

from vedette.control.status import (
    STATUS_FILE,
    PartitionSummary,
    PipelineStatus,
    read_status,
    write_status,
)

STATUS = PipelineStatus(
    state="running",
    pid=8,
    restarts=1,
    offset=517,
    undelivered_changes=3,
    index_version=42,
    batch_ms=61.5,
    fan_out=3,
    index="unsure",
    totals={"changes": 7.0},
    partitions=[
        PartitionSummary(
            partition=1,
            source="shop",
            lag_changes=3,
            lag_seconds=0.5,
            delivery_p99_seconds=0.25,
            state="live",
            mode="shedding",
        )
    ],
)
TEXT = (
    '{"format":2,"state":"running","pid":8,"restarts":1,"offset":517,"undelivered_changes":3,"index_version":42,'
    '"batch_ms":61.5,"index":"unsure","fan_out":3,"events_per_second":0.0,"match_hit_rate":0.0,'
    '"bloom_false_positive_rate":0.0,"broadcast_ratio":0.0,"subscriptions":0,"gateways":0,"totals":{"changes":7.0},'
    '"partitions":[{"partition":1,"source":"shop","lag_changes":3,"lag_seconds":0.5,"delivery_p99_seconds":0.25,'
    '"state":"live","reason":"","mode":"shedding"}],"problem":""}'
)


def test_the_text_of_the_status_file(tmp_path: Path):
    """A change of these keys needs a new STATUS_FORMAT."""
    assert read_status(tmp_path) is None
    write_status(tmp_path, STATUS)
    assert (tmp_path / STATUS_FILE).read_text() == TEXT
    assert read_status(tmp_path) == STATUS


def test_a_file_of_another_format_is_ignored(tmp_path: Path):
    (tmp_path / STATUS_FILE).write_text(TEXT.replace('"format":2', '"format":1'))
    assert read_status(tmp_path) is None
    (tmp_path / STATUS_FILE).write_text("{")
    assert read_status(tmp_path) is None


def test_a_killed_pipeline_counts_as_stopped(tmp_path: Path):
    """It could not update its status, and an alert depends on it."""
    write_status(tmp_path, STATUS)
    path = tmp_path / STATUS_FILE
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
    status = read_status(tmp_path)
    assert status is not None
    assert (status.state, "100 s" in status.problem) == ("stopped", True)
