"""Redacted statements contain neither literals nor comments."""

from __future__ import annotations

import pytest

from vedette.language.parser.redaction import MAX_REDACTED_CHARACTERS, redact_literals


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (
            'WATCH t: Task WHERE t.n > 5 AND t.name = "Ann" RETURN t',
            "WATCH t: Task WHERE t.n > ? AND t.name = ? RETURN t",
        ),
        (
            "MATCH t: Task WHERE t.due < @2026-01-31 AND t.n = -1.5",
            "MATCH t: Task WHERE t.due < ? AND t.n = -?",
        ),
        ("WATCH t: Task [ack_timeout: 30s] RETURN t", "WATCH t: Task [ack_timeout: ?] RETURN t"),
        ("MATCH t: Task WHERE t.n = $n RETURN t", "MATCH t: Task WHERE t.n = $n RETURN t"),
        ("MATCH t: Task -- Ann's\nRETURN /* hunter2 */ t", "MATCH t: Task RETURN t"),
        ("shop::orders, shop::returns", "shop::orders, shop::returns"),
        ('MATCH "unclosed', ""),
    ],
)
def test_literals_and_comments_are_left_out(text: str, redacted: str) -> None:
    assert redact_literals(text) == redacted


def test_a_long_text_is_cut() -> None:
    redacted = redact_literals("MATCH " + ", ".join(["t: Task"] * 1_000))
    assert len(redacted) == MAX_REDACTED_CHARACTERS
    assert redacted.endswith("…")
