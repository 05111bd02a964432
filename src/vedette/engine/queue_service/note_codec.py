"""The stored form of attempts and dead letters: JSON objects with the keys written out below, and a version.

    attempt.<element>.<group>   {"version", "failures", "timeouts", "delayed_until_ms", "parked"}
    letter.<id>                 {"version", "id", "watch", "pattern", "group", "actor", "destination", "reason",
                                 "cause", "failures", "timeouts", "element", "match", "created_ms", "elements"}

An empty value deletes the note. Change `VERSION` with the keys; tests/unit/engine/queue_service/test_note_codec.py pins
the bytes.
"""

from __future__ import annotations

import json
from typing import Any

from vedette.errors import StoreError
from vedette.queue.delivery import Attempts
from vedette.queue.reports import DeadLetter

__all__ = ["VERSION", "decode_attempts", "decode_dead_letter", "encode_attempts", "encode_dead_letter"]

VERSION = 1


def encode_attempts(attempts: Attempts) -> str:
    return json.dumps(
        {
            "version": VERSION,
            "failures": attempts.failures,
            "timeouts": attempts.timeouts,
            "delayed_until_ms": attempts.until_ms,
            "parked": attempts.parked,
        }
    )


def decode_attempts(key: str, text: str) -> Attempts:
    """Raises E6004 for a note of another version."""
    record = _decode(key, text)
    return Attempts(
        failures=record["failures"],
        timeouts=record["timeouts"],
        until_ms=record["delayed_until_ms"],
        parked=record["parked"],
    )


def encode_dead_letter(letter: DeadLetter) -> str:
    return json.dumps(
        {
            "version": VERSION,
            "id": letter.id,
            "watch": letter.watch,
            "pattern": letter.pattern,
            "group": letter.group,
            "actor": letter.actor,
            "destination": letter.destination,
            "reason": letter.reason,
            "cause": letter.cause,
            "failures": letter.failures,
            "timeouts": letter.timeouts,
            "element": letter.element,
            "match": letter.match,
            "created_ms": letter.created_ms,
            "elements": letter.elements,
        },
        ensure_ascii=False,
    )


def decode_dead_letter(key: str, text: str) -> DeadLetter:
    """Raises E6004 for a note of another version."""
    record = _decode(key, text)
    return DeadLetter(
        id=record["id"],
        watch=record["watch"],
        pattern=record["pattern"],
        group=record["group"],
        actor=record["actor"],
        destination=record["destination"],
        reason=record["reason"],
        cause=record["cause"],
        failures=record["failures"],
        timeouts=record["timeouts"],
        element=record["element"],
        match=record["match"],
        created_ms=record["created_ms"],
        elements=tuple(record["elements"]),
    )


def _decode(key: str, text: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(text)
    version = record.get("version")
    if version != VERSION:
        raise StoreError(
            "E6004",
            f"the stored note {key} has version {version}, this release reads version {VERSION}: open the database "
            "with the release that wrote it, or start with a new data directory",
            fields={"note": key, "version": version},
        )
    return record
