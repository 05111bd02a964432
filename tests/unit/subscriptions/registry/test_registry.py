"""Subscriptions are added, renewed and ended, and published versions have exactly the active ones."""

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


def request_for(id: str, source: str = "doc.a == 1", **more: Any) -> SubscriptionRequest:
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


def test_ids_are_unique_per_gateway(registry: SubscriptionRegistry):
    registry.acquire_lease("g2", "here:2", 60)
    (first,) = registry.register("g1", [request_for("s")], 60)
    (second,) = registry.register("g2", [request_for("s")], 60)
    assert first != second
    assert refusal(lambda: registry.register("g1", [request_for("new"), request_for("s")], 60)) == "E6201"
    assert registry.count() == 2, "all or none"
    registry.unregister("g1", ["s"])
    registry.unregister("g1", ["s"])
    assert registry.count() == 1
    registry.register("g1", [request_for("s")], 60)


def test_quotas(registry: SubscriptionRegistry):
    registry.acquire_lease("g2", "here:2", 60)
    registry.register("g1", [request_for(str(n)) for n in range(5)], 60)
    assert refusal(lambda: registry.register("g1", [request_for("more")], 60)) == "E6203"
    registry.register("g2", [request_for("one")], 60)
    assert refusal(lambda: registry.register("g2", [request_for("two")], 60)) == "E6203", "the tenant has six"
    registry.register("g2", [request_for("two", tenant="u"), request_for("three", tenant="u")], 60)
    assert refusal(lambda: registry.register("g2", [request_for("four", tenant="u")], 60)) == "E6203", (
        "eight in all"
    )
    registry.unregister("g2", ["two"])
    registry.register("g2", [request_for("four", tenant="u")], 60)


def test_collection_has_its_own_quota(address: str, clock: ManualClock):
    registry = SubscriptionRegistry(address, clock=clock, quotas=Quotas(collection=2))
    registry.acquire_lease("g1", "here:1", 60)
    registry.register(
        "g1",
        [
            request_for("a"),
            request_for("b"),
            request_for("c", collection="d"),
            request_for("e", tenant="u"),
        ],
        60,
    )
    assert refusal(lambda: registry.register("g1", [request_for("f")], 60)) == "E6203"
    assert registry.count("collection:t/c") == 2
    registry.unregister("g1", ["a"])
    registry.register("g1", [request_for("f")], 60)
    registry.release_lease("g1")
    assert registry.count("collection:t/c") == registry.count() == 0
    registry.close()


def test_unrenewed_subscriptions_end(registry: SubscriptionRegistry, clock: ManualClock):
    registry.register("g1", [request_for("a"), request_for("b")], 60)
    clock.advance(50)
    registry.renew("g1", 60, ["a"])
    clock.advance(20)
    assert registry.expire() == 1
    assert refusal(lambda: registry.renew("g1", 60, ["b"])) == "E6202"
    assert registry.renew("g1", 60) == 1
    assert registry.count() == registry.count("tenant:t") == 1


def test_gateway_leases_expire(registry: SubscriptionRegistry, clock: ManualClock):
    registry.acquire_lease("g2", "there:2", 10)
    assert [gateway.name for gateway in registry.gateways()] == ["g1", "g2"]
    clock.advance(11)
    assert [gateway.name for gateway in registry.gateways()] == ["g1"]
    registry.register("g1", [request_for("a")], 60)
    registry.release_lease("g1")
    assert registry.gateways() == []
    assert registry.count() == 0
    assert refusal(lambda: registry.register("g1", [request_for("a")], 60)) == "E6202"


def test_evicted_gateway_gets_a_new_number(registry: SubscriptionRegistry):
    (gateway,) = registry.gateways()
    registry.register("g1", [request_for("a")], 60)
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


def test_invalid_filter_is_refused_at_registration(registry: SubscriptionRegistry):
    with pytest.raises(FilterError):
        registry.register("g1", [request_for("a", "doc.a matches 'x'")], 60)
    watch = SubscriptionSpec(kind="watch", source="WATCH a: c, b: c RETURN a")
    assert refusal(lambda: registry.register("g1", [request_for("a", spec=watch)], 60)) == "E6204"


# --- versions


def matched(folder: Path, version: int, value: int, *, newer_than: int = -1) -> set[int]:
    segments, dead = open_version(folder, version).collection("t", "c")
    images = ImageBatch("t", "c", [DocumentChange(9, "k", "create", None, {"a": value})])
    return {match.subscription for match in match_segments(segments, dead, images, newer_than=newer_than)}


def test_published_version_does_not_change(registry: SubscriptionRegistry, tmp_path: Path):
    compactor = Compactor(registry, tmp_path / "index")
    (one,) = registry.register("g1", [request_for("one")], 60)
    first = compactor.publish().version
    assert compactor.publish().version == first, "nothing changed"
    (two,) = registry.register("g1", [request_for("two", boundary=7)], 60)
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
    registry.register("g1", [request_for("1"), request_for("2", collection="d")], 60)
    before = Compactor(registry, folder).publish()
    path = folder / f"v{before.version:012d}.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(before, format=0)))
    compactor = Compactor(registry, folder)
    after = compactor.publish()
    files = [
        {segment.file for files in each.collections["t"].values() for segment in files.segments}
        for each in (before, after)
    ]
    assert len(files[1]) == 2
    assert not files[0] & files[1]
    assert compactor.publish() is after
    assert Compactor(registry, folder).publish().version == after.version


def test_version_of_a_subscription(registry: SubscriptionRegistry):
    (one,) = registry.register("g1", [request_for("1")], 60)
    added_version = registry.version()
    (two,) = registry.register("g1", [request_for("2")], 60)
    registry.unregister("g1", ["2"])
    assert registry.version_of(one) == added_version < registry.version_of(two) <= registry.version()
    assert registry.version_of(10_000) == registry.version()


def test_tenants_are_separate(registry: SubscriptionRegistry, tmp_path: Path):
    registry.register("g1", [request_for("one", tenant="other")], 60)
    version = Compactor(registry, tmp_path / "index").publish().version
    assert matched(tmp_path / "index", version, 1) == set()


def test_deleted_version_opens_the_next_one(
    registry: SubscriptionRegistry, tmp_path: Path, clock: ManualClock
):
    folder = tmp_path / "index"
    compactor = Compactor(registry, folder, clock)
    versions = []
    for n in range(15):
        registry.register("g1", [request_for(str(n))], 60)
        versions.append(compactor.publish().version)
        registry.unregister("g1", [str(n)])
        compactor.publish()
    clock.advance(KEEP_MS / 1000 + 1)
    (last,) = registry.register("g1", [request_for("last")], 60)
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
    """After any sequence of steps, the published version has exactly the active subscriptions, in few segments."""

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
        requests = [request_for(id, f"doc.a == {value}") for id, value in zip(ids, values, strict=True)]
        for id, number, value in zip(ids, self.registry.register("g", requests, 60), values, strict=True):
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


def test_registry_reconnects_after_a_broken_connection(address: str, registry: SubscriptionRegistry):
    """After a restart of the server one call fails, and the next one uses a new connection."""
    if not address.startswith("postgresql"):
        return
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        )
    with pytest.raises(StoreError):
        registry.gateways()
    registry.register("g1", [request_for("s")], 60)
    assert [gateway.name for gateway in registry.gateways()] == ["g1"]
