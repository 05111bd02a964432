"""The stored form of attempts and dead letters."""

from __future__ import annotations

import pytest

from vedette.engine.queue_service.note_codec import (
    decode_attempts,
    decode_dead_letter,
    encode_attempts,
    encode_dead_letter,
)
from vedette.errors import StoreError
from vedette.queue.delivery import Attempts
from vedette.queue.reports import DeadLetter

ATTEMPTS = Attempts(failures=2, timeouts=1, until_ms=1_767_225_600_000, parked=True)
LETTER = DeadLetter(
    id="l_1",
    watch="w_1",
    pattern="WATCH j: Job [mode: consume] RETURN j.to",
    group="workers",
    actor=None,
    destination="d_1",
    reason="max_redeliveries_exceeded",
    cause="ValueError: ü",
    failures=3,
    timeouts=1,
    element="j_1",
    match='{"j.to": "ann"}',
    created_ms=1_767_225_600_000,
    elements=({"_type": "Job", "id": "j_1", "to": "ann"},),
)


def test_golden_attempts() -> None:
    assert encode_attempts(ATTEMPTS) == (
        '{"version": 1, "failures": 2, "timeouts": 1, "delayed_until_ms": 1767225600000, "parked": true}'
    )


def test_golden_dead_letter() -> None:
    assert encode_dead_letter(LETTER) == (
        '{"version": 1, "id": "l_1", "watch": "w_1", "pattern": "WATCH j: Job [mode: consume] RETURN j.to", '
        '"group": "workers", "actor": null, "destination": "d_1", "reason": "max_redeliveries_exceeded", '
        '"cause": "ValueError: ü", "failures": 3, "timeouts": 1, "element": "j_1", "match": "{\\"j.to\\": \\"ann\\"}", '
        '"created_ms": 1767225600000, "elements": [{"_type": "Job", "id": "j_1", "to": "ann"}]}'
    )


def test_round_trip() -> None:
    assert decode_attempts("k", encode_attempts(ATTEMPTS)) == ATTEMPTS
    assert decode_dead_letter("k", encode_dead_letter(LETTER)) == LETTER


@pytest.mark.parametrize("decode", [decode_attempts, decode_dead_letter])
def test_other_version_is_rejected(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(
        StoreError, match=r"note attempt\.j_1\. has version None, this release reads version 1"
    ):
        decode("attempt.j_1.", '{"failures": 2}')
