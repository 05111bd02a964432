"""When the index is trusted, rebuilt, or supported by broadcasts."""

from __future__ import annotations

from vedette.control.index_health import FAN_OUT, IndexDecision, IndexHealth


def observe(
    health: IndexHealth, *, rate: float = 0.0, ms: float = 1.0, now: float = 0.0, batches: int = 1
) -> IndexDecision:
    """Observe batches of 1,000 changes with this false-positive rate and matching time; return the last decision."""
    decisions = [
        health.observe(
            absent_keys=1_000, false_positives=round(1_000 * rate), changes=1_000, match_ms=ms, now=now
        )
        for _ in range(batches)
    ]
    return decisions[-1]


def test_a_good_index_is_not_rebuilt():
    decision = observe(IndexHealth(), rate=0.0083, batches=50)
    assert (decision.state, decision.fan_out, decision.rebuild) == ("sure", 0, False)


def test_a_small_sample_is_not_judged():
    decision = IndexHealth().observe(absent_keys=999, false_positives=999, changes=10, match_ms=1, now=0)
    assert decision.state == "sure"


def test_two_percent_rebuild_five_percent_broadcast():
    health = IndexHealth()
    assert observe(health, rate=0.03) == IndexDecision(
        state="doubted", fan_out=0, rebuild=True, reason="3.0% of absent keys pass the Bloom filters"
    )
    assert observe(health, rate=0.01).state == "sure"
    decision = observe(health, rate=0.06, now=10)
    assert (decision.state, decision.fan_out, decision.rebuild) == ("unsure", FAN_OUT, True)


def test_a_broadcast_lasts_a_minute_and_ends_when_lookups_are_fast():
    health = IndexHealth()
    assert observe(health, ms=80, batches=20).state == "unsure"
    assert observe(health, ms=1, now=30).fan_out == FAN_OUT
    assert observe(health, ms=1, now=61) == IndexDecision(state="sure", fan_out=0, rebuild=False)


def test_a_broadcast_continues_while_lookups_are_slow():
    health = IndexHealth()
    observe(health, ms=80, batches=20)
    observe(health, ms=80, now=30, batches=25)
    assert observe(health, ms=80, now=61).state == "unsure"
    assert observe(health, ms=80, now=100).fan_out == FAN_OUT
