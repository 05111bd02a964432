"""Validation of a source before it is added."""

from __future__ import annotations

import pytest

from vedette.errors import SourceError
from vedette.sources.records import Source
from vedette.sources.source_options import validate_source


def source(**changes: object) -> Source:
    values: dict[str, object] = {"name": "shop", "kind": "postgres", "address": "postgresql://host/db"}
    return Source(**(values | changes))  # type: ignore[arg-type]


def test_valid_sources_are_accepted():
    validate_source(source(options={"tables": "public.orders", "start": "now", "on_gap": "resync"}))
    validate_source(source(kind="mongodb", address="mongodb://host/db", options={"resume_after": "{}"}))
    validate_source(source(kind="graph", address="/data"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "1shop"}, "is not a valid name"),
        ({"name": "_shop"}, "is not a valid name"),
        ({"kind": "oracle"}, "known kinds are mongodb, postgres, graph"),
        ({"partitions": 257}, "1 to 256 partitions"),
        ({"options": {"pre_images": "true"}}, "postgres has no option 'pre_images'"),
        ({"options": {"start": "yesterday"}}, "start must be beginning or now"),
        ({"options": {"events_per_second": "0"}}, "events_per_second must be a number above 0"),
        ({"address": "postgresql://host?nonsense=1"}, "invalid address for a postgres source"),
        ({"kind": "mongodb", "address": "http://host"}, "invalid address for a mongodb source"),
        (
            {"kind": "mongodb", "address": "mongodb://host/db", "options": {"resume_after": "[]"}},
            "resume_after must be a JSON object",
        ),
    ],
)
def test_invalid_source_is_refused(changes: dict[str, object], message: str):
    with pytest.raises(SourceError, match=message) as error:
        validate_source(source(**changes))
    assert error.value.code == "E6101"
