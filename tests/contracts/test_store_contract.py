"""The contract of a store, run against memory, SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.faulty_disk import fresh_database
from vedette.errors import StoreError
from vedette.storage.catalog import open_catalog
from vedette.storage.seam import Batch, ElementRecord, JournalRow, Store, StoreCatalog, StoreInfo

KINDS = ("memory", "sqlite", "postgres")


def locate(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if kind == "memory":
        yield ":memory:"
    elif kind == "sqlite":
        yield str(tmp_path / "data")
    else:
        with fresh_database(request.getfixturevalue("postgres_url")) as url:
            yield url


@pytest.fixture(params=KINDS)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from locate(request.param, request, tmp_path)


@pytest.fixture
def catalog(location: str) -> Iterator[StoreCatalog]:
    catalog = open_catalog(location)
    yield catalog
    catalog.close()


@pytest.fixture
def store(catalog: StoreCatalog) -> Store:
    store = catalog.open("default")
    store.open_for_writing()
    return store


def node(id: str, **attributes: object) -> ElementRecord:
    return ElementRecord(id, "Task", json.dumps(attributes).encode())


def edge(id: str, *targets: str) -> ElementRecord:
    return ElementRecord(id, "joins", b"{}", targets)


def row(tick: int, key: str = "a", time_ms: int = 0, **more: object) -> JournalRow:
    return JournalRow(tick, f"t{tick}", "Task", key, None, b'{"n":1}', time_ms, **more)  # type: ignore[arg-type]


def reopen(catalog: StoreCatalog, store: Store) -> tuple[Store, StoreInfo]:
    store.close()
    again = catalog.open("default")
    return again, again.open_for_writing()


# Definitions and meta


def test_new_database_has_only_an_epoch(catalog: StoreCatalog) -> None:
    facts = catalog.open("default").open_for_writing()
    assert facts == StoreInfo(epoch=facts.epoch, boot_count=1, sequence=0, definitions=(), meta={})
    assert facts.epoch > 1_600_000_000_000


def test_only_opening_increments_the_boot_count(catalog: StoreCatalog, store: Store) -> None:
    first = store.info()
    assert store.info() == first
    _, second = reopen(catalog, store)
    assert (second.boot_count, second.epoch) == (first.boot_count + 1, first.epoch)


def test_definitions_and_meta_round_trip(catalog: StoreCatalog, store: Store) -> None:
    store.append(Batch(sequence=7, definitions=["node A {}", "node Ä {}"], meta=[("k", "1"), ("l", "2")]))
    store.append(Batch(sequence=7, definitions=["node C {}"]))
    store.append(Batch(meta=[("k", "no"), ("k", "ü")]))  # the last value counts
    reopened, facts = reopen(catalog, store)
    assert (facts.sequence, facts.definitions) == (7, ("node A {}", "node Ä {}", "node C {}"))
    assert facts.meta == {"k": "ü", "l": "2"}
    reopened.append(Batch(meta=[("k", ""), ("l", ""), ("l", "3")]))  # an empty value deletes the key
    assert reopened.info().meta == {"l": "3"}


@pytest.mark.parametrize("key", ["store.boot", "store.anything"])
def test_reserved_meta_keys_are_refused(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match=key):
        store.append(Batch(meta=[(key, "9")]))


# Elements


def test_elements_round_trip(catalog: StoreCatalog, store: Store) -> None:
    store.append(Batch(sequence=1, puts=[node("a", n=1), node("b", text="é\u0000'\"\\"), node("c")]))
    store.append(Batch(sequence=2, puts=[node("a", n=2)], deletes=["b", "never there"]))
    again, _ = reopen(catalog, store)
    assert sorted(again.elements()) == [node("a", n=2), node("c")]


def test_attributes_are_stored_byte_for_byte(store: Store) -> None:
    odd = b'{ "b" : 1.50, "a":[1,\t2], "u":"\\u0000 \xc3\xa9 \xf0\x9f\x90\x8e", "b2": 1e400 }'
    store.append(
        Batch(sequence=1, puts=[ElementRecord("a", "Task", odd)], journal=[row(1)._replace(before=odd)])
    )
    assert [record.attributes for record in store.elements()] == [odd]
    assert [line.before for line in store.read(0, 1)] == [odd]


def test_edges_follow_their_targets(catalog: StoreCatalog, store: Store) -> None:
    store.append(Batch(sequence=1, puts=[edge("z", "n1", "n2"), edge("y", "z"), node("n2"), node("n1")]))
    store.append(Batch(sequence=2, puts=[edge("m", "y", "n1"), edge("a", "m")]))
    # a changed element keeps its position
    store.append(Batch(sequence=3, puts=[edge("z", "n1", "n2"), node("n1", n=2)]))
    again, _ = reopen(catalog, store)
    records = list(again.elements())
    seen: set[str] = set()
    for record in records:
        assert seen.issuperset(record.targets or ())
        seen.add(record.id)
    assert [record.id for record in records if record.targets is not None] == ["z", "y", "m", "a"]
    assert {record.id: record.targets for record in records}["m"] == ("y", "n1")


def test_deleted_last_edge_can_be_replaced(store: Store) -> None:
    store.append(Batch(sequence=1, puts=[node("n"), edge("e1", "n"), edge("e2", "e1")]))
    store.append(Batch(sequence=2, deletes=["e2"], puts=[edge("e0", "e1")]))
    store.append(Batch(sequence=3, puts=[edge("d", "e0")]))
    assert [record.id for record in store.elements()] == ["n", "e1", "e0", "d"]


def test_elements_are_read_from_one_snapshot(store: Store) -> None:
    store.append(Batch(sequence=1, puts=[node("a"), node("b"), edge("e", "a", "b")]))
    scan = store.elements()
    seen = [next(scan).id]
    store.append(Batch(sequence=2, deletes=["e", "a", "b"]))
    seen += [record.id for record in scan]
    assert sorted(seen) == ["a", "b", "e"]
    assert list(store.elements()) == []


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 1_000])
def test_batches_of_every_size(store: Store, count: int) -> None:
    records = [node(f"n{number}", n=number) for number in range(count)]
    last = store.append(Batch(sequence=1, puts=records, journal=[row(1, record.id) for record in records]))
    assert sorted(store.elements()) == sorted(records)
    lines = store.read(0, count + 1)
    assert [line.key for line in lines] == [record.id for record in records]
    assert lines[-1].offset == last == store.last_offset()


# Journal


FULL = JournalRow(
    tick=3,
    transaction="t-3",
    collection="shop::orders",
    key="o/1",
    before=b'{"a":1}',
    after=None,
    time_ms=1_700_000_000_123,
    cause="statement 5",
    source="shop",
    partition=7,
    seq=2**40,
    event_id="e-1",
    offset=99,
)


def test_journal_row_round_trip(catalog: StoreCatalog, store: Store) -> None:
    last = store.append(Batch(sequence=3, journal=[FULL, row(3)]))
    again, _ = reopen(catalog, store)
    lines = again.read(0, 10)
    assert lines == [FULL._replace(offset=lines[0].offset), row(3)._replace(offset=last)]
    assert all(isinstance(line.offset, int) and line.offset > 0 for line in lines)


def test_ranges(store: Store) -> None:
    assert store.read(0, 10) == []
    assert store.last_offset() == 0
    for tick in range(1, 8):
        store.append(Batch(sequence=tick, journal=[row(tick)]))
    offsets = [line.offset for line in store.read(0, 100)]
    assert all(a < b for a, b in pairwise(offsets))
    assert [line.tick for line in store.read(offsets[2], 3)] == [4, 5, 6]
    assert store.read(store.last_offset(), 10) == []
    assert store.read(store.last_offset() + 100, 10) == []
    assert store.append(Batch(sequence=8)) == store.last_offset() == offsets[-1]


def test_event_id_is_unique_per_source(catalog: StoreCatalog, store: Store) -> None:
    def event(source: str, id: str | None) -> JournalRow:
        return row(0, source=source, event_id=id)

    store.append(Batch(journal=[event("shop", "1"), event("shop", "2"), event("shop", "1")]))
    store.append(
        Batch(journal=[event("other", "1"), event("shop", "2"), event("shop", None), event("shop", None)])
    )
    again, facts = reopen(catalog, store)
    lines = again.read(0, 10)
    found = [(line.source, line.event_id) for line in lines]
    assert found == [("shop", "1"), ("shop", "2"), ("other", "1"), ("shop", None), ("shop", None)]
    assert again.last_offset() == lines[-1].offset
    assert facts.sequence == 0
    assert again.append(Batch(journal=[event("shop", "1")])) == lines[-1].offset


def test_trim_deletes_a_prefix(catalog: StoreCatalog, store: Store) -> None:
    times = [10, 20, 30, 25, 40]
    last = store.append(Batch(sequence=1, journal=[row(1, str(time), time) for time in times]))
    offsets = [line.offset for line in store.read(0, 9)]
    assert store.trim(5) == offsets[0]
    assert store.trim(26) == offsets[2]  # 25 is old enough, but follows 30
    assert store.trim(26) == offsets[2]
    with pytest.raises(StoreError) as caught:
        store.read(0, 1)
    assert caught.value.code == "E6006"
    assert [line.key for line in store.read(offsets[1], 9)] == ["30", "25", "40"]
    again, _ = reopen(catalog, store)
    assert again.trim(1_000) == last + 1
    assert again.last_offset() == last
    assert again.read(last, 5) == []
    assert again.append(Batch(sequence=2, journal=[row(2)])) > last


def test_offsets_are_never_reused(catalog: StoreCatalog, store: Store) -> None:
    last = store.append(Batch(sequence=1, journal=[row(1), row(1)]))
    store.trim(1_000)
    again, _ = reopen(catalog, store)
    assert again.last_offset() == last
    assert again.append(Batch(sequence=2, journal=[row(2)])) == last + 1


# Atomicity and order


def test_failed_batch_leaves_no_trace(catalog: StoreCatalog, store: Store) -> None:
    store.append(Batch(sequence=1, puts=[node("a")], journal=[row(1)]))
    before = (store.info(), sorted(store.elements()), store.read(0, 9))
    broken = row(2)._replace(tick=None)  # type: ignore[arg-type]
    bad = Batch(
        sequence=2, puts=[node("b")], deletes=["a"], definitions=["x"], meta=[("k", "v")], journal=[broken]
    )
    with pytest.raises((StoreError, TypeError)):
        store.append(bad)
    assert (store.info(), sorted(store.elements()), store.read(0, 9)) == before
    store.append(Batch(sequence=2, puts=[node("b")], journal=[row(2)]))
    again, facts = reopen(catalog, store)
    assert (facts.sequence, len(list(again.elements()))) == (2, 2)


def test_sequence_never_decreases(store: Store) -> None:
    store.append(Batch(sequence=5))
    store.append(Batch(sequence=5, meta=[("a", "1")]))
    with pytest.raises(StoreError) as caught:
        store.append(Batch(sequence=4, puts=[node("a")]))
    assert caught.value.code == "E6001"
    assert "sequence 5" in str(caught.value)
    assert list(store.elements()) == []
    store.append(Batch(journal=[row(0, source="shop", event_id="1")]))
    assert store.info().sequence == 5


def test_concurrent_writers_and_readers(store: Store) -> None:
    def external(source: str) -> None:
        for number in range(30):
            store.append(Batch(journal=[row(0, source=source, event_id=str(number), seq=number)]))

    threads = [Thread(target=external, args=(f"s{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    seen: list[JournalRow] = []
    while len(seen) < 120:  # a reader that follows the journal misses no row
        alive = any(thread.is_alive() for thread in threads)
        seen += store.read(seen[-1].offset if seen else 0, 1_000)
        assert alive or len(seen) == 120
    for thread in threads:
        thread.join()
    assert [line.seq for line in seen if line.source == "s2"] == list(range(30))


def test_closed_store_raises(store: Store) -> None:
    store.close()
    store.close()
    for use in (
        store.info,
        store.last_offset,
        lambda: store.append(Batch(sequence=1)),
        lambda: store.read(0, 1),
        lambda: list(store.elements()),
    ):
        with pytest.raises(StoreError) as caught:
            use()
        assert caught.value.code == "E6005"


# Catalogs


def test_catalog_has_several_databases(catalog: StoreCatalog) -> None:
    assert catalog.databases() == []
    for tick, name in enumerate(["tenant-b", "default", "Tenant-B", "ä/../ö", "x" * 200], start=1):
        store = catalog.open(name)
        store.open_for_writing()
        store.append(Batch(sequence=tick, puts=[node(name)]))
    assert catalog.databases() == ["default", "Tenant-B", "tenant-b", "x" * 200, "ä/../ö"]
    with pytest.raises(StoreError) as caught:
        catalog.open("default")
    assert caught.value.code == "E6002"


@pytest.mark.parametrize("name", ["", "x" * 201, "\ud800", "a\0b"])
def test_invalid_database_names(catalog: StoreCatalog, name: str) -> None:
    with pytest.raises(StoreError) as caught:
        catalog.open(name)
    assert caught.value.code == "E6007"
    assert catalog.databases() == []


def test_closing_a_catalog_closes_its_stores(catalog: StoreCatalog, store: Store) -> None:
    catalog.close()
    with pytest.raises(StoreError) as caught:
        store.info()
    assert caught.value.code == "E6005"
    catalog.close()


@pytest.mark.parametrize("location", ["sqlite", "postgres"], indirect=True)
def test_catalog_is_locked_by_one_engine(location: str) -> None:
    first = open_catalog(location)
    first.open("default").open_for_writing()
    with pytest.raises(StoreError) as caught:
        open_catalog(location)
    assert caught.value.code == "E6002"
    assert caught.value.fields["pid"]
    first.close()
    second = open_catalog(location)
    assert second.open("default").open_for_writing().boot_count == 2
    second.close()


# Random batches


class Model:
    """A model of a store's contents."""

    def __init__(self) -> None:
        self.elements: dict[str, ElementRecord] = {}
        self.keys: list[str] = []

    def commit(self, batch: Batch) -> None:
        for id in batch.deletes:
            self.elements.pop(id, None)
        self.elements.update((record.id, record) for record in batch.puts)
        self.keys += [line.key for line in batch.journal]


ids = st.sampled_from([f"{letter}{number}" for letter in "zma" for number in range(4)])
steps = st.lists(
    st.tuples(st.dictionaries(ids, st.integers(), max_size=5), st.sets(ids, max_size=3), st.booleans()),
    max_size=8,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=steps)
def test_store_equals_model_after_any_batches(
    kind: str,
    history: list[tuple[dict[str, int], set[str], bool]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    location = ":memory:" if kind == "memory" else str(tmp_path)
    if kind == "postgres":
        location = request.getfixturevalue("postgres_url")
    catalog = open_catalog(location)
    try:
        name = f"run {len(catalog.databases())}"
        store, model = catalog.open(name), Model()
        boot = store.open_for_writing().boot_count
        for tick, (puts, deletes, restart) in enumerate(history, start=1):
            batch = Batch(
                sequence=tick,
                puts=[node(id, n=value) for id, value in puts.items()],
                deletes=sorted(deletes - puts.keys()),
                journal=[row(tick, id) for id in puts],
            )
            store.append(batch)
            model.commit(batch)
            if restart:
                store.close()
                store = catalog.open(name)
                facts = store.open_for_writing()
                assert (facts.sequence, facts.boot_count) == (tick, boot + 1)
                boot = facts.boot_count
        assert sorted(store.elements()) == sorted(model.elements.values())
        assert [line.key for line in store.read(0, 1_000)] == model.keys
    finally:
        catalog.close()
