"""Random steps on a MongoDB source: in the end the journal has the documents of the collections.

Steps are writes, dropped and recreated collections, appends that fail before or after the commit, killed readers and
lost positions. Each seed is one sequence of steps.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.support.mongodb_server import mongodb_uri
from tests.support.source_storm import SourceStorm, append_in_pieces
from tests.unit.sources.mongodb.test_reader import Shop
from vedette.sources.images import decode_image
from vedette.sources.mongodb import reader as under_test
from vedette.sources.mongodb.change_events import document_key, to_document_value

__all__ = ["mongodb_uri"]
NAMES = ("orders", "lines", "notes")
KEYS = (1, "1", "a", 2.5, True, "b\0c")


class Storm(SourceStorm):
    def write(self) -> None:
        collection, key = self.shop.db[self.rng.choice(NAMES)], self.rng.choice(KEYS)
        match self.rng.randrange(8):
            case 0 | 1 | 2:
                collection.replace_one({"_id": key}, {"n": self.rng.randrange(99)}, upsert=True)
            case 3 | 4:
                collection.update_one({"_id": key}, {"$inc": {"n": 1}})
            case 5:
                collection.delete_one({"_id": key})
            case 6:
                collection.insert_many([{"n": n} for n in range(5)])
            case _ if self.rng.random() < 0.3:
                collection.drop()

    def lose_position(self) -> None:
        """The oplog was trimmed: the documents are compared again."""
        self.shop.journal.set_state("shop", "stale", "the log was cut")
        self.kill_reader()

    def compare(self) -> None:
        for name in NAMES:
            expected = {
                document_key(each["_id"]): to_document_value(each) for each in self.shop.db[name].find()
            }
            page = self.shop.journal.snapshot("default", f"shop::{name}")
            assert {key: decode_image(image) for key, image in page.documents} == expected, name


def storm(uri: str, data_directory: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    append_in_pieces(monkeypatch, under_test)
    run = Storm(Shop(uri, data_directory), Random(seed))
    run.run_steps(
        [run.write] * 12 + [run.poll_once] * 3 + [run.kill_reader, run.lose_position],
        times=60,
        polls=25,
    )


@pytest.mark.parametrize("seed", range(1))
def test_journal_equals_the_collections(
    mongodb_uri: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    storm(mongodb_uri, tmp_path, seed, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_storms(mongodb_uri: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    storm(mongodb_uri, tmp_path, seed, monkeypatch)
