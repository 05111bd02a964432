"""Subscriptions come, are renewed, end; versions of the index show exactly those in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vedette.errors import FilterError, StoreError, SubscriptionError
from vedette.subscriptions.index.change_batch import DocumentChange, ImageBatch
from vedette.subscriptions.index.compactor import KEEP_MS, Compactor
from vedette.subscriptions.index.matcher import match_segments
from vedette.subscriptions.index.versions import latest_version, open_version
from vedette.subscriptions.registry.quotas import Quotas
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing import ManualClock

_NUMBERS = count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path)
    server: str = request.getfixturevalue("postgres_url")
    name = f"registry_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def registry(address: str, clock: ManualClock) -> Iterator[SubscriptionRegistry]:
    registry = SubscriptionRegistry(address, clock=clock, quotas=Quotas(gateway=5, tenant=6, total=8))
    registry.acquire_lease("g1", "here:1", 60)
    yield registry
    registry.close()


def wish(id: str, source: str = "doc.a == 1", **more: Any) -> SubscriptionRequest:
    values: dict[str, Any] = {
        "tenant": "t",
        "collection": "c",
        "boundary": 0,
        "spec": SubscriptionSpec(kind="cel", source=source),
    }
    return SubscriptionRequest(id=id, **(values | more))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(SubscriptionError) as caught:
        call()
    return caught.value.code


def test_ids_belong_to_a_gateway(registry: SubscriptionRegistry):
    registry.acquire_lease("g2", "here:2", 60)
    (first,) = registry.register("g1", [wish("s")], 60)
    (second,) = registry.register("g2", [wish("s")], 60)
    assert first != second
    assert refusal(lambda: registry.register("g1", [wish("new"), wish("s")], 60)) == "E6201"
    assert registry.count() == 2, "all or none"
    registry.unregister("g1", ["s"])
    registry.unregister("g1", ["s"])
    assert registry.count() == 1
    registry.register("g1", [wish("s")], 60)


def test_quotas(registry: SubscriptionRegistry):
    registry.acquire_lease("g2", "here:2", 60)
    registry.register("g1", [wish(str(n)) for n in range(5)], 60)
    assert refusal(lambda: registry.register("g1", [wish("more")], 60)) == "E6203"
    registry.register("g2", [wish("one")], 60)
    assert refusal(lambda: registry.register("g2", [wish("two")], 60)) == "E6203", "the tenant has six"
    registry.register("g2", [wish("two", tenant="u"), wish("three", tenant="u")], 60)
    assert refusal(lambda: registry.register("g2", [wish("four", tenant="u")], 60)) == "E6203", "eight in all"
    registry.unregister("g2", ["two"])
    registry.register("g2", [wish("four", tenant="u")], 60)


def test_a_collection_has_a_budget_of_its_own(address: str, clock: ManualClock):
    registry = SubscriptionRegistry(address, clock=clock, quotas=Quotas(collection=2))
    registry.acquire_lease("g1", "here:1", 60)
    registry.register("g1", [wish("a"), wish("b"), wish("c", collection="d"), wish("e", tenant="u")], 60)
    assert refusal(lambda: registry.register("g1", [wish("f")], 60)) == "E6203"
    assert registry.count("collection:t/c") == 2
    registry.unregister("g1", ["a"])
    registry.register("g1", [wish("f")], 60)
    registry.release_lease("g1")
    assert registry.count("collection:t/c") == registry.count() == 0
    registry.close()


def test_what_is_not_renewed_ends(registry: SubscriptionRegistry, clock: ManualClock):
    registry.register("g1", [wish("a"), wish("b")], 60)
    clock.advance(50)
    registry.renew("g1", 60, ["a"])
    clock.advance(20)
    assert registry.expire() == 1
    assert refusal(lambda: registry.renew("g1", 60, ["b"])) == "E6202"
    assert registry.renew("g1", 60) == 1
    assert registry.count() == registry.count("tenant:t") == 1


def test_gateways_hold_leases(registry: SubscriptionRegistry, clock: ManualClock):
    registry.acquire_lease("g2", "there:2", 10)
    assert [gateway.name for gateway in registry.gateways()] == ["g1", "g2"]
    clock.advance(11)
    assert [gateway.name for gateway in registry.gateways()] == ["g1"]
    registry.register("g1", [wish("a")], 60)
    registry.release_lease("g1")
    assert registry.gateways() == []
    assert registry.count() == 0
    assert refusal(lambda: registry.register("g1", [wish("a")], 60)) == "E6202"


def test_who_was_passed_over_has_lost_its_place(registry: SubscriptionRegistry):
    (gateway,) = registry.gateways()
    registry.register("g1", [wish("a")], 60)
    registry.evict(gateway.number)
    assert registry.gateways() == []
    assert registry.count() == 0
    registry.evict(gateway.number)
    assert registry.acquire_lease("g1", "here:1", 60).number > gateway.number


def test_modes(registry: SubscriptionRegistry):
    registry.set_mode(1, "shedding")
    registry.set_mode(2, "degraded")
    assert registry.modes() == {1: "shedding", 2: "degraded"}
    registry.set_mode(1, "normal")
    assert registry.modes() == {2: "degraded"}


def test_a_bad_filter_is_refused_when_it_is_registered(registry: SubscriptionRegistry):
    with pytest.raises(FilterError):
        registry.register("g1", [wish("a", "doc.a matches 'x'")], 60)
    watch = SubscriptionSpec(kind="watch", source="WATCH a: c, b: c RETURN a")
    assert refusal(lambda: registry.register("g1", [wish("a", spec=watch)], 60)) == "E6204"


# Versions


def matched(folder: Path, version: int, value: int, *, newer_than: int = -1) -> set[int]:
    segments, dead = open_version(folder, version).collection("t", "c")
    images = ImageBatch("t", "c", [DocumentChange(9, "k", "create", None, {"a": value})])
    return {match.subscription for match in match_segments(segments, dead, images, newer_than=newer_than)}


def test_a_version_stays_what_it_was(registry: SubscriptionRegistry, tmp_path: Path):
    compactor = Compactor(registry, tmp_path / "index")
    (one,) = registry.register("g1", [wish("one")], 60)
    first = compactor.publish().version
    assert compactor.publish().version == first, "nothing changed"
    (two,) = registry.register("g1", [wish("two", boundary=7)], 60)
    second = compactor.publish()
    registry.unregister("g1", ["one"])
    third = compactor.publish().version
    folder = tmp_path / "index"
    assert matched(folder, first, 1) == {one}
    assert matched(folder, second.version, 1) == {one, two}
    assert matched(folder, third, 1) == {two}
    assert matched(folder, third, 2) == set()
    assert matched(folder, third, 1, newer_than=first) == {two}
    assert matched(folder, third, 1, newer_than=second.version) == set()
    assert second.lowest_boundary(first) == 7
    assert second.lowest_boundary(second.version) is None
    again = Compactor(registry, folder)
    assert again.publish().version == third == latest_version(folder)


def test_index_of_another_format_is_rebuilt(registry: SubscriptionRegistry, tmp_path: Path):
    folder = tmp_path / "index"
    registry.register("g1", [wish("1"), wish("2", collection="d")], 60)
    before = Compactor(registry, folder).publish()
    path = folder / f"v{before.version:012d}.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(before, format=0)))
    compactor = Compactor(registry, folder)
    after = compactor.publish()
    files = [
        {segment.file for held in each.collections["t"].values() for segment in held.segments}
        for each in (before, after)
    ]
    assert len(files[1]) == 2
    assert not files[0] & files[1]
    assert compactor.publish() is after
    assert Compactor(registry, folder).publish().version == after.version


def test_a_subscription_knows_the_version_that_it_came_with(registry: SubscriptionRegistry):
    (one,) = registry.register("g1", [wish("1")], 60)
    came = registry.version()
    (two,) = registry.register("g1", [wish("2")], 60)
    registry.unregister("g1", ["2"])
    assert registry.version_of(one) == came < registry.version_of(two) <= registry.version()
    assert registry.version_of(10_000) == registry.version()


def test_tenants_are_strangers(registry: SubscriptionRegistry, tmp_path: Path):
    registry.register("g1", [wish("one", tenant="other")], 60)
    version = Compactor(registry, tmp_path / "index").publish().version
    assert matched(tmp_path / "index", version, 1) == set()


def test_old_versions_go_and_a_batch_that_asks_for_one_gets_the_next(
    registry: SubscriptionRegistry, tmp_path: Path, clock: ManualClock
):
    folder = tmp_path / "index"
    compactor = Compactor(registry, folder, clock)
    versions = []
    for n in range(15):
        registry.register("g1", [wish(str(n))], 60)
        versions.append(compactor.publish().version)
        registry.unregister("g1", [str(n)])
        compactor.publish()
    clock.advance(KEEP_MS / 1000 + 1)
    (last,) = registry.register("g1", [wish("last")], 60)
    newest = compactor.publish().version
    assert len(list(folder.glob("v*.json"))) == 10
    open_version.cache_clear()
    found = open_version(folder, versions[0]).manifest.version
    assert versions[0] < found <= newest
    assert refusal(lambda: open_version(folder, newest + 1)) == "E6205"
    assert matched(folder, newest, 1) == {last}
    named = msgspec.json.decode((folder / f"v{newest:012d}.json").read_bytes())
    assert named["collections"]["t"]["c"]["segments"]


class Versions(RuleBasedStateMachine):
    """Whatever comes and goes, the published version has exactly the subscriptions in force, in few segments."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name) / "index"
        self.registry = SubscriptionRegistry(self.home.name)
        self.registry.acquire_lease("g", "x", 60)
        self.compactor = Compactor(self.registry, self.folder)
        self.expected: dict[str, tuple[int, int]] = {}
        self.names = count()

    @rule(values=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def register(self, values: list[int]) -> None:
        ids = [str(next(self.names)) for _ in values]
        wishes = [wish(id, f"doc.a == {value}") for id, value in zip(ids, values, strict=True)]
        for id, number, value in zip(ids, self.registry.register("g", wishes, 60), values, strict=True):
            self.expected[id] = (number, value)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.expected)))
        self.registry.unregister("g", [id])
        del self.expected[id]

    @rule()
    def doubt(self) -> None:
        self.compactor.request_rebuild("t", "c")

    @invariant()
    def published(self) -> None:
        manifest = self.compactor.publish()
        for value in range(4):
            expected = {number for number, wanted in self.expected.values() if wanted == value}
            assert matched(self.folder, manifest.version, value) == expected
        files = manifest.collections.get("t", {}).get("c")
        if files is not None:
            assert len(files.segments) <= 1 + np.log2(max(files.rows, 1))

    def teardown(self) -> None:
        self.registry.close()
        self.home.cleanup()


TestVersions = Versions.TestCase
TestVersions.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)


def test_a_registry_whose_line_was_cut_goes_on(address: str, registry: SubscriptionRegistry):
    """As when the server starts anew: one call fails, the next is on another line."""
    if not address.startswith("postgresql"):
        return
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        )
    with pytest.raises(StoreError):
        registry.gateways()
    registry.register("g1", [wish("s")], 60)
    assert [gateway.name for gateway in registry.gateways()] == ["g1"]
