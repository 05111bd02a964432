"""The process that measures a case inside a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.cases import CASES
from benchmarks.compare.checkouts import Checkout
from benchmarks.compare.side import CaseSide, case_names
from benchmarks.waiting import WaitTimeoutError

ROOT = Path(__file__).parents[4]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A folder that has this repository's benchmarks and environment."""
    for name in ("benchmarks", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    return Checkout(name="new", commit="0" * 40, folder=tmp_path)


def test_a_checkout_lists_its_cases(checkout: Checkout) -> None:
    assert case_names(checkout) == [case.name for case in CASES]


def test_a_case_is_set_up_once_and_measured_round_by_round(checkout: Checkout) -> None:
    with CaseSide(checkout, "memory-inserts", scale="quick", step_seconds=120) as side:
        assert side.wanted_rounds > 0
        side.measure()
        side.measure()
        (found,) = side.samples()
    assert (found.contender, found.unit, found.more_is_better) == ("Vedette", "/s", True)
    assert len(found.samples) == 2
    assert all(value > 0 for value in found.samples)
    assert not list(checkout.folder.glob("memory-inserts-*")), "its folder is removed"


def test_a_case_that_fails_gives_the_reason(checkout: Checkout) -> None:
    with (
        pytest.raises(RuntimeError, match="the set-up of missing in the new commit: ValueError"),
        CaseSide(checkout, "missing", scale="quick", step_seconds=120),
    ):
        pass


def test_a_case_that_takes_too_long_is_ended(checkout: Checkout) -> None:
    with (
        pytest.raises(WaitTimeoutError, match="the set-up of memory-inserts in the new commit: not within"),
        CaseSide(checkout, "memory-inserts", scale="quick", step_seconds=0.01),
    ):
        pass


def test_a_checkout_without_benchmarks_is_named(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    with pytest.raises(RuntimeError, match=r"the old commit lists no cases: .*no CASES"):
        case_names(Checkout(name="old", commit="0" * 40, folder=tmp_path))
