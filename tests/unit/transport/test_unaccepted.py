"""Deliveries sent without waiting: whatever fails, each change is delivered once and in order.

A model of gateways whose connections fail at any moment. `tests/unit/pipeline/test_topology.py` uses real sockets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.errors import PipelineError
from vedette.transport import unaccepted
from vedette.transport.ingest_client import IngestClient
from vedette.transport.ingest_messages import Deliver, DeliveredChange
from vedette.transport.receiver import ChangeReceiver, MatchedChange
from vedette.transport.unaccepted import UnacceptedDeliveries


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unaccepted, "RETRY_SECONDS", 0.0)


class FakeGateways:
    """The gateways of a worker. Each drops duplicates as a real one does, and records what it accepts."""

    def __init__(self, faults: Iterator[str]) -> None:
        self.faults = faults
        self.receivers = {number: ChangeReceiver() for number in (1, 2)}
        self.delivered: dict[int, list[int]] = {1: [], 2: []}
        self.leases = {1, 2}
        self.evicted: set[int] = set()

    def addresses(self, *, fresh: bool = False) -> Mapping[int, str]:
        return {number: str(number) for number in sorted(self.leases)}

    def evict(self, number: int) -> None:
        self.evicted.add(number)


class FakePool:
    """Opens failing connections to the fake gateways."""

    def __init__(self, gateways: FakeGateways) -> None:
        self._gateways = gateways
        self.clients: dict[str, FailingClient] = {}

    def get(self, address: str) -> IngestClient:
        if address not in self.clients:
            if next(self._gateways.faults) == "refused":
                raise PipelineError("E6301", "connection refused")
            self.clients[address] = FailingClient(self._gateways, int(address))
        return cast(IngestClient, self.clients[address])

    def discard(self, address: str) -> None:
        client = self.clients.pop(address, None)
        if client is not None:
            client.broken = True


class FailingClient:
    """Accepts all changes, some of them or none, and may fail to confirm. A broken connection stays broken."""

    def __init__(self, gateways: FakeGateways, number: int) -> None:
        self.gateways, self.number, self.broken, self.unread = gateways, number, False, False

    def send_changes(self, changes: Sequence[DeliveredChange]) -> None:
        fault = next(self.gateways.faults)
        if self.broken or fault == "cut before":
            self._fail()
        sent = list(changes)
        if fault in ("cut within", "lost"):
            sent = sent[: len(sent) // 2]
        if not self.unread:
            self._receive(sent)
        if fault == "lost":  # the rest stays in a buffer that is never read
            self.unread = True
        elif fault in ("cut within", "cut after"):
            self._fail()

    def _receive(self, changes: list[DeliveredChange]) -> None:
        for output in self.gateways.receivers[self.number].receive(Deliver(number=1, changes=changes)):
            assert isinstance(output, MatchedChange)
            self.gateways.delivered[self.number].append(output.change.offset)

    def wait_until_accepted(self) -> None:
        if self.broken or self.unread or next(self.gateways.faults) == "silent":
            self._fail()

    def _fail(self) -> None:
        self.broken = True
        raise PipelineError("E6301", "the delivery was not accepted")


def send_changes(client: IngestClient, changes: Sequence[DeliveredChange]) -> None:
    client.send_changes(changes)


def changes(first: int, count: int) -> list[DeliveredChange]:
    return [
        DeliveredChange(
            tenant="t",
            collection="c",
            key="k",
            op="update",
            partition=1 + n % 2,
            epoch=1,
            seq=n,
            offset=n,
            time_ms=0,
            enter=[1],
        )
        for n in range(first, first + count)
    ]


FAULTS = ["refused", "cut before", "cut within", "cut after", "lost", "silent"]
fault_lists = st.lists(st.sampled_from(["", "", "", *FAULTS]), max_size=40)


@given(fault_lists, st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5), st.booleans()), max_size=8))
@settings(max_examples=400, deadline=None)
def test_every_change_is_delivered_once_and_in_order(faults: list[str], pieces: list[tuple[int, int, bool]]):
    gateways = FakeGateways(iter([*faults, *[""] * 10_000]))
    outbox = UnacceptedDeliveries(gateways, FakePool(gateways), send_changes)
    last = {1: 0, 2: 0}
    for one, two, flush in pieces:
        outbox.send({n: changes(last[n] + 1, size) for n, size in ((1, one), (2, two)) if size})
        last = {1: last[1] + one, 2: last[2] + two}
        if flush:
            assert outbox.flush() == 0
    assert outbox.flush() == 0
    assert len(outbox) == 0
    assert gateways.delivered == {n: list(range(1, last[n] + 1)) for n in (1, 2)}
    assert not gateways.evicted


@given(fault_lists, st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_a_gateway_whose_lease_expires_between_two_pieces_does_not_block_others(
    faults: list[str], pieces: list[int], expires_at: int
):
    gateways = FakeGateways(iter([*faults, *[""] * 10_000]))
    pool = FakePool(gateways)
    outbox = UnacceptedDeliveries(gateways, pool, send_changes)
    last = 0
    for number, size in enumerate(pieces):
        if number == expires_at:
            gateways.leases.discard(2)
            for client in pool.clients.values():
                client.broken |= client.number == 2
        outbox.send({1: changes(last + 1, size), 2: changes(last + 1, size)})
        last += size
    undeliverable = outbox.flush()
    assert gateways.delivered[1] == list(range(1, last + 1))
    assert gateways.delivered[2] == list(range(1, len(gateways.delivered[2]) + 1)), "no gap"
    assert (undeliverable > 0) == (2 in gateways.evicted) == (expires_at < len(pieces))


def test_an_outbox_is_full_at_either_high_water_mark(monkeypatch: pytest.MonkeyPatch):
    gateways = FakeGateways(iter([""] * 100))
    outbox = UnacceptedDeliveries(gateways, FakePool(gateways), send_changes)
    monkeypatch.setattr(unaccepted, "MAX_UNACCEPTED_CHANGES", 3)
    monkeypatch.setattr(unaccepted, "MAX_UNACCEPTED_BYTES", 100)
    full = []
    for first, count, size_bytes in ((1, 2, 99), (3, 1, 0)):
        outbox.send({1: changes(first, count)}, size_bytes)
        full.append(outbox.is_full)
    assert outbox.flush() == 0
    full.append(outbox.is_full)
    outbox.send({1: changes(4, 1)}, 100)
    full.append(outbox.is_full)
    assert full == [False, True, False, True]
