"""Marks of an outbox and of a gateway, with hysteresis."""

from __future__ import annotations

import pytest

from vedette.gateway.server.backpressure import Load, LoadMonitor, OutboxMeter, RequestBudget


def test_an_outbox_is_full_from_its_high_mark_until_its_low_mark():
    outbox = OutboxMeter(high=100, low=20)
    assert not outbox.add(99)
    assert outbox.add(1)
    assert not outbox.add(50), "it is full already"
    assert not outbox.drained(21)
    assert outbox.drained(20)
    assert not outbox.drained(0), "it was not full"


@pytest.mark.parametrize(("high", "low"), [(10, 10), (10, 11), (10, -1)])
def test_the_low_mark_is_below_the_high_mark(high: int, low: int):
    with pytest.raises(ValueError, match="low mark"):
        OutboxMeter(high, low)


def test_shedding_starts_at_70_and_90_percent_and_ends_below_60():
    monitor = LoadMonitor(100)
    levels = [monitor.measure(waiting) for waiting in (69, 70, 89, 90, 75, 60, 59)]
    assert levels == [
        Load.NORMAL,
        Load.SHED_LOW_PRIORITY,
        Load.SHED_LOW_PRIORITY,
        Load.SHED_ALL,
        Load.SHED_ALL,
        Load.SHED_ALL,
        Load.NORMAL,
    ]


def test_a_request_of_any_size_fits_an_empty_budget():
    budget = RequestBudget(10)
    assert budget.has_room(1_000)
    budget.pending_bytes = 5
    assert budget.has_room(5)
    assert not budget.has_room(6)
