"""Results as JSON: timestamps as ISO-8601 text in UTC with milliseconds and `Z`, durations as milliseconds."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from typing import Any

from vedette.engine.result import Result
from vedette.values import duration_to_ms, timestamp_to_text

__all__ = ["json_line", "json_value", "result_record"]

COUNTS = ("created", "modified", "deleted", "linked", "unlinked")


def json_line(record: Any) -> str:
    """The record on one line."""
    return json.dumps(json_value(record), ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """The value with nothing in it that JSON does not know. NaN and the infinities become texts of these names."""
    match value:
        case datetime():
            return timestamp_to_text(value)
        case timedelta():
            return duration_to_ms(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {name: json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
    return value


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
