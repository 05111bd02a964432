"""Encodes replies to requests, and maps settle messages to statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vedette.engine.context.result import Result
from vedette.errors import FilterError
from vedette.filters.collection_query import CollectionQuery
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.messages import MessageError, encode, encode_message, to_wire
from vedette.gateway.wire.snapshot_page import MAX_SNAPSHOT_BYTES, snapshot_page

__all__ = [
    "MATCHER_VERSION",
    "SMALLER_INITIAL_ADVICE",
    "delta_payload",
    "is_larger_than",
    "manage_reply",
    "result_message",
    "resume_ack",
    "settle_statement",
    "snapshot_message",
    "subscribe_ack",
    "too_large",
]


def is_larger_than(result: Result, limit_bytes: int) -> bool:
    """Return True if the rows hold more text than `limit_bytes`. Stops as soon as the answer is known."""
    size = 0
    for row in result.rows:
        size += sum(map(_text_bytes, row))
        if size > limit_bytes:
            return True
    return False


def _text_bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_text_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_text_bytes, value))
    return 8


def result_message(result: Result | list[Result], id: str | None, max_bytes: int) -> bytes:
    """Encode the reply to `execute`. Raise MessageError `too_large` if it exceeds `max_bytes`."""
    results = result if isinstance(result, list) else [result]
    left = max_bytes
    payloads = []
    for each in results:
        rows: list[msgspec.Raw] = []
        for row in each.rows:
            data = encode([to_wire(value) for value in row])
            left -= len(data) + 1
            if left < 0:
                raise too_large("The result", max_bytes, _advice(results))
            rows.append(msgspec.Raw(data))
        payloads.append(_result_payload(each, rows))
    return encode_message("result", {"results": payloads} if isinstance(result, list) else payloads[0], id)


def _advice(results: list[Result]) -> str:
    if any(r.created or r.modified or r.deleted or r.linked or r.unlinked for r in results):
        return "the statement was executed; return fewer rows or columns"
    return "use LIMIT or return fewer columns"


def too_large(what: str, max_bytes: int, advice: str) -> MessageError:
    return MessageError("too_large", f"{what} has more than {max_bytes} bytes: {advice}")


def _result_payload(result: Result, rows: list[msgspec.Raw]) -> dict[str, Any]:
    """Return the wire form of a result."""
    payload: dict[str, Any] = {
        "columns": list(result.columns),
        "rows": rows,
        "created": result.created,
        "modified": result.modified,
        "deleted": result.deleted,
        "linked": result.linked,
        "unlinked": result.unlinked,
        "warnings": list(result.warnings),
    }
    if result.handle is not None:
        payload["handle"] = result.handle
    if result.tick is not None:
        payload["tick"] = result.tick
    return payload


def settle_statement(record: link.SettleDelivery) -> tuple[str, dict[str, Any]]:
    """Return the statement and parameters for an ack, nack or extend message."""
    params: dict[str, Any] = {"delivery": record.delivery}
    options: list[str] = []
    if record.operation == "nack" and not record.retry:
        options.append("no_retry")
    if record.milliseconds is not None and record.operation in ("nack", "extend"):
        options.append(f"{'delay' if record.operation == 'nack' else 'by'}: {record.milliseconds}ms")
    bracket = f" [{', '.join(options)}]" if options else ""
    return f"{record.operation.upper()} $delivery{bracket}", params


MATCHER_VERSION = "mew-1.cel-1"
"""Version of the matching rules. Clients may compare it between servers."""
SMALLER_INITIAL_ADVICE = (
    "watch with [initial: none] and read existing matches in pages (MATCH … ORDER BY … LIMIT), or RETURN less"
)


def subscribe_ack(sub_id: str, seq: int, token: str | None, **details: Any) -> bytes:
    """Encode the acknowledgement of a subscription. `token`: None if the stream cannot be resumed."""
    payload: dict[str, Any] = {
        "subId": sub_id,
        "matcherVersion": MATCHER_VERSION,
        "partitions": 1,
        "seq": seq,
        **details,
    }
    if token is not None:
        payload["resumeToken"] = token
    return encode_message("subscribe_ack", payload, sub_id)


def snapshot_message(
    sub_id: str,
    query: CollectionQuery,
    documents: Sequence[dict[str, Any]],
    *,
    seq: int,
    tick: int,
    token: str,
) -> bytes:
    """Encode a page of a filter's documents, or an error if it is too large. The subscription stays active."""
    try:
        page = snapshot_page(query, documents)
    except FilterError as error:
        code = "snapshot_limit" if error.code == "E1202" else "snapshot_failed"
        return encode_message("error", {"code": code, "message": error.text, "subId": sub_id}, sub_id)
    payload = {"subId": sub_id, **page, "partition": 0, "seq": seq, "lsn": tick, "resumeToken": token}
    data = encode_message("snapshot", to_wire(payload), sub_id)
    if len(data) > MAX_SNAPSHOT_BYTES:
        text = "the snapshot is larger than 16 MiB: request pages with limit and startAfter"
        return encode_message("error", {"code": "snapshot_limit", "message": text, "subId": sub_id}, sub_id)
    return data


def resume_ack(sub_id: str, request_id: str | None, **answer: Any) -> bytes:
    """Encode the reply to a resume: `status`, and `fromSeq` or `reason`."""
    message = {"type": "resume-ack", "subId": sub_id, **answer}
    return encode(message if request_id is None else {"id": request_id, **message})


def delta_payload(
    type: str, reason: str, *, id: str, timestamp_ms: int, document: Any | None = None
) -> dict[str, Any]:
    """Return the `delta` of a filter's event. `document`: wire form, if the subscriber asked for documents."""
    delta: dict[str, Any] = {"type": type, "reason": reason, "id": id, "timestamp": timestamp_ms}
    if document is not None:
        delta["document"] = document
    return delta


def manage_reply(record: link.ManageRequest, **more: Any) -> bytes:
    """Encode the reply to pause, resume, cancel, alter and pull."""
    return encode_message(
        "manage_ack", {"subId": record.sub_id, "operation": record.operation, **more}, record.id
    )
