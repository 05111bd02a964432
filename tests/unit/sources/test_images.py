"""The encoding of documents in the journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vedette.errors import SourceError
from vedette.sources.images import MAX_DEPTH, decode_image, encode_image

DOCUMENT = {
    "text": "ä",
    "number": -1,
    "float": 1.5,
    "none": None,
    "yes": True,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
    "for": timedelta(seconds=90),
    "infinite": float("inf"),
    "items": [1, {"a": 2}],
    "map": {"$timestamp": "not a tag"},
}
GOLDEN = (
    '{"at":{"$timestamp":"2026-01-02T03:04:05.678Z"},"float":1.5,"for":{"$duration":90000},'
    '"infinite":{"$float":"Infinity"},"items":[1,{"a":2}],"map":{"$map":{"$timestamp":"not a tag"}},"none":null,'
    '"number":-1,"text":"ä","yes":true}'
).encode()


def test_image_format_is_pinned():
    """A change of these bytes needs a new version of JOURNAL_SCHEMA and REGISTRY_SCHEMA."""
    assert encode_image(DOCUMENT) == GOLDEN
    assert decode_image(GOLDEN) == DOCUMENT


@pytest.mark.parametrize("document", [[1], {1: 2}, {"n": 2**63}, {"x": object()}, {"s": "\ud800"}])
def test_invalid_document_is_refused(document: object):
    with pytest.raises(SourceError) as error:
        encode_image(document)
    assert error.value.code == "E6102"


def test_nesting_is_limited():
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    with pytest.raises(SourceError, match="nested"):
        encode_image({"deep": value})


@pytest.mark.parametrize("image", [b"[]", b"{", b'{"a":{"$timestamp":1}}', b'{"a":{"$float":"x"}}'])
def test_invalid_image_is_refused(image: bytes):
    with pytest.raises(SourceError) as error:
        decode_image(image)
    assert error.value.code == "E6102"
