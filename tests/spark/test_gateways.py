"""Two engines, each a gateway of its own, on one pipeline: one leaves in mid-stream, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import Any

from tests.spark.conftest import Shop
from tests.spark.processes import Picture, connected, free_port, served
from vedette.pipeline.queries.changes import drain_and_stop, start_changes_query
from vedette.transport.secret import load_or_create_secret

WATCH = "WATCH o: shop::orders WHERE o.total > 100 RETURN o.id, o.total"


@contextmanager
def engine(folder: Path, shop: Shop, secret: bytes) -> Iterator[int]:
    """An engine with a data directory of its own, and journal and registry of the shop: its port."""
    folder.mkdir(exist_ok=True)
    (folder / "vedette.toml").write_text(f'pipeline_store = "{shop.home}"\n')
    (folder / "gateway.secret").write_bytes(secret)
    port = free_port()
    with served(folder, port, "--data", str(folder), "--no-pipeline"):
        yield port


class Upkeep(Thread):
    """Changes documents and publishes new subscriptions, as sources and the driver do, until it is told to end."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(daemon=True)
        self._shop, self._chance, self._over = shop, Random(7), Flag()
        self.documents: dict[str, int] = {}
        self.is_writing = True

    def run(self) -> None:
        while not self._over.wait(0.02):
            self._shop.compactor.publish()
            if self.is_writing:
                key, total = f"k{self._chance.randrange(20)}", self._chance.randrange(200)
                self.documents[key] = total
                self._shop.write((key, {"total": total}))

    def end(self) -> None:
        self._over.set()
        self.join()


def follow(watch: Any, picture: Picture, until: Any) -> None:
    while not until():
        event = watch.next(timeout=240)
        assert event is not None
        picture.take(event)


def test_a_gateway_leaves_and_its_clients_go_to_another(spark: Any, shop: Shop, tmp_path: Path):
    secret = load_or_create_secret(tmp_path)
    shop.registry.release_lease("g1")  # the receiver of other tests: nobody is there
    context = replace(shop.context, ingest_secret=secret.hex())
    upkeep = Upkeep(shop)
    query = start_changes_query(spark, context, tmp_path / "checkpoint", start=0)
    upkeep.start()
    try:
        with ExitStack() as stays:
            port = stays.enter_context(engine(tmp_path / "stays", shop, secret))
            there = stays.enter_context(connected(port)).watch(WATCH)
            undisturbed, moving = Picture(), Picture()
            with engine(tmp_path / "leaves", shop, secret) as other, connected(other) as client:
                watch = client.watch(WATCH)
                follow(watch, moving, lambda: moving.told >= 20)
                follow(there, undisturbed, lambda: undisturbed.told >= 20)
            moving = Picture()  # what one engine told says nothing to another: it begins with what there is
            watch = stays.enter_context(connected(port)).watch(WATCH)
            follow(watch, moving, lambda: moving.told >= 20)
            back, late = stays.enter_context(engine(tmp_path / "leaves", shop, secret)), Picture()
            returned = stays.enter_context(connected(back)).watch(WATCH)
            follow(returned, late, lambda: late.told >= 20)
            upkeep.is_writing = False
            expected = {key: total for key, total in upkeep.documents.items() if total > 100}
            for each, picture in ((there, undisturbed), (watch, moving), (returned, late)):
                follow(each, picture, lambda picture=picture: picture.rows == expected)
    finally:
        upkeep.end()
        drain_and_stop(query)
