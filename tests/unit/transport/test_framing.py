"""Length-prefixed frames: the same frames come out, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.transport.framing import FrameSplitter, FrameTooLarge, add_length


@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.integers(0, 200), max_size=6))
def test_frames_are_the_same_however_the_bytes_are_cut(bodies: list[bytes], cuts: list[int]):
    data = b"".join(map(add_length, bodies))
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    splitter = FrameSplitter(20)
    assert [body for a, b in pairwise(ends) for body in splitter.feed(data[a:b])] == bodies


def test_a_length_above_the_limit_is_refused_before_its_body_arrives():
    splitter = FrameSplitter(10)
    assert splitter.feed(add_length(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(FrameTooLarge, match="frame of 11 bytes exceeds the limit of 10"):
        splitter.feed((11).to_bytes(4, "big"))


def test_the_limit_can_be_raised_after_authentication():
    splitter = FrameSplitter(10)
    splitter.max_bytes = 100
    assert splitter.feed(add_length(b"x" * 50)) == [b"x" * 50]
