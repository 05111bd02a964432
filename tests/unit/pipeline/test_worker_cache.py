"""A worker's open stores are reused, bounded in number, and closed in the end."""

from __future__ import annotations

from vedette.pipeline import worker_cache
from vedette.pipeline.worker_cache import ConnectionCache


class Store:
    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False

    def close(self) -> None:
        self.closed = True


def test_a_store_is_opened_once_and_again_after_close():
    stores = ConnectionCache(Store)
    first = stores("a")
    assert stores("a") is first
    stores.close()
    assert first.closed
    assert stores("a") is not first


def test_the_least_recently_used_store_is_closed_above_the_limit():
    stores = ConnectionCache(Store)
    opened = [stores(str(number)) for number in range(worker_cache.MAX_OPEN)]
    stores("0")
    stores("one more")
    assert [store.address for store in opened if store.closed] == ["1"]
