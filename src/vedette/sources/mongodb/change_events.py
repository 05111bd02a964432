"""Convert change stream events, documents and resume tokens of MongoDB. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import bson
from bson import json_util
from bson.datetime_ms import DatetimeMS

from vedette.errors import SourceError
from vedette.sources.images import MAX_DEPTH
from vedette.values import INT_MAX

__all__ = ["MongoChange", "document_key", "parse_change_event", "parse_resume_after", "to_document_value"]


class MongoChange(NamedTuple):
    """One decoded event. `after` is None with `op` update if the document was gone when the server looked it up."""

    event_id: str
    op: str
    """create, update or delete; `drop` if the collection is gone and its stream ends."""
    key: str
    raw_key: Any
    """The key as MongoDB stores it, to read the document again."""
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    time_ms: int
    transaction: str


_AMBIGUOUS_KEY = re.compile(
    r'[\[{"].*|[0-9a-f]{24}|-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|-?Infinity|NaN|null|true|false|.*\0.*',
    re.DOTALL,
).fullmatch
_OPS = {"insert": "create", "update": "update", "replace": "update", "delete": "delete"}


def parse_change_event(event: Mapping[str, Any]) -> MongoChange | None:
    """Return None for events that are not about documents, such as new indexes or sharding."""
    kind = event["operationType"]
    op = _OPS.get(kind)
    if op is None and kind not in ("drop", "rename", "dropDatabase", "invalidate"):
        return None
    document, before = event.get("fullDocument"), event.get("fullDocumentBeforeChange")
    if document is not None and "_id" not in document:
        document = None  # some compatible servers send a document without _id for a missing one
    raw_key = (document or event.get("documentKey") or {}).get("_id")
    return MongoChange(
        event_id=_token_text(event["_id"]),
        op=op or "drop",
        key=document_key(raw_key),
        raw_key=raw_key,
        before=to_document_value(before) if before is not None else None,
        after=to_document_value(document) if document is not None and op != "delete" else None,
        time_ms=_event_time_ms(event),
        transaction=_transaction(event),
    )


def _token_text(token: Any) -> str:
    data = token.get("_data") if isinstance(token, Mapping) else None
    return (
        data if isinstance(data, str) else json.dumps(to_document_value(token), default=str, sort_keys=True)
    )


def _event_time_ms(event: Mapping[str, Any]) -> int:
    """The server's wall clock if the event has it (MongoDB 6.0), else the seconds of the cluster time."""
    wall = event.get("wallTime")
    if wall is not None:
        return int(wall.timestamp() * 1000)
    cluster = event.get("clusterTime")
    return int(cluster.time) * 1000 if cluster is not None else 0


def _transaction(event: Mapping[str, Any]) -> str:
    number = event.get("txnNumber")
    return "" if number is None else f"{document_key((event.get('lsid') or {}).get('id'))}/{int(number)}"


def document_key(value: Any) -> str:
    """Return a key as text: a string unchanged, an ObjectId in hex, any other value as JSON.

    A string that looks like one of the other forms is quoted, because 1 and "1" are two documents. A string with a
    NUL character is quoted too, because PostgreSQL cannot store NUL.
    """
    if isinstance(value, str) and not _AMBIGUOUS_KEY(value):
        return str(value)
    if isinstance(value, bson.ObjectId):
        return str(value)
    return json.dumps(to_document_value(value), default=str, sort_keys=True)


def to_document_value(value: Any, depth: int = 0) -> Any:
    """Convert a BSON value. `_id` becomes `id` unless the document has an `id`."""
    if depth > MAX_DEPTH:
        return value  # rejected by the encoder
    match value:
        case Mapping():
            fields = {
                name: to_document_value(item, depth + 1)
                for name, item in value.items()
                if name != "_id" or depth
            }
            if not depth and "_id" in value:
                fields.setdefault("id", to_document_value(value["_id"], 1))
            return fields
        case list() | tuple():
            return [to_document_value(item, depth + 1) for item in value]
        case bson.ObjectId():
            return str(value)
        case bson.Int64():
            return int(value)
        case bson.Decimal128():
            number = value.to_decimal()
            whole = number.is_finite() and number == number.to_integral_value() and abs(number) <= INT_MAX
            return int(number) if whole else float(number)
        case bson.Timestamp():
            return value.as_datetime()
        case bytes() | bson.Binary():
            return bytes(value).hex()
        case bson.Regex() | bson.Code() | bson.DBRef() | bson.MinKey() | bson.MaxKey() | DatetimeMS():
            return json_util.dumps(value)
    return value


def parse_resume_after(text: str) -> dict[str, dict[str, Any]]:
    """Parse the option `resume_after`: per collection, the token of the last event that another system processed.

    Raises E6101 if the text is invalid.
    """
    try:
        tokens = json.loads(text or "{}")
    except ValueError:
        tokens = None
    if not isinstance(tokens, dict) or not all(isinstance(token, dict) for token in tokens.values()):
        why = 'resume_after must be a JSON object with one resume token per collection: {"orders": {"_data": "…"}}'
        raise SourceError("E6101", why, fields={"option": "resume_after"})
    return tokens
