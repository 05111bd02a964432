"""Boundaries of a manifest: how far back a batch must read for new subscriptions. The format of manifests."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import SubscriptionError
from vedette.subscriptions.index import versions
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.index.versions import (
    CollectionFiles,
    Manifest,
    SegmentFile,
    decode_manifest,
    open_version,
)
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec


def test_subscriptions_at_one_offset_need_one_boundary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(versions, "MAX_BOUNDARIES", 3)
    registry = SubscriptionRegistry(tmp_path)
    registry.acquire_lease("g1", "here:1", 60)
    compactor = Compactor(registry, tmp_path / "index")

    def register(id: str, boundary: int) -> Manifest:
        spec = SubscriptionSpec(kind="cel", source="doc.a == 1")
        request = SubscriptionRequest(id=id, tenant="t", collection="c", boundary=boundary, spec=spec)
        registry.register("g1", [request], 60)
        return compactor.publish()

    first = register("first", 2)
    for n in range(8):
        register(str(n), 7)
    assert compactor.manifest.lowest_boundary(first.version) == 7
    assert compactor.manifest.lowest_boundary(0) == 2
    assert compactor.manifest.lowest_boundary(compactor.manifest.version) is None
    registry.close()


def manifest_of(boundaries: list[tuple[int, int]]) -> Manifest:
    """Return the manifest after one publication per boundary."""
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
def test_lowest_boundary_is_exact_while_there_is_room_and_never_too_high(
    boundaries: list[tuple[int, int]], max_boundaries: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "MAX_BOUNDARIES", max_boundaries)
        manifest = manifest_of(boundaries)
    assert len(manifest.boundaries) <= max_boundaries
    for after in range(100):
        expected = min((low for version, low in boundaries if version > after), default=None)
        answer = manifest.lowest_boundary(after)
        assert (answer is None) == (expected is None)
        if answer is not None and expected is not None:
            assert answer <= expected
            assert answer == expected or len({low for _, low in boundaries}) > max_boundaries


def test_merged_boundaries_stay_close_to_the_exact_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(versions, "MAX_BOUNDARIES", 20)
    manifest = manifest_of([(version, 10 * version) for version in range(1, 201)])
    largest_difference = max(
        10 * (after + 1) - (manifest.lowest_boundary(after) or 0) for after in range(200)
    )
    assert largest_difference < 2_000 / 5


MANIFEST = Manifest(
    version=42,
    published_ms=1_767_323_045_000,
    boundaries=[(40, 7), (42, 9)],
    collections={
        "default": {
            "shop::orders": CollectionFiles(
                segments=[SegmentFile("segment-000000000.blk", 0, 42, 10, 4_096, 1)],
                tombstones="ended-000000001.blk",
                ended_rows=2,
                built_ms=1_767_323_000_000,
            )
        }
    },
)
GOLDEN = (
    b'{"format":3,"version":42,"published_ms":1767323045000,"boundaries":[[40,7],[42,9]],"collections":{"default":'
    b'{"shop::orders":{"segments":[{"file":"segment-000000000.blk","after":0,"upto":42,"rows":10,"bytes":4096,'
    b'"windowed":1}],"tombstones":"ended-000000001.blk","ended_rows":2,"built_ms":1767323000000}}}}'
)


def test_manifest_format_is_pinned():
    """A change of these bytes needs a new INDEX_FORMAT."""
    assert msgspec.json.encode(MANIFEST) == GOLDEN
    assert decode_manifest(GOLDEN) == MANIFEST


def test_manifest_of_another_format_is_refused(tmp_path: Path):
    (tmp_path / "v000000000042.json").write_bytes(b'{"version":42,"making":2,"collections":[]}')
    with pytest.raises(SubscriptionError, match="has another format than 3: restart the pipeline") as error:
        open_version(tmp_path, 42)
    assert error.value.code == "E6205"
