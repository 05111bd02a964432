"""Names of databases as file names: reversible, safe and unique."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.errors import StoreError
from vedette.storage.names import MAX_NAME_BYTES, decode_name, encode_name
from vedette.storage.postgres.catalog import schema_name

PAIRS = [
    ("default", "default"),
    ("tenant-b_2", "tenant-b_2"),
    ("Acme", "%41cme"),
    ("a b", "a%20b"),
    (".", "%2e"),
    ("../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
    ("%41", "%2541"),
    ("grün", "gr%c3%bcn"),
    ("🐎", "%f0%9f%90%8e"),
]


@pytest.mark.parametrize(("name", "encoded"), PAIRS)
def test_encoding_examples(name: str, encoded: str) -> None:
    assert encode_name(name) == encoded
    assert decode_name(encoded) == name


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=16))
def test_encoding_is_reversible(name: str) -> None:
    encoded = encode_name(name)
    assert decode_name(encoded) == name
    assert set(encoded) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_%")
    assert len(encoded) <= MAX_NAME_BYTES


@given(st.text(max_size=30))
def test_decoding_is_unique(text: str) -> None:
    name = decode_name(text)
    assert name is None or encode_name(name) == text


@pytest.mark.parametrize("text", ["", "A", "%4", "%ZZ", "%61", "a.b", "%ff", "a/b", "%00", "é", "a\n"])
def test_foreign_file_names_are_ignored(text: str) -> None:
    assert decode_name(text) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        ("x" * 201, "201 bytes long"),
        ("ü" * 34, "204 bytes"),
        ("\udc00", "lone surrogate"),
        ("a\0", "NUL"),
    ],
)
def test_invalid_names(name: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        encode_name(name)
    assert caught.value.code == "E6007"


def test_postgres_schema_names() -> None:
    assert schema_name("default") == "vedette_default"
    assert schema_name('a "b"') == 'vedette_a "b"'
    long = [schema_name("ü" * 33 + ending) for ending in ("", "x", "y")]
    assert len(set(long)) == 3
    assert all(len(schema.encode()) <= 63 and schema.startswith("vedette_ü") for schema in long)
