"""The hash on which partition numbers depend. It must never change."""

from __future__ import annotations

import pytest

from vedette.hashing import text_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0xB4B2797457A0A6E4),
        ("orders", 0x4D7FB467E8EBACD5),
        ("ü", 0x372F39C1F59DF155),
        ("\udc00", 0x242A3D9FBD5A44E5),
    ],
)
def test_golden_hashes(text: str, value: int) -> None:
    assert text_hash(text) == value
