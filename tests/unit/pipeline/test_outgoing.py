"""Pieces that are sent without waiting: whatever fails in between, each change is told once, and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pipeline.batches import batch_of, nowhere, row
from vedette.errors import PipelineError
from vedette.pipeline import deliver, outgoing
from vedette.pipeline.members import invalidate_gateways
from vedette.pipeline.outgoing import UnacceptedDeliveries
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.topology import hot_path
from vedette.sources.journal.seam import open_journal
from vedette.subscriptions.index.versions import Compactor
from vedette.subscriptions.registry.registry import Gateway, SubscriptionRegistry, SubscriptionRequest
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver
from vedette.transport.ingest_messages import Deliver, DeliveredChange
from vedette.transport.receiver import ChangeReceiver, MatchedChange

# --- a model: links that fail at any moment ---------------------------------------------------------------------------


class Desks:
    """Gateways as a worker sees them: each judges repeats as a real one does, and keeps what it would tell."""

    def __init__(self, faults: Iterator[str]) -> None:
        self.faults = faults
        self.desks = {number: ChangeReceiver() for number in (1, 2)}
        self.told: dict[int, list[int]] = {1: [], 2: []}
        self.leases = {1, 2}
        self.passed_over: set[int] = set()

    def gateways(self, _: str) -> list[Gateway]:
        return [Gateway(number=n, name=f"g{n}", address=str(n), expires_ms=0) for n in sorted(self.leases)]

    def give_up(self, _: str, number: int) -> None:
        self.passed_over.add(number)

    def connect(self, address: str, _: str, __: str) -> FailingLink:
        if next(self.faults) == "refused":
            raise PipelineError("E6301", "nobody is there")
        return FailingLink(self, int(address))


class FailingLink:
    """Takes everything, or some of it, or nothing; says so, or does not. Once broken it stays so."""

    def __init__(self, desks: Desks, number: int) -> None:
        self.desks, self.number, self.broken, self.unread = desks, number, False, False

    def take(self, changes: Sequence[DeliveredChange]) -> None:
        fault = next(self.desks.faults)
        if self.broken or fault == "cut before":
            self._fail()
        taken = list(changes)
        if fault in ("cut within", "lost"):
            taken = taken[: len(taken) // 2]
        if not self.unread:
            self._take(taken)
        if fault == "lost":  # into a buffer that nobody reads any more
            self.unread = True
        elif fault in ("cut within", "cut after"):
            self._fail()

    def _take(self, changes: list[DeliveredChange]) -> None:
        for output in self.desks.desks[self.number].receive(Deliver(number=1, changes=changes)):
            assert isinstance(output, MatchedChange)
            self.desks.told[self.number].append(output.change.offset)

    def wait_until_accepted(self) -> None:
        if self.broken or self.unread or next(self.desks.faults) == "silent":
            self._fail()

    def _fail(self) -> None:
        self.broken = True
        raise PipelineError("E6301", "it did not take it")

    def close(self) -> None:
        self.broken = True


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
faults = st.lists(st.sampled_from(["", "", "", *FAULTS]), max_size=40)


@given(faults, st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5), st.booleans()), max_size=8))
@settings(max_examples=400, deadline=None)
def test_every_change_is_told_once_and_in_order(script: list[str], pieces: list[tuple[int, int, bool]]):
    desks = Desks(iter([*script, *[""] * 10_000]))
    with pytest.MonkeyPatch.context() as patch:
        around(patch, desks)
        out: UnacceptedDeliveries[DeliveredChange] = UnacceptedDeliveries(FailingLink.take)  # type: ignore[arg-type]
        last = {1: 0, 2: 0}
        for one, two, settled in pieces:
            out.send({n: changes(last[n] + 1, size) for n, size in ((1, one), (2, two)) if size}, nowhere())
            last = {1: last[1] + one, 2: last[2] + two}
            if settled:
                assert out.flush(nowhere()) == 0
        assert out.flush(nowhere()) == 0
        assert len(out) == 0
    assert desks.told == {n: list(range(1, last[n] + 1)) for n in (1, 2)}
    assert not desks.passed_over


@given(faults, st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_a_gateway_whose_lease_ends_between_two_pieces_holds_nobody(
    script: list[str], pieces: list[int], when: int
):
    desks = Desks(iter([*script, *[""] * 10_000]))
    with pytest.MonkeyPatch.context() as patch:
        around(patch, desks)
        out: UnacceptedDeliveries[DeliveredChange] = UnacceptedDeliveries(FailingLink.take)  # type: ignore[arg-type]
        last = 0
        for turn, size in enumerate(pieces):
            if turn == when:
                desks.leases.discard(2)
                for link in list(outgoing._links.values()):
                    if isinstance(link, FailingLink):
                        link.broken |= link.number == 2
            out.send({1: changes(last + 1, size), 2: changes(last + 1, size)}, nowhere())
            last += size
        lost = out.flush(nowhere())
    assert desks.told[1] == list(range(1, last + 1))
    assert desks.told[2] == list(range(1, len(desks.told[2]) + 1)), "no hole in what it did take"
    assert (lost > 0) == (2 in desks.passed_over) == (when < len(pieces))


def around(patch: pytest.MonkeyPatch, desks: Desks) -> None:
    patch.setattr(outgoing, "_links", {})
    patch.setattr(outgoing, "RETRY_SECONDS", 0.0)
    patch.setattr(outgoing, "open_client", desks.connect)
    patch.setattr(outgoing, "live_gateways", desks.gateways)
    patch.setattr(outgoing, "invalidate_gateways", lambda _: None)
    patch.setattr(outgoing, "evict_gateway", desks.give_up)


# --- real links -------------------------------------------------------------------------------------------------------


class Place:
    """One gateway, which follows everything, and a pipeline with its rows in pieces."""

    def __init__(self, home: Path) -> None:
        self.receiver = IngestReceiver(home / "g1", secret="s")
        self.registry = SubscriptionRegistry(home)
        self.registry.acquire_lease("g1", self.receiver.address, 60)
        request = SubscriptionRequest(
            id="1",
            tenant="t",
            collection="shop::orders",
            boundary=0,
            form=SubscriptionSpec(kind="cel", source="true"),
        )
        self.registry.register("g1", [request], 60)
        self.version = Compactor(self.registry, home / "index").publish().version
        self.journal = open_journal(home)
        self.context = PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=home / "index",
            ingest_secret="s",
        )

    def pieces(self, *sizes: int) -> Iterator[Any]:
        last = 0
        for size in sizes:
            yield batch_of(*(row(n) for n in range(last + 1, last + size + 1)), version=self.version)
            last += size
        yield batch_of(row(last, op="progress", partition=0, seq=1, epoch=0), version=self.version)

    def close(self) -> None:
        deliver.abandon()
        invalidate_gateways(self.context.registry_url)
        outgoing.close_links()
        self.receiver.close()
        self.registry.close()
        self.journal.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def offsets(found: Sequence[DeliveredChange]) -> list[int]:
    return [change.offset for change in found]


def test_a_piece_is_sent_while_the_next_one_is_not_there_yet(place: Place):
    seen: list[int] = []

    def watched() -> Iterator[Any]:
        for piece in place.pieces(3, 4):
            seen.append(len(place.receiver.changes))
            yield piece
            place.receiver.wait_for(lambda: len(place.receiver.changes) >= min(7, 3 + seen[-1]))

    done = list(hot_path(place.context)(watched()))
    assert seen == [0, 3, 7]
    assert sum(each for (batch,) in [done] for each in batch["deliveries"].to_pylist() if each) == 7
    assert place.receiver.wait_for(lambda: [frame.offset for frame in place.receiver.completed] == [7])


def test_a_gateway_that_dies_between_two_pieces_and_comes_back(place: Place, tmp_path: Path):
    former = place.receiver

    def dying() -> Iterator[Any]:
        for number, piece in enumerate(place.pieces(3, 4, 5)):
            if number == 1:
                former.wait_for(lambda: len(former.changes) == 3)
                former.accepting = False
                place.receiver = IngestReceiver(tmp_path / "g1 again", secret="s")
                place.registry.acquire_lease("g1", place.receiver.address, 60)
            yield piece

    list(hot_path(place.context)(dying()))
    assert offsets(former.changes) == [1, 2, 3]
    assert offsets(place.receiver.changes) == list(range(1, 13)), "all of the share, from its beginning"
    assert place.receiver.wait_for(lambda: [frame.offset for frame in place.receiver.completed] == [12])
    former.close()


def test_nothing_counts_before_it_is_accepted(place: Place):
    def failing() -> Iterator[Any]:
        pieces = place.pieces(3, 4)
        yield next(pieces)
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError):
        list(hot_path(place.context)(failing()))
    (done,) = list(hot_path(place.context)(place.pieces(3, 4)))
    assert sum(filter(None, done["deliveries"].to_pylist())) == 7, (
        "what the task before had sent is not counted"
    )
    assert offsets(list(place.receiver.unique.values())) == list(range(1, 8))


def test_what_is_out_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deliver, "MOST_OUT", 5)
    done = list(hot_path(place.context)(place.pieces(3, 3, 1, 4, 2)))
    assert [sum(filter(None, batch["deliveries"].to_pylist())) for batch in done] == [6, 5, 2]
