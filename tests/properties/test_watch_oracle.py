"""The oracle: whatever happens, initial plus events equals a fresh MATCH, for every watch, after every commit."""

from __future__ import annotations

from hypothesis import given, settings, HealthCheck

from tests.properties.watch_cases import Case, cases
from tests.properties.watch_oracle import Oracle


@settings(max_examples=300)
@given(cases())
def test_events_amount_to_a_fresh_match(case: Case) -> None:
    Oracle(case).run()
