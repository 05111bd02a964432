"""Format values as the literals of stories: ids as the names bound to them, elements as type and attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from vedette.values import duration_to_text, timestamp_to_text

__all__ = ["Names", "render", "render_row"]

Names = Mapping[str, str]
"""Names that sessions bound, by id."""


def render_row(row: tuple[Any, ...], names: Names) -> str:
    return " | ".join(render(value, names) for value in row)


def render(value: Any, names: Names) -> str:
    match value:
        case None | True | False:
            return json.dumps(value)
        case str():
            return f"#{names[value]}" if value in names else json.dumps(value, ensure_ascii=False)
        case float():
            return _float(value)
        case int():
            return str(value)
        case datetime():
            return f"@{timestamp_to_text(value)}"
        case timedelta():
            return duration_to_text(value)
        case list():
            return f"[{', '.join(render(item, names) for item in value)}]"
        case dict():
            return _image(value, names)
    return f"<{type(value).__name__}>"


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _image(image: dict[str, Any], names: Names) -> str:
    """`Task #t {title: "x"}`; null attributes are omitted, an id without a name is `#?`."""
    kind, id = image.get("_type", "?"), image.get("id")
    shown = {key: value for key, value in image.items() if key not in ("id", "_type", "_targets")}
    inside = ", ".join(f"{k}: {render(v, names)}" for k, v in shown.items() if v is not None)
    return f"{kind} #{names.get(str(id), '?')} {{{inside}}}"
