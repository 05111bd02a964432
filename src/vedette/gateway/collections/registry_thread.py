"""Journal and subscription registry I/O of a gateway, on its own thread.

Theory of operation. The engine thread never waits for the journal or the registry. It posts jobs; results are passed
back to the engine thread in the order of the jobs. Jobs that are queued together share one transaction, so a restart,
after which many clients resubscribe, costs only a few transactions.

A gateway holds a lease at the registry and renews it. If the lease expires (the process was suspended, or the store was
unreachable for too long), the pipeline stops delivering to this gateway. The thread then acquires a new lease, and all
streams must resync.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, NamedTuple

from vedette.clock import Clock
from vedette.errors import PipelineError, SourceError, VedetteError
from vedette.filters.inputs import FilterInput
from vedette.gateway.collections.queries import CollectionRequest, SavedCollectionStream
from vedette.gateway.collections.snapshot import DocumentPredicate, Documents, PartitionPosition, documents_at
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Partition
from vedette.subscriptions.registry.quotas import Quotas
from vedette.subscriptions.registry.records import SubscriptionRequest
from vedette.subscriptions.registry.registry import SubscriptionRegistry

__all__ = [
    "JobFailed",
    "LeaseLost",
    "RegisterJob",
    "RegistryThread",
    "SnapshotJob",
    "SnapshotRead",
    "SourceRemoved",
    "StreamRegistered",
    "UnregisterJob",
]

log = logging.getLogger(__name__)
LEASE_SECONDS = 15.0
"""Lease time. The pipeline stops waiting for an unresponsive gateway after this time."""
REGISTRATION_TTL_SECONDS = 300.0
"""Time after which a registered subscription expires if it is not renewed."""
MAX_BATCH_JOBS = 1_000
"""Maximum number of jobs in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterJob:
    """Register a stream at the registry, with a snapshot if its request asks for one."""

    job_id: int
    registration_ids: tuple[str, ...]
    """This gateway's ids for the stream, one per collection."""
    tenant: str
    request: CollectionRequest
    saved: SavedCollectionStream | None = None
    """Saved state of a restored stream; such a stream gets no snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotJob:
    """Read the documents that a stream has published up to a position."""

    job_id: int
    tenant: str
    collections: Mapping[str, str]
    """Collection name in the journal ▸ name used by the client."""
    request: CollectionRequest
    after: int
    published: Mapping[int, PartitionPosition] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterJob:
    """Remove registrations. It has no result."""

    registration_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRegistered:
    """Result of a `RegisterJob`: the registry accepted the subscription."""

    job_id: int
    registration_ids: tuple[str, ...]
    subscription_ids: tuple[int, ...] = ()
    """Numeric ids assigned by the registry, one per collection."""
    version: int = 0
    """Registry version that contains the subscription."""
    start_offset: int
    """Journal offset of the snapshot; the pipeline delivers every later change."""
    collections: dict[str, str]
    """Collection name in the journal ▸ name used by the client."""
    epochs: dict[int, int]
    """Epoch of each partition of the sources, read no earlier than `start_offset`."""
    states: Mapping[int, str]
    """Delivery state by partition: live, stale, or lagging (shedding, degraded)."""
    documents: Documents | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRead:
    """Result of a `SnapshotJob`: documents as of `offset`."""

    job_id: int
    offset: int
    documents: Documents


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed:
    """Result of a job that failed."""

    job_id: int
    error: VedetteError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """The gateway lost its lease: the pipeline has stopped delivering to it for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRemoved:
    """A source no longer exists."""

    name: str


Job = RegisterJob | SnapshotJob | UnregisterJob


class _PreparedRegistration(NamedTuple):
    """A prepared `RegisterJob` that only needs its registration."""

    requests: list[SubscriptionRequest]
    result: StreamRegistered
    """The result, still without subscription ids and version."""


class RegistryThread:
    """Executes jobs. `post` is called on the engine thread; the first job starts the thread."""

    def __init__(
        self,
        store: str | Path,
        *,
        name: str,
        address: str,
        quotas: Quotas,
        clock: Clock,
        post_event: Callable[[Any], None],
    ) -> None:
        """`post_event` passes a result, `LeaseLost` or `SourceRemoved` to the engine thread."""
        self._store, self._name, self._address = store, name, address
        self._quotas, self._clock, self._post_event = quotas, clock, post_event
        self._jobs: deque[Job] = deque()
        self._wake = Flag()
        self._stopping = False
        self._thread: Thread | None = None
        self._journal: CollectionJournal | None = None
        self._registry: SubscriptionRegistry | None = None
        self._registered_ids: set[str] = set()
        """Ids currently registered."""
        self._unanswered: set[int] = set()
        """Ids of the jobs of the current batch that have no result yet."""
        self._lease_number = 0
        self._sources: set[str] = set()
        self._lease_ends = self._renew_at = 0.0

    def start(self) -> None:
        """Start the thread once. Registrations left by an earlier process of this gateway are removed."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="vedette-registry", daemon=True)
            self._thread.start()

    def post(self, job: Job) -> None:
        self.start()
        self._jobs.append(job)
        self._wake.set()

    def stop(self) -> None:
        """Finish queued jobs and release the lease, so that the pipeline does not wait for this gateway."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping or self._jobs:
            if not self._jobs:
                self._wake.wait(LEASE_SECONDS / 3)
            self._wake.clear()
            self.run_batch()
        self._release_lease()

    def run_batch(self) -> None:
        """Renew the lease if it is due, then execute up to `MAX_BATCH_JOBS` queued jobs in one transaction."""
        jobs = [self._jobs.popleft() for _ in range(min(MAX_BATCH_JOBS, len(self._jobs)))]
        self._unanswered = {job.job_id for job in jobs if not isinstance(job, UnregisterJob)}
        try:
            self._open_stores()
            self._renew_lease(force=any(isinstance(job, RegisterJob) for job in jobs))
            self._execute(jobs)
        except VedetteError as error:
            self._fail(jobs, error)
        except Exception:
            extra = {"action": "registry_thread.failed", "gateway": self._name}
            log.exception("The registry thread failed", extra=extra)
            self._fail(jobs, PipelineError("E6303", "internal error; see the server log"))

    def _open_stores(self) -> None:
        if self._registry is None:
            self._journal = open_journal(self._store, self._clock)
            self._registry = SubscriptionRegistry(self._store, clock=self._clock, quotas=self._quotas)
            self._acquire_new_lease()

    def _acquire_new_lease(self) -> None:
        assert self._registry is not None
        self._registered_ids.clear()
        self._registry.release_lease(self._name)
        self._lease_number = self._extend_lease()
        self._renew_at = self._clock.monotonic() + REGISTRATION_TTL_SECONDS / 2

    def _extend_lease(self) -> int:
        """Acquire or extend the lease and return its number. A new number means that the lease was lost."""
        assert self._registry is not None
        now = self._clock.monotonic()
        number = self._registry.acquire_lease(self._name, self._address, LEASE_SECONDS).number
        self._lease_ends = now + LEASE_SECONDS
        return number

    def _renew_lease(self, *, force: bool) -> None:
        """Renew the lease after a third of its time, and the registrations after half of theirs.

        `force` renews the lease now. Use it before registering, because a gateway without a lease cannot register.
        """
        assert self._registry is not None
        now = self._clock.monotonic()
        lost = now >= self._lease_ends
        if not lost and (force or now >= self._lease_ends - LEASE_SECONDS * 2 / 3):
            lost = self._extend_lease() != self._lease_number
            self._check_sources()
        if not lost and now >= self._renew_at:
            lost = self._registry.renew(self._name, REGISTRATION_TTL_SECONDS) < len(self._registered_ids)
            self._renew_at = now + REGISTRATION_TTL_SECONDS / 2
        if lost:
            extra = {"action": "gateway.lease_lost", "gateway": self._name}
            log.error("Gateway %s lost its lease; its subscribers must resync", self._name, extra=extra)
            self._acquire_new_lease()
            self._post_event(LeaseLost())

    def _check_sources(self) -> None:
        assert self._journal is not None
        known, self._sources = self._sources, {source.name for source in self._journal.sources()}
        for name in sorted(known - self._sources):
            self._post_event(SourceRemoved(name=name))

    def _release_lease(self) -> None:
        if self._registry is None or self._journal is None:
            return
        try:
            self._registry.release_lease(self._name)
        except VedetteError as error:
            extra = {"action": "gateway.leave_failed", "gateway": self._name}
            log.warning("Gateway %s could not leave the registry: %s", self._name, error, extra=extra)
        self._registry.close()
        self._journal.close()

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _execute(self, jobs: Sequence[Job]) -> None:
        """Execute jobs. All registrations of the batch share one call; unregistrations come last."""
        prepared_jobs: list[_PreparedRegistration] = []
        for job in jobs:
            match job:
                case RegisterJob():
                    prepared = self._prepare(job)
                    if prepared is not None:
                        prepared_jobs.append(prepared)
                case SnapshotJob():
                    self._read_snapshot(job)
                case UnregisterJob():
                    continue
        self._register(prepared_jobs)
        ended = [
            id
            for job in jobs
            if isinstance(job, UnregisterJob)
            for id in job.registration_ids
            if id in self._registered_ids
        ]
        if ended:
            assert self._registry is not None
            self._registry.unregister(self._name, ended)
            self._registered_ids.difference_update(ended)

    def _prepare(self, job: RegisterJob) -> _PreparedRegistration | None:
        """Look up the sources and read the snapshot. On failure, answer the job with the error and return None."""
        assert self._journal is not None
        assert self._registry is not None
        request = job.request
        try:
            modes = self._registry.modes()
            collections, sources = _resolve_collections(self._journal, job.tenant, request.collections)
            self._sources.update(sources)
            partitions = [part for source in sources for part in self._journal.partitions(source)]
            documents = None
            boundary = self._journal.last_offset() if job.saved is None else job.saved.after
            if job.saved is not None:
                _check_epochs(job.saved, partitions)
            elif request.snapshot:
                boundary, documents = documents_at(
                    self._journal, job.tenant, list(collections), _predicate(request, collections)
                )
        except VedetteError as error:
            self._answer(JobFailed(job_id=job.job_id, error=error))
            return None
        requests = [
            SubscriptionRequest(
                id=id,
                tenant=job.tenant,
                collection=collection,
                spec=request.spec_of(shown),
                boundary=boundary,
                low_priority=request.low_priority,
            )
            for id, (collection, shown) in zip(job.registration_ids, collections.items(), strict=True)
        ]
        epochs = {partition.id: partition.epoch for partition in partitions}
        states = {partition.id: modes.get(partition.id, partition.state) for partition in partitions}
        result = StreamRegistered(
            job_id=job.job_id,
            registration_ids=job.registration_ids,
            start_offset=boundary,
            collections=collections,
            epochs=epochs,
            states=states,
            documents=documents,
        )
        return _PreparedRegistration(requests, result)

    def _register(self, ready: Sequence[_PreparedRegistration]) -> None:
        """Register all in one transaction. If that fails, register each one separately."""
        assert self._registry is not None
        if not ready:
            return
        try:
            requests = [request for each in ready for request in each.requests]
            assigned = self._registry.register(self._name, requests, REGISTRATION_TTL_SECONDS)
        except VedetteError as error:
            if len(ready) == 1:
                self._answer(JobFailed(job_id=ready[0].result.job_id, error=error))
                return
            for each in ready:
                self._register([each])
            return
        self._registered_ids.update(id for each in ready for id in each.result.registration_ids)
        version, remaining = self._registry.version_of(assigned[0]), iter(assigned)
        for own_requests, result in ready:
            ids = tuple(next(remaining) for _ in own_requests)
            self._answer(replace(result, subscription_ids=ids, version=version))

    def _read_snapshot(self, job: SnapshotJob) -> None:
        assert self._journal is not None
        try:
            offset, documents = documents_at(
                self._journal,
                job.tenant,
                list(job.collections),
                _predicate(job.request, job.collections),
                after=job.after,
                published=job.published,
            )
        except VedetteError as error:
            self._answer(JobFailed(job_id=job.job_id, error=error))
            return
        self._answer(SnapshotRead(job_id=job.job_id, offset=offset, documents=documents))

    def _fail(self, jobs: Sequence[Job], error: VedetteError) -> None:
        extra = {"action": "registry_thread.failed", "gateway": self._name, "code": error.code}
        log.error("The journal or the subscription registry failed: %s", error, extra=extra)
        for job in jobs:
            if not isinstance(job, UnregisterJob):
                self._answer(JobFailed(job_id=job.job_id, error=error))
        unregister_jobs = [job for job in jobs if isinstance(job, UnregisterJob)]
        # retry them later; when stopping, `_release_lease` releases all registrations anyway
        if unregister_jobs and not self._stopping:
            self._jobs.extendleft(reversed(unregister_jobs))
            self._wake.wait(1.0)

    def _answer(self, result: StreamRegistered | SnapshotRead | JobFailed) -> None:
        """Post the result of a job once. A later failure in the same batch does not answer the job again."""
        if result.job_id in self._unanswered:
            self._unanswered.discard(result.job_id)
            self._post_event(result)


def _resolve_collections(
    journal: CollectionJournal, tenant: str, names: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Return journal name ▸ client name of the collections, and the names of their sources. Raise E6103 if a source
    does not exist.

    In the journal, a node type of a graph source has no source prefix.
    """
    sources = {source.name: source for source in journal.sources() if source.tenant == tenant}
    found: dict[str, str] = {}
    for shown in names:
        name, _, collection = shown.partition("::")
        if name not in sources:
            text = (
                f"this database has no source '{name}', so {shown} cannot be watched: "
                "`vedette source add` adds one"
            )
            raise SourceError("E6103", text, fields={"source": name})
        found[collection if sources[name].kind == "graph" else shown] = shown
    return found, sorted({shown.partition("::")[0] for shown in names})


def _check_epochs(saved: SavedCollectionStream, partitions: Sequence[Partition]) -> None:
    if saved.epochs != {partition.id: partition.epoch for partition in partitions}:
        raise PipelineError("E6303", "the source has lost part of its history: subscribe again")


def _predicate(request: CollectionRequest, collections: Mapping[str, str]) -> DocumentPredicate:
    def holds(collection: str, key: str, document: Mapping[str, Any]) -> bool:
        environment = FilterInput(doc=document, id=key, collection=collection, op="create")
        return request.matches(collections[collection], environment)

    return holds
