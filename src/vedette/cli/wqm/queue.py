"""`wqm queue`: file tasks that are pending, in progress or dead."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import (
    ForceOption,
    FormatOption,
    OutputFormat,
    confirm,
    open_queue,
    print_record,
    print_records,
    require_directory,
)
from vedette.clock import SystemClock

if TYPE_CHECKING:
    from vedette.search.file_queue.tasks import QueueAdmin, TaskView

__all__ = ["queue_app", "row_record"]

queue_app = typer.Typer(help="File tasks.", no_args_is_help=True, rich_markup_mode=None)
dlq_app = typer.Typer(help="Dead letters: tasks that failed too often.", rich_markup_mode=None)
queue_app.add_typer(dlq_app, name="dlq")

_COLUMNS = ["path", "operation", "priority", "status", "attempts", "queued_at", "error"]

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of tasks.")]
StatusOption = Annotated[
    str | None, typer.Option("--status", "-s", help="pending, delayed, in_progress or dead.")
]


@queue_app.command("list")
def list_tasks(
    status: StatusOption = None,
    limit: LimitOption = 100,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """List tasks in the order of processing."""
    from vedette.search.file_queue.tasks import TaskStatus

    if status is not None and status not in set(TaskStatus):
        raise CommandFailed(f"Unknown status {status!r}. The statuses are {', '.join(TaskStatus)}.")
    rows = _queue(data).list_tasks(status=None if status is None else TaskStatus(status), limit=limit)
    print_records([row_record(row) for row in rows], _COLUMNS, format, empty="No tasks.")


@queue_app.command("show")
def show_task(
    path: Annotated[str, typer.Argument(help="Path of the file.")],
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show the tasks of one path in detail."""
    names = {path, _absolute(path)}
    found = [row for row in _queue(data).list_tasks(limit=10_000_000) if row.task.path in names]
    if not found:
        raise CommandFailed(f"No task has the path {path}. `wqm queue list` shows all tasks.")
    if format is OutputFormat.JSON:
        print_records([row_record(row) for row in found], [], format, empty="")
        return
    for row in found:
        print_record(row_record(row), format)


@queue_app.command()
def retry(
    path: Annotated[
        str | None, typer.Argument(help="Path of the file; use --all for all dead letters.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Retry all dead letters.")] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Return dead letters to the queue."""
    if (path is None) != all:
        raise CommandFailed("Name the path of a dead letter, or use --all.")
    print(
        f"{_queue(data).retry_dead_letters(None if path is None else _absolute(path))} returned to the queue"
    )


@dlq_app.command("list")
def list_dead(
    limit: LimitOption = 100, data: DataOption = DEFAULT_DATA, format: FormatOption = OutputFormat.TABLE
) -> None:
    """List dead letters."""
    from vedette.search.file_queue.tasks import TaskStatus

    rows = _queue(data).list_tasks(status=TaskStatus.DEAD, limit=limit)
    print_records([row_record(row) for row in rows], _COLUMNS, format, empty="No dead letters.")


@dlq_app.command()
def purge(
    older_than: Annotated[
        int, typer.Option("--older-than", min=0, metavar="DAYS", help="Minimum age in days.")
    ] = 30,
    force: ForceOption = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Delete old dead letters."""
    queue = _queue(data)
    confirm(f"Delete the dead letters older than {older_than} days?", force=force)
    print(f"{queue.purge_dead_letters(SystemClock().now() - timedelta(days=older_than))} deleted")


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _queue(data: str) -> QueueAdmin:
    return open_queue(require_directory(data))


def row_record(row: TaskView) -> dict[str, Any]:
    return {
        "path": row.task.path,
        "collection": row.task.collection,
        "watch_id": row.task.watch_id,
        "operation": str(row.task.operation),
        "priority": row.task.priority,
        "status": str(row.status),
        "attempts": row.attempts,
        "queued_at": row.queued_at,
        "due_at": row.due_at,
        "lease_until": row.lease_until,
        "worker_id": row.worker_id,
        "error": row.error,
    }
