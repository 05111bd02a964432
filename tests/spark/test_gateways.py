"""Two engines on one pipeline: one stops while changes arrive, and starts again."""

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
from tests.spark.processes import ClientView, connected, free_port, served
from vedette.pipeline.queries.changes import drain_and_stop, start_changes_query
from vedette.transport.secret import load_or_create_secret

WATCH = "WATCH o: shop::orders WHERE o.total > 100 RETURN o.id, o.total"


@contextmanager
def engine(folder: Path, shop: Shop, secret: bytes) -> Iterator[int]:
    """Start an engine with its own data directory and the journal and registry of the shop. Yields its port."""
    folder.mkdir(exist_ok=True)
    (folder / "vedette.toml").write_text(f'pipeline_store = "{shop.folder}"\n')
    (folder / "gateway.secret").write_bytes(secret)
    port = free_port()
    with served(folder, port, "--data", str(folder), "--no-pipeline"):
        yield port


class Maintenance(Thread):
    """Changes documents and publishes new subscriptions, as sources and the driver do."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(daemon=True)
        self._shop, self._random, self._stop_requested = shop, Random(7), Flag()
        self.documents: dict[str, int] = {}
        self.is_writing = True

    def run(self) -> None:
        while not self._stop_requested.wait(0.02):
            self._shop.compactor.publish()
            if self.is_writing:
                key, total = f"k{self._random.randrange(20)}", self._random.randrange(200)
                self.documents[key] = total
                self._shop.write((key, {"total": total}))

    def stop(self) -> None:
        self._stop_requested.set()
        self.join()


def follow(watch: Any, view: ClientView, until: Any) -> None:
    while not until():
        event = watch.next(timeout=240)
        assert event is not None
        view.apply(event)


def test_clients_of_a_stopped_engine_continue_at_another(spark: Any, shop: Shop, tmp_path: Path):
    secret = load_or_create_secret(tmp_path)
    shop.registry.release_lease("g1")  # the receiver of other tests, which is not used here
    config = replace(shop.config, ingest_secret=secret.hex())
    maintenance = Maintenance(shop)
    query = start_changes_query(spark, config, tmp_path / "checkpoint", start=0)
    maintenance.start()
    try:
        with ExitStack() as stays:
            port = stays.enter_context(engine(tmp_path / "stays", shop, secret))
            there = stays.enter_context(connected(port)).watch(WATCH)
            unmoved, moving = ClientView(), ClientView()
            with engine(tmp_path / "leaves", shop, secret) as other, connected(other) as client:
                watch = client.watch(WATCH)
                follow(watch, moving, lambda: moving.events >= 20)
                follow(there, unmoved, lambda: unmoved.events >= 20)
            moving = ClientView()  # tokens of one engine are not valid at another: it starts with a snapshot
            watch = stays.enter_context(connected(port)).watch(WATCH)
            follow(watch, moving, lambda: moving.events >= 20)
            back, late = stays.enter_context(engine(tmp_path / "leaves", shop, secret)), ClientView()
            returned = stays.enter_context(connected(back)).watch(WATCH)
            follow(returned, late, lambda: late.events >= 20)
            maintenance.is_writing = False
            expected = {key: total for key, total in maintenance.documents.items() if total > 100}
            for each, view in ((there, unmoved), (watch, moving), (returned, late)):
                follow(each, view, lambda view=view: view.rows == expected)
    finally:
        maintenance.stop()
        drain_and_stop(query)
