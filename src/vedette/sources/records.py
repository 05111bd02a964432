"""What readers hand to the journal, and what the journal hands on. Plain records, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
"""stale: changes were lost between the source and us; nothing is delivered until a scan or a resync has bridged it.
shedding and degraded are told to gateways of a live partition that is behind (`vedette.control.lag_policy`)."""

FIRST_SCAN = "the first scan"
"""The reason why a partition is catching up that has lost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One external place that is watched: where it is and how it is read."""

    name: str
    """The first half of its collections' names: `shop` in `shop::orders`."""
    kind: str
    """mongodb, postgres or graph."""
    address: str
    tenant: str = "default"
    """The database whose watches see the collections."""
    partitions: int = 4
    """Order domains: a change goes to the one that the hash of its key names."""
    paused: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """What only its reader understands, such as `start` or `collections`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvent:
    """One change as a reader saw it, before the journal gives it a place."""

    event_id: str
    """The source's own name of the change; a repeat has the same and is dropped."""
    collection: str
    key: str
    after: bytes | None
    """The image after the change; None for a deletion."""
    before: bytes | None = None
    """Only when the source tells it; otherwise the journal's last image stands in."""
    created: bool = False
    """The source says that there was nothing before."""
    time_ms: int
    """When the source says it happened."""
    transaction: str = ""


MAX_COUNTED_BACKLOG = 100_000
"""Changes that are counted when somebody asks what is past an offset: who is further behind knows enough by then."""


MAX_QUARANTINED = 10_000
"""What is kept of the quarantine, over all sources, the youngest: a source that sends nothing else must not fill the
disk."""


class PartitionBacklog(NamedTuple):
    """What of a partition is past an offset."""

    changes: int
    oldest_ms: int
    """When the oldest of them was appended."""


class ChangeRow(NamedTuple):
    """One change in the journal, in column order."""

    offset: int
    """Increasing over all sources, in the order of commits; never reused."""
    source: str
    tenant: str
    partition: int
    epoch: int
    seq: int
    """Per partition, increasing by one."""
    event_id: str
    collection: str
    key: str
    op: str
    """create, update or delete, by the images."""
    before: bytes | None
    after: bytes | None
    before_known: bool
    """False when nobody knows what was there before: the document was never seen and the source does not tell."""
    time_ms: int
    appended_ms: int
    transaction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """An order domain of a source. `id` is unique in the home; 0 is the engine's own."""

    id: int
    source: str
    number: int
    epoch: int
    seq: int
    """Of its last change."""
    state: PartitionState = "live"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    offset: int
    """The journal's last offset after the append."""
    appended: int
    repeated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPage:
    """A page of a collection at one moment: changes with a greater offset come after it."""

    offset: int
    documents: tuple[tuple[str, bytes], ...]
    """Keys and images, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedChange:
    """A change that could not be used, and why. The stream went on without it."""

    source: str
    event_id: str
    reason: str
    excerpt: str
    """Its beginning, for whoever looks."""
    time_ms: int
