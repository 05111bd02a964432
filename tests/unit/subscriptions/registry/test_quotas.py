"""Counters of subscriptions and their limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vedette.errors import SubscriptionError
from vedette.storage.sql_database import SqlDatabase, open_database
from vedette.subscriptions.registry.quotas import Quotas, charge, count_in, refund
from vedette.subscriptions.registry.records import REGISTRY_SCHEMA

OWNER = (7, "acme", "shop::orders")
SCOPES = ("all", "gateway:7", "tenant:acme", "collection:acme/shop::orders")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqlDatabase]:
    database = open_database(tmp_path / "registry.db", REGISTRY_SCHEMA)
    yield database
    database.close()


def test_a_subscription_counts_in_four_scopes(database: SqlDatabase):
    with database.write() as db:
        charge(db, [OWNER, OWNER, (8, "acme", "shop::lines")], Quotas())
        assert [count_in(db, scope) for scope in SCOPES] == [3, 2, 3, 2]
        refund(db, [OWNER])
        assert [count_in(db, scope) for scope in SCOPES] == [2, 1, 2, 1]
        assert count_in(db, "tenant:other") == 0


@pytest.mark.parametrize(
    ("quotas", "scope"),
    [
        (Quotas(total=1), "all"),
        (Quotas(gateway=1), "gateway:7"),
        (Quotas(tenant=1), "tenant:acme"),
        (Quotas(collection=1), "collection:acme/shop::orders"),
    ],
)
def test_exceeded_quota_names_its_scope(database: SqlDatabase, quotas: Quotas, scope: str):
    with pytest.raises(SubscriptionError) as error, database.write() as db:
        charge(db, [OWNER, OWNER], quotas)
    assert (error.value.code, error.value.fields["scope"]) == ("E6203", scope)
    assert scope in error.value.text
