"""One Spark session for all Spark tests, because a session takes seconds to start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vedette.pipeline.task import PipelineConfig
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Source, SourceEvent
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.subscriptions.spec import SubscriptionSpec
from vedette.testing.receiver import IngestReceiver

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("spark")
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("no Java: `make setup` installs it if it has permission")
    from vedette.pipeline.session import open_session

    session = open_session(local_dir=tmp_path_factory.mktemp("spark"), ui=False)
    yield session
    session.stop()


@dataclass
class Shop:
    """A data directory with one source, a registry, an index, and a gateway that accepts deliveries."""

    folder: Path
    receiver: IngestReceiver
    journal: CollectionJournal = field(init=False)
    registry: SubscriptionRegistry = field(init=False)
    compactor: Compactor = field(init=False)
    written: int = 0

    def __post_init__(self) -> None:
        self.journal = open_journal(self.folder)
        self.journal.add_source(Source(name="shop", kind="mongodb", address="mongodb://there", partitions=4))
        self.registry = SubscriptionRegistry(self.folder)
        self.registry.acquire_lease("g1", self.receiver.address, 3600)
        self.compactor = Compactor(self.registry, self.folder / "index")

    @property
    def config(self) -> PipelineConfig:
        return PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=self.folder / "index",
            ingest_secret="s",
        )

    def subscribe(self, id: str, source: str, *, kind: Any = "cel", publish: bool = True) -> int:
        request = SubscriptionRequest(
            id=id,
            tenant="default",
            collection="shop::orders",
            boundary=self.journal.last_offset(),
            spec=SubscriptionSpec(kind=kind, source=source),
        )
        (number,) = self.registry.register("g1", [request], 3600)
        if publish:
            self.compactor.publish()
        return number

    def write(
        self,
        *documents: tuple[str, dict[str, Any] | None],
        time_ms: int | None = None,
        collection: str = "shop::orders",
    ) -> int:
        events = []
        for key, document in documents:
            self.written += 1
            image = None if document is None else encode_image(document)
            events.append(
                SourceEvent(
                    event_id=f"e{self.written}",
                    collection=collection,
                    key=key,
                    after=image,
                    created=True,
                    time_ms=self.written if time_ms is None else time_ms,
                )
            )
        return self.journal.append("shop", events, None).offset

    def close(self) -> None:
        self.receiver.close()
        self.journal.close()
        self.registry.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, IngestReceiver(tmp_path / "in", secret="s"))
    yield shop
    shop.close()
