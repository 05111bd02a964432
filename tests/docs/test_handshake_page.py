"""The tables in docs/reference/handshake.md equal those of the code."""

from __future__ import annotations

import re

from tests.support.paths import DOCS
from vedette.handshake import circuit_breaker as circuit
from vedette.handshake import health
from vedette.handshake.circuit_breaker import SINK_BREAKER
from vedette.handshake.config import BackoffConfig, CircuitConfig, DegradationConfig, PatternConfig
from vedette.handshake.degradation import DegradationLevel, polling_multiplier
from vedette.handshake.error_patterns import PatternType
from vedette.handshake.failures import FAILURE_POLICIES, FailureKind
from vedette.handshake.retry import backoff_milliseconds

PAGE = (DOCS / "reference" / "handshake.md").read_text(encoding="utf-8")


def table(heading: str, number: int = 0) -> list[list[str]]:
    """The rows of a section's table, without the header."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables[number].splitlines()]
    return [row for row in rows if set("".join(row)) - set("- ")]


def test_failures() -> None:
    rows = table("What is whose fault")[1:]
    found = {row[0].split("`")[1]: (row[1], row[2].startswith("yes"), row[3] == "yes") for row in rows}
    assert found == {
        str(k): (str(p.fault_domain), p.retry, p.counts_attempt) for k, p in FAILURE_POLICIES.items()
    }
    assert len(found) == len(FailureKind)


def test_backoff() -> None:
    seconds = [int(cell) for cell in table("Backoff")[1][1:]]
    assert seconds == [backoff_milliseconds(errors, BackoffConfig()) / 1000 for errors in range(1, 10)]


def test_health() -> None:
    signals = list(health.HealthEvent)
    found = {
        (row[0], signal): cell
        for row in table("Health")[1:]
        for signal, cell in zip(signals, row[1:], strict=True)
        if cell
    }
    assert found == {(str(status), signal): str(to) for (status, signal), to in health.TRANSITIONS.items()}


def test_circuit() -> None:
    header, *rows = table("Circuit breaker")
    found = {
        (row[0], word): cell for row in rows for word, cell in zip(header[1:], row[1:], strict=True) if cell
    }
    assert found == {(str(one), str(by)): str(to) for (one, by), to in circuit.TRANSITIONS.items()}
    watch = CircuitConfig()
    numbers = [
        [int(re.sub(r"\D", "", cell) or 0) for cell in row[1:]] for row in table("Circuit breaker", 1)[1:]
    ]
    assert numbers == [
        [watch.consecutive_errors, SINK_BREAKER.consecutive_errors],
        [watch.errors_per_window, 0],
        [watch.cooldown_seconds / 3600, SINK_BREAKER.cooldown_seconds],
        [watch.half_open_successes, SINK_BREAKER.half_open_successes],
    ]
    assert SINK_BREAKER.errors_per_window is None


def test_degradation() -> None:
    config = DegradationConfig()
    rows = table("Degradation")[1:]
    assert [row[0] for row in rows] == [level.label for level in DegradationLevel]
    assert [float(row[4].strip("× ")) for row in rows] == [
        polling_multiplier(level, config) for level in DegradationLevel
    ]
    depths = [int(row[1]) for row in rows if row[1]]
    assert depths == [
        config.queue_depth_light,
        config.queue_depth_moderate,
        config.queue_depth_severe,
        config.queue_depth_critical,
    ]
    paused = [int(row[5].split()[0]) for row in rows if row[5] != "none"]
    assert paused == [
        config.pause_priority_moderate,
        config.pause_priority_severe,
        config.pause_priority_critical,
    ]
    shares = [int(row[2].strip(" %")) / 100 for row in rows if row[2]]
    assert shares == [config.throughput_warning, config.throughput_critical]
    memory = [int(row[3].strip(" %")) / 100 for row in rows if row[3]]
    assert memory == [config.memory_warning, config.memory_critical]


def test_patterns() -> None:
    rows = {row[0].strip("`"): int(row[2].split()[0]) for row in table("Error patterns")[1:]}
    assert rows == {str(type): getattr(PatternConfig(), type) for type in PatternType}
