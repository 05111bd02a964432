"""A shop with many subscribers: 20 filter shapes, and orders that each match about five subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from vedette.pipeline.schema import CHANGE_ROWS, journal_rows_to_batch
from vedette.sources.images import encode_image
from vedette.sources.records import ChangeRow
from vedette.subscriptions.index.segment_writer import SegmentEntry, write_segment
from vedette.subscriptions.index.versions import CollectionFiles, Manifest, SegmentFile
from vedette.subscriptions.spec import SubscriptionSpec, split_constants

__all__ = ["FIELDS", "Shop", "orders", "write_index"]

FIELDS = ("status", "region", "owner", "sku", "city")
SHAPES = 20
MATCHES = 5.0
"""Approximate number of subscriptions that match an order."""
COLLECTION = "shop::orders"


@dataclass(frozen=True)
class Shop:
    """Each field has `values` different values, so that a change matches about MATCHES subscriptions."""

    subscriptions: int
    seed: int = 7

    @property
    def values(self) -> int:
        return max(4, int(self.subscriptions * 1.75 / MATCHES))

    def source(self, number: int, chance: Random) -> str:
        """Return the CEL text of a subscription."""
        place = number % SHAPES
        one = FIELDS[place % 5]
        other = FIELDS[(place + 1 + place // 5) % 5]
        match self.constants(number, chance):
            case ([value, another],):
                return f"doc.{one} in ['{value}', '{another}']"
            case (value, int(total)):
                return f"doc.{one} == '{value}' && doc.total > {total}"
            case (value, another):
                return f"doc.{one} == '{value}' && doc.{other} == '{another}'"
            case (value,):
                return f"doc.{one} == '{value}'"
        raise AssertionError(number)

    def constants(self, number: int, chance: Random) -> tuple[Any, ...]:
        """Return the constants of a subscription, equal to those that `split_constants` finds in its text."""
        value, another = (f"v{chance.randrange(self.values)}" for _ in range(2))
        match number % SHAPES % 4:
            case 0:
                return (value,)
            case 1:
                return (value, another)
            case 2:
                return (value, chance.randrange(1000))
        return ([value, another],)

    def order(self, chance: Random) -> dict[str, Any]:
        fields: dict[str, Any] = {name: f"v{chance.randrange(self.values)}" for name in FIELDS}
        return fields | {"total": chance.randrange(1000), "note": "a few words about this order"}


def write_index(shop: Shop, folder: Path) -> int:
    """Write the index of all subscriptions, and return its size in bytes."""
    folder.mkdir(parents=True)
    specs = [
        SubscriptionSpec(kind="cel", source=shop.source(number, Random(number))) for number in range(SHAPES)
    ]
    for number, spec in enumerate(specs):
        assert split_constants(spec)[1] == shop.constants(number, Random(number))
    examples, chance = [msgspec.json.encode(spec) for spec in specs], Random(shop.seed)
    entries = [
        SegmentEntry(number, number % 10, 0, 0, examples[number % SHAPES], shop.constants(number, chance), 1)
        for number in range(shop.subscriptions)
    ]
    size = write_segment(folder / "segment.blk", entries)
    files = CollectionFiles(segments=[SegmentFile("segment.blk", 0, 1, len(entries), size)])
    manifest = Manifest(version=1, published_ms=0, collections={"t": {COLLECTION: files}})
    (folder / "v000000000001.json").write_bytes(msgspec.json.encode(manifest))
    return size


def orders(shop: Shop, count: int, *, batch: int) -> Sequence[pa.RecordBatch]:
    """Updates of orders, as the stages receive them."""
    chance = Random(shop.seed + 1)
    before, rows = encode_image(shop.order(chance)), []
    for offset in range(1, count + 1):
        after = encode_image(shop.order(chance))
        row = ChangeRow(
            offset, "shop", "t", offset % 4, 1, offset, f"e{offset}", COLLECTION, f"k{offset}", "update", before,
            after, True, offset, offset, "",
        )  # fmt: skip
        rows.append(row)
        before = after
    return [
        journal_rows_to_batch(rows[start : start + batch], 1, -1).select(CHANGE_ROWS.names)
        for start in range(0, count, batch)
    ]
