"""Publish the registry as versions of the index.

New subscriptions form a small segment. Neighbouring segments are merged until each is at least twice as large as its
successor, so a collection of n subscriptions has about log n segments, and each subscription is written about log n
times. Ended subscriptions become tombstones. The index of a collection is rebuilt when too many of its rows have ended,
and at least once a day.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import numpy as np

from vedette.clock import Clock, SystemClock
from vedette.subscriptions.index.array_file import open_array_file, write_array_file
from vedette.subscriptions.index.segment_writer import SegmentEntry, write_segment
from vedette.subscriptions.index.versions import (
    CollectionFiles,
    Manifest,
    SegmentFile,
    decode_manifest,
    latest_version,
    list_versions,
    manifest_path,
    open_version,
)
from vedette.subscriptions.registry.records import RegisteredSubscription
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import shape_of_spec
from vedette.values import timestamp_to_ms

__all__ = ["Compactor"]

KEEP_VERSIONS = 10
"""Number of latest versions that are always kept."""
KEEP_MS = 600_000
"""Minimum time in milliseconds that every version is kept, because a retried batch opens its version again."""
REBUILD_MS = 86_400_000
"""Maximum age of a collection's index in milliseconds; an older one is rebuilt."""
MAX_ENDED_RATIO = 0.25
"""Maximum share of ended subscriptions in an index; above it the index is rebuilt."""


class Compactor:
    """Publishes versions of the index. There must be only one: the driver of the pipeline has it."""

    def __init__(self, registry: SubscriptionRegistry, folder: Path, clock: Clock | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._registry, self._folder = registry, folder
        self._clock = clock or SystemClock()
        self._published_counter: object = None
        self._rebuild_requested: set[tuple[str, str]] = set()
        self._names = count()
        self._delete_other_formats()
        self._latest = open_version(folder, latest_version(folder)).manifest

    def _delete_other_formats(self) -> None:
        """Delete manifests of another format. The next `publish` rebuilds all collections from the registry."""
        for version in list_versions(self._folder):
            path = manifest_path(self._folder, version)
            if decode_manifest(path.read_bytes()) is None:
                path.unlink()

    @property
    def manifest(self) -> Manifest:
        return self._latest

    def request_rebuild(self, tenant: str, collection: str) -> None:
        """Rebuild the index of a collection with the next publication, because its Bloom filter is bad."""
        self._rebuild_requested.add((tenant, collection))

    def publish(self) -> Manifest:
        """Write a version for the current registry, if it has changed. Returns the latest manifest."""
        changes = self._registry.change_counter()
        if changes == self._published_counter and not self._rebuild_requested:
            return self._latest
        before = self._latest
        version = self._registry.bump_version() if self._rebuild_requested else self._registry.version()
        if version != before.version:
            self._latest = self._write_version(before, version)
            self._rebuild_requested.clear()
            self._delete_unused_files()
        self._published_counter = changes
        return self._latest

    def _write_version(self, before: Manifest, version: int) -> Manifest:
        touched = {*self._registry.collections(before.version), *self._rebuild_requested}
        collections = {tenant: dict(files) for tenant, files in before.collections.items()}
        lowest: list[int] = []
        for tenant, collection in sorted(touched):
            old = collections.get(tenant, {}).get(collection, CollectionFiles(segments=[]))
            new = self._update_collection(tenant, collection, old, before.version, version, lowest.append)
            collections.setdefault(tenant, {})[collection] = new
        boundaries = before.with_boundary(version, min(lowest)) if lowest else before.boundaries
        manifest = Manifest(
            version=version,
            published_ms=self._now_ms(),
            boundaries=boundaries,
            collections=collections,
        )
        draft = self._folder / ".manifest"
        draft.write_bytes(msgspec.json.encode(manifest))
        draft.rename(manifest_path(self._folder, version))
        return manifest

    def _update_collection(
        self,
        tenant: str,
        collection: str,
        old: CollectionFiles,
        after: int,
        upto: int,
        add_boundary: Callable[[int], None],
    ) -> CollectionFiles:
        added = list(self._registry.added_between(tenant, collection, after, upto))
        for row in added:
            add_boundary(row.boundary)
        ended = self._registry.ended_between(tenant, collection, after, upto)
        ended_rows = old.ended_rows + len(ended)
        is_old = old.built_ms and self._now_ms() - old.built_ms > REBUILD_MS
        if (
            (tenant, collection) in self._rebuild_requested
            or is_old
            or ended_rows > MAX_ENDED_RATIO * (old.rows + len(added))
        ):
            return self._rebuild_collection(tenant, collection, upto)
        segments = list(old.segments)
        if added:
            segments.append(self._write_segment(added, after, upto))
            segments = self._merge_segments(tenant, collection, segments)
        tombstones = self._write_tombstones(old.tombstones, ended) if ended else old.tombstones
        return CollectionFiles(
            segments=segments,
            tombstones=tombstones,
            ended_rows=ended_rows,
            built_ms=old.built_ms or self._now_ms(),
        )

    def _rebuild_collection(self, tenant: str, collection: str, upto: int) -> CollectionFiles:
        rows = list(self._registry.added_between(tenant, collection, 0, upto))
        segments = [self._write_segment(rows, 0, upto)] if rows else []
        return CollectionFiles(segments=segments, built_ms=self._now_ms())

    def _merge_segments(self, tenant: str, collection: str, segments: list[SegmentFile]) -> list[SegmentFile]:
        """Merge the last segments until each is at least twice as large as its successor."""
        while len(segments) > 1 and segments[-2].rows < 2 * segments[-1].rows:
            older, newer = segments[-2:]
            rows = list(self._registry.added_between(tenant, collection, older.after, newer.upto))
            segments[-2:] = [self._write_segment(rows, older.after, newer.upto)]
        return segments

    def _write_segment(self, rows: list[RegisteredSubscription], after: int, upto: int) -> SegmentFile:
        name = self._new_name("segment")
        entries = [
            SegmentEntry(row.number, row.gateway, row.boundary, row.flags, row.spec, row.constants, row.added)
            for row in rows
        ]
        size = write_segment(self._folder / name, entries)
        windowed = sum(bool(shape_of_spec(entry.spec).window) for entry in entries)
        return SegmentFile(name, after, upto, len(rows), size, windowed)

    def _write_tombstones(self, old: str | None, ended: list[int]) -> str:
        numbers = np.array(ended, np.int64)
        if old is not None:
            numbers = np.union1d(numbers, open_array_file(self._folder / old).array("numbers"))
        name = self._new_name("ended")
        write_array_file(self._folder / name, {}, {"numbers": np.sort(numbers)})
        return name

    def _new_name(self, kind: str) -> str:
        """Return a file name that does not exist yet."""
        return next(
            name
            for number in self._names
            if not (self._folder / (name := f"{kind}-{number:09d}.blk")).exists()
        )

    def _delete_unused_files(self) -> None:
        """Delete old versions, then the files that no remaining version names."""
        versions = list_versions(self._folder)
        kept = []
        for version in versions:
            path = manifest_path(self._folder, version)
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
            is_old = self._now_ms() - manifest.published_ms > KEEP_MS
            if is_old and version not in versions[-KEEP_VERSIONS:]:
                path.unlink()
            else:
                kept.append(manifest)
        named = {
            name
            for manifest in kept
            for by_collection in manifest.collections.values()
            for files in by_collection.values()
            for name in (files.tombstones, *(segment.file for segment in files.segments))
        }
        for path in self._folder.glob("*.blk"):
            if path.name not in named:
                path.unlink()

    def _now_ms(self) -> int:
        return timestamp_to_ms(self._clock.now())
