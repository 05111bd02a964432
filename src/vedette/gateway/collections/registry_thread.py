"""The gateway's thread for journal and registry: looks up sources, reads snapshots, registers, renews, unregisters.

The engine's thread never waits for these stores. It posts jobs here; what came of them is called back on the engine's
thread, in the order of the jobs. Jobs that wait together share a transaction, so that a crowd that comes back after a
restart costs a few of them.

A gateway is entered for a time and keeps its place by renewing it. If it fails to (the process was stopped, the store
was away for longer than the lease), the pipeline has given it up and its deliveries with it: everything begins anew.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, NamedTuple

from vedette.clock import Clock
from vedette.errors import PipelineError, SourceError, VedetteError
from vedette.filters.document_filter import FilterInput
from vedette.gateway.collections.snapshot import DocumentPredicate, Documents, PartitionPosition, documents_at
from vedette.gateway.collections.stream import CollectionRequest, SavedCollectionStream
from vedette.sources.journal.seam import CollectionJournal, open_journal
from vedette.sources.records import Partition
from vedette.subscriptions.registry.registry import Quotas, SubscriptionRegistry, SubscriptionRequest

__all__ = [
    "RegisterJob",
    "RegistryThread",
    "SnapshotJob",
    "SnapshotRead",
    "StreamRegistered",
    "UnregisterJob",
]

log = logging.getLogger(__name__)
LEASE_SECONDS = 15.0
"""How long the pipeline waits for a gateway that does not answer."""
REGISTRATION_TTL_SECONDS = 300.0
"""How long a registered subscription lasts when it is not renewed (spec/pipeline.md §2.4)."""
BATCH = 1_000
"""Jobs that share a transaction."""


class StreamRegistered(NamedTuple):
    """A subscription stands at the registry."""

    numbers: tuple[int, ...]
    version: int
    start_offset: int
    collections: dict[str, str]
    """As the journal calls them ▸ as the client does."""
    epochs: dict[int, int]
    """The source's partitions and their epochs, no younger than the boundary."""
    states: Mapping[int, str]
    """How its partitions are told: live, stale, or behind (shedding, degraded)."""
    documents: Documents | None


class SnapshotRead(NamedTuple):
    """What a subscriber who comes later begins with."""

    offset: int
    documents: Documents


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterJob:
    """Register a subscription; `ids` are the gateway's names of it, one for each collection."""

    registration_ids: tuple[str, ...]
    tenant: str
    wanted: CollectionRequest
    done: Callable[[StreamRegistered | VedetteError], None]
    left: SavedCollectionStream | None = None
    """It goes on from here, and begins with nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotJob:
    """Read what a stream had been told by a certain place."""

    tenant: str
    collections: Mapping[str, str]
    """As the journal calls them ▸ as the client does."""
    wanted: CollectionRequest
    after: int
    told: Mapping[int, PartitionPosition] | None
    done: Callable[[SnapshotRead | VedetteError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterJob:
    registration_ids: tuple[str, ...]


Job = RegisterJob | SnapshotJob | UnregisterJob


class _Ready(NamedTuple):
    """An opening that only needs to be registered."""

    job: RegisterJob
    requests: list[SubscriptionRequest]
    opened: StreamRegistered


class RegistryThread:
    """`post` from the engine's thread. Started with the first job."""

    def __init__(
        self,
        store: str | Path,
        *,
        name: str,
        address: str,
        quotas: Quotas,
        clock: Clock,
        call: Callable[[Callable[[], object]], None],
        lapsed: Callable[[], None],
        removed: Callable[[str], None],
    ) -> None:
        """`call` has something done on the engine's thread: `lapsed`, when the lease was lost, and `removed`, with
        its name when a source is no longer there.
        """
        self._store, self._name, self._address = store, name, address
        self._quotas, self._clock = quotas, clock
        self._call, self._lapsed, self._removed = call, lapsed, removed
        self._jobs: deque[Job] = deque()
        self._bell = Flag()
        self._stopping = False
        self._thread: Thread | None = None
        self._journal: CollectionJournal | None = None
        self._registry: SubscriptionRegistry | None = None
        self._registered_ids: set[str] = set()
        """Ids that are registered."""
        self._unanswered: set[int] = set()
        """Jobs of the present batch, by their identity."""
        self._number = 0
        self._sources: set[str] = set()
        self._lease_ends = self._renew_at = 0.0

    @property
    def call(self) -> Callable[[Callable[[], object]], None]:
        """Has something done on the engine's thread, from any other."""
        return self._call

    def start(self) -> None:
        """Begin, once: what a former life of this gateway has left at the registry is cleared away."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="vedette-registrar", daemon=True)
            self._thread.start()

    def post(self, job: Job) -> None:
        self.start()
        self._jobs.append(job)
        self._bell.set()

    def stop(self) -> None:
        """End in good order: the pipeline need not wait for this gateway."""
        self._stopping = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping or self._jobs:
            if not self._jobs:
                self._bell.wait(LEASE_SECONDS / 3)
            self._bell.clear()
            self.run_batch()
        self._leave()

    def run_batch(self) -> None:
        """Keep our place and do what waits, as much as shares a transaction."""
        jobs = [self._jobs.popleft() for _ in range(min(BATCH, len(self._jobs)))]
        self._unanswered = {id(job) for job in jobs}
        try:
            self._register_stream()
            self._renew_lease(certainly=any(isinstance(job, RegisterJob) for job in jobs))
            self._work(jobs)
        except VedetteError as error:
            self._failed(jobs, error)
        except Exception:
            extra = {"action": "registrar.failed", "gateway": self._name}
            log.exception("The registry thread failed", extra=extra)
            self._failed(jobs, PipelineError("E6303", "internal error; the log has it"))

    def _register_stream(self) -> None:
        if self._registry is None:
            self._journal = open_journal(self._store, self._clock)
            self._registry = SubscriptionRegistry(self._store, clock=self._clock, quotas=self._quotas)
            self._begin()

    def _begin(self) -> None:
        assert self._registry is not None
        self._registered_ids.clear()
        self._registry.release_lease(self._name)
        self._number = self._join()
        self._renew_at = self._clock.monotonic() + REGISTRATION_TTL_SECONDS / 2

    def _join(self) -> int:
        """Prolong the lease; the gateway's number, which is another one when it had been given up."""
        assert self._registry is not None
        now = self._clock.monotonic()
        number = self._registry.acquire_lease(self._name, self._address, LEASE_SECONDS).number
        self._lease_ends = now + LEASE_SECONDS
        return number

    def _renew_lease(self, *, certainly: bool) -> None:
        """Renew the lease when a third of it is over, and the subscriptions when half of their time is.

        `certainly`: somebody is about to be registered, and whoever has lost its place cannot register anybody.
        """
        assert self._registry is not None
        now = self._clock.monotonic()
        lost = now >= self._lease_ends
        if not lost and (certainly or now >= self._lease_ends - LEASE_SECONDS * 2 / 3):
            lost = self._join() != self._number
            self._look_at_sources()
        if not lost and now >= self._renew_at:
            lost = self._registry.renew(self._name, REGISTRATION_TTL_SECONDS) < len(self._registered_ids)
            self._renew_at = now + REGISTRATION_TTL_SECONDS / 2
        if lost:
            extra = {"action": "gateway.lease_lost", "gateway": self._name}
            log.error("Gateway %s lost its lease; its subscribers must resync", self._name, extra=extra)
            self._begin()
            self._call(self._lapsed)

    def _look_at_sources(self) -> None:
        assert self._journal is not None
        known, self._sources = self._sources, {source.name for source in self._journal.sources()}
        for name in sorted(known - self._sources):
            self._call(partial(self._removed, name))

    def _leave(self) -> None:
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

    def _work(self, jobs: Sequence[Job]) -> None:
        """Openings of a batch are registered together; all else is done in its turn."""
        ready: list[_Ready] = []
        for job in jobs:
            match job:
                case RegisterJob():
                    prepared = self._prepared(job)
                    if prepared is not None:
                        ready.append(prepared)
                case SnapshotJob():
                    self._look(job)
                case UnregisterJob():
                    continue
        self._register(ready)
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

    def _prepared(self, job: RegisterJob) -> _Ready | None:
        """Look at the source and read the snapshot; what cannot be is said, and nothing comes of it."""
        assert self._journal is not None
        assert self._registry is not None
        wanted = job.wanted
        try:
            modes = self._registry.modes()
            collections, sources = _known(self._journal, job.tenant, wanted.collections)
            self._sources.update(sources)
            partitions = [part for source in sources for part in self._journal.partitions(source)]
            documents = None
            boundary = self._journal.last_offset() if job.left is None else job.left.after
            if job.left is not None:
                _check_epochs(job.left, partitions)
            elif wanted.snapshot:
                boundary, documents = documents_at(
                    self._journal, job.tenant, list(collections), _condition(wanted, collections)
                )
        except VedetteError as error:
            self._answer(job, error)
            return None
        requests = [
            SubscriptionRequest(
                id=id,
                tenant=job.tenant,
                collection=collection,
                form=wanted.form_of(shown),
                boundary=boundary,
                low_priority=wanted.low_priority,
            )
            for id, (collection, shown) in zip(job.registration_ids, collections.items(), strict=True)
        ]
        epochs = {partition.id: partition.epoch for partition in partitions}
        states = {partition.id: modes.get(partition.id, partition.state) for partition in partitions}
        return _Ready(
            job, requests, StreamRegistered((), 0, boundary, collections, epochs, states, documents)
        )

    def _register(self, ready: Sequence[_Ready]) -> None:
        """All in one transaction; when one cannot be, each for itself."""
        assert self._registry is not None
        if not ready:
            return
        try:
            requests = [request for one in ready for request in one.requests]
            numbers = self._registry.register(self._name, requests, REGISTRATION_TTL_SECONDS)
        except VedetteError as error:
            if len(ready) == 1:
                self._answer(ready[0].job, error)
                return
            for one in ready:
                self._register([one])
            return
        self._registered_ids.update(id for one in ready for id in one.job.registration_ids)
        version, given = self._registry.version_of(numbers[0]), iter(numbers)
        for job, requests, opened in ready:
            own = tuple(next(given) for _ in requests)
            self._answer(job, opened._replace(numbers=own, version=version))

    def _look(self, job: SnapshotJob) -> None:
        assert self._journal is not None
        try:
            found = documents_at(
                self._journal,
                job.tenant,
                list(job.collections),
                _condition(job.wanted, job.collections),
                after=job.after,
                told=job.told,
            )
        except VedetteError as error:
            self._answer(job, error)
            return
        self._answer(job, SnapshotRead(*found))

    def _failed(self, jobs: Sequence[Job], error: VedetteError) -> None:
        extra = {"action": "registrar.failed", "gateway": self._name, "code": error.code}
        log.error("The journal or the subscription registry failed: %s", error, extra=extra)
        for job in jobs:
            if not isinstance(job, UnregisterJob):
                self._answer(job, error)
        endings = [job for job in jobs if isinstance(job, UnregisterJob)]
        if endings and not self._stopping:  # they are tried again; whoever leaves ends all of them
            self._jobs.extendleft(reversed(endings))
            self._bell.wait(1.0)

    def _answer(self, job: RegisterJob | SnapshotJob, outcome: Any) -> None:
        """Once: what fails later in a batch does not take back what was said."""
        if id(job) in self._unanswered:
            self._unanswered.discard(id(job))
            self._call(lambda: job.done(outcome))


def _known(
    journal: CollectionJournal, tenant: str, wanted: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Collections as the journal calls them ▸ as they were named, and their sources; E6103 when one is not there.

    A node type that comes through the graph's log has no name in front of it in the journal.
    """
    sources = {source.name: source for source in journal.sources() if source.tenant == tenant}
    found: dict[str, str] = {}
    for shown in wanted:
        name, _, collection = shown.partition("::")
        if name not in sources:
            text = (
                f"there is no source '{name}' of this database, so {shown} cannot be watched: "
                "`vedette source add` adds one"
            )
            raise SourceError("E6103", text, fields={"source": name})
        found[collection if sources[name].kind == "graph" else shown] = shown
    return found, sorted({shown.partition("::")[0] for shown in wanted})


def _check_epochs(left: SavedCollectionStream, partitions: Sequence[Partition]) -> None:
    if left.epochs != {partition.id: partition.epoch for partition in partitions}:
        raise PipelineError("E6303", "the source has lost its past meanwhile: subscribe again")


def _condition(wanted: CollectionRequest, collections: Mapping[str, str]) -> DocumentPredicate:
    def holds(collection: str, key: str, document: Mapping[str, Any]) -> bool:
        environment = FilterInput(doc=document, id=key, collection=collection, op="create")
        return wanted.holds(collections[collection], environment)

    return holds
