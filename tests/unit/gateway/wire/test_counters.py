"""Counters of a gateway and its latency histograms."""

from __future__ import annotations

from vedette.gateway.wire.counters import DELAY_BOUNDS, Counters, LatencyHistogram


def test_a_latency_is_counted_in_the_first_bucket_that_holds_it():
    histogram = LatencyHistogram()
    histogram.add(DELAY_BOUNDS[0], 1)
    histogram.add(DELAY_BOUNDS[0] * 1.5, 2)
    histogram.add(99.0, 3)
    assert histogram.counts[:2] == [1, 2]
    assert histogram.counts[-1] == 3
    assert len(histogram.counts) == len(DELAY_BOUNDS) + 1
    assert histogram.seconds == DELAY_BOUNDS[0] * 4 + 297.0


def test_histograms_are_merged_bucket_by_bucket():
    one, other = LatencyHistogram(), LatencyHistogram()
    one.add(0.001, 1)
    other.add(0.001, 2)
    other.add(20.0, 1)
    one.merge(other)
    assert (one.counts[0], one.counts[-1], one.seconds) == (3, 1, 20.003)


def test_counters_start_at_zero_and_are_not_shared():
    one, other = Counters(), Counters()
    one.count_resync("gap")
    one.count_resync("gap")
    one.count_closed(4000)
    one.count_refused("busy")
    one.delays_of("shop").add(0.5, 1)
    assert (one.resyncs, one.closed, one.refused) == ({"gap": 2}, {4000: 1}, {"busy": 1})
    assert one.delays_of("shop").seconds == 0.5
    assert other == Counters()
