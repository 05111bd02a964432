"""Documents in the journal: a JSON object in UTF-8, and back.

Values without a JSON form are tagged, `{"$timestamp": "…Z"}`, `{"$duration": ms}`, `{"$float": "NaN"}`, and a map
that looks like a tag is wrapped, `{"$map": …}`. Integers keep 64 bits. Equal documents have equal bytes: keys are
sorted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from vedette.errors import SourceError
from vedette.values import (
    INT_MAX,
    INT_MIN,
    duration_from_ms,
    duration_to_ms,
    timestamp_from_text,
    timestamp_to_text,
    to_canonical,
)

__all__ = ["MAX_DEPTH", "MAX_IMAGE_BYTES", "decode_image", "decode_images", "encode_image"]

MAX_IMAGE_BYTES = 16 * 1024 * 1024
"""MongoDB's document size limit; larger documents are quarantined."""
MAX_DEPTH = 100
"""Maximum nesting of lists and maps in a document."""

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode
_TAGS = frozenset({"$timestamp", "$duration", "$float", "$map"})


def encode_image(document: object) -> bytes:
    """Encode a document. Raises SourceError E6102 for a value that a document cannot have."""
    if not isinstance(document, Mapping):
        raise _invalid(f"a document must be an object, not a Python {type(document).__name__}")
    data = _encode(_fields(document, 0))
    if len(data) > MAX_IMAGE_BYTES:
        raise _invalid(f"the document has {len(data)} bytes, the maximum is {MAX_IMAGE_BYTES}")
    return data


def decode_image(image: bytes) -> dict[str, Any]:
    """Decode an image. Raises SourceError E6102 if the bytes are invalid."""
    if b'"$' not in image:
        try:
            document = _decode(image)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            if type(document) is dict:
                return document
    return decode_images((image,))[0]  # tagged or invalid: the full decoder decides


def decode_images(images: Sequence[bytes]) -> list[dict[str, Any]]:
    """Decode many images. Raises SourceError E6102 if one is invalid; the error does not say which."""
    try:
        documents: list[Any] = list(map(_decode, images))
        if set(map(type, documents)) - {dict}:
            raise _invalid("an image must be a JSON object")
        if any(b'"$' in image for image in images):
            return [{name: _untagged(value) for name, value in document.items()} for document in documents]
    except (msgspec.DecodeError, RecursionError) as problem:
        raise _invalid(f"the image is not JSON: {problem}") from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as problem:
        raise _invalid(f"the image has an invalid tagged value: {problem}") from None
    return documents


def _fields(document: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    fields = {}
    for name, value in document.items():
        if not isinstance(name, str):
            raise _invalid(f"the name of a field must be a text, not {name!r}")
        fields[name] = _tagged(value, depth + 1)
    return fields


def _tagged(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _invalid(f"the document is nested more than {MAX_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise _invalid("an integer does not fit into 64 bits")
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": _float_text(value)}
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        fields = _fields(value, depth)
        return {"$map": fields} if len(fields) == 1 and next(iter(fields)) in _TAGS else fields
    if isinstance(value, list | tuple):
        return [_tagged(item, depth + 1) for item in value]
    if isinstance(value, datetime):
        return {"$timestamp": timestamp_to_text(to_canonical(value))}  # type: ignore[arg-type]
    if isinstance(value, timedelta):
        return {"$duration": duration_to_ms(value)}
    raise _invalid(f"a document cannot have a value of the Python type {type(value).__name__}")


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _invalid("a text has an unpaired surrogate, which is not a character") from None
    return str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _untagged(value: Any) -> Any:
    if value.__class__ is list:
        return [_untagged(item) for item in value]
    if value.__class__ is not dict:
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        match name:
            case "$timestamp":
                return timestamp_from_text(inner)
            case "$duration":
                return duration_from_ms(inner)
            case "$float":
                return float(inner)
            case "$map":
                return {key: _untagged(item) for key, item in inner.items()}
    return {key: _untagged(item) for key, item in value.items()}


def _invalid(text: str) -> SourceError:
    return SourceError("E6102", text)
