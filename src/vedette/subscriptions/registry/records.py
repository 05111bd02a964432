"""Records of the registry, and the tables that store them.

shapes          one row per shape; `spec` is an example: the JSON of a SubscriptionSpec with any constants
gateways        gateways and when their leases expire
subscriptions   `added` and `ended` are the registry versions in which a subscription starts and ends
counts          active subscriptions per scope, see `quotas.py`
meta            version     number of the latest version
                fan_out     number of gateways that receive unfiltered changes; missing: 0
                mode:ID     mode of partition ID: 0 shedding, 1 degraded; missing: normal
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from vedette.storage.sql_database import DatabaseSchema
from vedette.subscriptions.shape import Constant
from vedette.subscriptions.spec import SubscriptionSpec

__all__ = [
    "LOW_PRIORITY",
    "REDUCED_MODES",
    "REGISTRY_FILE",
    "REGISTRY_SCHEMA",
    "Gateway",
    "PartitionMode",
    "ReducedMode",
    "RegisteredSubscription",
    "SubscriptionRequest",
]

LOW_PRIORITY = 1
"""Flag of a subscription that is skipped while a partition is shedding load."""
REGISTRY_FILE = "subscriptions.db"
"""Name of the registry's file in a data directory."""

ReducedMode: TypeAlias = Literal["shedding", "degraded"]
PartitionMode: TypeAlias = Literal["normal"] | ReducedMode
"""Mode of a partition (`vedette.control.lag_policy`)."""
REDUCED_MODES: tuple[ReducedMode, ...] = ("shedding", "degraded")
"""The stored number of a mode is its index."""


class SubscriptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that a gateway registers for a client."""

    id: str
    """Id chosen by the gateway."""
    tenant: str
    collection: str
    spec: SubscriptionSpec
    boundary: int
    """Journal offset of the snapshot; later changes concern the subscription."""
    low_priority: bool = False
    """True if the subscription is skipped while a partition is shedding load."""


class RegisteredSubscription(NamedTuple):
    """A subscription as the compactor reads it."""

    number: int
    """Number that the registry assigned; never reused."""
    gateway: int
    tenant: str
    collection: str
    spec: bytes
    """Example of its shape, as stored in `shapes`."""
    constants: tuple[Constant, ...]
    flags: int
    """LOW_PRIORITY or 0."""
    boundary: int
    added: int
    """Registry version in which it was added."""


class Gateway(NamedTuple):
    number: int
    name: str
    address: str
    """Address for deliveries: `host:port` or the path of a Unix socket."""
    expires_ms: int
    """When the lease expires."""


REGISTRY_SCHEMA = DatabaseSchema(
    name="vedette_subscriptions",
    version=2,
    remedy="delete it while nothing is running; gateways register their subscriptions again",
    counter="version",
    tables=(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
        "INSERT INTO meta VALUES ('version', 0)",
        "CREATE TABLE shapes (id SERIAL, fingerprint TEXT NOT NULL UNIQUE, spec BLOB NOT NULL) STRICT",
        """CREATE TABLE gateways (number SERIAL, name TEXT NOT NULL UNIQUE, address TEXT NOT NULL,
            expires_ms INTEGER NOT NULL) STRICT""",
        """CREATE TABLE subscriptions (number SERIAL, gateway INTEGER NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL,
            collection TEXT NOT NULL, shape INTEGER NOT NULL, constants BLOB NOT NULL, flags INTEGER NOT NULL,
            boundary INTEGER NOT NULL, expires_ms INTEGER NOT NULL, added INTEGER NOT NULL, ended INTEGER) STRICT""",
        "CREATE UNIQUE INDEX subscriptions_by_id ON subscriptions (gateway, id) WHERE ended IS NULL",
        "CREATE INDEX subscriptions_added ON subscriptions (added)",
        "CREATE INDEX subscriptions_ended ON subscriptions (ended) WHERE ended IS NOT NULL",
        "CREATE INDEX subscriptions_due ON subscriptions (expires_ms) WHERE ended IS NULL",
        "CREATE TABLE counts (scope TEXT PRIMARY KEY, subscriptions INTEGER NOT NULL) STRICT",
    ),
)
