"""Settings of all tests: Hypothesis profiles, test selection, and the treatment of skips."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres_server import postgres_url
from vedette.compiled import is_compiled

__all__ = ["postgres_url"]  # importing a fixture here makes it available to all tests

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}
SOAK = os.environ.get("VEDETTE_SOAK", "") not in {"", "0"}

# No deadline and no health check for slow generation, because the machine may be loaded. `print_blob` prints the line
# that reproduces a failure.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# Use the same examples in every run, so that a result depends on the change only. `make soak` searches further.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile(
    "soak",
    settings.get_profile("default"),
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("soak" if SOAK else "ci" if IN_CI else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need PostgreSQL, and deselect (not skip) tests that belong to another kind of run."""
    for item in items:
        if "postgres_url" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
    elsewhere = ["soak"] * (not SOAK) + ["plain_core"] * is_compiled()
    left_out = {item for item in items if any(map(item.get_closest_marker, elsewhere))}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _refuse_skip(report: Report) -> Report:
    """In CI a skipped test fails, because it did not run. An expected failure is accepted."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and in CI nothing may be: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _refuse_skip((yield))
