"""`wqm admin`: load, queue and memory of the whole system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import (
    FormatOption,
    OutputFormat,
    open_queue,
    open_tables,
    open_vectors,
    print_record,
    print_records,
    require_directory,
    running_daemon,
)

__all__ = ["admin_app"]

admin_app = typer.Typer(help="Load, queue and memory.", no_args_is_help=True, rich_markup_mode=None)


@admin_app.command("degradation-status")
def degradation_status(data: DataOption = DEFAULT_DATA, format: FormatOption = OutputFormat.TABLE) -> None:
    """Show the level of degradation, its reasons, and the paused watches."""
    with open_tables(data) as tables:
        state, sink = tables.system_state.degradation(), tables.system_state.sink_breaker()
    record = {
        "level": state.level.label,
        "entered_at": None if state.last_check_at is None else state.entered_at,
        "last_check_at": state.last_check_at,
        "queue_depth": state.queue_depth,
        "throughput": state.throughput,
        "memory_usage": state.memory_usage,
        "polling_interval_multiplier": state.polling_interval_multiplier,
        "recovery_step": state.recovery_step,
        "paused_watch_ids": list(state.paused_watch_ids),
        "sink": str(sink.state),
        "sink_failures_in_a_row": sink.consecutive_errors,
    }
    print_record(record, format)


@admin_app.command("queue-stats")
def queue_stats(
    by_collection: Annotated[bool, typer.Option("--by-collection", help="One line per collection.")] = False,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Count the tasks by status."""
    from vedette.search.file_queue.tasks import TaskStatus

    counts = open_queue(require_directory(data)).count_by_status()
    total: Counter[TaskStatus] = Counter()
    for each in counts.values():
        total.update(each)
    shown = dict(sorted(counts.items())) if by_collection else {"all": total}
    records = [
        {"collection": name, **{str(status): each.get(status, 0) for status in TaskStatus}}
        for name, each in shown.items()
    ]
    print_records(records, ["collection", *TaskStatus], format, empty="No tasks.")


@admin_app.command("system-stats")
def system_stats(data: DataOption = DEFAULT_DATA, format: FormatOption = OutputFormat.TABLE) -> None:
    """Show the memory of the daemon, watches by health, queue capacity and the size of collections."""
    from vedette.errors import IngestError, InstallationError
    from vedette.search.folders.daemon_api import connect_daemon
    from vedette.search.folders.process_memory import memory_usage

    directory = require_directory(data)
    is_running = connect_daemon(directory).is_running()
    with open_tables(data) as tables:
        watches, capacity = tables.watches(), tables.system_state.capacity()
        state = tables.system_state.degradation()
    record: dict[str, Any] = {
        "memory_total_bytes": memory_usage().total_bytes,
        "memory_used_share": round(state.memory_usage, 3) if is_running else None,
        "daemon_runs": is_running,
        "watches": len(watches),
        **{
            f"watches_{name}": count
            for name, count in Counter(row.health.health_status for row in watches).items()
        },
        "queue_capacity_held": capacity.allocated,
        "queue_throttling": capacity.throttling,
    }
    try:
        record.update({f"chunks in {name}": count for name, count in _collections(directory).items()})
    except (IngestError, InstallationError) as error:
        record["vectors"] = error.text
    print_record(record, format)


def _collections(directory: Path) -> Mapping[str, int]:
    if (daemon := running_daemon(directory)) is not None:
        return daemon.collections()
    with open_vectors(directory) as store:
        return store.count_by_collection()
