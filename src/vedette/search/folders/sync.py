"""Scan a watched folder once and ingest its changes in this process. `wqm watch sync` does this without a daemon.

A file that failed and may be retried is not recorded as seen, so the next pass finds its change again. A file that
failed permanently is recorded, and is ignored until it changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vedette.clock import Clock
from vedette.errors import FolderError
from vedette.handshake.failures import Failure, FaultDomain
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.rows import WatchRow
from vedette.search.file_queue.tasks import FileOperation
from vedette.search.folders.changes import plan_change
from vedette.search.folders.outcomes import record_file_outcomes
from vedette.search.folders.overlapping_watches import OverlappingWatches, selection_from_config
from vedette.search.ingestion import FileOutcome, IngestRequest, OutcomeStatus, VectorIngestor
from vedette.sources.files.file_stamp import FileChange
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.folder import Folder, ScanOutcome

__all__ = ["FolderSync", "SyncReport", "open_folder"]

BATCH_CHANGES = 64
"""Changes that are ingested together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """The result of one pass, in numbers of files."""

    changes: int = 0
    ingested: int = 0
    unchanged: int = 0
    removed: int = 0
    excluded: int = 0
    failures: tuple[Failure, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """Paths that the scan could not read, each with the reason."""
    stop_reason: str | None = None
    """Why the pass ended before all changes were processed; None if it processed all."""


def open_folder(row: WatchRow, file_states: FileStateStore, clock: Clock) -> Folder:
    """Return the folder of a watch."""
    return Folder(row.watch_id, Path(row.config.path), selection_from_config(row.config), file_states, clock)


class FolderSync:
    def __init__(
        self,
        watch_id: str,
        tables: HandshakeTables,
        file_states: FileStateStore,
        clock: Clock,
        ingestor: VectorIngestor | None = None,
    ) -> None:
        """`ingestor` may be None for `preview`."""
        self._tables, self._clock, self._ingestor = tables, clock, ingestor
        self._row = tables.watch(watch_id)
        self._folder = open_folder(self._row, file_states, clock)

    def preview(self) -> ScanOutcome:
        """Return the changes that `run` would process. Changes nothing."""
        return self._folder.full_scan()

    def run(self, progress: Callable[[int, int], object] = lambda done, total: None) -> SyncReport:
        """Process all changes. Calls `progress(done, total)` after each batch of changes.

        Raises E4503 if the folder is unavailable.
        """
        watch_id, began_at = self._row.watch_id, self._clock.now()
        scan = self._folder.full_scan()
        self._tables.set_availability(watch_id, scan.unavailable_reason)
        if scan.unavailable_reason is not None and not scan.changes:
            raise FolderError(
                "E4503",
                f"{scan.unavailable_reason}: make the folder available again; until then none of its files counts as "
                "deleted",
                fields={"watch_id": watch_id, "path": self._row.config.path},
            )
        report = SyncReport(changes=len(scan.changes), unreadable=tuple(sorted(scan.unreadable.items())))
        done = 0
        for batch in _batches(scan.changes):
            report = self._run_batch(batch, report)
            done += len(batch)
            progress(done, len(scan.changes))
            if report.stop_reason is not None:
                return report
        self._tables.record_scan(watch_id, began_at)
        return report

    def _run_batch(self, batch: Sequence[FileChange], report: SyncReport) -> SyncReport:
        assert self._ingestor is not None, "without an ingestor only `preview` can be called"
        config, now = self._row.config, self._clock.now()
        exclusions = self._tables.exclusions(config.watch_id)
        overlapping = OverlappingWatches(self._tables, config, self._clock)
        requests: list[IngestRequest] = []
        changes: list[FileChange] = []  # the change of each request
        excluded = 0
        for change in batch:
            plan = plan_change(change, config.path.rstrip("/"), exclusions, overlapping.any_needs, now)
            excluded += plan.is_excluded
            for path, operation in plan.operations:
                requests.append(
                    IngestRequest(
                        path=path,
                        watch_id=config.watch_id,
                        collection=config.collection,
                        delete=operation is FileOperation.DELETE,
                    )
                )
                changes.append(change)
        self._folder.mark_pending(batch)
        outcomes = self._ingestor.ingest(requests)
        record_file_outcomes(self._tables, outcomes)
        to_retry = {
            change for change, outcome in zip(changes, outcomes, strict=True) if _will_be_retried(outcome)
        }
        self._folder.commit(change for change in batch if change not in to_retry)
        return _merge(report, outcomes, excluded)


def _batches(changes: Sequence[FileChange]) -> Iterator[Sequence[FileChange]]:
    for start in range(0, len(changes), BATCH_CHANGES):
        yield changes[start : start + BATCH_CHANGES]


def _will_be_retried(outcome: FileOutcome) -> bool:
    return outcome.failure is not None and outcome.failure.policy.retry


def _merge(report: SyncReport, outcomes: Sequence[FileOutcome], excluded: int) -> SyncReport:
    count = Counter(outcome.status for outcome in outcomes)
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    sink_errors = [failure.message for failure in failures if failure.policy.fault_domain is FaultDomain.SINK]
    return replace(
        report,
        ingested=report.ingested + count[OutcomeStatus.INGESTED],
        unchanged=report.unchanged + count[OutcomeStatus.UNCHANGED],
        removed=report.removed + count[OutcomeStatus.REMOVED],
        excluded=report.excluded + excluded,
        failures=(*report.failures, *failures),
        stop_reason=sink_errors[0] if sink_errors else None,
    )
