"""Cases from tests/data/filters, and the input on which they are evaluated."""

from __future__ import annotations

import json
from typing import Any

from tests.support.paths import DATA
from vedette.filters.inputs import FilterInput, FilterRequest
from vedette.filters.literals import parse_rfc3339

__all__ = ["cel_cases", "cel_environment", "load"]

FOLDER = DATA / "filters"


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def cel_environment() -> FilterInput:
    given = load("cel")["environment"]
    return FilterInput(
        doc=given["doc"],
        id=given["id"],
        collection=given["collection"],
        op=given["op"],
        before=given["before"],
        request=FilterRequest(auth=given["auth"], time=parse_rfc3339(given["time"])),
    )


def cel_cases() -> list[tuple[str, Any, str | None]]:
    """Source, expected value, and for an error a part of its text."""
    groups = [rows for name, rows in load("cel").items() if name not in ("about", "environment")]
    return [(row[0], row[1], row[2] if len(row) > 2 else None) for rows in groups for row in rows]
