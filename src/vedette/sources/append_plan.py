"""Which rows an append adds to the journal: repeats out, partitions and numbers given, before-images filled in.

Pure: it is told what the journal holds and answers with what to write. So the SQLite and the PostgreSQL journal cannot
differ in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from vedette.sources.records import ChangeRow, Partition, Source, SourceEvent
from vedette.sources.stable_hash import text_hash

__all__ = ["AppendPlan", "ImageKey", "partition_of", "plan_append"]


class ImageKey(NamedTuple):
    collection: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPlan:
    rows: tuple[ChangeRow, ...]
    """Without offsets: the journal gives them."""
    images: Mapping[ImageKey, bytes | None]
    """Last images to write; None is to forget."""
    seqs: Mapping[int, int]
    """Partition ids to their new last seq."""
    repeated: int


def partition_of(tenant: str, collection: str, key: str, count: int) -> int:
    """The number of the partition that a document belongs to; the tenant is part of it (ruling 15)."""
    return text_hash(f"{tenant}\0{collection}\0{key}") % count


def plan_append(
    source: Source,
    partitions: Sequence[Partition],
    events: Sequence[SourceEvent],
    known_ids: AbstractSet[str],
    images: Mapping[ImageKey, bytes],
    now_ms: int,
) -> AppendPlan:
    """`known_ids`: ids of these events that the journal has. `images`: last images of the keys of these events."""
    places = {partition.number: partition for partition in partitions}
    seqs = {partition.id: partition.seq for partition in partitions}
    seen, current, touched = (
        set(known_ids),
        dict[ImageKey, bytes | None](images),
        dict[ImageKey, bytes | None](),
    )
    rows = []
    for event in events:
        if event.event_id in seen:
            continue
        seen.add(event.event_id)
        name = ImageKey(event.collection, event.key)
        before = event.before if event.before is not None else current.get(name)
        known = before is not None or event.created or name in touched
        if before is None and event.after is None:
            continue  # a deletion of what nobody ever saw: there is nothing to tell
        place = places[partition_of(source.tenant, event.collection, event.key, len(places))]
        seqs[place.id] += 1
        current[name] = touched[name] = event.after
        rows.append(_row(source, place, seqs[place.id], event, before, known, now_ms))
    changed = {id: seq for id, seq in seqs.items() if any(row.partition == id for row in rows)}
    return AppendPlan(rows=tuple(rows), images=touched, seqs=changed, repeated=len(events) - len(rows))


def _row(
    source: Source,
    place: Partition,
    seq: int,
    event: SourceEvent,
    before: bytes | None,
    known: bool,
    now_ms: int,
) -> ChangeRow:
    return ChangeRow(
        offset=0,
        source=source.name,
        tenant=source.tenant,
        partition=place.id,
        epoch=place.epoch,
        seq=seq,
        event_id=event.event_id,
        collection=event.collection,
        key=event.key,
        op="delete" if event.after is None else "create" if before is None else "update",
        before=before,
        after=event.after,
        before_known=known,
        time_ms=event.time_ms,
        appended_ms=now_ms,
        transaction=event.transaction,
    )
