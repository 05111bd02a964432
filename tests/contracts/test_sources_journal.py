"""The contract of every journal of external collections, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from vedette.errors import SourceError, StoreError
from vedette.sources.images import decode_image, encode_image
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import ChangeRow, QuarantinedChange, Source, SourceEvent
from vedette.testing import ManualClock

SHOP = Source(name="shop", kind="mongodb", address="mongodb://there", partitions=3)
_NUMBERS = count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path)
        return
    server = request.getfixturevalue("postgres_url")
    name = f"journal_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    yield server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def journal(address: str, clock: ManualClock) -> Iterator[CollectionJournal]:
    journal = open_journal(address, clock)
    journal.add_source(SHOP)
    yield journal
    with suppress(StoreError):
        journal.close()


def event(id: str, key: str, after: object | None, *, created: bool = False) -> SourceEvent:
    image = None if after is None else encode_image(after)
    return SourceEvent(
        event_id=id, collection="shop::orders", key=key, after=image, created=created, time_ms=5
    )


def everything(journal: CollectionJournal) -> list[ChangeRow]:
    return list(journal.read(0, journal.last_offset()))


def test_changes_token_and_images_are_written_together(journal: CollectionJournal, address: str):
    done = journal.append("shop", [event("e1", "a", {"n": 1}), event("e2", "b", {"n": 2})], "t1")
    assert (done.appended, done.duplicates) == (2, 0)
    other = open_journal(address)
    assert other.resume_token("shop") == "t1"
    assert [row.event_id for row in everything(other)] == ["e1", "e2"]
    assert [key for key, _ in other.snapshot("default", "shop::orders").documents] == ["a", "b"]
    other.close()


def test_duplicates_are_dropped_within_and_across_appends(journal: CollectionJournal):
    journal.append("shop", [event("e1", "a", {"n": 1}), event("e1", "a", {"n": 1})], "t1")
    done = journal.append("shop", [event("e1", "a", {"n": 1}), event("e2", "a", {"n": 2})], "t2")
    assert (done.appended, done.duplicates) == (1, 1)
    assert [row.event_id for row in everything(journal)] == ["e1", "e2"]


def test_two_writes_of_a_document_in_one_transaction_are_kept(journal: CollectionJournal):
    """Event ids identify changes. Time, transaction and key together do not."""
    journal.append("shop", [event("t.0", "a", {"n": 1}), event("t.1", "a", {"n": 2})], "t")
    assert [decode_image(row.after or b"") for row in everything(journal)] == [{"n": 1}, {"n": 2}]


def test_before_images_come_from_the_last_image(journal: CollectionJournal):
    journal.append("shop", [event("1", "a", {"n": 1}, created=True), event("2", "a", {"n": 2})], None)
    journal.append("shop", [event("3", "a", None), event("4", "a", {"n": 4}, created=True)], None)
    rows = everything(journal)
    assert [row.op for row in rows] == ["create", "update", "delete", "create"]
    assert [row.before and decode_image(row.before)["n"] for row in rows] == [None, 1, 2, None]
    assert all(row.before_known for row in rows)


def test_before_image_of_the_source_takes_precedence(journal: CollectionJournal):
    source_event = SourceEvent(
        event_id="1", collection="shop::orders", key="a", before=encode_image({"n": 0}), after=None, time_ms=1
    )
    journal.append("shop", [source_event], None)
    (row,) = everything(journal)
    assert (row.op, decode_image(row.before or b"")) == ("delete", {"n": 0})


def test_unknown_before_image_is_marked_and_unknown_deletion_dropped(journal: CollectionJournal):
    journal.append("shop", [event("1", "never seen", {"n": 1}), event("2", "nor this", None)], None)
    (row,) = everything(journal)
    assert row.key == "never seen"
    assert not row.before_known


def test_sequence_numbers_are_consecutive_per_partition(journal: CollectionJournal):
    for batch in range(4):
        journal.append("shop", [event(f"{batch}.{n}", f"k{n}", {"b": batch}) for n in range(20)], None)
    rows = everything(journal)
    by_partition = {row.partition: [r.seq for r in rows if r.partition == row.partition] for row in rows}
    assert len(by_partition) == 3
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_partition.values())
    assert all(len({r.partition for r in rows if r.key == key}) == 1 for key in {row.key for row in rows})
    assert {p.id: p.seq for p in journal.partitions("shop")} == {p: len(s) for p, s in by_partition.items()}
    assert 0 not in by_partition, "partition 0 is the engine's own"


def test_partitions_of_two_sources_are_different(journal: CollectionJournal):
    journal.add_source(Source(name="other", kind="postgres", address="x", partitions=2))
    assert len({partition.id for partition in journal.partitions()}) == 5


def test_shares_of_a_range_cover_the_range(journal: CollectionJournal):
    journal.append("shop", [event(str(n), f"k{n}", {"n": n}) for n in range(50)], None)
    end = journal.last_offset()
    shares = [row for i in range(2) for row in journal.read(10, end, share=(i, 2))]
    assert sorted(shares) == list(journal.read(10, end))
    assert list(journal.read(10, end, limit=3)) == list(journal.read(10, end))[:3]


def test_range_ends_at_the_row_or_byte_limit(journal: CollectionJournal):
    journal.append("shop", [event(str(n), f"k{n}", {"text": "x" * 100}) for n in range(10)], None)
    first = everything(journal)[0].offset
    assert journal.end_within_limits(first - 1, 4, 10**9) == first + 3
    assert journal.end_within_limits(first - 1, 100, 350) == first + 2
    assert journal.end_within_limits(first - 1, 100, 1) == first, "one change at least, however large"
    assert journal.end_within_limits(journal.last_offset(), 4, 10) == journal.last_offset()


def test_snapshot_and_later_changes_are_complete(journal: CollectionJournal):
    journal.append("shop", [event(str(n), f"k{n}", {"n": n}) for n in range(5)], None)
    page = journal.snapshot("default", "shop::orders", limit=3)
    journal.append("shop", [event("x", "k9", {"n": 9})], None)
    assert [key for key, _ in page.documents] == ["k0", "k1", "k2"]
    assert [row.key for row in journal.read(page.offset, journal.last_offset())] == ["k9"]
    rest = journal.snapshot("default", "shop::orders", after_key="k2")
    assert [key for key, _ in rest.documents] == ["k3", "k4", "k9"]
    assert journal.snapshot("somebody else", "shop::orders").documents == ()
    assert journal.collections("default") == ["shop::orders"]


def test_reading_a_trimmed_range_raises_E6006(journal: CollectionJournal, clock: ManualClock):
    journal.append("shop", [event("1", "a", {"n": 1})], None)
    clock.advance(60)
    journal.append("shop", [event("2", "b", {"n": 2})], None)
    kept = journal.trim(int(clock.now().timestamp() * 1000) - 30_000)
    assert [row.event_id for row in journal.read(kept - 1, journal.last_offset())] == ["2"]
    with pytest.raises(StoreError) as caught:
        everything(journal)
    assert caught.value.code == "E6006"
    assert len(journal.snapshot("default", "shop::orders").documents) == 2, "last images stay"


def test_offsets_are_not_reused_after_a_trim(journal: CollectionJournal, clock: ManualClock):
    last = journal.append("shop", [event("1", "a", {"n": 1})], None).offset
    clock.advance(10)
    journal.trim(int(clock.now().timestamp() * 1000))
    assert journal.last_offset() == last
    assert journal.append("shop", [event("2", "a", {"n": 2})], None).offset == last + 1


def test_wait_ends_with_an_append_of_another_process(journal: CollectionJournal, address: str):
    last = journal.last_offset()
    other = open_journal(address)
    thread = Thread(target=lambda: other.append("shop", [event("1", "a", {"n": 1})], None))
    thread.start()
    assert journal.wait_for_append(last, 30.0) == last + 1
    thread.join()
    other.close()
    assert journal.wait_for_append(last, 30.0) == last + 1, "at once when it is there already"


def test_states_and_epochs(journal: CollectionJournal):
    before = journal.partitions("shop")
    journal.set_state("shop", "stale", "the slot is gone")
    assert {(p.state, p.reason) for p in journal.partitions()} == {("stale", "the slot is gone")}
    journal.set_state("shop", "live", new_epoch=True)
    after = journal.partitions("shop")
    assert all(new.epoch > old.epoch for old, new in zip(before, after, strict=True))


def test_quarantined_change_is_stored_once(journal: CollectionJournal):
    change = QuarantinedChange(source="shop", event_id="p", reason="no object", excerpt="[1]", time_ms=1)
    journal.quarantine(change)
    journal.quarantine(change)
    assert journal.quarantined("shop") == [change]


def test_sources_are_added_and_removed(journal: CollectionJournal):
    assert journal.sources() == [SHOP]
    journal.set_paused("shop", True)
    assert journal.source("shop").paused
    with pytest.raises(SourceError) as caught:
        journal.add_source(SHOP)
    assert caught.value.code == "E6101"
    journal.append("shop", [event("1", "a", {"n": 1})], "t")
    journal.remove_source("shop")
    for call in (lambda: journal.source("shop"), lambda: journal.resume_token("shop")):
        with pytest.raises(SourceError) as caught:
            call()
        assert caught.value.code == "E6103"
    journal.add_source(SHOP)
    assert journal.resume_token("shop") is None
    assert journal.snapshot("default", "shop::orders").documents == ()


def test_append_to_an_unknown_source_writes_nothing(journal: CollectionJournal):
    with pytest.raises(SourceError):
        journal.append("unknown", [event("1", "a", {"n": 1})], "t")
    assert everything(journal) == []


def test_backlog_is_counted_by_partition(journal: CollectionJournal, clock: ManualClock):
    journal.append("shop", [event("1", "a", {"n": 1}), event("2", "b", {"n": 1})], None)
    clock.advance(5)
    last = journal.append("shop", [event("3", "a", {"n": 2})], None).offset
    rows = everything(journal)
    for offset in range(last + 1):
        past = [row for row in rows if row.offset > offset]
        found = journal.backlog(offset)
        assert found.keys() == {row.partition for row in past}
        for partition, counted in found.items():
            own = [row for row in past if row.partition == partition]
            assert counted == (len(own), own[0].appended_ms)


def test_new_epoch_of_one_partition_leaves_the_others(journal: CollectionJournal):
    first, *others = journal.partitions()
    journal.start_new_epoch(first.id)
    after = {partition.id: partition.epoch for partition in journal.partitions()}
    assert after[first.id] > first.epoch
    assert all(after[partition.id] == partition.epoch for partition in others)


def test_last_images_can_be_deleted(journal: CollectionJournal):
    journal.append("shop", [event("1", "a", {"n": 1})], "t")
    journal.delete_images("shop")
    assert journal.snapshot("default", "shop::orders").documents == ()
    journal.append("shop", [event("2", "a", {"n": 2})], "t")
    row = everything(journal)[-1]
    assert (row.op, row.before, row.before_known) == ("create", None, False)


def test_quarantine_is_counted_and_limited(journal: CollectionJournal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vedette.sources.journal.sql_journal.MAX_QUARANTINED", 3)
    assert journal.quarantined_total() == 0
    for number in range(5):
        journal.quarantine(
            QuarantinedChange(
                source="shop", event_id=str(number), reason="no object", excerpt="[]", time_ms=1
            )
        )
    journal.trim(0)
    assert [item.event_id for item in journal.quarantined("shop")] == ["4", "3", "2"]
    assert journal.quarantined_total() == 5


def test_journal_reconnects_after_a_broken_connection(address: str, journal: CollectionJournal):
    """After a restart of the server one call fails, and the next one uses a new connection."""
    if not address.startswith("postgresql"):
        return
    journal.append("shop", [event("1", "a", {"n": 1})], "t")
    _terminate_connections(address)
    with pytest.raises(StoreError):
        journal.append("shop", [event("2", "a", {"n": 2})], "t")
    journal.append("shop", [event("2", "a", {"n": 2})], "t")
    assert [row.event_id for row in everything(journal)] == ["1", "2"]
    journal.close()
    with pytest.raises(StoreError):
        journal.last_offset()


def _terminate_connections(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        )
