"""Results as JSON: timestamps as ISO-8601 text in UTC with milliseconds and `Z`, durations as milliseconds."""

from __future__ import annotations

import json
from typing import Any

from vedette.engine.context.result import Result
from vedette.values import to_json

__all__ = ["json_line", "result_record", "to_json"]

COUNTS = ("created", "modified", "deleted", "linked", "unlinked")


def json_line(record: Any) -> str:
    """The record on one line."""
    return json.dumps(to_json(record), ensure_ascii=False, allow_nan=False)


def result_record(result: Result) -> dict[str, Any]:
    """Everything that a result tells, by the names of its attributes."""
    return {
        "columns": result.columns,
        "rows": result.rows,
        **{name: getattr(result, name) for name in COUNTS},
        "warnings": result.warnings,
        "handle": result.handle,
        "tick": result.tick,
    }
