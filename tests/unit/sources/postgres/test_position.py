"""The position of a PostgreSQL reader: its token, and which transactions a scan included."""

from __future__ import annotations

from vedette.sources.postgres.pgoutput import Begin
from vedette.sources.postgres.position import TOKEN_VERSION, SlotPosition, WatchedTable, lsn_text

ORDERS = WatchedTable(
    oid=16_401,
    schema="public",
    name="orders",
    keys=("id", "line"),
    snapshot="1000:1010:1005",
    scan_lsn=0x1_6B37_4D48,
)
POSITION = SlotPosition(
    lsn=0x1_6B37_5000, partial_transaction=(0x1_6B37_6000, 42), tables={ORDERS.oid: ORDERS}
)
GOLDEN = (
    '{"version": 2, "lsn": "1/6B375000", "partial": {"lsn": "1/6B376000", "messages": 42}, "tables": [{"oid": 16401, '
    '"schema": "public", "name": "orders", "keys": ["id", "line"], "snapshot": "1000:1010:1005", '
    '"scan_lsn": "1/6B374D48"}]}'
)


def test_token_format_is_pinned():
    """A change of this text needs a new TOKEN_VERSION."""
    assert TOKEN_VERSION == 2
    assert POSITION.token == GOLDEN
    assert SlotPosition.parse(GOLDEN) == POSITION


def test_token_of_another_version_has_no_position():
    assert SlotPosition.parse('{"lsn": "1/0", "partial": ["0/0", 0], "tables": {}}') is None
    assert SlotPosition.parse(None) is None


def test_lsn_has_the_format_of_the_server():
    assert lsn_text(0x16_B374D848) == "16/B374D848"


def test_position_covers_transactions_that_committed_before_it():
    assert POSITION.covers(Begin(lsn=POSITION.lsn - 1, time_us=0, xid=1))
    assert not POSITION.covers(Begin(lsn=POSITION.lsn, time_us=0, xid=1))


def test_with_tables_adds_replaces_and_removes():
    lines = WatchedTable(oid=7, schema="public", name="lines", keys=("id",))
    changed = POSITION.with_tables([lines], without=[ORDERS.oid])
    assert changed.tables == {7: lines}
    assert (changed.lsn, changed.partial_transaction) == (POSITION.lsn, POSITION.partial_transaction)
