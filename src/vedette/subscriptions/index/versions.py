"""Versions of the index as files. The compactor writes them, every worker maps them.

    v000000000042.json      a manifest: for each collection its segments and its tombstones
    *.blk                   segments and tombstones (`array_file.py`), each written once

A version is a manifest; versions share segments. Tombstones end subscriptions without changing segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from vedette.errors import SubscriptionError
from vedette.subscriptions.index.array_file import open_array_file
from vedette.subscriptions.index.columns import Ints
from vedette.subscriptions.index.segment import Segment

__all__ = [
    "INDEX_FORMAT",
    "CollectionFiles",
    "IndexVersion",
    "Manifest",
    "SegmentFile",
    "decode_manifest",
    "latest_version",
    "list_versions",
    "manifest_path",
    "oldest_version",
    "open_version",
]

MAX_BOUNDARIES = 500
"""Maximum boundaries in a manifest. Beyond it, neighbours are merged to the lower boundary, so a batch may backfill
more than needed."""
INDEX_FORMAT = 3
"""Version of manifests, segments and tombstones. The compactor deletes manifests of another format and rebuilds."""


class SegmentFile(msgspec.Struct, frozen=True):
    """A segment in a manifest."""

    file: str = msgspec.field(name="file")
    after: int = msgspec.field(name="after")
    upto: int = msgspec.field(name="upto")
    """It holds the subscriptions that were added in the registry versions after < v ≤ upto."""
    rows: int = msgspec.field(name="rows")
    bytes: int = msgspec.field(name="bytes")
    windowed: int = msgspec.field(name="windowed", default=0)
    """Number of its subscriptions that have windows."""


class CollectionFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one collection in a manifest."""

    segments: list[SegmentFile] = msgspec.field(name="segments")
    tombstones: str | None = msgspec.field(name="tombstones", default=None)
    """File with the numbers of ended subscriptions that are still in the segments."""
    ended_rows: int = msgspec.field(name="ended_rows", default=0)
    """Number of tombstones."""
    built_ms: int = msgspec.field(name="built_ms", default=0)
    """When the index of the collection was last built from scratch."""

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a version, stored as JSON. A change of these names needs a new `INDEX_FORMAT`."""

    format: int = msgspec.field(name="format", default=INDEX_FORMAT)
    version: int = msgspec.field(name="version")
    published_ms: int = msgspec.field(name="published_ms")
    boundaries: list[tuple[int, int]] = msgspec.field(name="boundaries", default=[])
    """Pairs of a version and the lowest boundary of the subscriptions added since the previous pair, by version."""
    collections: dict[str, dict[str, CollectionFiles]] = msgspec.field(name="collections", default={})
    """By tenant, then by collection."""

    def lowest_boundary(self, after: int) -> int | None:
        """Return the lowest boundary of subscriptions that were added after a version; None if there are none.

        The result may be too low, because old boundaries are merged. It is never too high.
        """
        return min((boundary for version, boundary in self.boundaries if version > after), default=None)

    def with_boundary(self, version: int, boundary: int) -> list[tuple[int, int]]:
        """Return the boundaries of the next manifest, which adds subscriptions."""
        return _compact_boundaries([*self.boundaries, (version, boundary)])


class _ManifestFormat(msgspec.Struct, frozen=True):
    format: int = msgspec.field(name="format", default=0)


def _compact_boundaries(boundaries: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Drop the pairs that do not change the answer of `lowest_boundary`, and merge pairs while there are too many.

    A pair is redundant if a later pair has the same or a lower boundary, so the remaining boundaries increase. Of the
    remaining pairs, the two neighbours with the closest boundaries are merged first.
    """
    kept: list[tuple[int, int]] = []
    for pair in boundaries:
        while kept and kept[-1][1] >= pair[1]:
            kept.pop()
        kept.append(pair)
    while len(kept) > MAX_BOUNDARIES:
        closest = min(range(len(kept) - 1), key=lambda index: kept[index + 1][1] - kept[index][1])
        kept[closest : closest + 2] = [(kept[closest + 1][0], kept[closest][1])]
    return kept


def manifest_path(folder: Path, version: int) -> Path:
    return folder / f"v{version:012d}.json"


def list_versions(folder: Path) -> list[int]:
    """Return the versions that have a manifest, in order."""
    return sorted(int(path.stem[1:]) for path in folder.glob("v*.json"))


def oldest_version(folder: Path) -> int:
    """Return the oldest version that is kept; 0 before the first publication."""
    return min(list_versions(folder), default=0)


def latest_version(folder: Path) -> int:
    """Return the latest version; 0 before the first publication."""
    return max(list_versions(folder), default=0)


class IndexVersion:
    """One published version. Segments are mapped on first use (`segment.worker_cache`)."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self.manifest = folder, manifest
        self._ended: dict[str, Ints] = {}
        """Tombstones by file name."""

    def collection(self, tenant: str, collection: str) -> tuple[list[Segment], Ints]:
        """Return segments and sorted tombstones; both are empty for a collection without subscriptions."""
        files = self.manifest.collections.get(tenant, {}).get(collection, CollectionFiles(segments=[]))
        return [Segment.open(self._folder / part.file) for part in files.segments], self._tombstones(files)

    def _tombstones(self, files: CollectionFiles) -> Ints:
        if files.tombstones is None:
            return np.empty(0, np.int64)
        found = self._ended.get(files.tombstones)
        if found is None:
            found = self._ended[files.tombstones] = open_array_file(self._folder / files.tombstones).array(
                "numbers"
            )
        return found


@lru_cache(maxsize=8)
def open_version(folder: Path, version: int) -> IndexVersion:
    """Open a version, or the next later one if it was deleted. Raises E6205 if there is none."""
    if version == 0:
        return IndexVersion(folder, Manifest(version=0, published_ms=0))
    usable = [known for known in list_versions(folder) if known >= version]
    if not usable:
        text = f"{folder} has neither version {version} of the index nor a later one: restart the pipeline"
        raise SubscriptionError("E6205", text, fields={"version": version})
    path = manifest_path(folder, usable[0])
    manifest = decode_manifest(path.read_bytes())
    if manifest is None:
        text = (
            f"{path} has another format than {INDEX_FORMAT}: restart the pipeline, which rebuilds the index"
        )
        raise SubscriptionError("E6205", text, fields={"version": version})
    return IndexVersion(folder, manifest)


def decode_manifest(data: bytes) -> Manifest | None:
    """Return None for a manifest of another format."""
    if msgspec.json.decode(data, type=_ManifestFormat).format != INDEX_FORMAT:
        return None
    return msgspec.json.decode(data, type=Manifest)
