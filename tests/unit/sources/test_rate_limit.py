"""Rate limits of a source."""

from __future__ import annotations

import pytest

from vedette.errors import SourceError
from vedette.sources.rate_limit import RateLimiter
from vedette.testing import ManualClock


def test_delay_grows_with_what_was_read():
    clock = ManualClock()
    limiter = RateLimiter.from_options({"events_per_second": "100"}, clock)
    assert limiter.delay_after(50, 10**9) == 0
    assert limiter.delay_after(150, 0) == pytest.approx(1.0)
    clock.advance(2)
    assert limiter.delay_after(0, 0) == 0


def test_without_options_there_is_no_limit():
    assert RateLimiter.from_options({}, ManualClock()).delay_after(10**9, 10**9) == 0


@pytest.mark.parametrize("rate", ["much", "0", "-1", "nan"])
def test_invalid_rate_is_refused(rate: str):
    with pytest.raises(SourceError, match="bytes_per_second must be a number above 0"):
        RateLimiter.from_options({"bytes_per_second": rate}, ManualClock())
