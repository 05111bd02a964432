"""Defaults and validation of the configuration records."""

from __future__ import annotations

import pytest

from vedette.errors import FolderError
from vedette.handshake import config as configs
from vedette.handshake.config import BackoffConfig, CoordinatorConfig, DegradationConfig, HealthConfig


def test_lists_and_texts_are_converted() -> None:
    """Word for word, lists and texts and all."""
    config = configs.WatchFolderConfig(
        watch_id="my-project",
        path="/path/to/project",
        collection="my-project-code",
        patterns=["*.py", "*.js", "*.ts"],  # type: ignore[arg-type]
        ignore_patterns=[".git/*", "node_modules/*", "__pycache__/*"],  # type: ignore[arg-type]
        auto_ingest=True,
        recursive=True,
        recursive_depth=10,
        debounce_seconds=2.0,
        enabled=True,
        watch_type="project",  # type: ignore[arg-type]
        watch_priority=5,
    )
    assert config.patterns == ("*.py", "*.js", "*.ts")
    assert config.watch_type is configs.WatchType.PROJECT
    defaults = configs.WatchFolderConfig(watch_id="my-project", path="/path/to/project", collection="c")
    assert (config.debounce_seconds, config.watch_priority, config.recursive_depth) == (
        defaults.debounce_seconds,
        defaults.watch_priority,
        defaults.recursive_depth,
    )


def test_defaults() -> None:
    watch = configs.WatchFolderConfig(watch_id="w", path="/p", collection="c")
    assert (watch.auto_ingest, watch.recursive, watch.recursive_depth, watch.debounce_seconds) == (
        True,
        True,
        10,
        2.0,
    )
    assert (watch.enabled, watch.watch_type, watch.watch_priority) == (True, "project", 5)
    assert BackoffConfig() == BackoffConfig(
        base_delay_ms=1000, max_delay_ms=300000, backoff_multiplier=2.0, jitter_factor=0.1
    )
    assert CoordinatorConfig() == CoordinatorConfig(
        total_capacity=10000, high_watermark=0.8, low_watermark=0.5
    )


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (configs.WatchFolderConfig, {"watch_id": "w", "path": "/p", "collection": "c", "watch_priority": 11}),
        (configs.WatchFolderConfig, {"watch_id": "w", "path": "/p", "collection": "c", "watch_priority": -1}),
        (
            configs.WatchFolderConfig,
            {"watch_id": "w", "path": "/p", "collection": "c", "watch_priority": True},
        ),
        (configs.WatchFolderConfig, {"watch_id": "w", "path": "p", "collection": "c"}),
        (configs.WatchFolderConfig, {"watch_id": " ", "path": "/p", "collection": "c"}),
        (
            configs.WatchFolderConfig,
            {"watch_id": "w", "path": "/p", "collection": "c", "recursive_depth": -2},
        ),
        (
            configs.WatchFolderConfig,
            {"watch_id": "w", "path": "/p", "collection": "c", "watch_type": "other"},
        ),
        (BackoffConfig, {"jitter_factor": 1.0}),
        (BackoffConfig, {"base_delay_ms": 2, "max_delay_ms": 1}),
        (BackoffConfig, {"backoff_multiplier": float("nan")}),
        (CoordinatorConfig, {"low_watermark": 0.9}),
        (DegradationConfig, {"queue_depth_light": 4_000}),
        (HealthConfig, {"backoff_at": 1}),
    ],
)
def test_invalid_values_are_refused(kind: type, values: dict[str, object]) -> None:
    with pytest.raises(FolderError, match="E4502"):
        kind(**values)
