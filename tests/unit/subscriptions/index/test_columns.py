"""Hashes of columns."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from vedette.subscriptions.index.columns import build_column

TEXTS = st.builds(
    lambda text, times: text * times, st.sampled_from(["x", "é", "ab\0", ""]), st.integers(0, 80)
)


@given(st.lists(TEXTS | st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1, max_size=8))
@example(["open", "x" * 65])
def test_hash_does_not_depend_on_other_rows(values: list[str | int | None]) -> None:
    """A document is hashed in another batch than the constants of a subscription."""
    alone = np.concatenate([build_column([value]).hashes for value in values])
    assert np.array_equal(build_column(values).hashes, alone)
