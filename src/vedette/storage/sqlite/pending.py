"""Batches that are durable but not yet applied to the tables. No I/O.

Applying a small batch to the tables costs several times as much as storing it: it writes five pages instead of one.
So it is stored as one row of the table `pending` and applied soon after, together with its neighbours. Readers see
tables and pending batches of one snapshot.

    pending.batch    MessagePack: [offset before its first journal row, sequence, puts, deletes, journal, meta]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from vedette.storage.seam import Batch, ElementRecord, JournalRow

__all__ = [
    "PendingBatch",
    "PendingOverlay",
    "decode_pending",
    "encode_pending",
    "merge_batches",
    "pending_journal_rows",
]

_encode = msgspec.msgpack.Encoder().encode


class PendingBatch(NamedTuple):
    """One batch that is not applied yet."""

    offset: int
    """Last offset of the journal before it."""
    sequence: int
    puts: list[ElementRecord]
    deletes: list[str]
    journal: list[JournalRow]
    meta: list[tuple[str, str]]

    @property
    def last_offset(self) -> int:
        return self.offset + len(self.journal)

    @property
    def rows(self) -> int:
        """Work to apply it: one row per element and change, plus one for the rest."""
        return len(self.puts) + len(self.deletes) + len(self.journal) + 1


_decoder = msgspec.msgpack.Decoder(PendingBatch)


def encode_pending(offset: int, batch: Batch) -> bytes:
    return _encode((offset, batch.sequence, batch.puts, batch.deletes, batch.journal, batch.meta))


def decode_pending(blob: bytes) -> PendingBatch:
    """Raises ValueError for bytes that `encode_pending` did not produce."""
    try:
        return _decoder.decode(blob)
    except msgspec.MsgspecError as problem:
        raise ValueError(str(problem)) from problem


def pending_journal_rows(batches: Iterable[PendingBatch]) -> Iterator[JournalRow]:
    """Journal rows with their assigned offsets."""
    for batch in batches:
        for place, row in enumerate(batch.journal, batch.offset + 1):
            yield JournalRow._make((*row[:-1], place))


def merge_batches(batches: Sequence[PendingBatch]) -> Batch:
    """Combine several batches: deletes first, then puts.

    An element that was deleted and created again is in both, unlike in a batch of the engine. It is put after every
    element that it may target.
    """
    records: dict[str, ElementRecord] = {}
    gone: dict[str, None] = {}
    facts: dict[str, str] = {}
    for batch in batches:
        for id in batch.deletes:
            records.pop(id, None)
            gone[id] = None
        records.update([(record.id, record) for record in batch.puts])
        facts.update(batch.meta)
    return Batch(
        sequence=max((batch.sequence for batch in batches), default=0),
        puts=list(records.values()),
        deletes=list(gone),
        journal=list(pending_journal_rows(batches)),
        meta=tuple(facts.items()),
    )


class PendingOverlay:
    """Overlay pending batches on stored elements; new elements come last."""

    def __init__(self, batches: Sequence[PendingBatch]) -> None:
        effect = merge_batches(batches)
        self._gone = frozenset(effect.deletes)
        self._nodes = {record.id: record for record in effect.puts if record.targets is None}
        self._edges = {record.id: record for record in effect.puts if record.targets is not None}

    def nodes(self, stored: Iterable[ElementRecord]) -> Iterator[ElementRecord]:
        return self._shown(stored, self._nodes)

    def edges(self, stored: Iterable[ElementRecord]) -> Iterator[ElementRecord]:
        return self._shown(stored, self._edges)

    def _shown(
        self, stored: Iterable[ElementRecord], fresh: Mapping[str, ElementRecord]
    ) -> Iterator[ElementRecord]:
        left = dict(fresh)
        for record in stored:
            if record.id not in self._gone:
                yield left.pop(record.id, record)
        yield from left.values()
