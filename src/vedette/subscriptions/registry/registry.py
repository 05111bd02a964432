"""The registry: which gateway holds which subscription, until when, and in which version of the index it appears.

Gateways register summaries and renew them; what is not renewed ends by itself (seeds/realtime-watching.md §2). Every
writing call moves the version; the compactor (`index_files`) publishes versions as files, and the pipeline pins one of
them in each batch, so that a batch that runs again sees the same subscriptions.

A subscription's `boundary` is the journal's offset of its snapshot: it is told everything after it, whenever the
version with it is published. So snapshot and stream join without a gap and without a wait.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from vedette.clock import Clock, SystemClock
from vedette.errors import SubscriptionError
from vedette.sources.images import decode_image, encode_image
from vedette.storage.sql_database import SqlTransaction, open_database
from vedette.subscriptions.shape import Constant
from vedette.subscriptions.spec import SubscriptionSpec, split_constants
from vedette.values import timestamp_to_ms

__all__ = [
    "REGISTRY_FILE",
    "Gateway",
    "PartitionMode",
    "Quotas",
    "ReducedMode",
    "RegisteredSubscription",
    "SubscriptionRegistry",
    "SubscriptionRequest",
]

_audit = logging.getLogger("vedette.audit")
REGISTRY_FILE = "subscriptions.db"
_PAGE = 50_000
ReducedMode: TypeAlias = Literal["shedding", "degraded"]
PartitionMode: TypeAlias = Literal["normal"] | ReducedMode
_LAGGING: tuple[ReducedMode, ...] = ("shedding", "degraded")
_TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT",
    "INSERT INTO meta VALUES ('version', 0) ON CONFLICT DO NOTHING",
    "CREATE TABLE IF NOT EXISTS shapes (id SERIAL, text TEXT NOT NULL UNIQUE, form BLOB NOT NULL) STRICT",
    """CREATE TABLE IF NOT EXISTS gateways (number SERIAL, name TEXT NOT NULL UNIQUE, address TEXT NOT NULL,
        expires_ms INTEGER NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS subscriptions (number SERIAL, gateway INTEGER NOT NULL, id TEXT NOT NULL,
        tenant TEXT NOT NULL, collection TEXT NOT NULL, shape INTEGER NOT NULL, constants BLOB NOT NULL,
        flags INTEGER NOT NULL, boundary INTEGER NOT NULL, expires_ms INTEGER NOT NULL, added INTEGER NOT NULL,
        ended INTEGER) STRICT""",
    """CREATE UNIQUE INDEX IF NOT EXISTS subscriptions_by_id ON subscriptions (gateway, id) WHERE ended IS NULL""",
    "CREATE INDEX IF NOT EXISTS subscriptions_added ON subscriptions (added)",
    "CREATE INDEX IF NOT EXISTS subscriptions_ended ON subscriptions (ended) WHERE ended IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS subscriptions_due ON subscriptions (expires_ms) WHERE ended IS NULL",
    "CREATE TABLE IF NOT EXISTS counts (scope TEXT PRIMARY KEY, held INTEGER NOT NULL) STRICT",
)
_COUNT = (
    "INSERT INTO counts VALUES (?, ?) ON CONFLICT (scope) DO UPDATE SET held = counts.held + excluded.held"
)


class Quotas(NamedTuple):
    """Quotas of subscriptions."""

    gateway: int = 200_000
    tenant: int = 1_000_000
    total: int = 2_000_000
    collection: int = 1_000_000
    """Per database, so that none can fill the index of a collection alone."""


class SubscriptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that a gateway registers for a client."""

    id: str
    """Id chosen by the gateway."""
    tenant: str
    collection: str
    form: SubscriptionSpec
    boundary: int
    """Offset of the snapshot; changes after it concern the subscription."""
    low_priority: bool = False


class RegisteredSubscription(NamedTuple):
    """A row as the compactor reads it."""

    number: int
    gateway: int
    tenant: str
    collection: str
    form: bytes
    constants: tuple[Constant, ...]
    flags: int
    boundary: int
    added: int


class Gateway(NamedTuple):
    number: int
    name: str
    address: str
    """Address for deliveries: `host:port` or the path of a Unix socket."""
    expires_ms: int


class SubscriptionRegistry:
    """Subscriptions of all gateways. Any process may open it."""

    def __init__(
        self, address: str | Path, *, clock: Clock | None = None, quotas: Quotas | None = None
    ) -> None:
        path = address
        if not str(address).startswith("postgres") and Path(address).is_dir():
            path = Path(address) / REGISTRY_FILE
        self._place = open_database(path, _TABLES, "vedette_subscriptions")
        self._clock = clock or SystemClock()
        self._quotas = quotas or Quotas()

    @property
    def address(self) -> str:
        return self._place.address

    # --- gateways -------------------------------------------------------------------------------------------

    def acquire_lease(self, name: str, address: str, seconds: float) -> Gateway:
        """Add a gateway, or extend its lease; it is removed when the lease expires."""
        until = self._now() + int(seconds * 1000)
        with self._place.write() as rows:
            ((number,),) = rows.execute(
                "INSERT INTO gateways (name, address, expires_ms) VALUES (?, ?, ?) ON CONFLICT (name)"
                " DO UPDATE SET address = excluded.address, expires_ms = excluded.expires_ms RETURNING number",
                (name, address, until),
            )
        return Gateway(number, name, address, until)

    def gateways(self) -> list[Gateway]:
        """Gateways with a valid lease, by number."""
        with self._place.read() as rows:
            found = rows.execute(
                "SELECT number, name, address, expires_ms FROM gateways WHERE expires_ms > ? ORDER BY number",
                (self._now(),),
            )
        return [Gateway._make(row) for row in found]

    def set_fan_out(self, count: int) -> None:
        """Number of gateways that receive unfiltered changes while the index is unreliable; 0 is none."""
        with self._place.write() as rows:
            rows.execute(
                "INSERT INTO meta VALUES ('fan_out', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (count,),
            )

    def fan_out(self) -> int:
        with self._place.read() as rows:
            found = rows.execute("SELECT value FROM meta WHERE key = 'fan_out'")
        return int(found[0][0]) if found else 0

    def set_mode(self, partition: int, mode: PartitionMode) -> None:
        """Set the mode of a lagging partition: shedding or degraded; normal ends it."""
        with self._place.write() as rows:
            rows.execute("DELETE FROM meta WHERE key = ?", (f"mode:{partition}",))
            if mode != "normal":
                rows.execute("INSERT INTO meta VALUES (?, ?)", (f"mode:{partition}", _LAGGING.index(mode)))

    def modes(self) -> dict[int, ReducedMode]:
        """Partitions whose mode is not normal."""
        with self._place.read() as rows:
            found = rows.execute("SELECT key, value FROM meta WHERE key LIKE ?", ("mode:%",))
        return {int(key.removeprefix("mode:")): _LAGGING[value] for key, value in found}

    def release_lease(self, name: str) -> None:
        """A gateway leaves gracefully: its subscriptions end immediately."""
        with self._place.write() as rows:
            for (number,) in rows.execute("SELECT number FROM gateways WHERE name = ?", (name,)):
                self._remove(rows, number)

    def evict(self, number: int) -> None:
        """Deliveries for a gateway were dropped. If it is alive, it gets another number when it joins again."""
        with self._place.write() as rows:
            self._remove(rows, number)

    def _remove(self, rows: SqlTransaction, number: int) -> None:
        self._end_where(rows, "gateway = ?", (number,))
        rows.execute("DELETE FROM gateways WHERE number = ?", (number,))

    # --- subscriptions --------------------------------------------------------------------------------------

    def register(self, gateway: str, requests: Sequence[SubscriptionRequest], seconds: float) -> list[int]:
        """Add subscriptions for a time and return their numbers; all or none.

        Raises E6201 for an id in use, E6203 above a quota, E6204 and filter errors for invalid specs.
        """
        taken = [self._taken_apart(request) for request in requests]
        until = self._now() + int(seconds * 1000)
        with self._place.write() as rows:
            owner = self._gateway(rows, gateway)
            version = self._next_version(rows)
            self.charge(rows, owner, requests)
            numbers = [
                self._insert(rows, owner, request, shape, constants, version, until)
                for request, (shape, constants) in zip(requests, taken, strict=True)
            ]
        extra = {"action": "subscription.create", "gateway": gateway, "numbers": numbers}
        _audit.info("Registered %d subscriptions of gateway %s", len(numbers), gateway, extra=extra)
        return numbers

    def _taken_apart(self, request: SubscriptionRequest) -> tuple[str, bytes]:
        shape, constants = split_constants(request.form)
        return shape.fingerprint, encode_image({"constants": list(constants)})

    def _insert(
        self,
        rows: SqlTransaction,
        gateway: int,
        request: SubscriptionRequest,
        shape: str,
        constants: bytes,
        version: int,
        until: int,
    ) -> int:
        known = rows.execute("SELECT id FROM shapes WHERE text = ?", (shape,)) or rows.execute(
            "INSERT INTO shapes (text, form) VALUES (?, ?) RETURNING id",
            (shape, msgspec.json.encode(request.form)),
        )
        values = (gateway, request.id, request.tenant, request.collection, known[0][0], constants)
        found = rows.execute(
            "INSERT INTO subscriptions (gateway, id, tenant, collection, shape, constants, flags, boundary, expires_ms,"
            " added) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING number",
            (*values, int(request.low_priority), request.boundary, until, version),
        )
        if not found:
            text = (
                f"the gateway has a subscription '{request.id}' already: choose another id, or end that one"
            )
            raise SubscriptionError("E6201", text, fields={"id": request.id})
        return int(found[0][0])

    def renew(self, gateway: str, seconds: float, ids: Sequence[str] | None = None) -> int:
        """Renew some or all subscriptions of a gateway. Returns their number. Raises E6202 if a named one does not
        exist."""
        until = self._now() + int(seconds * 1000)
        with self._place.write() as rows:
            owner = self._gateway(rows, gateway)
            if ids is None:
                found = rows.execute(
                    "UPDATE subscriptions SET expires_ms = ? WHERE gateway = ? AND ended IS NULL RETURNING 1",
                    (until, owner),
                )
                return len(found)
            for id in ids:
                self._renew_one(rows, owner, id, until)
            return len(ids)

    def _renew_one(self, rows: SqlTransaction, gateway: int, id: str, until: int) -> None:
        found = rows.execute(
            "UPDATE subscriptions SET expires_ms = ? WHERE gateway = ? AND id = ? AND ended IS NULL RETURNING 1",
            (until, gateway, id),
        )
        if not found:
            text = f"there is no subscription '{id}', or it has expired: register it again"
            raise SubscriptionError("E6202", text, fields={"id": id})

    def unregister(self, gateway: str, ids: Sequence[str]) -> None:
        """End subscriptions. Idempotent."""
        with self._place.write() as rows:
            owner = self._gateway(rows, gateway)
            for id in ids:
                self._end_where(rows, "gateway = ? AND id = ?", (owner, id))

    def expire(self) -> int:
        """End subscriptions that were not renewed in time. Returns their number."""
        with self._place.write() as rows:
            return self._end_where(rows, "expires_ms <= ?", (self._now(),))

    def count(self, scope: str = "all") -> int:
        """Number of active subscriptions: `all`, `tenant:NAME`, `collection:TENANT/NAME` or `gateway:NUMBER`."""
        with self._place.read() as rows:
            found = rows.execute("SELECT held FROM counts WHERE scope = ?", (scope,))
        return int(found[0][0]) if found else 0

    # --- for the compactor ----------------------------------------------------------------------------------

    def version(self) -> int:
        with self._place.read() as rows:
            return self._version(rows)

    def version_of(self, number: int) -> int:
        """The version with which a subscription was added; the latest if it has ended and was deleted."""
        with self._place.read() as rows:
            found = rows.execute("SELECT added FROM subscriptions WHERE number = ?", (number,))
            return int(found[0][0]) if found else self._version(rows)

    def bump_version(self) -> int:
        """Create a new version with the same subscriptions, for a rebuilt index."""
        with self._place.write() as rows:
            return self._next_version(rows)

    def change_counter(self) -> object:
        """A value that changes after any write; cheap to read."""
        return self._place.change_count()

    def collections(self, after: int = 0) -> list[tuple[str, str]]:
        """Tenants and collections whose subscriptions changed after that version."""
        with self._place.read() as rows:
            found = rows.execute(
                "SELECT DISTINCT tenant, collection FROM subscriptions WHERE added > ? OR ended > ? ORDER BY 1, 2",
                (after, after),
            )
        return [(tenant, collection) for tenant, collection in found]

    def added_between(
        self, tenant: str, collection: str, after: int, upto: int
    ) -> Iterator[RegisteredSubscription]:
        """Subscriptions of a collection that were added in these versions and are active in the last."""
        number = 0
        while True:
            with self._place.read() as rows:
                page = rows.execute(
                    "SELECT number, gateway, form, constants, flags, boundary, added FROM subscriptions"
                    " JOIN shapes ON shapes.id = shape WHERE tenant = ? AND collection = ? AND added > ? AND added <= ?"
                    " AND (ended IS NULL OR ended > ?) AND number > ? ORDER BY number LIMIT ?",
                    (tenant, collection, after, upto, upto, number, _PAGE),
                )
            for number, gateway, form, constants, flags, boundary, added in page:
                values = tuple(decode_image(constants)["constants"])
                yield RegisteredSubscription(
                    number, gateway, tenant, collection, bytes(form), values, flags, boundary, added
                )
            if len(page) < _PAGE:
                return

    def ended_between(self, tenant: str, collection: str, after: int, upto: int) -> list[int]:
        """Numbers of subscriptions that ended in these versions."""
        with self._place.read() as rows:
            found = rows.execute(
                "SELECT number FROM subscriptions WHERE tenant = ? AND collection = ? AND ended > ? AND ended <= ?",
                (tenant, collection, after, upto),
            )
        return sorted(number for (number,) in found)

    def delete_ended(self, upto: int) -> None:
        """Delete the rows of subscriptions that ended in or before that version; no index file has them."""
        with self._place.write() as rows:
            rows.execute("DELETE FROM subscriptions WHERE ended <= ?", (upto,))

    def close(self) -> None:
        self._place.close()

    # --- inside ---------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return timestamp_to_ms(self._clock.now())

    def _version(self, rows: SqlTransaction) -> int:
        return int(rows.execute("SELECT value FROM meta WHERE key = 'version'")[0][0])

    def _next_version(self, rows: SqlTransaction) -> int:
        rows.execute("UPDATE meta SET value = value + 1 WHERE key = 'version'")
        return self._version(rows)

    def _gateway(self, rows: SqlTransaction, name: str) -> int:
        found = rows.execute("SELECT number FROM gateways WHERE name = ?", (name,))
        if not found:
            text = f"there is no gateway '{name}': it must join before it registers subscriptions"
            raise SubscriptionError("E6202", text, fields={"gateway": name})
        return int(found[0][0])

    def charge(self, rows: SqlTransaction, gateway: int, requests: Sequence[SubscriptionRequest]) -> None:
        wanted: dict[str, int] = {"all": len(requests), f"gateway:{gateway}": len(requests)}
        for request in requests:
            for scope in (f"tenant:{request.tenant}", f"collection:{request.tenant}/{request.collection}"):
                wanted[scope] = wanted.get(scope, 0) + 1
        limits = {
            "all": self._quotas.total,
            "gateway": self._quotas.gateway,
            "tenant": self._quotas.tenant,
            "collection": self._quotas.collection,
        }
        for scope, more in wanted.items():
            rows.execute(_COUNT, (scope, more))
            held = int(rows.execute("SELECT held FROM counts WHERE scope = ?", (scope,))[0][0])
            limit = limits[scope.partition(":")[0]]
            if held > limit:
                text = f"{scope} would have {held} subscriptions, {limit} is the most: end some, or raise the limit"
                raise SubscriptionError("E6203", text, fields={"scope": scope, "limit": limit})

    def _end_where(self, rows: SqlTransaction, which: str, values: tuple[Any, ...]) -> int:
        found = rows.execute(
            f"SELECT number, gateway, tenant, collection FROM subscriptions WHERE ended IS NULL AND {which}",  # noqa: S608 - ours
            values,
        )
        if not found:
            return 0
        version = self._next_version(rows)
        rows.executemany(
            "UPDATE subscriptions SET ended = ? WHERE number = ?", [(version, number) for number, *_ in found]
        )
        numbers = [number for number, *_ in found]
        extra = {"action": "subscription.destroy", "numbers": numbers}
        _audit.info("Ended %d subscriptions", len(numbers), extra=extra)
        gone = Counter(
            scope
            for _, gateway, tenant, collection in found
            for scope in (
                "all",
                f"gateway:{gateway}",
                f"tenant:{tenant}",
                f"collection:{tenant}/{collection}",
            )
        )
        for scope, count in gone.items():
            rows.execute(_COUNT, (scope, -count))
        return len(found)
