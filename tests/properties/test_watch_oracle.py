"""The oracle: after every commit, initial rows plus events of every watch equal a fresh MATCH."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.conftest import SOAK
from tests.properties.models.watch_oracle import Oracle, shortest
from tests.properties.strategies.watch_cases import Case, case_of, cases

BY_NUMBER = 40_000 if SOAK else 450
BY_STRUCTURE = 5_000 if SOAK else 80
WITH_RESTARTS = 2_500 if SOAK else 40
NUMBERS = st.integers(0, 2**64 - 1)
POLICIES = pytest.mark.parametrize("policies", [False, True], ids=["no-policies", "policies"])


def _fails(case: Case) -> bool:
    try:
        Oracle.try_case(case)
    except Exception:
        return True
    return False


@POLICIES
@settings(max_examples=BY_NUMBER, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(NUMBERS)
def test_events_equal_a_fresh_match(policies: bool, number: int) -> None:
    """Large cases by number. A case that fails is reduced here, and its number is printed."""
    case = case_of(number, policies=policies)
    try:
        Oracle.try_case(case)
    except Exception as error:
        raise AssertionError(f"case_of({number}): {error}\n{shortest(case, _fails)}") from error


@POLICIES
@settings(max_examples=WITH_RESTARTS, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(NUMBERS)
def test_reliable_watches_across_restarts(policies: bool, number: int) -> None:
    """The same in a directory that is closed and reopened: no event is lost and none is invented."""
    case = case_of(number, policies=policies, durable=True)
    with TemporaryDirectory() as place:
        try:
            Oracle.try_case(case, f"{place}/data")
        except Exception as error:
            raise AssertionError(f"case_of({number}, lasting=True): {error}\n{case}") from error


@settings(max_examples=BY_STRUCTURE)
@given(cases(policies=False) | cases(policies=True))
def test_small_shrinkable_cases(case: Case) -> None:
    """Cases that Hypothesis generates and shrinks."""
    Oracle.try_case(case)
