"""When the index is trusted, built anew, or helped by broadcasts."""

from __future__ import annotations

from vedette.control.index_health import FAN_OUT, IndexHealth, Verdict


def fed(
    health: IndexHealth, *, share: float = 0.0, ms: float = 1.0, now: float = 0.0, batches: int = 1
) -> Verdict:
    verdicts = [
        health.observe(absent=1_000, passed=round(1_000 * share), changes=1_000, match_ms=ms, now=now)
        for _ in range(batches)
    ]
    return verdicts[-1]


def test_a_good_index_is_left_alone():
    verdict = fed(IndexHealth(), share=0.0083, batches=50)
    assert (verdict.state, verdict.fan_out, verdict.rebuild) == ("sure", 0, False)


def test_small_samples_say_nothing():
    verdict = IndexHealth().observe(absent=999, passed=999, changes=10, match_ms=1, now=0)
    assert verdict.state == "sure"


def test_two_percent_rebuild_five_percent_broadcast():
    health = IndexHealth()
    assert fed(health, share=0.03) == Verdict(
        state="doubted", fan_out=0, rebuild=True, reason="3.0% of absent keys pass"
    )
    assert fed(health, share=0.01).state == "sure"
    verdict = fed(health, share=0.06, now=10)
    assert (verdict.state, verdict.fan_out, verdict.rebuild) == ("unsure", FAN_OUT, True)


def test_broadcast_lasts_a_minute_and_ends_when_all_is_well():
    health = IndexHealth()
    assert fed(health, ms=80, batches=20).state == "unsure"
    assert fed(health, ms=1, now=30).fan_out == FAN_OUT
    assert fed(health, ms=1, now=61) == Verdict(state="sure", fan_out=0, rebuild=False)


def test_it_goes_on_while_look_ups_stay_slow():
    health = IndexHealth()
    fed(health, ms=80, batches=20)
    fed(health, ms=80, now=30, batches=25)
    assert fed(health, ms=80, now=61).state == "unsure"
    assert fed(health, ms=80, now=100).fan_out == FAN_OUT
