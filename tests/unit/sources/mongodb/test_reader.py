"""MongoDB collections, on a compatible server and with recorded answers for what it does not support."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from tests.support.mongodb_server import mongodb_uri
from vedette.clock import SystemClock
from vedette.errors import SourceError, StoreError
from vedette.sources.images import decode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.mongodb.change_events import document_key, parse_change_event, to_document_value
from vedette.sources.mongodb.reader import MongodbReader, decode_token, encode_token
from vedette.sources.records import Source
from vedette.sources.source_options import validate_source

__all__ = ["mongodb_uri"]
_NUMBERS = count()


class Shop:
    def __init__(self, uri: str, data_directory: Path) -> None:
        self.name = f"shop{next(_NUMBERS)}"
        self.client: pymongo.MongoClient[Any] = pymongo.MongoClient(uri)
        self.db = self.client[self.name]
        self.db["orders"].insert_one({"_id": 1, "status": "open"})
        self.journal = open_journal(data_directory)
        self.source = Source(name="shop", kind="mongodb", address=uri, options={"database": self.name})
        self.journal.add_source(self.source)
        self.readers: list[MongodbReader] = []

    def reader(self) -> MongodbReader:
        reader = MongodbReader(self.source, self.journal, SystemClock())
        self.readers.append(reader)
        return reader

    def changes(self, after: int = 0) -> list[tuple[str, str, Any, Any]]:
        rows = self.journal.read(after, self.journal.last_offset())
        return [
            (r.op, r.key, r.before and decode_image(r.before), r.after and decode_image(r.after))
            for r in rows
        ]

    def state(self) -> dict[str, Any]:
        page = self.journal.snapshot("default", "shop::orders")
        return {key: decode_image(image) for key, image in page.documents}

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.client.drop_database(self.name)
        self.client.close()
        self.journal.close()


@pytest.fixture
def shop(mongodb_uri: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(mongodb_uri, tmp_path)
    yield shop
    shop.close()


def poll_until_idle(reader: MongodbReader) -> None:
    for _ in range(3):
        reader.poll(0.05)


def test_scan_then_stream(shop: Shop):
    reader = shop.reader()
    reader.start(scan=True)
    assert shop.state() == {"1": {"id": 1, "status": "open"}}
    orders = shop.db["orders"]
    orders.insert_one({"_id": "two", "lines": [{"sku": "a"}], "at": datetime(2024, 1, 1, tzinfo=UTC)})
    orders.update_one({"_id": 1}, {"$set": {"status": "paid"}})
    orders.delete_one({"_id": "two"})
    poll_until_idle(reader)
    assert shop.state() == {"1": {"id": 1, "status": "paid"}}
    ops = [(op, key) for op, key, *_ in shop.changes()]
    assert [op for op in ops if op[1] == "1"][-1] == ("update", "1")
    assert [op for op in ops if op[1] == "two"] in ([("create", "two"), ("delete", "two")], [])


def test_next_reader_continues_at_the_stored_position(shop: Shop):
    reader = shop.reader()
    reader.start(scan=True)
    shop.db["orders"].insert_one({"_id": 2})
    poll_until_idle(reader)
    last = shop.journal.last_offset()
    reader.close()
    shop.db["orders"].insert_one({"_id": 3})
    shop.db["orders"].delete_one({"_id": 1})
    again = shop.reader()
    poll_until_idle(again)
    assert [change[:2] for change in shop.changes(last)] == [("create", "3"), ("delete", "1")]
    assert set(shop.state()) == {"2", "3"}


def test_source_can_start_after_a_token(shop: Shop, tmp_path: Path):
    """The source starts at the token without a scan, and only the first time."""
    reader = shop.reader()
    reader.start(scan=False)
    shop.db["orders"].insert_one({"_id": 2})
    poll_until_idle(reader)
    token = decode_token(shop.journal.resume_token("shop"))["orders"]["token"]
    shop.db["orders"].insert_one({"_id": 3})
    (tmp_path / "other").mkdir()
    other = open_journal(tmp_path / "other")
    options = {"database": shop.name, "resume_after": json.dumps({"orders": token})}
    source = Source(name="shop", kind="mongodb", address=shop.source.address, options=options)
    validate_source(source)
    other.add_source(source)
    again = MongodbReader(source, other, SystemClock())
    again.start(scan=True)
    poll_until_idle(again)
    assert [row.key for row in other.read(0, other.last_offset())] == ["3"]
    again.start(scan=True)  # recover from a gap as usual
    assert {row.key for row in other.read(0, other.last_offset())} == {"1", "2", "3"}
    again.close()
    other.close()


@pytest.mark.parametrize("text", ["82", "[]", '{"orders": "8263"}', "{"])
def test_invalid_resume_after_is_refused(text: str):
    source = Source(name="shop", kind="mongodb", address="mongodb://x/shop", options={"resume_after": text})
    with pytest.raises(SourceError, match="E6101"):
        validate_source(source)


def test_scan_recovers_missed_changes(shop: Shop):
    reader = shop.reader()
    shop.db["orders"].insert_many([{"_id": 2, "n": 1}, {"_id": 3, "n": 1}])
    reader.start(scan=True)
    last = shop.journal.last_offset()
    shop.db["orders"].update_one({"_id": 2}, {"$set": {"n": 2}})
    shop.db["orders"].delete_one({"_id": 3})
    reader.start(scan=True)
    assert [change[:2] for change in shop.changes(last)] == [("update", "2"), ("delete", "3")]


def test_unreachable_server_is_retryable(tmp_path: Path):
    source = Source(name="x", kind="mongodb", address="mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=50")
    journal = open_journal(tmp_path)
    reader = MongodbReader(source, journal, SystemClock())
    reader._client.close()
    reader._client = pymongo.MongoClient("mongodb://127.0.0.1:1/x", serverSelectionTimeoutMS=50)
    reader._database = reader._client["x"]
    with pytest.raises(SourceError) as caught:
        reader.start(scan=True)
    assert caught.value.code == "E6104"
    reader.close()
    with pytest.raises(SourceError) as caught:
        MongodbReader(
            Source(name="x", kind="mongodb", address="mongodb://127.0.0.1:1"), journal, SystemClock()
        )
    assert caught.value.code == "E6101"
    journal.close()


# --- recorded answers

TOKEN = {"_data": "8265F0C3A1000000012B0229296E04"}
OID = bson.ObjectId("65f0c3a10000000000000001")


def test_update_with_its_before_image():
    """An answer of MongoDB 6.0 with changeStreamPreAndPostImages, inside a transaction."""
    change = parse_change_event(
        {
            "_id": TOKEN,
            "operationType": "update",
            "clusterTime": bson.Timestamp(1710277537, 1),
            "wallTime": datetime(2024, 3, 12, 21, 5, 37, 250_000, tzinfo=UTC),
            "fullDocument": {"_id": OID, "n": bson.Int64(2)},
            "fullDocumentBeforeChange": {"_id": OID, "n": 1},
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": OID},
            "updateDescription": {"updatedFields": {"n": 2}, "removedFields": [], "truncatedArrays": []},
            "lsid": {"id": bson.Binary(b"\x01" * 16, 4), "uid": b""},
            "txnNumber": bson.Int64(7),
        }
    )
    assert change is not None
    assert change[:3] == (TOKEN["_data"], "update", str(OID))
    assert change.before == {"n": 1, "id": str(OID)}
    assert change.after == {"n": 2, "id": str(OID)}
    assert (change.time_ms, change.transaction[-2:]) == (1710277537250, "/7")


@pytest.mark.parametrize(
    ("kind", "op"),
    [("drop", "drop"), ("rename", "drop"), ("invalidate", "drop"), ("createIndexes", None)],
)
def test_events_about_collections(kind: str, op: str | None):
    change = parse_change_event({"_id": TOKEN, "operationType": kind, "clusterTime": bson.Timestamp(1, 1)})
    assert (change.op if change is not None else None) == op


@pytest.mark.parametrize("looked_up", [None, {}])
def test_update_of_a_deleted_document(looked_up: dict[str, Any] | None):
    event = {"_id": TOKEN, "operationType": "update", "fullDocument": looked_up, "documentKey": {"_id": 5}}
    change = parse_change_event(event | {"clusterTime": bson.Timestamp(1, 1)})
    assert change is not None
    assert (change.key, change.after, change.raw_key) == ("5", None, 5)


def test_values_of_bson():
    document = {
        "_id": {"a": 1, "b": OID},
        "decimal": bson.Decimal128("1.5"),
        "binary": b"\x01\xff",
        "long": bson.Int64(5),
        "inner": {"_id": 9, "list": [OID, None, True]},
        "stamp": bson.Timestamp(10, 1),
    }
    assert to_document_value(document) == {
        "id": {"a": 1, "b": str(OID)},
        "decimal": 1.5,
        "binary": "01ff",
        "long": 5,
        "inner": {"_id": 9, "list": [str(OID), None, True]},
        "stamp": datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC),
    }
    assert document_key(document["_id"]) == f'{{"a": 1, "b": "{OID}"}}'
    assert document_key("text") == "text"


def test_special_values():
    """Integral decimals become integers, and values without a Python equivalent do not stop the stream."""
    assert to_document_value(bson.Decimal128("9007199254740993")) == 9007199254740993
    assert to_document_value(bson.Decimal128("1E40")) == 1e40
    assert to_document_value(DatetimeMS(2**60)) == '{"$date": {"$numberLong": "1152921504606846976"}}'


def test_similar_keys_differ():
    keys = [1, "1", 1.5, "1.5", True, "true", None, "null", OID, str(OID), [1], "[1]", {"a": 1}, '{"a": 1}']
    keys += ["a", '"a"', "a\0", "a\0b", "NaN", float("nan"), "-1e5", "1-2", "2024-01-01", "nullable"]
    assert len({document_key(key) for key in keys}) == len(keys)
    assert [document_key(key) for key in ("1-2", "2024-01-01", "nullable", "0x1")] == [
        "1-2",
        "2024-01-01",
        "nullable",
        "0x1",
    ]


# --- failures


def test_documents_that_the_driver_cannot_decode(shop: Shop):
    reader = shop.reader()
    reader.start(scan=True)
    orders = shop.db["orders"]
    orders.insert_one({"_id": 2, "at": DatetimeMS(2**60)})
    orders.insert_one(RawBSONDocument(bson.encode({"_id": 3, "v": "abcd"}).replace(b"abcd", b"ab\xff\xfe")))
    orders.insert_one({"_id": "1", "status": "another"})
    orders.insert_one({"_id": "a\0b", "n": 1})
    poll_until_idle(reader)
    orders.update_one({"_id": "a\0b"}, {"$set": {"n": 2}})
    orders.delete_one({"_id": "1"})
    poll_until_idle(reader)
    assert shop.state()["2"]["at"].startswith('{"$date"')
    assert shop.state()["3"]["v"] == "ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    assert shop.state()["1"]["status"] == "open"
    again = shop.reader()
    last = shop.journal.last_offset()
    again.start(scan=True)
    assert shop.changes(last) == [], "a scan says the same as the stream"


def test_events_of_a_failed_append_are_read_again(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    reader = shop.reader()
    reader.start(scan=True)
    poll_until_idle(reader)
    shop.db["orders"].insert_one({"_id": 2})

    def full(*_: Any) -> None:
        raise StoreError("E6002", "the disk is full")

    monkeypatch.setattr(shop.journal, "append", full)
    with pytest.raises(StoreError):
        reader.poll(0)
    monkeypatch.undo()
    poll_until_idle(reader)
    assert set(shop.state()) == {"1", "2"}


def test_dropped_and_recreated_collection(shop: Shop):
    """Includes documents that existed only for a moment, and those that exist before the reader notices the drop."""
    reader = shop.reader()
    reader.start(scan=True)
    poll_until_idle(reader)
    shop.db["orders"].insert_one({"_id": 2})
    shop.db["orders"].drop()
    shop.db["orders"].insert_one({"_id": 9})
    poll_until_idle(reader)
    assert set(shop.state()) == {"9"}
    shop.db["orders"].insert_one({"_id": 10})
    poll_until_idle(shop.reader())
    assert set(shop.state()) == {"9", "10"}


class Recorded:
    """A stream with recorded answers."""

    def __init__(self, *answers: dict[str, Any] | Exception, token: Any = None) -> None:
        self.answers, self.resume_token, self.closed = list(answers), token, False

    def try_next(self) -> dict[str, Any] | None:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def following(shop: Shop, monkeypatch: pytest.MonkeyPatch, *streams: Recorded) -> MongodbReader:
    reader, left = shop.reader(), list(streams)
    reader.start(scan=True)
    monkeypatch.setattr(reader, "_open_stream", lambda *_: left.pop(0))
    return reader


@pytest.mark.parametrize(("code", "ours"), [(286, "E6105"), (91, "E6104"), (10334, "E6105"), (13, "E6106")])
def test_errors_of_an_open_stream(shop: Shop, monkeypatch: pytest.MonkeyPatch, code: int, ours: str):
    reader = following(shop, monkeypatch, Recorded(pymongo.errors.OperationFailure("x", code)))
    with pytest.raises(SourceError, match=ours):
        reader.poll(0)


def test_events_before_an_error_are_not_skipped(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    insert = {"_id": TOKEN, "operationType": "insert", "fullDocument": {"_id": 5}, "documentKey": {"_id": 5}}
    cut = Recorded(insert, pymongo.errors.AutoReconnect("cut"))
    reader = following(shop, monkeypatch, cut, Recorded(insert))
    with pytest.raises(SourceError, match="E6104"):
        reader.poll(0)
    assert cut.closed
    reader.poll(0)
    assert set(shop.state()) == {"1", "5"}


def test_position_of_an_idle_stream_is_stored(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """The server reports it as postBatchResumeToken: the oplog may be trimmed although no event was for this stream."""
    reader = following(shop, monkeypatch, Recorded(token={"_data": "99"}))
    reader.poll(0)
    assert decode_token(shop.journal.resume_token("shop"))["orders"]["token"] == {"_data": "99"}


def test_views_are_not_read(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    listed = [
        {"name": n, "type": t} for n, t in (("orders", "collection"), ("v", "view"), ("t", "timeseries"))
    ]
    reader = shop.reader()
    monkeypatch.setattr(reader._database, "list_collections", lambda **_: listed, raising=False)
    reader.start(scan=True)
    assert set(decode_token(shop.journal.resume_token("shop"))) == {"orders"}


def test_reader_killed_after_scanning_a_new_collection(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """Its documents are appended, its position is not stored, and then the collection is dropped."""
    reader = shop.reader()
    reader.start(scan=True)
    poll_until_idle(reader)
    shop.db["lines"].insert_one({"_id": 1})
    reader._next_collection_check = 0.0

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "_append", killed)
    with pytest.raises(KeyboardInterrupt):
        reader.poll(0)
    assert "shop::lines" in shop.journal.collections("default")
    shop.db["lines"].drop()
    poll_until_idle(shop.reader())
    assert shop.journal.collections("default") == ["shop::orders"]


def test_collection_dropped_while_no_reader_was_running(shop: Shop):
    shop.db["lines"].insert_one({"_id": 1})
    reader = shop.reader()
    reader.start(scan=True)
    shop.db["lines"].drop()
    last = shop.journal.last_offset()
    shop.reader().start(scan=True)
    assert [change[:2] for change in shop.changes(last)] == [("delete", "1")]


def test_token_format_is_pinned():
    """A change of this text needs a new TOKEN_VERSION."""
    positions = {"orders": {"start": [1, 2], "scanned": [3, 4], "token": {"_data": "82"}}}
    text = '{"version": 2, "collections": {"orders": {"start": [1, 2], "scanned": [3, 4], "token": {"_data": "82"}}}}'
    assert encode_token(positions) == text
    assert decode_token(text) == positions
    assert decode_token(None) == {}


def test_token_of_another_version_is_a_lost_position():
    with pytest.raises(SourceError, match="E6105"):
        decode_token('{"orders": {"at": [1, 2], "scanned": [0, 0]}}')
