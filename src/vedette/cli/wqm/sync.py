"""`wqm watch sync`: compare folders with what is known of them, and take up what changed."""

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
    clock_of,
    daemon_link,
    find_watch,
    open_tables,
    open_vectors,
    require_directory,
    running_daemon,
    settings_at,
)
from vedette.extras import require_extra

if TYPE_CHECKING:
    from vedette.handshake.tables import HandshakeTables
    from vedette.handshake.tables.rows import WatchRow
    from vedette.search.folders.sync import SyncReport
    from vedette.search.ingestion import VectorIngestor
    from vedette.sources.files.file_state import FileStateStore

__all__ = ["sync"]

_POLL_SECONDS = 0.05
_SHOWN = 20
"""Failures and changes that are listed."""


def sync(
    watch: Annotated[
        str | None, typer.Argument(metavar="WATCH", help="The id or the path of a watch; all without.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Take up what changed in the folders, now; a running daemon does it, else this process.

    A file that did not change is not read. Exit code 1 when a file failed or a folder is not there.

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
                "No folder is watched. `wqm watch add FOLDER --collection NAME` makes a watch."
            )
        seen = FileStateStore(directory / FILE_NAME)
        try:
            if not dry_run and running_daemon(directory) is not None:
                fine = [_sync_through_daemon(watch_id, tables, seen, directory) for watch_id in chosen]
            elif dry_run:
                fine = [_looked(watch_id, tables, seen) for watch_id in chosen]
            else:
                require_extra("files", "`wqm watch sync`")
                settings = settings_at(directory)
                with open_vectors(directory) as store:
                    ingestion = VectorIngestor(
                        create_embedder(settings.embedder),
                        store,
                        clock_of(),
                        max_file_bytes=settings.max_file_bytes,
                    )
                    fine = [_sync_here(watch_id, tables, seen, ingestion) for watch_id in chosen]
        finally:
            seen.close()
    if not all(fine):
        raise typer.Exit(1)


def _sync_through_daemon(
    watch_id: str, tables: HandshakeTables, seen: FileStateStore, directory: Path
) -> bool:
    """Have the daemon compare the folder, and wait until all of it is done; whether nothing failed."""
    from vedette.cli.output.display import TableDisplay
    from vedette.handshake.tables.handshake_db import FILE_NAME
    from vedette.search.file_queue.task_table import TaskTable
    from vedette.search.folders.sync import FolderSync

    asked_at = tables.request_rescan(watch_id).rescan_requested_at
    assert asked_at is not None
    link, never = daemon_link(directory), Event()
    with closing(TaskTable(directory / FILE_NAME)) as queue:
        while True:
            row = tables.watch(watch_id)
            why = _blocked_reason(row, tables)
            if why is not None:
                TableDisplay().warning(f"{watch_id}: {why}. What is left is taken up when that ends.")
                return False
            tasks = queue.of_watch(watch_id)
            if row.rescan_requested_at is None and all(task.dead_at is not None for task in tasks):
                if not FolderSync(watch_id, tables, seen, clock_of()).preview().changes:
                    break
                tables.request_rescan(watch_id)  # the queue was full, or somebody is writing
            if not link.is_running():
                raise CommandFailed("The daemon ended meanwhile. What is left is in its queue; sync again.")
            never.wait(_POLL_SECONDS)
    dead = sum(task.dead_at is not None and task.dead_at >= asked_at for task in tasks)
    print(f"{watch_id}: taken up by the daemon{f', {dead:,} failed for good' if dead else ''}")
    return not dead


def _blocked_reason(row: WatchRow, tables: HandshakeTables) -> str | None:
    """Why the daemon does not take up what changed; None when it does."""
    if row.unavailable_reason is not None:
        return row.unavailable_reason
    if row.watch_id in tables.system_state.degradation().paused_watch_ids:
        return "it is paused by load: see `wqm admin degradation-status`"
    if row.paused_at is not None:
        return f"it is paused: `wqm watch resume {row.watch_id}`"
    if row.health.backoff_until is not None or not row.health.enabled:
        return f"it is in {row.health.health_status}: see `wqm watch errors {row.watch_id}`"
    return None


def _looked(watch_id: str, tables: HandshakeTables, seen: FileStateStore) -> bool:
    from vedette.search.folders.sync import FolderSync

    look = FolderSync(watch_id, tables, seen, clock_of()).preview()
    count = Counter(str(change.kind) for change in look.changes)
    words = ", ".join(f"{number} {kind}" for kind, number in sorted(count.items())) or "nothing changed"
    print(f"{watch_id}: {look.unavailable_reason or words}")
    for change in look.changes[:_SHOWN]:
        print(f"  {change.kind} {change.path}")
    if len(look.changes) > _SHOWN:
        print(f"  … and {len(look.changes) - _SHOWN:,} more")
    return look.unavailable_reason is None


def _sync_here(
    watch_id: str, tables: HandshakeTables, seen: FileStateStore, ingestion: VectorIngestor
) -> bool:
    from rich.progress import Progress

    from vedette.cli.output.display import TableDisplay, console_for
    from vedette.errors import FolderError
    from vedette.search.folders.sync import FolderSync

    run = FolderSync(watch_id, tables, seen, clock_of(), ingestion)
    try:
        with Progress(console=console_for(error=True), transient=True) as progress:
            bar = progress.add_task(watch_id, total=None)
            report = run.run(lambda done, total: progress.update(bar, completed=done, total=total))
    except FolderError as error:
        if error.code != "E4503":
            raise
        TableDisplay().error(error)
        return False
    _tell(watch_id, report)
    return not report.failures and report.stop_reason is None


def _tell(watch_id: str, report: SyncReport) -> None:
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
    for failure in report.failures[:_SHOWN]:
        display.warning(f"{Path(failure.path).name}: {failure.message}")
    if len(report.failures) > _SHOWN:
        display.warning(f"… and {len(report.failures) - _SHOWN:,} more failures")
    for path, why in report.unreadable[:_SHOWN]:
        display.warning(f"{path} could not be looked at: {why}")
    if report.stop_reason is not None:
        display.warning(f"stopped: {report.stop_reason}. What is left is taken up by the next sync.")
