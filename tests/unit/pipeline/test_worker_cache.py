"""What a worker keeps open is closed in the end, and when there is too much of it."""

from __future__ import annotations

import pytest

from vedette.pipeline import worker_cache as kept_open
from vedette.pipeline.worker_cache import ConnectionCache, close_connections


class Store:
    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False

    def close(self) -> None:
        self.closed = True


def test_opened_once_and_closed_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_open, "_tables", [])
    stores = ConnectionCache(Store)
    first = stores("a")
    assert stores("a") is first
    close_connections()
    assert first.closed
    assert stores("a") is not first


def test_the_one_longest_not_asked_for_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_open, "_tables", [])
    stores = ConnectionCache(Store)
    opened = [stores(str(number)) for number in range(kept_open.MAX_OPEN)]
    stores("0")
    stores("one more")
    assert [store.address for store in opened if store.closed] == ["1"]
