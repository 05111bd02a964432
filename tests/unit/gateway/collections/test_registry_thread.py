"""The registry thread: a job whose store fails is answered with the error, and the thread still stops."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

from vedette.clock import SystemClock
from vedette.errors import StoreError
from vedette.filters.cel_parser import parse_cel
from vedette.filters.document_filter import compile_filter
from vedette.gateway.collections.queries import CollectionRequest
from vedette.gateway.collections.registry_thread import (
    JobFailed,
    RegisterJob,
    RegistryThread,
    SnapshotJob,
    UnregisterJob,
)
from vedette.subscriptions.registry.quotas import Quotas
from vedette.subscriptions.spec import SubscriptionSpec

REQUEST = CollectionRequest(
    key=b"k",
    collections=("shop::orders",),
    spec=SubscriptionSpec(kind="cel", source="true"),
    condition=compile_filter(parse_cel("true")),
)


def test_jobs_on_a_missing_store_fail_and_the_thread_stops(tmp_path: Path):
    results: list[Any] = []
    thread = RegistryThread(
        tmp_path / "nowhere" / "collections.db",
        name="engine",
        address="in",
        quotas=Quotas(),
        clock=SystemClock(),
        post_event=results.append,
    )
    thread.post(RegisterJob(job_id=1, registration_ids=("1",), tenant="default", request=REQUEST))
    thread.post(
        SnapshotJob(job_id=2, tenant="default", collections={}, request=REQUEST, after=0, published=None)
    )
    thread.post(UnregisterJob(registration_ids=("1",)))
    stopping = Thread(target=thread.stop)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    assert [result.job_id for result in results] == [1, 2]
    assert all(isinstance(result, JobFailed) and isinstance(result.error, StoreError) for result in results)
