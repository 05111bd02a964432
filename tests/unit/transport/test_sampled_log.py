"""One log record per subject and period, with the number of suppressed ones."""

from __future__ import annotations

import logging

import pytest

from vedette.testing import ManualClock
from vedette.transport.sampled_log import MAX_SUBJECTS, SampledLog


def test_repeats_are_counted_and_not_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    clock = ManualClock()
    sampled = SampledLog(clock)
    assert [sampled.log("slow", "a", "slow a") for _ in range(3)] == [True, False, False]
    assert sampled.log("slow", "b", "slow b"), "another subject is another matter"
    clock.advance(11)
    assert sampled.log("slow", "a", "slow a", ms=30)
    assert [(r.subject, r.left_out) for r in caplog.records] == [("a", 0), ("b", 0), ("a", 2)]  # type: ignore[attr-defined]


def test_memory_is_bounded():
    sampled = SampledLog(ManualClock())
    for number in range(3 * MAX_SUBJECTS):
        sampled.log("slow", str(number), "slow")
    assert len(sampled._last) <= MAX_SUBJECTS
