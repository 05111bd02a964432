"""Masked values must not appear in a capture: at any place in a document, and in keys that contain them."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.pipeline.queries.capture import mask_image, mask_row
from vedette.sources.images import decode_image, encode_image


def row(key: str, before: Any, after: Any) -> dict[str, Any]:
    images = {
        side: None if image is None else encode_image(image)
        for side, image in (("before", before), ("after", after))
    }
    return {"key": key, "event_id": f"scan:7:shop::people:{key}", **images}


@pytest.mark.parametrize(
    "document",
    [
        {"a": {"email": "bob@x"}},
        {"a": [{"email": "bob@x"}, {"email": ["bob@x", "bob@y"]}, 5]},
        {"a": [[{"email": "bob@x"}]]},
        {"a.email": "bob@x"},
        {"a": {"email": {"work": "bob@x"}}},
    ],
)
def test_a_path_reaches_into_lists_and_names_with_dots(document: Any):
    image = encode_image(document)
    assert b"bob" in image
    assert b"bob" not in (mask_image(image, ["a.email"], "salt") or b"")


@pytest.mark.parametrize(
    ("key", "document"),
    [
        ("bob@x", {"id": "bob@x"}),
        ('["bob@x", 3]', {"id": "bob@x", "n": 3}),
        ('{"who": "bob@x"}', {"id": {"who": "bob@x"}}),
        ("17", {"id": 17}),
    ],
)
def test_a_key_that_contains_a_masked_value_becomes_a_pseudonym(key: str, document: dict[str, Any]):
    rows = [row(key, None, document), row(key, document, None)]
    assert all(mask_row(each, ["id"], "salt") for each in rows)
    assert rows[0]["key"] == rows[1]["key"]
    for each in rows:
        assert not any(part in str(each) for part in ("bob", "17"))


def test_other_keys_are_kept():
    found = row("k1", None, {"id": "k1", "email": "bob@x"})
    assert mask_row(found, ["email"], "salt")
    assert found["key"] == "k1"
    assert decode_image(found["after"])["id"] == "k1"


def test_a_row_with_an_invalid_image_is_dropped():
    """It cannot be masked, and it must not fail the capture."""
    assert not mask_row(
        {"key": "k", "event_id": "e", "before": None, "after": b'["bob@x"]'}, ["email"], "salt"
    )
