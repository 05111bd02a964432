"""The claim registry: two indexes, and deferred claims by release time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from vedette.search.file_queue.claims import ClaimRegistry

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_held_claim_is_found_by_delivery_and_by_key() -> None:
    registry = ClaimRegistry()
    claim = registry.add("d1", "c\n/a")
    assert registry.held("d1") is registry.by_delivery("d1") is registry.by_key("c\n/a") is claim
    registry.validate()
    registry.remove(claim)
    assert registry.held("d1") is registry.by_key("c\n/a") is None
    registry.remove(claim)
    registry.validate()


def test_removing_an_older_claim_keeps_the_newer_one_of_the_task() -> None:
    registry = ClaimRegistry()
    older = registry.add("d1", "c\n/a")
    newer = registry.add("d2", "c\n/a")
    registry.remove(older)
    assert registry.by_key("c\n/a") is newer
    registry.validate()


def test_deferred_claims_are_due_in_the_order_of_their_times() -> None:
    registry = ClaimRegistry()
    for delivery_id, seconds in (("late", 9), ("early", 1), ("removed", 2), ("next", 3)):
        registry.defer(registry.add(delivery_id, delivery_id), NOW + timedelta(seconds=seconds))
    registry.validate()
    assert registry.held("early") is None
    removed = registry.by_delivery("removed")
    assert removed is not None
    registry.remove(removed)
    due = [claim.delivery_id for claim in registry.take_due(NOW + timedelta(seconds=3))]
    assert due == ["early", "next"]
    assert list(registry.take_due(NOW + timedelta(seconds=3))) == []
