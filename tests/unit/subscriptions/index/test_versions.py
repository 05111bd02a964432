"""How far back a batch must read for those who came since: never too little, and not everything without need."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.subscriptions.index import versions as index_files
from vedette.subscriptions.index.versions import Compactor, Manifest
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec


def test_many_who_come_while_a_source_is_quiet_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(index_files, "MAX_BOUNDARIES", 3)
    registry = SubscriptionRegistry(tmp_path)
    registry.acquire_lease("g1", "here:1", 60)
    compactor = Compactor(registry, tmp_path / "index")

    def come(id: str, boundary: int) -> Manifest:
        spec = SubscriptionSpec(kind="cel", source="doc.a == 1")
        wish = SubscriptionRequest(id=id, tenant="t", collection="c", boundary=boundary, spec=spec)
        registry.register("g1", [wish], 60)
        return compactor.publish()

    first = come("first", 2)
    for n in range(8):
        come(str(n), 7)
    assert compactor.manifest.lowest_boundary(first.version) == 7
    assert compactor.manifest.lowest_boundary(0) == 2
    assert compactor.manifest.lowest_boundary(compactor.manifest.version) is None
    registry.close()


def manifest_of(boundaries: list[tuple[int, int]]) -> Manifest:
    """As it is after publications one by one."""
    manifest = Manifest(version=0, published_ms=0)
    for version, boundary in boundaries:
        manifest = Manifest(
            version=version, published_ms=0, boundaries=manifest.with_boundary(version, boundary)
        )
    return manifest


publications = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=30).map(
    lambda steps: list(zip(accumulate(step for step, _ in steps), (low for _, low in steps), strict=True))
)


@given(publications, st.integers(1, 40))
def test_the_answer_is_never_higher_than_the_truth_and_true_while_there_is_room(
    boundaries: list[tuple[int, int]], room: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_files, "MAX_BOUNDARIES", room)
        manifest = manifest_of(boundaries)
    assert len(manifest.boundaries) <= room
    for after in range(100):
        truth = min((low for version, low in boundaries if version > after), default=None)
        answer = manifest.lowest_boundary(after)
        assert (answer is None) == (truth is None)
        if answer is not None and truth is not None:
            assert answer <= truth
            assert answer == truth or len({low for _, low in boundaries}) > room


def test_what_must_be_given_up_costs_little(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_files, "MAX_BOUNDARIES", 20)
    manifest = manifest_of([(version, 10 * version) for version in range(1, 201)])
    worst = max(10 * (after + 1) - (manifest.lowest_boundary(after) or 0) for after in range(200))
    assert worst < 2_000 / 5


def test_an_earlier_release_has_forgotten_what_came_first():
    old = Manifest(
        version=2_000, published_ms=0, boundaries=[(version, 9) for version in range(1_000, 2_001)]
    )
    new = Manifest(version=2_001, published_ms=0, boundaries=old.with_boundary(2_001, 12))
    for manifest in (old, new):
        assert manifest.lowest_boundary(500) == 0
        assert manifest.lowest_boundary(1_500) == 9
    assert new.lowest_boundary(2_000) == 12
