"""Each stage on a few rows, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.batches import row, rows_of, task_nowhere
from vedette.pipeline.deduplicate import deduplicate
from vedette.pipeline.deliver import deliver
from vedette.pipeline.match import match
from vedette.pipeline.normalize import normalize
from vedette.pipeline.route import route
from vedette.pipeline.schema import CHANGE_ROWS, CHANGES, DELIVERIES, journal_rows_to_batch
from vedette.pipeline.sequence import sequence
from vedette.pipeline.task import Counters, PipelineConfig, Task
from vedette.pipeline.topology import STAGES, fuse
from vedette.pipeline.worker_cache import close_connections
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Source
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver

NOWHERE = task_nowhere()


def normalized(batch: pa.RecordBatch) -> pa.RecordBatch:
    return normalize(batch, NOWHERE)


# Normalize, deduplicate, sequence


def test_normalize_records_the_problem_of_an_invalid_row():
    batch = normalized(
        rows_of(row(1), row(2, op="odd"), row(3, after=None), row(4, after=b"x" * (2**24 + 1)))
    )
    assert batch.schema == CHANGES
    assert batch["problem"].to_pylist() == [
        None,
        "unknown kind of change",
        "the change has neither a before image nor an after image",
        "the document is larger than 16 MB",
    ]


def test_deduplicate_keeps_the_first():
    batch = normalized(rows_of(row(1), row(2, event_id="e1"), row(3), row(4, event_id="e1", source="other")))
    assert deduplicate(batch, NOWHERE)["offset"].to_pylist() == [1, 3, 4]


def test_deduplicate_keeps_a_backfilled_change_beside_the_first_delivery():
    again, first = rows_of(row(1), newer_than=3), rows_of(row(1))
    batch = normalized(pa.concat_batches([again, first]))
    assert deduplicate(batch, NOWHERE).num_rows == 2


@given(st.permutations([(p, s) for p in (1, 2) for s in (1, 2, 3)]))
def test_sequence_sorts_each_partition(order: list[tuple[int, int]]):
    rows = [row(10 * p + s, partition=p, seq=s) for p, s in order]
    found = sequence(normalized(rows_of(*rows)), NOWHERE)
    places = list(zip(found["partition"].to_pylist(), found["seq"].to_pylist(), strict=True))
    assert places == sorted(places)
    assert found["problem"].null_count == len(rows)


def test_sequence_rejects_two_changes_with_one_number():
    found = sequence(normalized(rows_of(row(1, seq=5), row(2, seq=5), row(3, seq=6))), NOWHERE)
    assert found["problem"].to_pylist() == [
        None,
        "two changes of a partition have the same sequence number",
        None,
    ]


# Match, route, deliver


class Fixture:
    def __init__(self, data_directory: Path) -> None:
        self.registry = SubscriptionRegistry(data_directory)
        self.compactor = Compactor(self.registry, data_directory / "index")
        self.journal: CollectionJournal = open_journal(data_directory)
        self.journal.add_source(Source(name="shop", kind="mongodb", address=""))
        self.receivers = {
            name: IngestReceiver(data_directory / name, secret="s") for name in ("g1", "g2", "g3", "g4", "g5")
        }
        for name, receiver in self.receivers.items():
            self.registry.acquire_lease(name, receiver.address, 60)
        self.numbers = {gateway.name: gateway.number for gateway in self.registry.gateways()}
        self.context = PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=data_directory / "index",
            ingest_secret="s",
        )
        self.version = 0
        self.task = Task.start(self.context)

    def subscribe(
        self, gateway: str, source: str, kind: Any = "cel", tenant: str = "t", *, low: bool = False
    ) -> int:
        request = SubscriptionRequest(
            id=f"{gateway} {source} {tenant} {low}",
            low_priority=low,
            tenant=tenant,
            collection="shop::orders",
            boundary=0,
            spec=SubscriptionSpec(kind=kind, source=source),
        )
        (number,) = self.registry.register(gateway, [request], 60)
        self.version = self.compactor.publish().version
        return number

    def matched(self, *rows: Any, newer_than: int = -1) -> pa.RecordBatch:
        batch = normalized(rows_of(*rows, version=self.version, newer_than=newer_than))
        return match(batch, self.task)

    def delivered(self, batch: pa.RecordBatch) -> Counters:
        """Deliver a batch, wait for acceptance, and return all counters of the task."""
        deliver(batch, self.task)
        self.task.flush()
        return self.task.counters

    def close(self) -> None:
        close_connections()
        for receiver in self.receivers.values():
            receiver.close()
        self.registry.close()
        self.journal.close()


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[Fixture]:
    fixture = Fixture(tmp_path)
    yield fixture
    fixture.close()


def test_match_groups_by_change_and_gateway(fixture: Fixture):
    one, two = fixture.subscribe("g1", "doc.n > 0"), fixture.subscribe("g1", "doc.n == 2")
    other = fixture.subscribe("g2", "doc.n == 2")
    fixture.subscribe("g1", "doc.n > 0", tenant="other")
    found = fixture.matched(row(1), row(2), row(3, op="update", before={"n": 2}, after={"n": 0}))
    assert found.schema == DELIVERIES
    names = ("offset", "gateway", "enter", "update", "leave")
    g1, g2 = fixture.numbers["g1"], fixture.numbers["g2"]
    assert list(zip(*(found[name].to_pylist() for name in names), strict=True)) == [
        (1, g1, [one], [], []),
        (2, g1, [one, two], [], []),
        (2, g2, [other], [], []),
        (3, g1, [], [], [one, two]),
        (3, g2, [], [], [other]),
    ]


def test_match_backfills_only_newer_subscriptions(fixture: Fixture):
    fixture.subscribe("g1", "true")
    before = fixture.version
    late = fixture.subscribe("g1", "doc.n == 1")
    found = fixture.matched(row(1), row(2), newer_than=before)
    assert (found["offset"].to_pylist(), found["enter"].to_pylist()) == ([1], [[late]])


def test_match_drops_updates_that_do_not_change_the_returned_row(fixture: Fixture):
    fixture.subscribe("g1", "WATCH o: shop::orders WHERE o.n > 0 RETURN o.n", "watch")
    whole = fixture.subscribe("g1", "WATCH o: shop::orders WHERE o.n > 0 RETURN o", "watch")
    found = fixture.matched(row(1, op="update", before={"n": 1, "m": 1}, after={"n": 1, "m": 2}))
    assert found["update"].to_pylist() == [[whole]]


def test_match_passes_on_rows_that_it_cannot_decode(fixture: Fixture):
    fixture.subscribe("g1", "true")
    found = fixture.matched(row(1, after=b"[1]"), row(2), row(3, after=b"\xff"))
    assert found["problem"].null_count == 1
    assert found["gateway"].to_pylist() == [-1, fixture.numbers["g1"], -1]


def test_match_skips_low_priority_on_a_lagging_partition(fixture: Fixture):
    low, normal = fixture.subscribe("g1", "doc.n > 0", low=True), fixture.subscribe("g1", "doc.n > 0")
    rows = [row(1, partition=1), row(2, partition=2)]
    batch = journal_rows_to_batch(rows, fixture.version, -1, shedding={2}).select(CHANGE_ROWS.names)
    assert match(normalize(batch, fixture.task), fixture.task)["enter"].to_pylist() == [
        [low, normal],
        [normal],
    ]
    assert fixture.task.counters.shed == 1


@pytest.mark.parametrize(
    "image",
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
def test_match_isolates_an_invalid_document(fixture: Fixture, image: bytes):
    number = fixture.subscribe("g1", "doc.n > 1")
    rows = [row(n) for n in range(1, 6)] + [row(6, after=image)] + [row(n) for n in range(7, 9)]
    found = fixture.matched(*rows).to_pylist()
    assert [each["offset"] for each in found if number in each["enter"]] == [2, 3, 4, 5, 7, 8]
    assert [each["offset"] for each in found if each["problem"] is not None] == [6]


def test_route_finds_gateways_and_broadcasts_while_the_index_is_unreliable(fixture: Fixture):
    fixture.subscribe("g1", "true")
    found = fixture.matched(row(1))
    directed = route(found, fixture.task)
    assert directed["address"].to_pylist() == [fixture.receivers["g1"].address]
    fixture.registry.set_fan_out(3)
    fixture.task.gateways.invalidate()
    wide = route(found, fixture.task)
    copies = [row for row in wide.to_pylist() if row["unfiltered"]]
    assert 2 <= len(copies) <= 3
    assert all(not copy["enter"] for copy in copies)
    targets = [row["gateway"] for row in wide.to_pylist()]
    assert len(set(targets)) == len(targets), "no gateway receives the change twice"


def test_deliver_sends_valid_changes_and_quarantines_the_others(fixture: Fixture):
    for name in ("g1", "g2"):
        fixture.subscribe(name, "doc.n > 0")
    batch = route(fixture.matched(row(1), row(2), row(3, after=b"[1]")), fixture.task)
    counts = fixture.delivered(batch)
    assert (counts.changes, counts.deliveries, counts.matches) == (3, 4, 4)
    assert (counts.undeliverable, counts.quarantined) == (0, 1)
    assert counts.candidates >= 4
    for name in ("g1", "g2"):
        assert [change.key for change in fixture.receivers[name].changes] == ["k1", "k2"]
    (quarantined,) = fixture.journal.quarantined("shop")
    assert (quarantined.event_id, quarantined.excerpt) == ("e3", "[1]")


def test_deliver_does_not_wait_for_a_gateway_whose_lease_expired(fixture: Fixture):
    fixture.subscribe("g1", "true")
    fixture.subscribe("g2", "true")
    batch = route(fixture.matched(row(1)), fixture.task)
    numbers = {gateway.number for gateway in fixture.registry.gateways()}
    fixture.registry.acquire_lease("g1", "/nowhere/at/all", 0.3)
    fixture.task.gateways.invalidate()
    done = fixture.delivered(batch)
    assert (done.deliveries, done.undeliverable) == (1, 1)
    assert len(fixture.receivers["g2"].changes) == 1
    assert fixture.registry.acquire_lease("g1", fixture.receivers["g1"].address, 60).number not in numbers, (
        "a gateway that is still alive must notice that it lost its lease"
    )


def test_deliver_uses_the_new_address_of_a_gateway(fixture: Fixture):
    fixture.subscribe("g1", "true")
    batch = route(fixture.matched(row(1)), fixture.task)
    fixture.registry.acquire_lease("g1", fixture.receivers["g5"].address, 60)
    fixture.task.gateways.invalidate()
    fixture.delivered(batch)
    assert len(fixture.receivers["g5"].changes) == 1


def test_fused_stages_run_in_order(fixture: Fixture):
    number = fixture.subscribe("g1", "doc.n == 2")
    fused = fuse(STAGES)
    fused(rows_of(row(1), row(2), row(2), version=fixture.version), fixture.task)
    fixture.task.flush()
    assert (fixture.task.counters.deliveries, fixture.task.counters.matches) == (1, 1)
    assert [change.enter for change in fixture.receivers["g1"].changes] == [[number]]
    assert [stage.__name__ for stage in STAGES] == [
        "normalize", "deduplicate", "sequence", "match", "route", "deliver",
    ]  # fmt: skip
