"""Reserved meta keys and the checks that every store makes before it writes, shared so that all stores agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from vedette.clock import Clock
from vedette.errors import StoreError
from vedette.storage.seam import RESERVED_PREFIX, Batch, StoreInfo

__all__ = [
    "BOOT_KEY",
    "EPOCH_KEY",
    "FIRST_OFFSET_KEY",
    "LAST_BATCH_KEY",
    "SEQUENCE_KEY",
    "VERSION_KEY",
    "initial_meta",
    "journal_trimmed",
    "parse_info",
    "sequence_went_back",
    "store_corrupt",
    "validate_batch",
    "validate_meta_keys",
    "writer_fenced",
]

EPOCH_KEY = f"{RESERVED_PREFIX}epoch"
BOOT_KEY = f"{RESERVED_PREFIX}boot"
SEQUENCE_KEY = f"{RESERVED_PREFIX}tick"
FIRST_OFFSET_KEY = f"{RESERVED_PREFIX}first"
LAST_BATCH_KEY = f"{RESERVED_PREFIX}batch"
VERSION_KEY = f"{RESERVED_PREFIX}version"


def initial_meta(clock: Clock) -> dict[str, str]:
    """Meta rows of a new database."""
    epoch = round(clock.now().timestamp() * 1000)
    return {EPOCH_KEY: str(epoch), BOOT_KEY: "0", SEQUENCE_KEY: "0", FIRST_OFFSET_KEY: "1"}


def parse_info(meta: Mapping[str, str], definitions: Sequence[str], place: str) -> StoreInfo:
    """Read StoreInfo from the meta rows. Raises E6004 if one is missing or not a number."""
    try:
        return StoreInfo(
            epoch=int(meta[EPOCH_KEY]),
            boot_count=int(meta[BOOT_KEY]),
            sequence=int(meta[SEQUENCE_KEY]),
            definitions=tuple(definitions),
            meta={key: value for key, value in meta.items() if not key.startswith(RESERVED_PREFIX)},
        )
    except (KeyError, ValueError) as problem:
        raise store_corrupt(place, f"the meta row {problem} is missing or unreadable") from problem


def validate_meta_keys(items: Iterable[tuple[str, str]]) -> None:
    """Reject reserved keys: setting one is a programming error."""
    for key, _ in items:
        if key.startswith(RESERVED_PREFIX):
            raise ValueError(
                f"the meta key {key!r} is reserved for the store: choose a key with another prefix"
            )


def validate_batch(batch: Batch, edges: Iterable[str]) -> None:
    """Check everything that the seam requires of a batch; too slow for the durable stores. `edges` are the stored
    edge ids."""
    validate_meta_keys(batch.meta)
    ids = [record.id for record in batch.puts]
    both = set(ids) & set(batch.deletes)
    if both or len(set(ids)) != len(ids):
        raise ValueError(f"a batch names an element twice, or puts and deletes it: {sorted(both) or ids}")
    later = {record.id for record in batch.puts if record.targets is not None}.difference(edges)
    for record in batch.puts:
        later.discard(record.id)
        if record.targets is not None and not later.isdisjoint(record.targets):
            raise ValueError(f"edge {record.id} stands before the edges it joins: {record.targets}")
    ticks = [row.tick for row in batch.journal if row.source == "graph"]
    if any(a > b for a, b in pairwise(ticks)) or (ticks and ticks[-1] > batch.sequence):
        raise ValueError(f"the journal rows of a batch are not in tick order up to {batch.sequence}: {ticks}")


def sequence_went_back(place: str, sequence: int, stored: int) -> StoreError:
    return StoreError(
        "E6001",
        f"{place} is at sequence {stored}, but the batch has sequence {sequence}: nothing was written; "
        "this is a defect in Vedette, please report it",
        fields={"place": place, "sequence": sequence, "stored": stored},
    )


def writer_fenced(place: str, boot: int, stored: int) -> StoreError:
    return StoreError(
        "E6002",
        f"{place} has been opened by another engine (boot {stored}, this engine is boot {boot}). Nothing was written. "
        "Stop one of the two engines and reopen the database.",
        fields={"place": place, "boot": boot, "stored": stored},
    )


def journal_trimmed(place: str, after: int, first: int) -> StoreError:
    return StoreError(
        "E6006",
        f"the journal of {place} begins at offset {first}, rows after offset {after} was trimmed away: "
        "start from a snapshot, or keep more with the setting log_retention",
        fields={"place": place, "after": after, "first": first},
    )


def store_corrupt(place: str, what: str) -> StoreError:
    return StoreError(
        "E6004",
        f"{place} is damaged or not a database of Vedette ({what}): restore it from a backup, or move the file away",
        fields={"place": place},
    )
