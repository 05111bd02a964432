"""Records between readers, the journal and the pipeline. No behaviour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

__all__ = [
    "FIRST_SCAN",
    "MAX_COUNTED_BACKLOG",
    "MAX_QUARANTINED",
    "AppendResult",
    "ChangeRow",
    "Partition",
    "PartitionBacklog",
    "PartitionState",
    "QuarantinedChange",
    "SnapshotPage",
    "Source",
    "SourceEvent",
]

PartitionState = Literal["live", "stale", "catching-up", "shedding", "degraded"]
"""stale: changes were lost; nothing is delivered until a scan or a resync has repaired the partition.

Gateways receive shedding and degraded for a live partition that lags (`vedette.control.lag_policy`).
"""

FIRST_SCAN = "the first scan"
"""The reason in the state `catching-up` during the first scan. No changes were lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One external source: its address and how it is read."""

    name: str
    """Prefix of its collection names: `shop` in `shop::orders`."""
    kind: str
    """mongodb, postgres or graph."""
    address: str
    tenant: str = "default"
    """The database whose watches see the collections."""
    partitions: int = 4
    """Number of order domains. The hash of its key selects the partition of a document."""
    paused: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the reader, such as `start` or `collections`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvent:
    """One change as a reader saw it, before the journal assigns an offset."""

    event_id: str
    """Id of the change at the source; a duplicate has the same id and is dropped."""
    collection: str
    key: str
    after: bytes | None
    """The image after the change; None for a deletion."""
    before: bytes | None = None
    """The image before the change, if the source sends it; otherwise the journal uses its last image."""
    created: bool = False
    """True if the source reports that the document did not exist before."""
    time_ms: int
    """Time of the change at the source."""
    transaction: str = ""


MAX_COUNTED_BACKLOG = 100_000
"""Maximum number of changes counted after an offset; a larger backlog is reported as this number."""


MAX_QUARANTINED = 10_000
"""Maximum number of quarantined changes over all sources; the oldest are deleted, so that a faulty source cannot fill
the disk."""


class PartitionBacklog(NamedTuple):
    """Changes of a partition after an offset."""

    changes: int
    oldest_ms: int
    """When the oldest of them was appended."""


class ChangeRow(NamedTuple):
    """One change in the journal, in column order."""

    offset: int
    """Increases over all sources in commit order; never reused."""
    source: str
    tenant: str
    partition: int
    epoch: int
    seq: int
    """Sequence number within the partition, increasing by one."""
    event_id: str
    collection: str
    key: str
    op: str
    """create, update or delete, derived from the images."""
    before: bytes | None
    after: bytes | None
    before_known: bool
    """False if the previous image is unknown: the document was never seen and the source does not send it."""
    time_ms: int
    appended_ms: int
    transaction: str

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[Any, ...]]) -> list[ChangeRow]:
        """Convert rows of the table `changes`. SQLite stores a boolean as an integer."""
        make, at, rest = cls._make, _BEFORE_KNOWN, _BEFORE_KNOWN + 1
        return [make((*row[:at], bool(row[at]), *row[rest:])) for row in rows]


_BEFORE_KNOWN = ChangeRow._fields.index("before_known")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """An order domain of a source. `id` is unique in the data directory; 0 is the engine's own partition."""

    id: int
    source: str
    number: int
    epoch: int
    seq: int
    """Sequence number of its last change."""
    state: PartitionState = "live"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    offset: int
    """Last offset of the journal after the append."""
    appended: int
    """Number of changes that were new."""
    duplicates: int
    """Number of events that changed nothing: the journal has their id, or they delete an unknown document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPage:
    """A page of a collection at one offset; changes with a larger offset come after it."""

    offset: int
    documents: tuple[tuple[str, bytes], ...]
    """Keys and images, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedChange:
    """A change that could not be processed, and why. The stream continued without it."""

    source: str
    event_id: str
    reason: str
    excerpt: str
    """Beginning of the change, for operators."""
    time_ms: int
