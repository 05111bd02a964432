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
from vedette.handshake.exclusions import excluding
from vedette.handshake.failures import Charge, Failure
from vedette.handshake.tables import HandshakeTables
from vedette.handshake.tables.rows import WatchRow
from vedette.search.folders.overlapping_watches import OtherTakers, selection_of
from vedette.search.ingestion import FileOutcome, FileToIngest, Ingestion, OutcomeStatus
from vedette.sources.files.file_stamp import ChangeKind, FileChange
from vedette.sources.files.file_state import SeenFiles
from vedette.sources.files.folder import Folder, Look

__all__ = ["FolderRun", "RunReport", "folder_of"]

BATCH_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a pass did."""

    changes: int = 0
    ingested: int = 0
    unchanged: int = 0
    removed: int = 0
    excluded: int = 0
    failures: tuple[Failure, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """Path ▸ why: what could not be looked at."""
    stopped: str | None = None
    """Why it ended early; None when all was done."""


def folder_of(row: WatchRow, seen: SeenFiles, clock: Clock) -> Folder:
    """The folder that a watch is about."""
    return Folder(row.watch_id, Path(row.config.path), selection_of(row.config), seen, clock)


class FolderRun:
    def __init__(
        self,
        watch_id: str,
        tables: HandshakeTables,
        seen: SeenFiles,
        clock: Clock,
        ingestion: Ingestion | None = None,
    ) -> None:
        """Without an ingestion it can only `look`."""
        self._tables, self._clock, self._ingestion = tables, clock, ingestion
        self._row = tables.watch(watch_id)
        self._folder = folder_of(self._row, seen, clock)

    def look(self) -> Look:
        """What a pass would find; nothing is changed."""
        return self._folder.reconcile()

    def run(self, progress: Callable[[int, int], object] = lambda done, total: None) -> RunReport:
        """`progress`: files done, and in all."""
        watch_id, began_at = self._row.watch_id, self._clock.now()
        look = self._folder.reconcile()
        self._tables.note_available(watch_id, look.down)
        if look.down is not None and not look.changes:
            raise FolderError(
                "E4503",
                f"{look.down}: bring it back; nothing of it counts as deleted until then",
                fields={"watch_id": watch_id, "path": self._row.config.path},
            )
        report = RunReport(changes=len(look.changes), unreadable=tuple(sorted(look.unreadable.items())))
        done = 0
        for batch in _batches(look.changes):
            report = self._run_batch(batch, report)
            done += len(batch)
            progress(done, len(look.changes))
            if report.stopped is not None:
                return report
        self._tables.note_scan(watch_id, began_at)
        return report

    def _run_batch(self, batch: Sequence[FileChange], report: RunReport) -> RunReport:
        assert self._ingestion is not None, "a run without an ingestion can only look"
        exclusions = self._tables.exclusions(self._row.watch_id)
        now = self._clock.now()
        left = {change for change in batch if excluding(exclusions, self._absolute(change.path), now)}
        others = OtherTakers(self._tables, self._row.config, self._clock)
        files: list[FileToIngest] = []
        owners: list[FileChange] = []
        for change in batch:
            for file in self._files(change, others, excluded=change in left):
                files.append(file)
                owners.append(change)
        self._folder.announce(batch)
        outcomes = self._ingestion.ingest(files)
        self._record(outcomes)
        again = {owner for owner, outcome in zip(owners, outcomes, strict=True) if _is_tried_again(outcome)}
        self._folder.confirm(change for change in batch if change not in again)
        return _added(report, outcomes, len(left))

    def _files(self, change: FileChange, others: OtherTakers, *, excluded: bool) -> Iterator[FileToIngest]:
        """What a change asks for: of a move, that the old path goes and the new one comes."""
        if change.old_path is not None and not others.keep(self._absolute(change.old_path)):
            yield self._file(change.old_path, delete=True)
        if change.kind is not ChangeKind.DELETED and not excluded:
            yield self._file(change.path, delete=False)
        elif not others.keep(self._absolute(change.path)):  # what is excluded has no chunks
            yield self._file(change.path, delete=True)

    def _file(self, path: str, *, delete: bool) -> FileToIngest:
        config = self._row.config
        return FileToIngest(
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
        if any(failure.policy.charge is Charge.SINK for failure in failures):
            self._tables.system.sink_failed()
        elif outcomes:
            self._tables.system.sink_succeeded()


def _batches(changes: Sequence[FileChange]) -> Iterator[Sequence[FileChange]]:
    for start in range(0, len(changes), BATCH_FILES):
        yield changes[start : start + BATCH_FILES]


def _is_tried_again(outcome: FileOutcome) -> bool:
    return outcome.failure is not None and outcome.failure.policy.retry


def _added(report: RunReport, outcomes: Sequence[FileOutcome], excluded: int) -> RunReport:
    count = Counter(outcome.status for outcome in outcomes)
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    sink = [failure.message for failure in failures if failure.policy.charge is Charge.SINK]
    return replace(
        report,
        ingested=report.ingested + count[OutcomeStatus.INGESTED],
        unchanged=report.unchanged + count[OutcomeStatus.UNCHANGED],
        removed=report.removed + count[OutcomeStatus.REMOVED],
        excluded=report.excluded + excluded,
        failures=(*report.failures, *failures),
        stopped=sink[0] if sink else None,
    )
