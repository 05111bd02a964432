"""A gateway's thread for journal and registry: what fails is answered, and it ends whatever the store does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

from vedette.clock import SystemClock
from vedette.errors import StoreError, VedetteError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.document_filter import compile_filter
from vedette.gateway.collections.registry_thread import (
    RegisterJob,
    RegistryThread,
    SnapshotJob,
    StreamRegistered,
    UnregisterJob,
)
from vedette.gateway.collections.stream import CollectionRequest
from vedette.subscriptions.registry.registry import Quotas
from vedette.subscriptions.spec import SubscriptionSpec

WANTED = CollectionRequest(
    key=b"k",
    collections=("shop::orders",),
    form=SubscriptionSpec(kind="cel", source="true"),
    condition=compile_filter(parse_cel("true")),
)


def test_a_store_that_is_not_there_is_said_and_holds_nobody_up(tmp_path: Path):
    answers: list[StreamRegistered | VedetteError] = []

    def call(work: Callable[[], object]) -> None:
        work()

    registrar = RegistryThread(
        tmp_path / "nowhere" / "collections.db",
        name="engine",
        address="in",
        quotas=Quotas(),
        clock=SystemClock(),
        call=call,
        on_lease_lost=lambda: None,
        on_source_removed=lambda _: None,
    )
    registrar.post(
        RegisterJob(registration_ids=("1",), tenant="default", request=WANTED, done=answers.append)
    )
    registrar.post(
        SnapshotJob(
            tenant="default",
            collections={},
            request=WANTED,
            after=0,
            published=None,
            done=answers.append,  # type: ignore[arg-type]
        )
    )
    registrar.post(UnregisterJob(registration_ids=("1",)))
    stopping = Thread(target=registrar.stop)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    assert len(answers) == 2
    assert all(isinstance(answer, StoreError) for answer in answers)
