"""Results and messages in each other's forms: a result on the wire, a message as a statement."""

from __future__ import annotations

from typing import Any

from vedette.engine.result import Result
from vedette.gateway import link
from vedette.gateway.frames import message, wire_value

__all__ = ["managed", "result_payload", "settling_statement"]


def result_payload(result: Result) -> dict[str, Any]:
    """A result as it goes over the wire."""
    payload: dict[str, Any] = {
        "columns": list(result.columns),
        "rows": [[wire_value(value) for value in row] for row in result.rows],
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


def settling_statement(record: link.Settle) -> tuple[str, dict[str, Any]]:
    """The statement that an ack, nack or extend message stands for."""
    params: dict[str, Any] = {"delivery": record.delivery}
    options: list[str] = []
    if record.operation == "nack" and not record.retry:
        options.append("no_retry")
    if record.milliseconds is not None and record.operation in ("nack", "extend"):
        options.append(f"{'delay' if record.operation == 'nack' else 'by'}: {record.milliseconds}ms")
    bracket = f" [{', '.join(options)}]" if options else ""
    return f"{record.operation.upper()} $delivery{bracket}", params


def managed(record: link.Steer, **more: Any) -> bytes:
    """The answer to pause, resume, cancel, alter and pull."""
    return message("manage_ack", {"subId": record.sub, "operation": record.operation, **more}, record.id)
