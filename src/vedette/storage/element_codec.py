"""Convert elements to stored records, and back.

Attributes are a JSON object by name. A Timestamp is ISO-8601 text with milliseconds and `Z`, a Duration its
milliseconds, a Float without a JSON form is `"NaN"`, `"Infinity"` or `"-Infinity"`. Where the declared type is
ambiguous (unions), such a value is tagged: `{"$timestamp": …}`, `{"$duration": …}`, `{"$float": …}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from vedette.element import Element
from vedette.language.schema.model import AttributeType, EdgeType, NodeType, Schema
from vedette.storage.seam import ElementRecord
from vedette.values import (
    duration_from_ms,
    duration_to_ms,
    timestamp_from_text,
    timestamp_to_text,
)

__all__ = ["ElementCodec", "decode_tagged", "encode_tagged"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
Convert = Callable[[Any], Any]


class ElementCodec:
    """Encodes and decodes the elements of one schema."""

    def __init__(self, schema: Schema) -> None:
        holders: list[NodeType | EdgeType] = [*schema.nodes.values(), *schema.edges.values()]
        self._names = {holder.name: tuple(holder.layout) for holder in holders}
        self._encoders = {h.name: _converters(h, _encoder) for h in holders}
        self._decoders = {h.name: _converters(h, _decoder) for h in holders}

    def record(self, element: Element) -> ElementRecord:
        return ElementRecord(element.id, element.type, self._attributes(element, {}), element.targets)

    def image(self, element: Element) -> bytes:
        """The element as the journal keeps it: id, type, targets of an edge, attributes."""
        return self._attributes(element, _image_header(element))

    def record_and_image(self, element: Element) -> tuple[ElementRecord, bytes]:
        """Encode record and image together: the image is the record's attributes after its own header."""
        record = self.record(element)
        if not _RESERVED.isdisjoint(self._names[element.type]):
            return record, self.image(element)
        head = _encode(_image_header(element))
        return record, head if record.attributes == b"{}" else b"%b,%b" % (head[:-1], record.attributes[1:])

    def _attributes(self, element: Element, head: dict[str, Any]) -> bytes:
        head.update(zip(self._names[element.type], element.values, strict=False))
        for name, convert in self._encoders[element.type]:
            value = head.get(name)  # an element from before `define` has no value for a later attribute
            if value is not None:
                head[name] = convert(value)
        return _encode(head)

    def element(self, record: ElementRecord) -> Element:
        values = self._values(record.type, _decode(record.attributes))
        return Element(record.id, record.type, values, record.targets)

    def from_image(self, type_name: str, id: str, image: bytes) -> Element:
        """Decode an image of the journal."""
        attributes = _decode(image)
        targets = attributes.get("_targets")
        values = self._values(type_name, attributes)
        return Element(id, type_name, values, tuple(targets) if targets is not None else None)

    def _values(self, type_name: str, attributes: dict[str, Any]) -> tuple[Any, ...]:
        for name, convert in self._decoders[type_name]:
            value = attributes.get(name)
            if value is not None:
                attributes[name] = convert(value)
        return tuple([attributes.get(name) for name in self._names[type_name]])


_RESERVED = frozenset({"id", "_type", "_targets"})


def _image_header(element: Element) -> dict[str, Any]:
    head: dict[str, Any] = {"id": element.id, "_type": element.type}
    if element.targets is not None:
        head["_targets"] = element.targets
    return head


def _converters(
    holder: NodeType | EdgeType, pick: Callable[[AttributeType], Convert | None]
) -> Sequence[tuple[str, Convert]]:
    found = ((name, pick(attribute)) for name, attribute in holder.attributes.items())
    return tuple((name, convert) for name, convert in found if convert is not None)


def _encoder(attribute: AttributeType) -> Convert | None:
    match attribute.type.kind:
        case "Timestamp":
            return timestamp_to_text
        case "Duration":
            return duration_to_ms
        case "Float":
            return _float_to_json
        case "Union" | "Any" | "List":
            return encode_tagged
    return None


def _decoder(attribute: AttributeType) -> Convert | None:
    match attribute.type.kind:
        case "Timestamp":
            return timestamp_from_text
        case "Duration":
            return duration_from_ms
        case "Float":
            return float
        case "Union" | "Any" | "List":
            return decode_tagged
    return None


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def encode_tagged(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"$timestamp": timestamp_to_text(value)}
    if isinstance(value, timedelta):
        return {"$duration": duration_to_ms(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": _float_to_json(value)}
    return [encode_tagged(item) for item in value] if isinstance(value, list) else value


_TAGS: dict[str, Convert] = {
    "$timestamp": timestamp_from_text,
    "$duration": duration_from_ms,
    "$float": float,
}


def decode_tagged(value: Any) -> Any:
    if isinstance(value, dict):
        ((tag, inner),) = value.items()
        return _TAGS[tag](inner)
    return [decode_tagged(item) for item in value] if isinstance(value, list) else value
