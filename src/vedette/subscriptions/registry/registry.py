"""The registry: which gateway holds which subscription, until when, and in which version of the index it appears.

Gateways register subscriptions and renew them. A subscription that is not renewed in time ends. Every call that adds or
ends subscriptions creates a new version. The compactor (`index/compactor.py`) publishes versions as files, and each
batch of the pipeline is pinned to one version, so that a retried batch matches the same subscriptions.

The `boundary` of a subscription is the journal offset of its snapshot. The subscription receives every change after
it, no matter when the version that contains it is published. So stream and snapshot join without a gap.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vedette.clock import Clock, SystemClock
from vedette.errors import SubscriptionError
from vedette.sources.images import decode_image, encode_image
from vedette.storage.sql_database import SqlTransaction, open_database
from vedette.subscriptions.registry.quotas import Quotas, charge, refund
from vedette.subscriptions.registry.records import (
    LOW_PRIORITY,
    REDUCED_MODES,
    REGISTRY_FILE,
    REGISTRY_SCHEMA,
    Gateway,
    PartitionMode,
    ReducedMode,
    RegisteredSubscription,
    SubscriptionRequest,
)
from vedette.subscriptions.spec import split_constants
from vedette.values import timestamp_to_ms

__all__ = ["SubscriptionRegistry"]

_audit = logging.getLogger("vedette.audit")
_PAGE_ROWS = 50_000
"""Subscriptions that `added_between` reads per statement."""


class SubscriptionRegistry:
    """The subscriptions of all gateways, in a SQLite file or a PostgreSQL schema. Threads may share it."""

    def __init__(
        self, address: str | Path, *, clock: Clock | None = None, quotas: Quotas | None = None
    ) -> None:
        path = address
        if not str(address).startswith("postgres") and Path(address).is_dir():
            path = Path(address) / REGISTRY_FILE
        self._database = open_database(path, REGISTRY_SCHEMA)
        self._clock = clock or SystemClock()
        self._quotas = quotas or Quotas()

    @property
    def address(self) -> str:
        return self._database.address

    # --- gateways -------------------------------------------------------------------------------------------

    def acquire_lease(self, name: str, address: str, seconds: float) -> Gateway:
        """Add a gateway, or extend its lease. A gateway whose lease expires is no longer listed."""
        until = self._now_ms() + int(seconds * 1000)
        with self._database.write() as db:
            ((number,),) = db.execute(
                "INSERT INTO gateways (name, address, expires_ms) VALUES (?, ?, ?) ON CONFLICT (name)"
                " DO UPDATE SET address = excluded.address, expires_ms = excluded.expires_ms RETURNING number",
                (name, address, until),
            )
        return Gateway(number, name, address, until)

    def gateways(self) -> list[Gateway]:
        """Return the gateways with a valid lease, by number."""
        with self._database.read() as db:
            rows = db.execute(
                "SELECT number, name, address, expires_ms FROM gateways WHERE expires_ms > ? ORDER BY number",
                (self._now_ms(),),
            )
        return [Gateway._make(row) for row in rows]

    def set_fan_out(self, count: int) -> None:
        """Set the number of gateways that receive unfiltered changes while the index is unreliable; 0 for none."""
        with self._database.write() as db:
            db.execute(
                "INSERT INTO meta VALUES ('fan_out', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (count,),
            )

    def fan_out(self) -> int:
        with self._database.read() as db:
            rows = db.execute("SELECT value FROM meta WHERE key = 'fan_out'")
        return int(rows[0][0]) if rows else 0

    def set_mode(self, partition: int, mode: PartitionMode) -> None:
        """Set the mode of a partition."""
        with self._database.write() as db:
            db.execute("DELETE FROM meta WHERE key = ?", (f"mode:{partition}",))
            if mode != "normal":
                db.execute("INSERT INTO meta VALUES (?, ?)", (f"mode:{partition}", REDUCED_MODES.index(mode)))

    def modes(self) -> dict[int, ReducedMode]:
        """Return the partitions whose mode is not normal."""
        with self._database.read() as db:
            rows = db.execute("SELECT key, value FROM meta WHERE key LIKE ?", ("mode:%",))
        return {int(key.removeprefix("mode:")): REDUCED_MODES[value] for key, value in rows}

    def release_lease(self, name: str) -> None:
        """Remove a gateway that stops, and end its subscriptions."""
        with self._database.write() as db:
            for (number,) in db.execute("SELECT number FROM gateways WHERE name = ?", (name,)):
                self._remove(db, number)

    def evict(self, number: int) -> None:
        """Remove a gateway that missed deliveries, and end its subscriptions.

        If it is still alive, it gets a new number when it acquires a lease again, and its clients resync.
        """
        with self._database.write() as db:
            self._remove(db, number)

    def _remove(self, db: SqlTransaction, number: int) -> None:
        self._end_where(db, "gateway = ?", (number,))
        db.execute("DELETE FROM gateways WHERE number = ?", (number,))

    # --- subscriptions --------------------------------------------------------------------------------------

    def register(self, gateway: str, requests: Sequence[SubscriptionRequest], seconds: float) -> list[int]:
        """Add subscriptions for a time and return their numbers; all or none.

        Raises E6201 for an id in use, E6202 for an unknown gateway, E6203 above a quota, E6204 and filter errors for
        invalid specs.
        """
        prepared = [self._prepare(request) for request in requests]  # before the write lock
        until_ms = self._now_ms() + int(seconds * 1000)
        with self._database.write() as db:
            number = self._gateway(db, gateway)
            version = self._next_version(db)
            charge(db, [(number, request.tenant, request.collection) for request in requests], self._quotas)
            numbers = []
            for request, (fingerprint, constants) in zip(requests, prepared, strict=True):
                shape = self._shape_id(db, fingerprint, request)
                owner = (number, request.id, request.tenant, request.collection)
                flags = LOW_PRIORITY if request.low_priority else 0
                numbers.append(
                    self._insert(db, (*owner, shape, constants, flags, request.boundary, until_ms, version))
                )
        extra = {"action": "subscription.create", "gateway": gateway, "numbers": numbers}
        _audit.info("Registered %d subscriptions of gateway %s", len(numbers), gateway, extra=extra)
        return numbers

    def _prepare(self, request: SubscriptionRequest) -> tuple[str, bytes]:
        """Return the fingerprint of the shape, and the stored form of the constants."""
        shape, constants = split_constants(request.spec)
        return shape.fingerprint, encode_image({"constants": list(constants)})

    def _shape_id(self, db: SqlTransaction, fingerprint: str, request: SubscriptionRequest) -> int:
        rows = db.execute("SELECT id FROM shapes WHERE fingerprint = ?", (fingerprint,)) or db.execute(
            "INSERT INTO shapes (fingerprint, spec) VALUES (?, ?) RETURNING id",
            (fingerprint, msgspec.json.encode(request.spec)),
        )
        return int(rows[0][0])

    def _insert(self, db: SqlTransaction, values: tuple[Any, ...]) -> int:
        rows = db.execute(
            "INSERT INTO subscriptions (gateway, id, tenant, collection, shape, constants, flags, boundary, expires_ms,"
            " added) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING number",
            values,
        )
        if not rows:
            _, id, *_ = values
            text = (
                f"the gateway already has a subscription '{id}': choose another id, or end the existing one"
            )
            raise SubscriptionError("E6201", text, fields={"id": id})
        return int(rows[0][0])

    def renew(self, gateway: str, seconds: float, ids: Sequence[str] | None = None) -> int:
        """Renew some or all subscriptions of a gateway. Returns their number. Raises E6202 if a named one does not
        exist."""
        until = self._now_ms() + int(seconds * 1000)
        with self._database.write() as db:
            owner = self._gateway(db, gateway)
            if ids is None:
                rows = db.execute(
                    "UPDATE subscriptions SET expires_ms = ? WHERE gateway = ? AND ended IS NULL RETURNING 1",
                    (until, owner),
                )
                return len(rows)
            for id in ids:
                self._renew_one(db, owner, id, until)
            return len(ids)

    def _renew_one(self, db: SqlTransaction, gateway: int, id: str, until: int) -> None:
        rows = db.execute(
            "UPDATE subscriptions SET expires_ms = ? WHERE gateway = ? AND id = ? AND ended IS NULL RETURNING 1",
            (until, gateway, id),
        )
        if not rows:
            text = f"there is no subscription '{id}', or it has expired: register it again"
            raise SubscriptionError("E6202", text, fields={"id": id})

    def unregister(self, gateway: str, ids: Sequence[str]) -> None:
        """End subscriptions. Unknown ids are ignored."""
        with self._database.write() as db:
            owner = self._gateway(db, gateway)
            for id in ids:
                self._end_where(db, "gateway = ? AND id = ?", (owner, id))

    def expire(self) -> int:
        """End subscriptions that were not renewed in time. Returns their number."""
        with self._database.write() as db:
            return self._end_where(db, "expires_ms <= ?", (self._now_ms(),))

    def count(self, scope: str = "all") -> int:
        """Return the number of active subscriptions in a scope, see `quotas.py`."""
        with self._database.read() as db:
            rows = db.execute("SELECT subscriptions FROM counts WHERE scope = ?", (scope,))
        return int(rows[0][0]) if rows else 0

    # --- for the compactor ----------------------------------------------------------------------------------

    def version(self) -> int:
        with self._database.read() as db:
            return self._version(db)

    def version_of(self, number: int) -> int:
        """Return the version in which a subscription was added; the latest version if its row was deleted."""
        with self._database.read() as db:
            rows = db.execute("SELECT added FROM subscriptions WHERE number = ?", (number,))
            return int(rows[0][0]) if rows else self._version(db)

    def bump_version(self) -> int:
        """Create a new version with the same subscriptions, for a rebuilt index. Returns the version."""
        with self._database.write() as db:
            return self._next_version(db)

    def change_counter(self) -> object:
        """Return a value that changes when subscriptions change; cheap to read."""
        return self._database.change_counter()

    def collections(self, after: int = 0) -> list[tuple[str, str]]:
        """Return tenants and collections whose subscriptions changed after a version."""
        with self._database.read() as db:
            rows = db.execute(
                "SELECT DISTINCT tenant, collection FROM subscriptions WHERE added > ? OR ended > ? ORDER BY 1, 2",
                (after, after),
            )
        return [(tenant, collection) for tenant, collection in rows]

    def added_between(
        self, tenant: str, collection: str, after: int, upto: int
    ) -> Iterator[RegisteredSubscription]:
        """Yield the subscriptions of a collection that were added in versions after < v ≤ upto and are active in
        `upto`.
        """
        number = 0
        while True:
            with self._database.read() as db:
                page = db.execute(
                    "SELECT number, gateway, spec, constants, flags, boundary, added FROM subscriptions"
                    " JOIN shapes ON shapes.id = shape WHERE tenant = ? AND collection = ? AND added > ? AND added <= ?"
                    " AND (ended IS NULL OR ended > ?) AND number > ? ORDER BY number LIMIT ?",
                    (tenant, collection, after, upto, upto, number, _PAGE_ROWS),
                )
            for number, gateway, spec, constants, flags, boundary, added in page:
                values = tuple(decode_image(constants)["constants"])
                yield RegisteredSubscription(
                    number, gateway, tenant, collection, spec, values, flags, boundary, added
                )
            if len(page) < _PAGE_ROWS:
                return

    def ended_between(self, tenant: str, collection: str, after: int, upto: int) -> list[int]:
        """Return the numbers of subscriptions that ended in versions after < v ≤ upto, sorted."""
        with self._database.read() as db:
            rows = db.execute(
                "SELECT number FROM subscriptions WHERE tenant = ? AND collection = ? AND ended > ? AND ended <= ?",
                (tenant, collection, after, upto),
            )
        return sorted(number for (number,) in rows)

    def delete_ended(self, upto: int) -> None:
        """Delete the rows of subscriptions that ended in or before a version. No kept index version may need them."""
        with self._database.write() as db:
            db.execute("DELETE FROM subscriptions WHERE ended <= ?", (upto,))

    def close(self) -> None:
        self._database.close()

    # --- shared parts ---------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return timestamp_to_ms(self._clock.now())

    def _version(self, db: SqlTransaction) -> int:
        return int(db.execute("SELECT value FROM meta WHERE key = 'version'")[0][0])

    def _next_version(self, db: SqlTransaction) -> int:
        db.execute("UPDATE meta SET value = value + 1 WHERE key = 'version'")
        return self._version(db)

    def _gateway(self, db: SqlTransaction, name: str) -> int:
        rows = db.execute("SELECT number FROM gateways WHERE name = ?", (name,))
        if not rows:
            text = f"there is no gateway '{name}': it must acquire a lease before it registers subscriptions"
            raise SubscriptionError("E6202", text, fields={"gateway": name})
        return int(rows[0][0])

    def _end_where(self, db: SqlTransaction, condition: str, values: tuple[Any, ...]) -> int:
        """End the active subscriptions that meet a condition. Returns their number."""
        ended = db.execute(
            f"SELECT number, gateway, tenant, collection FROM subscriptions WHERE ended IS NULL AND {condition}",  # noqa: S608 - a constant text of this module
            values,
        )
        if not ended:
            return 0
        version = self._next_version(db)
        numbers = [number for number, *_ in ended]
        db.execute_many(
            "UPDATE subscriptions SET ended = ? WHERE number = ?", [(version, number) for number in numbers]
        )
        refund(db, [(gateway, tenant, collection) for _, gateway, tenant, collection in ended])
        extra = {"action": "subscription.destroy", "numbers": numbers}
        _audit.info("Ended %d subscriptions", len(numbers), extra=extra)
        return len(ended)
