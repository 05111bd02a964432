"""The store's own facts and the checks that every store makes before it writes, in one place so that all agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from vedette.clock import Clock
from vedette.errors import StoreError
from vedette.storage.seam import RESERVED_PREFIX, Batch, Loaded

__all__ = [
    "BATCH",
    "BOOT",
    "EPOCH",
    "FIRST",
    "TICK",
    "VERSION",
    "check_batch",
    "check_meta",
    "damaged",
    "loaded",
    "new_facts",
    "superseded",
    "tick_went_back",
    "trimmed",
]

EPOCH = f"{RESERVED_PREFIX}epoch"
BOOT = f"{RESERVED_PREFIX}boot"
TICK = f"{RESERVED_PREFIX}tick"
FIRST = f"{RESERVED_PREFIX}first"
BATCH = f"{RESERVED_PREFIX}batch"
VERSION = f"{RESERVED_PREFIX}version"


def new_facts(clock: Clock) -> dict[str, str]:
    """What a database knows on its first day."""
    epoch = round(clock.now().timestamp() * 1000)
    return {EPOCH: str(epoch), BOOT: "0", TICK: "0", FIRST: "1"}


def loaded(meta: Mapping[str, str], definitions: Sequence[str], place: str) -> Loaded:
    """The facts of a store from its meta rows; E6004 when one of them is missing or no number."""
    try:
        return Loaded(
            epoch=int(meta[EPOCH]),
            boot=int(meta[BOOT]),
            tick=int(meta[TICK]),
            definitions=tuple(definitions),
            meta={key: value for key, value in meta.items() if not key.startswith(RESERVED_PREFIX)},
        )
    except (KeyError, ValueError) as problem:
        raise damaged(place, f"the fact {problem} is missing or unreadable") from problem


def check_meta(items: Iterable[tuple[str, str]]) -> None:
    """A caller may not set the store's own facts: that is a mistake in the program."""
    for key, _ in items:
        if key.startswith(RESERVED_PREFIX):
            raise ValueError(
                f"the meta key {key!r} is the store's own: choose one that does not begin with it"
            )


def check_batch(batch: Batch, edges: Iterable[str]) -> None:
    """Everything the seam asks of a batch, too slow for the large stores. `edges`: ids of the edges already stored."""
    check_meta(batch.meta)
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
    if any(a > b for a, b in pairwise(ticks)) or (ticks and ticks[-1] > batch.tick):
        raise ValueError(f"the journal rows of a batch are not in tick order up to {batch.tick}: {ticks}")


def tick_went_back(place: str, tick: int, stored: int) -> StoreError:
    return StoreError(
        "E6001",
        f"{place} is at tick {stored}, a batch of tick {tick} would repeat history: nothing was written; "
        "this is a fault of Vedette, please report it",
        fields={"place": place, "tick": tick, "stored": stored},
    )


def superseded(place: str, boot: int, stored: int) -> StoreError:
    return StoreError(
        "E6002",
        f"{place} was opened by another engine since (opening {stored}, ours was {boot}): nothing was written; "
        "stop one of the two, then open it again",
        fields={"place": place, "boot": boot, "stored": stored},
    )


def trimmed(place: str, after: int, first: int) -> StoreError:
    return StoreError(
        "E6006",
        f"the journal of {place} begins at offset {first}, what follows offset {after} was trimmed away: "
        "start from a snapshot, or keep more with the setting log_retention",
        fields={"place": place, "after": after, "first": first},
    )


def damaged(place: str, what: str) -> StoreError:
    return StoreError(
        "E6004",
        f"{place} is damaged or no database of Vedette ({what}): restore it from a backup, or move it out of the way",
        fields={"place": place},
    )
