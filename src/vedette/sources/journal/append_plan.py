"""Plan an append to the journal: drop duplicates, assign partitions and sequence numbers, fill in before-images.

Pure: it gets the state of the journal and returns the rows to write, so the SQLite and the PostgreSQL journal behave
identically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from vedette.hashing import text_hash
from vedette.sources.records import ChangeRow, Partition, Source, SourceEvent

__all__ = ["AppendPlan", "DocumentKey", "keys_by_collection", "partition_of", "plan_append"]


DocumentKey: TypeAlias = tuple[str, str]
"""A collection and a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPlan:
    rows: tuple[ChangeRow, ...]
    """Rows without offsets; the journal assigns them."""
    images: Mapping[DocumentKey, bytes | None]
    """Last images to write; None deletes one."""
    seqs: Mapping[int, int]
    """Partition ids to their new last seq."""
    duplicates: int


def partition_of(tenant: str, collection: str, key: str, count: int) -> int:
    """Return the partition number of a document. The tenant is part of the hash."""
    return text_hash(f"{tenant}\0{collection}\0{key}") % count


def keys_by_collection(events: Sequence[SourceEvent]) -> dict[str, set[str]]:
    """The keys of the events, by collection."""
    found: dict[str, set[str]] = {}
    for event in events:
        keys = found.get(event.collection)
        if keys is None:
            keys = found[event.collection] = set()
        keys.add(event.key)
    return found


def plan_append(
    source: Source,
    partitions: Sequence[Partition],
    events: Sequence[SourceEvent],
    known_event_ids: AbstractSet[str],
    images: Mapping[DocumentKey, bytes],
    now_ms: int,
) -> AppendPlan:
    """`known_event_ids` are the ids of these events that the journal already has; `images` the last images of their
    keys."""
    places = {partition.number: partition for partition in partitions}
    seqs = {partition.id: partition.seq for partition in partitions}
    seen, current, touched = (
        set(known_event_ids),
        dict[DocumentKey, bytes | None](images),
        dict[DocumentKey, bytes | None](),
    )
    rows: list[ChangeRow] = []
    new_seqs: dict[int, int] = {}
    name_of, tenant = source.name, source.tenant
    for event in events:
        if event.event_id in seen:
            continue
        seen.add(event.event_id)
        collection, key, after = event.collection, event.key, event.after
        name = (collection, key)
        before = event.before if event.before is not None else current.get(name)
        if before is None and after is None:
            continue  # deletion of a document that was never seen: nothing to report
        known = before is not None or event.created or name in touched
        place = places[partition_of(tenant, collection, key, len(places))]
        new_seqs[place.id] = seqs[place.id] = seq = seqs[place.id] + 1
        current[name] = touched[name] = after
        op = "delete" if after is None else "create" if before is None else "update"
        rows.append(
            ChangeRow(
                0,
                name_of,
                tenant,
                place.id,
                place.epoch,
                seq,
                event.event_id,
                collection,
                key,
                op,
                before,
                after,
                known,
                event.time_ms,
                now_ms,
                event.transaction,
            )
        )
    return AppendPlan(rows=tuple(rows), images=touched, seqs=new_seqs, duplicates=len(events) - len(rows))
