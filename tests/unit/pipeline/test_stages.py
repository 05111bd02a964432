"""Each stage by itself, on a few rows, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.batches import batch_of, nowhere, row
from vedette.pipeline import telemetry
from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.deliver import abandon, deliver, settle
from vedette.pipeline.match import match
from vedette.pipeline.members import invalidate_gateways
from vedette.pipeline.normalize import normalize
from vedette.pipeline.outgoing import close_links
from vedette.pipeline.route import route
from vedette.pipeline.schema import CHANGES, DELIVERIES, OUTCOME, journal_rows_to_batch
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.topology import STAGES, fuse
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Source
from vedette.subscriptions.index.versions import Compactor
from vedette.subscriptions.registry.registry import SubscriptionRegistry, SubscriptionRequest
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver

NOWHERE = nowhere()


def normalized(batch: pa.RecordBatch) -> pa.RecordBatch:
    return normalize(batch, NOWHERE)


# --- normalize, deduplicate, sequence -----------------------------------------------------------------------------


def test_normalize_says_what_cannot_be_used():
    batch = normalized(
        batch_of(row(1), row(2, op="odd"), row(3, after=None), row(4, after=b"x" * (2**24 + 1)))
    )
    assert batch.schema == CHANGES
    assert batch["problem"].to_pylist() == [
        None,
        "an unknown kind of change",
        "neither an image before nor one after",
        "a document larger than 16 MB",
    ]


def test_deduplicate_keeps_the_first():
    batch = normalized(batch_of(row(1), row(2, event_id="e1"), row(3), row(4, event_id="e1", source="other")))
    assert deduplicate(batch, NOWHERE)["offset"].to_pylist() == [1, 3, 4]


def test_a_change_that_is_read_again_for_others_is_no_repeat():
    again, first = batch_of(row(1), newer_than=3), batch_of(row(1))
    batch = normalized(pa.concat_batches([again, first]))
    assert deduplicate(batch, NOWHERE).num_rows == 2


@given(st.permutations([(p, s) for p in (1, 2) for s in (1, 2, 3)]))
def test_sequence_puts_each_partition_into_order(order: list[tuple[int, int]]):
    rows = [row(10 * p + s, partition=p, seq=s) for p, s in order]
    found = sequence(normalized(batch_of(*rows)), NOWHERE)
    places = list(zip(found["partition"].to_pylist(), found["seq"].to_pylist(), strict=True))
    assert places == sorted(places)
    assert found["problem"].null_count == len(rows)


def test_sequence_refuses_two_changes_of_one_number():
    found = sequence(normalized(batch_of(row(1, seq=5), row(2, seq=5), row(3, seq=6))), NOWHERE)
    assert found["problem"].to_pylist() == [None, "two changes of a partition have one number", None]


# --- match, route, deliver ----------------------------------------------------------------------------------------


class Place:
    def __init__(self, home: Path) -> None:
        self.registry = SubscriptionRegistry(home)
        self.compactor = Compactor(self.registry, home / "index")
        self.journal: CollectionJournal = open_journal(home)
        self.journal.add_source(Source(name="shop", kind="mongodb", address=""))
        self.receivers = {
            name: IngestReceiver(home / name, secret="s") for name in ("g1", "g2", "g3", "g4", "g5")
        }
        for name, receiver in self.receivers.items():
            self.registry.acquire_lease(name, receiver.address, 60)
        self.numbers = {gateway.name: gateway.number for gateway in self.registry.gateways()}
        self.context = PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=home / "index",
            ingest_secret="s",
        )
        self.version = 0

    def subscribe(
        self, gateway: str, source: str, kind: Any = "cel", tenant: str = "t", *, low: bool = False
    ) -> int:
        request = SubscriptionRequest(
            id=f"{gateway} {source} {tenant} {low}",
            low_priority=low,
            tenant=tenant,
            collection="shop::orders",
            boundary=0,
            form=SubscriptionSpec(kind=kind, source=source),
        )
        (number,) = self.registry.register(gateway, [request], 60)
        self.version = self.compactor.publish().version
        return number

    def matched(self, *rows: Any, newer_than: int = -1) -> pa.RecordBatch:
        batch = normalized(batch_of(*rows, version=self.version, newer_than=newer_than))
        return match(batch, self.context)

    def delivered(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """What came of it, all together."""
        (counts,), (arrived,) = deliver(batch, self.context).to_pylist(), settle(self.context).to_pylist()
        return {name: (counts[name] or 0) + (arrived[name] or 0) for name in counts}

    def close(self) -> None:
        abandon()
        invalidate_gateways(self.context.registry_url)
        close_links()
        for receiver in self.receivers.values():
            receiver.close()
        self.registry.close()
        self.journal.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    telemetry.take()
    yield place
    place.close()


def test_match_groups_by_change_and_gateway(place: Place):
    one, two = place.subscribe("g1", "doc.n > 0"), place.subscribe("g1", "doc.n == 2")
    other = place.subscribe("g2", "doc.n == 2")
    place.subscribe("g1", "doc.n > 0", tenant="somebody else")
    found = place.matched(row(1), row(2), row(3, op="update", before={"n": 2}, after={"n": 0}))
    assert found.schema == DELIVERIES
    names = ("offset", "gateway", "enter", "update", "leave")
    g1, g2 = place.numbers["g1"], place.numbers["g2"]
    assert list(zip(*(found[name].to_pylist() for name in names), strict=True)) == [
        (1, g1, [one], [], []),
        (2, g1, [one, two], [], []),
        (2, g2, [other], [], []),
        (3, g1, [], [], [one, two]),
        (3, g2, [], [], [other]),
    ]


def test_match_reads_again_only_for_what_came_later(place: Place):
    place.subscribe("g1", "true")
    before = place.version
    late = place.subscribe("g1", "doc.n == 1")
    found = place.matched(row(1), row(2), newer_than=before)
    assert (found["offset"].to_pylist(), found["enter"].to_pylist()) == ([1], [[late]])


def test_match_lets_a_watch_see_only_what_it_returns(place: Place):
    place.subscribe("g1", "WATCH o: shop::orders WHERE o.n > 0 RETURN o.n", "watch")
    whole = place.subscribe("g1", "WATCH o: shop::orders WHERE o.n > 0 RETURN o", "watch")
    found = place.matched(row(1, op="update", before={"n": 1, "m": 1}, after={"n": 1, "m": 2}))
    assert found["update"].to_pylist() == [[whole]]


def test_match_sends_on_what_it_cannot_read(place: Place):
    place.subscribe("g1", "true")
    found = place.matched(row(1, after=b"[1]"), row(2), row(3, after=b"\xff"))
    assert found["problem"].null_count == 1
    assert found["gateway"].to_pylist() == [-1, place.numbers["g1"], -1]


def test_match_passes_over_low_priority_where_a_partition_is_behind(place: Place):
    low, normal = place.subscribe("g1", "doc.n > 0", low=True), place.subscribe("g1", "doc.n > 0")
    rows = [row(1, partition=1), row(2, partition=2)]
    batch = normalize(journal_rows_to_batch(rows, place.version, -1, shedding={2}), place.context)
    assert match(batch, place.context)["enter"].to_pylist() == [[low, normal], [normal]]
    assert telemetry.take()["shed"] == 1


@pytest.mark.parametrize(
    "poison",
    [
        b'{"n": 123456789012345678901234567890}',
        b'{"n": {"$timestamp": "yesterday"}}',
        b'{"n": {"$duration": "long"}}',
        b'{"n": {"$float": "much"}}',
        b'{"n": 1e999}',
        b'{"n": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}",
        b'[{"n": 1}]',
        b'{"n": 1}, {"n": 2}',
        b"{",
    ],
)
def test_match_sets_a_poisonous_document_apart_and_goes_on(place: Place, poison: bytes):
    number = place.subscribe("g1", "doc.n > 1")
    rows = [row(n) for n in range(1, 6)] + [row(6, after=poison)] + [row(n) for n in range(7, 9)]
    found = place.matched(*rows).to_pylist()
    assert [each["offset"] for each in found if number in each["enter"]] == [2, 3, 4, 5, 7, 8]
    assert [each["offset"] for each in found if each["problem"] is not None] == [6]


def test_route_finds_gateways_and_broadcasts_while_the_index_is_unsure(place: Place):
    place.subscribe("g1", "true")
    found = place.matched(row(1))
    directed = route(found, place.context)
    assert directed["address"].to_pylist() == [place.receivers["g1"].address]
    place.registry.set_fan_out(3)
    invalidate_gateways(place.context.registry_url)
    wide = route(found, place.context)
    copies = [row for row in wide.to_pylist() if row["unfiltered"]]
    assert 2 <= len(copies) <= 3
    assert all(not copy["enter"] for copy in copies)
    targets = [row["gateway"] for row in wide.to_pylist()]
    assert len(set(targets)) == len(targets), "nobody gets it twice"


def test_deliver_to_all_and_quarantine_the_rest(place: Place):
    for name in ("g1", "g2"):
        place.subscribe(name, "doc.n > 0")
    batch = route(place.matched(row(1), row(2), row(3, after=b"[1]")), place.context)
    counts = place.delivered(batch)
    assert counts.keys() == set(OUTCOME.names)
    expected = {"changes": 3, "deliveries": 4, "matches": 4, "undeliverable": 0, "quarantined": 1}
    assert expected.items() <= counts.items()
    assert counts["candidates"] >= 4
    for name in ("g1", "g2"):
        assert [change.key for change in place.receivers[name].changes] == ["k1", "k2"]
    (poison,) = place.journal.quarantined("shop")
    assert (poison.event_id, poison.excerpt) == ("e3", "[1]")


def test_deliver_does_not_wait_for_a_gateway_whose_lease_is_over(place: Place):
    place.subscribe("g1", "true")
    place.subscribe("g2", "true")
    batch = route(place.matched(row(1)), place.context)
    numbers = {gateway.number for gateway in place.registry.gateways()}
    place.registry.acquire_lease("g1", "/nowhere/at/all", 0.3)
    invalidate_gateways(place.context.registry_url)
    done = place.delivered(batch)
    assert (done["deliveries"], done["undeliverable"]) == (1, 1)
    assert len(place.receivers["g2"].changes) == 1
    assert place.registry.acquire_lease("g1", place.receivers["g1"].address, 60).number not in numbers, (
        "one that lives after all must see that it was passed over"
    )


def test_deliver_goes_to_where_a_gateway_moved(place: Place):
    place.subscribe("g1", "true")
    batch = route(place.matched(row(1)), place.context)
    place.registry.acquire_lease("g1", place.receivers["g5"].address, 60)
    invalidate_gateways(place.context.registry_url)
    place.delivered(batch)
    assert len(place.receivers["g5"].changes) == 1


def test_the_stages_fused_are_the_stages(place: Place):
    number = place.subscribe("g1", "doc.n == 2")
    fused = fuse(STAGES)
    (done,) = fused(batch_of(row(1), row(2), row(2), version=place.version), place.context).to_pylist()
    (arrived,) = settle(place.context).to_pylist()
    assert (arrived["deliveries"], done["matches"]) == (1, 1)
    assert [change.enter for change in place.receivers["g1"].changes] == [[number]]
    assert [stage.__name__ for stage in STAGES] == [
        "normalize", "deduplicate", "sequence", "match", "route", "deliver",
    ]  # fmt: skip
