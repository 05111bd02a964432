"""Anything may happen to a MongoDB source, in any order: in the end the journal says what the collections say.

Writes, collections that are dropped and come again, appends that fail, before or after they are done, readers that are
killed, places that are lost. One seed makes one storm.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.mongodb.server import mongodb_uri
from tests.unit.sources.test_mongodb_reader import Shop
from vedette.errors import SourceError, StoreError, VedetteError
from vedette.sources import reader as reading
from vedette.sources.images import decode_image
from vedette.sources.mongodb import reader as under_test
from vedette.sources.mongodb.reader import MongodbReader
from vedette.sources.mongodb.reading import key_of, plain
from vedette.sources.reader import _read

__all__ = ["mongodb_uri"]
NAMES = ("orders", "lines", "notes")
KEYS = (1, "1", "a", 2.5, True, "b\0c")


class Storm:
    def __init__(self, shop: Shop, chance: Random) -> None:
        self.shop, self.chance = shop, chance
        self.reader: MongodbReader | None = None
        self.settled = False
        self.append, self.failing = shop.journal.append, ""
        shop.journal.append = self._append  # type: ignore[assignment, method-assign]

    def _append(self, *args: Any) -> Any:
        failing, self.failing = self.failing, ""
        if failing == "before":
            raise StoreError("E6002", "the disk is full")
        done = self.append(*args)
        if failing == "after":
            raise SourceError("E6104", "killed")
        return done

    def write(self) -> None:
        collection, key = self.shop.db[self.chance.choice(NAMES)], self.chance.choice(KEYS)
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                collection.replace_one({"_id": key}, {"n": self.chance.randrange(99)}, upsert=True)
            case 3 | 4:
                collection.update_one({"_id": key}, {"$inc": {"n": 1}})
            case 5:
                collection.delete_one({"_id": key})
            case 6:
                collection.insert_many([{"n": n} for n in range(5)])
            case _ if self.chance.random() < 0.3:
                collection.drop()

    def look(self, failing: str | None = None) -> None:
        if self.reader is None:
            self.reader, self.settled = self.shop.reader(), False
        self.failing = self.chance.choice(["", "", "before", "after"]) if failing is None else failing
        self.reader._look_again = 0.0
        try:
            _read(self.reader, self.shop.journal, self.shop.source, settled=self.settled)
            self.settled = True
        except VedetteError:
            pass
        self.failing = ""

    def die(self) -> None:
        self.reader = None

    def lose(self) -> None:
        """As when the log was cut: what is there is compared anew."""
        self.shop.journal.mark("shop", "stale", "the log was cut")
        self.die()

    def compare(self) -> None:
        for name in NAMES:
            expected = {key_of(each["_id"]): plain(each) for each in self.shop.db[name].find()}
            page = self.shop.journal.snapshot("default", f"shop::{name}")
            assert {key: decode_image(image) for key, image in page.documents} == expected, name
        assert {partition.state for partition in self.shop.journal.partitions()} == {"live"}


def storm(uri: str, home: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (under_test, reading):
        monkeypatch.setattr(module, "CHUNK", 3)
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.0)
    shop, chance = Shop(uri, home), Random(seed)
    wind = Storm(shop, chance)
    acts: list[Callable[[], None]] = [wind.write] * 12 + [wind.look] * 3 + [wind.die, wind.lose]
    try:
        for _ in range(60):
            chance.choice(acts)()
        for _ in range(25):
            wind.look("")
        wind.compare()
    finally:
        shop.close()


@pytest.mark.parametrize("seed", range(1))
def test_the_journal_says_what_the_collections_say(
    mongodb_uri: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    storm(mongodb_uri, tmp_path, seed, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_storms(mongodb_uri: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    storm(mongodb_uri, tmp_path, seed, monkeypatch)
