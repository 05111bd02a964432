"""`wqm watch sync`: ingest changed files now."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import (
    directory_settings,
    find_watch,
    open_tables,
    open_vectors,
    require_directory,
    running_daemon,
)
from vedette.clock import SystemClock
from vedette.extras import require_extra

if TYPE_CHECKING:
    from vedette.handshake.tables import HandshakeTables
    from vedette.handshake.tables.rows import WatchRow
    from vedette.search.folders.sync import SyncReport
    from vedette.search.ingestion import VectorIngestor
    from vedette.sources.files.file_state import FileStateStore

__all__ = ["sync"]

_POLL_SECONDS = 0.05
_MAX_LISTED = 20
"""Further failures and changes are only counted."""


def sync(
    watch: Annotated[
        str | None, typer.Argument(metavar="WATCH", help="Id or path of a watch; all watches by default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Ingest changed files now, through the running daemon or in this process.

    Unchanged files are not read. The exit code is 1 if a file failed or a folder is unavailable.

    \b
    Examples:
      wqm watch sync
      wqm watch sync papers --dry-run
    """
    from vedette.handshake.config import WatchType
    from vedette.search.embedding import create_embedder
    from vedette.search.ingestion import VectorIngestor
    from vedette.sources.files.file_state import FILE_NAME, FileStateStore

    directory = require_directory(data)
    with open_tables(data) as tables:
        rows = [find_watch(tables, watch)] if watch is not None else tables.watches()
        folders = [row for row in rows if row.config.watch_type is not WatchType.SOURCE]
        chosen = [row.watch_id for row in folders if watch is not None or row.health.enabled]
        if not chosen:
            raise CommandFailed(
                "No folder is watched. `wqm watch add FOLDER --collection NAME` adds a watch."
            )
        file_states = FileStateStore(directory / FILE_NAME)
        try:
            if not dry_run and running_daemon(directory) is not None:
                succeeded = [
                    _sync_through_daemon(watch_id, tables, file_states, directory) for watch_id in chosen
                ]
            elif dry_run:
                succeeded = [_preview(watch_id, tables, file_states) for watch_id in chosen]
            else:
                require_extra("files", "`wqm watch sync`")
                settings = directory_settings(directory)
                with open_vectors(directory) as store:
                    ingestion = VectorIngestor(
                        create_embedder(settings.embedder),
                        store,
                        SystemClock(),
                        max_file_bytes=settings.max_file_bytes,
                    )
                    succeeded = [_sync_here(watch_id, tables, file_states, ingestion) for watch_id in chosen]
        finally:
            file_states.close()
    if not all(succeeded):
        raise typer.Exit(1)


def _sync_through_daemon(
    watch_id: str, tables: HandshakeTables, file_states: FileStateStore, directory: Path
) -> bool:
    """Request a scan by the daemon and wait until its tasks are done. Return True if no task failed."""
    from vedette.cli.output.display import TableDisplay
    from vedette.handshake.tables.handshake_db import FILE_NAME
    from vedette.search.file_queue.task_table import TaskTable
    from vedette.search.folders.daemon_api import connect_daemon
    from vedette.search.folders.sync import FolderSync

    asked_at = tables.request_rescan(watch_id).rescan_requested_at
    assert asked_at is not None
    daemon, never_set = connect_daemon(directory), Event()
    with closing(TaskTable(directory / FILE_NAME)) as queue:
        while True:
            row = tables.watch(watch_id)
            reason = _blocked_reason(row, tables)
            if reason is not None:
                TableDisplay().warning(f"{watch_id}: {reason}. The remaining files are ingested later.")
                return False
            tasks = queue.of_watch(watch_id)
            if row.rescan_requested_at is None and all(task.dead_at is not None for task in tasks):
                if not FolderSync(watch_id, tables, file_states, SystemClock()).preview().changes:
                    break
                tables.request_rescan(watch_id)  # the queue was full, or files changed meanwhile
            if not daemon.is_running():
                raise CommandFailed(
                    "The daemon exited. The remaining files are in its queue; repeat the command."
                )
            never_set.wait(_POLL_SECONDS)
    dead = sum(task.dead_at is not None and task.dead_at >= asked_at for task in tasks)
    print(f"{watch_id}: ingested by the daemon{f', {dead:,} failed' if dead else ''}")
    return not dead


def _blocked_reason(row: WatchRow, tables: HandshakeTables) -> str | None:
    """Return why the daemon does not process the watch, or None if it does."""
    if row.unavailable_reason is not None:
        return row.unavailable_reason
    if row.watch_id in tables.paused_by_load():
        return "paused because of load, see `wqm admin degradation-status`"
    if row.paused_at is not None:
        return f"paused, use `wqm watch resume {row.watch_id}`"
    if row.health.backoff_until is not None or not row.health.enabled:
        return f"in state {row.health.health_status}, see `wqm watch errors {row.watch_id}`"
    return None


def _preview(watch_id: str, tables: HandshakeTables, file_states: FileStateStore) -> bool:
    from vedette.search.folders.sync import FolderSync

    scan = FolderSync(watch_id, tables, file_states, SystemClock()).preview()
    count = Counter(str(change.kind) for change in scan.changes)
    words = ", ".join(f"{number} {kind}" for kind, number in sorted(count.items())) or "nothing changed"
    print(f"{watch_id}: {scan.unavailable_reason or words}")
    for change in scan.changes[:_MAX_LISTED]:
        print(f"  {change.kind} {change.path}")
    if len(scan.changes) > _MAX_LISTED:
        print(f"  … and {len(scan.changes) - _MAX_LISTED:,} more")
    return scan.unavailable_reason is None


def _sync_here(
    watch_id: str, tables: HandshakeTables, file_states: FileStateStore, ingestion: VectorIngestor
) -> bool:
    from rich.progress import Progress

    from vedette.cli.output.display import TableDisplay, console_for
    from vedette.errors import FolderError
    from vedette.search.folders.sync import FolderSync

    run = FolderSync(watch_id, tables, file_states, SystemClock(), ingestion)
    try:
        with Progress(console=console_for(error=True), transient=True) as progress:
            bar = progress.add_task(watch_id, total=None)
            report = run.run(lambda done, total: progress.update(bar, completed=done, total=total))
    except FolderError as error:
        if error.code != "E4503":
            raise
        TableDisplay().error(error)
        return False
    _print_report(watch_id, report)
    return not report.failures and report.stop_reason is None


def _print_report(watch_id: str, report: SyncReport) -> None:
    from vedette.cli.output.display import TableDisplay

    parts = {
        "ingested": report.ingested,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "excluded": report.excluded,
        "failed": len(report.failures),
    }
    words = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count) or "nothing changed"
    print(f"{watch_id}: {words}")
    display = TableDisplay()
    for failure in report.failures[:_MAX_LISTED]:
        display.warning(f"{Path(failure.path).name}: {failure.message}")
    if len(report.failures) > _MAX_LISTED:
        display.warning(f"… and {len(report.failures) - _MAX_LISTED:,} more failures")
    for path, why in report.unreadable[:_MAX_LISTED]:
        display.warning(f"{path} could not be read: {why}")
    if report.stop_reason is not None:
        display.warning(f"stopped: {report.stop_reason}. The next sync continues.")
