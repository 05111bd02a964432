"""One pass over a watched folder in this process: what changed is ingested, and the handshake is told.

`wqm watch sync` runs it when no daemon does. A file that failed and may be tried again is not noted as seen, so that
the next pass finds it; one that failed for good is, until it changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vedette.clock import Clock
from vedette.errors import FolderError
from vedette.handshake.exclusions import find_exclusion
from vedette.handshake.failures import Failure, FaultDomain
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.rows import WatchRow
from vedette.search.folders.overlapping_watches import OverlappingWatches, selection_from_config
from vedette.search.ingestion import FileOutcome, IngestRequest, OutcomeStatus, VectorIngestor
from vedette.sources.files.file_stamp import ChangeKind, FileChange
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.folder import Folder, ScanOutcome

__all__ = ["FolderSync", "SyncReport", "open_folder"]

BATCH_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What a pass did."""

    changes: int = 0
    ingested: int = 0
    unchanged: int = 0
    removed: int = 0
    excluded: int = 0
    failures: tuple[Failure, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """Path ▸ why: what could not be looked at."""
    stop_reason: str | None = None
    """Why it ended early; None when all was done."""


def open_folder(row: WatchRow, seen: FileStateStore, clock: Clock) -> Folder:
    """The folder that a watch is about."""
    return Folder(row.watch_id, Path(row.config.path), selection_from_config(row.config), seen, clock)


class FolderSync:
    def __init__(
        self,
        watch_id: str,
        tables: HandshakeTables,
        seen: FileStateStore,
        clock: Clock,
        ingestion: VectorIngestor | None = None,
    ) -> None:
        """Without an ingestion it can only `look`."""
        self._tables, self._clock, self._ingestion = tables, clock, ingestion
        self._row = tables.watch(watch_id)
        self._folder = open_folder(self._row, seen, clock)

    def preview(self) -> ScanOutcome:
        """What a pass would find; nothing is changed."""
        return self._folder.full_scan()

    def run(self, progress: Callable[[int, int], object] = lambda done, total: None) -> SyncReport:
        """`progress`: files done, and in all."""
        watch_id, began_at = self._row.watch_id, self._clock.now()
        look = self._folder.full_scan()
        self._tables.set_availability(watch_id, look.unavailable_reason)
        if look.unavailable_reason is not None and not look.changes:
            raise FolderError(
                "E4503",
                f"{look.unavailable_reason}: bring it back; nothing of it counts as deleted until then",
                fields={"watch_id": watch_id, "path": self._row.config.path},
            )
        report = SyncReport(changes=len(look.changes), unreadable=tuple(sorted(look.unreadable.items())))
        done = 0
        for batch in _batches(look.changes):
            report = self._run_batch(batch, report)
            done += len(batch)
            progress(done, len(look.changes))
            if report.stop_reason is not None:
                return report
        self._tables.record_scan(watch_id, began_at)
        return report

    def _run_batch(self, batch: Sequence[FileChange], report: SyncReport) -> SyncReport:
        assert self._ingestion is not None, "a run without an ingestion can only look"
        exclusions = self._tables.exclusions(self._row.watch_id)
        now = self._clock.now()
        left = {change for change in batch if find_exclusion(exclusions, self._absolute(change.path), now)}
        others = OverlappingWatches(self._tables, self._row.config, self._clock)
        files: list[IngestRequest] = []
        owners: list[FileChange] = []
        for change in batch:
            for file in self._files(change, others, excluded=change in left):
                files.append(file)
                owners.append(change)
        self._folder.mark_pending(batch)
        outcomes = self._ingestion.ingest(files)
        self._record(outcomes)
        again = {owner for owner, outcome in zip(owners, outcomes, strict=True) if _will_be_retried(outcome)}
        self._folder.commit(change for change in batch if change not in again)
        return _merge(report, outcomes, len(left))

    def _files(
        self, change: FileChange, others: OverlappingWatches, *, excluded: bool
    ) -> Iterator[IngestRequest]:
        """What a change asks for: of a move, that the old path goes and the new one comes."""
        if change.old_path is not None and not others.any_needs(self._absolute(change.old_path)):
            yield self._file(change.old_path, delete=True)
        if change.kind is not ChangeKind.DELETED and not excluded:
            yield self._file(change.path, delete=False)
        elif not others.any_needs(self._absolute(change.path)):  # what is excluded has no chunks
            yield self._file(change.path, delete=True)

    def _file(self, path: str, *, delete: bool) -> IngestRequest:
        config = self._row.config
        return IngestRequest(
            path=self._absolute(path), watch_id=config.watch_id, collection=config.collection, delete=delete
        )

    def _absolute(self, path: str) -> str:
        return f"{self._row.config.path.rstrip('/')}/{path}"

    def _record(self, outcomes: Sequence[FileOutcome]) -> None:
        """Tell the handshake: whose files did what, and how the sink fares."""
        failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
        fine = [
            outcome.file.path for outcome in outcomes if outcome.failure is None and not outcome.file.delete
        ]
        if fine or failures:
            self._tables.record_outcomes(self._row.watch_id, succeeded=fine, failed=failures)
        if any(failure.policy.fault_domain is FaultDomain.SINK for failure in failures):
            self._tables.system_state.record_sink_failure()
        elif outcomes:
            self._tables.system_state.record_sink_success()


def _batches(changes: Sequence[FileChange]) -> Iterator[Sequence[FileChange]]:
    for start in range(0, len(changes), BATCH_FILES):
        yield changes[start : start + BATCH_FILES]


def _will_be_retried(outcome: FileOutcome) -> bool:
    return outcome.failure is not None and outcome.failure.policy.retry


def _merge(report: SyncReport, outcomes: Sequence[FileOutcome], excluded: int) -> SyncReport:
    count = Counter(outcome.status for outcome in outcomes)
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    sink = [failure.message for failure in failures if failure.policy.fault_domain is FaultDomain.SINK]
    return replace(
        report,
        ingested=report.ingested + count[OutcomeStatus.INGESTED],
        unchanged=report.unchanged + count[OutcomeStatus.UNCHANGED],
        removed=report.removed + count[OutcomeStatus.REMOVED],
        excluded=report.excluded + excluded,
        failures=(*report.failures, *failures),
        stop_reason=sink[0] if sink else None,
    )
