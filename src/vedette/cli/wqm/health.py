"""`wqm watch health`, `errors` and `reset-errors`."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import (
    ForceOption,
    FormatOption,
    OutputFormat,
    WatchArgument,
    confirm,
    find_watch,
    open_tables,
    print_record,
    print_records,
)
from vedette.clock import SystemClock

__all__ = ["errors", "health", "reset_errors"]

_ALIASES = {"failing": "backoff", "failed": "backoff", "error": "degraded"}


def health(
    status: Annotated[
        str | None,
        typer.Option(
            "--status", "-s", help="Only watches with this status: healthy, degraded, backoff or disabled."
        ),
    ] = None,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Only watches of this collection.")
    ] = None,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show the health of all watches.

    \b
    Examples:
      wqm watch health
      wqm watch health --status backoff --format json
    """
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.wqm.records import HEALTH_KEYS, format_remaining, health_record
    from vedette.handshake.health import HealthStatus

    chosen_status = _ALIASES.get(status, status) if status is not None else None
    if chosen_status is not None and chosen_status not in set(HealthStatus):
        raise CommandFailed(f"Unknown status {status!r}. The statuses are {', '.join(HealthStatus)}.")
    with open_tables(data) as tables:
        records = [health_record(row) for row in tables.watches()]
    chosen = [
        record
        for record in records
        if chosen_status in (None, record["health_status"]) and collection in (None, record["collection"])
    ]
    if format is OutputFormat.JSON:
        print_records(
            [{name: record[name] for name in HEALTH_KEYS} for record in chosen], [], format, empty=""
        )
        return
    count = Counter(record["health_status"] for record in chosen)
    summary = ", ".join(f"{name.capitalize()} {count[name]}" for name in HealthStatus)
    TableDisplay().note(f"Watch Health Summary ({len(chosen)} total): {summary}")
    now = SystemClock().now()
    rows = [
        {
            "ID": record["watch_id"],
            "Path": record["path"],
            "Health": record["health_status"].upper(),
            "Errors": f"{record['consecutive_errors']}/{record['total_errors']}",
            "Last Error": record["last_error_at"],
            "Backoff Until": format_remaining(record["backoff_until"], now),
        }
        for record in chosen
    ]
    columns = ["ID", "Path", "Health", "Errors", "Last Error", "Backoff Until"]
    print_records(rows, columns, format, empty="No watches.")


def errors(
    watch: WatchArgument,
    show_patterns: Annotated[
        bool, typer.Option("--show-patterns", help="Show the error patterns in detail.")
    ] = False,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show the errors of a watch and what to do about them."""
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.wqm.records import format_remaining, health_record, pattern_record

    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        patterns = [pattern_record(each) for each in tables.patterns(row.watch_id)]
    record: dict[str, Any] = health_record(row)
    record["backoff_left"] = format_remaining(row.health.backoff_until, SystemClock().now())
    if format is OutputFormat.JSON:
        print_records([{**record, "patterns": patterns}], [], format, empty="")
        return
    print_record(record, format)
    display = TableDisplay()
    columns = ["pattern_type", "pattern_key", "occurrence_count"]
    if show_patterns:
        columns += ["confidence_score", "is_systematic", "first_seen_at", "last_seen_at", "action"]
    if patterns or show_patterns:
        print_records(patterns, columns, format, empty="No patterns.")
    for line in _advice(record):
        display.note(line)


def reset_errors(
    watch: WatchArgument,
    force: ForceOption = False,
    clear_patterns: Annotated[
        bool, typer.Option("--clear-patterns", help="Also delete the error patterns.")
    ] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Reset the errors of a watch and close its circuit breaker. Totals and `enabled` are kept.

    A running daemon applies the change at its next step.
    """
    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        before = row.health
        print(
            f"{row.watch_id}: {before.health_status}, circuit {before.circuit.state}, "
            f"{before.consecutive_errors} consecutive errors, {before.total_errors} in total"
        )
        confirm("Reset error state and set health to 'healthy'?", force=force)
        after = tables.reset_errors(row.watch_id, clear_patterns=clear_patterns)
    print(f"{row.watch_id} is {after.health_status}")
    if not after.enabled:
        print(f"It is disabled by {after.disabled_by}; `wqm watch enable {row.watch_id}` enables it.")


def _advice(record: dict[str, Any]) -> list[str]:
    watch_id = record["watch_id"]
    lines = []
    if record["circuit_state"] != "closed":
        lines.append(
            "The circuit breaker is open. Fix the cause; the watch is probed after the cooldown, or at once after "
            f"`wqm watch reset-errors {watch_id} --force` and `wqm watch enable {watch_id}`."
        )
    elif record["disabled_by"] is not None:
        lines.append(f"The watch is disabled; `wqm watch enable {watch_id}` enables it.")
    elif record["health_status"] == "backoff":
        lines.append(
            f"The watch waits for {record['backoff_left']}. `wqm watch reset-errors {watch_id}` ends the wait."
        )
    return lines
