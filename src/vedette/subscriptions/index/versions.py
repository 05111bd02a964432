"""Versions of the index as files: one compactor writes them, every worker maps them.

    v000000000042.json      a manifest: for each collection its segments and its tombstones
    *.blk                   segments and tombstones (`blocks`), each written once

A version is a manifest; segments are shared between versions. New subscriptions make a small segment; neighbours are
merged as they grow, each twice its successor at least, so that a collection of n subscriptions has about log n segments
and each subscription is written about log n times. Tombstones end subscriptions without touching segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from pathlib import Path

import msgspec
import numpy as np

from vedette.clock import Clock, SystemClock
from vedette.errors import SubscriptionError
from vedette.subscriptions.index.array_file import open_blocks, write_blocks
from vedette.subscriptions.index.columns import Ints
from vedette.subscriptions.index.segment import Segment, SegmentEntry, write_segment
from vedette.subscriptions.registry.records import RegisteredSubscription
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import shape_of_spec
from vedette.values import timestamp_to_ms

__all__ = [
    "CollectionFiles",
    "Compactor",
    "IndexVersion",
    "Manifest",
    "latest_version",
    "oldest_version",
    "open_version",
]

KEEP_VERSIONS = 10
KEEP_MS = 600_000
"""A version is kept so long, in ms, and the youngest ones in any case: a batch that runs again asks for it."""
REBUILD_MS = 86_400_000
"""A collection's index is built anew after a day, whatever happened (seeds/realtime-watching.md §1)."""
MAX_ENDED_RATIO = 0.25
"""The share of ended subscriptions in an index at which it is built anew."""
MAX_BOUNDARIES = 500
"""Boundaries that a manifest remembers; between them it is vague (`_remembered`)."""
LEGACY_BOUNDARY_LIMIT = 1_000
"""Earlier releases wrote down so many and forgot those before."""
INDEX_FORMAT = 2
"""Version of the segment format; segments of an older version are rebuilt. 2: key salts and shapes are computed from
the canonical text of expressions."""


class SegmentFile(msgspec.Struct, frozen=True):
    file: str
    after: int
    upto: int
    """It holds the subscriptions that came with the versions after < v ≤ upto."""
    rows: int
    bytes: int
    windowed: int = 0
    """Subscriptions in it that have windows."""


class CollectionFiles(msgspec.Struct, frozen=True, kw_only=True):
    segments: list[SegmentFile]
    tombstones: str | None = None
    dead: int = 0
    built_ms: int = 0

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    published_ms: int
    boundaries: list[tuple[int, int]] = []
    """Versions, rising, each with the lowest boundary of what came with it and since the one before in this list."""
    collections: dict[str, dict[str, CollectionFiles]] = {}
    """By tenant, then by collection."""
    making: int = 0
    """How its segments were made; see `_MAKING`."""

    def lowest_boundary(self, after: int) -> int | None:
        """Of the subscriptions that came after that version, or somewhat lower; None when none did."""
        return min((boundary for version, boundary in self._known() if version > after), default=None)

    def with_boundary(self, version: int, boundary: int) -> list[tuple[int, int]]:
        """The boundaries of a manifest that comes next, with new subscriptions."""
        return _compact_boundaries([*self._known(), (version, boundary)])

    def _known(self) -> list[tuple[int, int]]:
        if len(self.boundaries) < LEGACY_BOUNDARY_LIMIT:
            return self.boundaries
        return [(self.boundaries[0][0] - 1, 0), *self.boundaries]


def _compact_boundaries(boundaries: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is needed to know the lowest boundary after any version, and never too high a one.

    A pair says nothing when a later one is as low, so boundaries rise, too: while a source is quiet one pair is all.
    When there are too many, those two that differ least become one: a batch then reads a little more than it must.
    """
    kept: list[tuple[int, int]] = []
    for pair in boundaries:
        while kept and kept[-1][1] >= pair[1]:
            kept.pop()
        kept.append(pair)
    while len(kept) > MAX_BOUNDARIES:
        at = min(range(len(kept) - 1), key=lambda place: kept[place + 1][1] - kept[place][1])
        kept[at : at + 2] = [(kept[at + 1][0], kept[at][1])]
    return kept


def _path(folder: Path, version: int) -> Path:
    return folder / f"v{version:012d}.json"


def _versions(folder: Path) -> list[int]:
    return sorted(int(path.stem[1:]) for path in folder.glob("v*.json"))


def oldest_version(folder: Path) -> int:
    """Return the oldest version that is kept; 0 before the first publication."""
    return min(_versions(folder), default=0)


def latest_version(folder: Path) -> int:
    """0 before anything was published."""
    return max(_versions(folder), default=0)


class IndexVersion:
    """One published version. Collections are mapped while they are asked for (`segment.SHELF`)."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self.manifest = folder, manifest
        self._ended: dict[str, Ints] = {}
        """Tombstones, by file."""

    def collection(self, tenant: str, collection: str) -> tuple[list[Segment], Ints]:
        """Segments and tombstones; none of either when nobody subscribes to it."""
        files = self.manifest.collections.get(tenant, {}).get(collection, CollectionFiles(segments=[]))
        return [Segment.open(self._folder / part.file) for part in files.segments], self._tombstones(files)

    def _tombstones(self, files: CollectionFiles) -> Ints:
        if files.tombstones is None:
            return np.empty(0, np.int64)
        found = self._ended.get(files.tombstones)
        if found is None:
            found = self._ended[files.tombstones] = open_blocks(self._folder / files.tombstones).array(
                "numbers"
            )
        return found


@lru_cache(maxsize=8)
def open_version(folder: Path, version: int) -> IndexVersion:
    """That version or, when its files are gone, the next one that is there; E6205 when there is none."""
    if version == 0:
        return IndexVersion(folder, Manifest(version=0, published_ms=0))
    usable = [known for known in _versions(folder) if known >= version]
    if not usable:
        text = f"{folder} has no version {version} of the index, nor a later one: restart the pipeline"
        raise SubscriptionError("E6205", text, fields={"version": version})
    data = _path(folder, usable[0]).read_bytes()
    return IndexVersion(folder, msgspec.json.decode(data, type=Manifest))


class Compactor:
    """Publishes versions. One at a time: whoever runs the pipeline's driver."""

    def __init__(self, registry: SubscriptionRegistry, folder: Path, clock: Clock | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._registry, self._folder = registry, folder
        self._clock = clock or SystemClock()
        self._published_counter: object = None
        self._rebuild_requested: set[tuple[str, str]] = set()
        self._names = count()
        self._latest = open_version(folder, latest_version(folder)).manifest
        if self._latest.making < INDEX_FORMAT:
            self._rebuild_requested = {
                (tenant, name) for tenant, held in self._latest.collections.items() for name in held
            }

    @property
    def manifest(self) -> Manifest:
        return self._latest

    def request_rebuild(self, tenant: str, collection: str) -> None:
        """The Bloom filter of a collection is wrong too often: build its index anew with the next publication."""
        self._rebuild_requested.add((tenant, collection))

    def publish(self) -> Manifest:
        """Bring the files up to the registry; returns the manifest in force, the old one when nothing changed."""
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
        collections = {tenant: dict(held) for tenant, held in before.collections.items()}
        lowest: list[int] = []
        for tenant, collection in sorted(touched):
            old = collections.get(tenant, {}).get(collection, CollectionFiles(segments=[]))
            new = self._collection(tenant, collection, old, before.version, version, lowest.append)
            collections.setdefault(tenant, {})[collection] = new
        boundaries = before.with_boundary(version, min(lowest)) if lowest else before.boundaries
        manifest = Manifest(
            version=version,
            published_ms=self._now(),
            boundaries=boundaries,
            collections=collections,
            making=INDEX_FORMAT,
        )
        draft = self._folder / ".manifest"
        draft.write_bytes(msgspec.json.encode(manifest))
        draft.rename(_path(self._folder, version))
        return manifest

    def _collection(
        self,
        tenant: str,
        collection: str,
        old: CollectionFiles,
        after: int,
        upto: int,
        note: Callable[[int], None],
    ) -> CollectionFiles:
        fresh = list(self._registry.added_between(tenant, collection, after, upto))
        for row in fresh:
            note(row.boundary)
        ended = self._registry.ended_between(tenant, collection, after, upto)
        dead = old.dead + len(ended)
        stale = old.built_ms and self._now() - old.built_ms > REBUILD_MS
        if (
            (tenant, collection) in self._rebuild_requested
            or stale
            or dead > MAX_ENDED_RATIO * (old.rows + len(fresh))
        ):
            return self._rebuilt(tenant, collection, upto)
        segments = list(old.segments)
        if fresh:
            segments.append(self._segment(fresh, after, upto))
            segments = self._merged(tenant, collection, segments)
        tombstones = self._tombstones(old.tombstones, ended) if ended else old.tombstones
        return CollectionFiles(
            segments=segments, tombstones=tombstones, dead=dead, built_ms=old.built_ms or self._now()
        )

    def _rebuilt(self, tenant: str, collection: str, upto: int) -> CollectionFiles:
        rows = list(self._registry.added_between(tenant, collection, 0, upto))
        segments = [self._segment(rows, 0, upto)] if rows else []
        return CollectionFiles(segments=segments, built_ms=self._now())

    def _merged(self, tenant: str, collection: str, segments: list[SegmentFile]) -> list[SegmentFile]:
        while len(segments) > 1 and segments[-2].rows < 2 * segments[-1].rows:
            older, newer = segments[-2:]
            rows = list(self._registry.added_between(tenant, collection, older.after, newer.upto))
            segments[-2:] = [self._segment(rows, older.after, newer.upto)]
        return segments

    def _segment(self, rows: list[RegisteredSubscription], after: int, upto: int) -> SegmentFile:
        name = self._new_name("segment")
        entries = [
            SegmentEntry(row.number, row.gateway, row.boundary, row.flags, row.spec, row.constants, row.added)
            for row in rows
        ]
        size = write_segment(self._folder / name, entries)
        windowed = sum(bool(shape_of_spec(entry.spec).window) for entry in entries)
        return SegmentFile(name, after, upto, len(rows), size, windowed)

    def _tombstones(self, old: str | None, ended: list[int]) -> str:
        numbers = np.array(ended, np.int64)
        if old is not None:
            numbers = np.union1d(numbers, open_blocks(self._folder / old).array("numbers"))
        name = self._new_name("ended")
        write_blocks(self._folder / name, {}, {"numbers": np.sort(numbers)})
        return name

    def _new_name(self, what: str) -> str:
        """Never used before: a number from the files that are there, then counting."""
        return next(
            name
            for number in self._names
            if not (self._folder / (name := f"{what}-{number:09d}.blk")).exists()
        )

    def _delete_unused_files(self) -> None:
        """Remove versions that nobody asks for any more, then files that no version names."""
        versions = _versions(self._folder)
        kept = []
        for version in versions:
            manifest = msgspec.json.decode(_path(self._folder, version).read_bytes(), type=Manifest)
            old = self._now() - manifest.published_ms > KEEP_MS
            if old and version not in versions[-KEEP_VERSIONS:]:
                _path(self._folder, version).unlink()
            else:
                kept.append(manifest)
        named = {
            name
            for manifest in kept
            for held in manifest.collections.values()
            for files in held.values()
            for name in (files.tombstones, *(segment.file for segment in files.segments))
        }
        for path in self._folder.glob("*.blk"):
            if path.name not in named:
                path.unlink()

    def _now(self) -> int:
        return timestamp_to_ms(self._clock.now())
