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
    clock_of,
    confirm,
    find_watch,
    open_tables,
    print_records,
)

__all__ = ["errors", "health", "reset_errors"]

_ALIASES = {"failing": "backoff", "failed": "backoff", "error": "degraded"}


def health(
    status: Annotated[
        str | None, typer.Option("--status", "-s", help="Only healthy, degraded, backoff or disabled ones.")
    ] = None,
    collection: Annotated[str | None, typer.Option("--collection", "-c", help="Only of this one.")] = None,
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

    wanted = _ALIASES.get(status, status) if status is not None else None
    if wanted is not None and wanted not in set(HealthStatus):
        raise CommandFailed(f"There is no status {status!r}. Known are {', '.join(HealthStatus)}.")
    with open_tables(data) as tables:
        records = [health_record(row) for row in tables.watches()]
    chosen = [
        record
        for record in records
        if wanted in (None, record["health_status"]) and collection in (None, record["collection"])
    ]
    if format is OutputFormat.JSON:
        print_records(
            [{name: record[name] for name in HEALTH_KEYS} for record in chosen], [], format, empty=""
        )
        return
    count = Counter(record["health_status"] for record in chosen)
    summary = ", ".join(f"{name.capitalize()} {count[name]}" for name in HealthStatus)
    TableDisplay().note(f"Watch Health Summary ({len(chosen)} total): {summary}")
    now = clock_of().now()
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
        bool, typer.Option("--show-patterns", help="All about what its failures have in common.")
    ] = False,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show what went wrong with a watch, and what to do about it."""
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.wqm.records import format_remaining, health_record, pattern_record

    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        patterns = [pattern_record(each) for each in tables.patterns(row.watch_id)]
    record: dict[str, Any] = health_record(row)
    record["backoff_left"] = format_remaining(row.health.backoff_until, clock_of().now())
    if format is OutputFormat.JSON:
        print_records([{**record, "patterns": patterns}], [], format, empty="")
        return
    facts = [{"field": name, "value": value} for name, value in record.items()]
    print_records(facts, ["field", "value"], format, empty="")
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
        bool, typer.Option("--clear-patterns", help="Forget what its failures had in common, too.")
    ] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Forget the errors of a watch and close its circuit. Totals stay, and so does whether it is enabled.

    A daemon that runs acts upon it at once.
    """
    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        before = row.health
        print(
            f"{row.watch_id}: {before.health_status}, circuit {before.circuit.state}, "
            f"{before.consecutive_errors} errors in a row, {before.total_errors} in all"
        )
        confirm("Reset error state and set health to 'healthy'?", force=force)
        after = tables.reset_errors(row.watch_id, clear_patterns=clear_patterns)
    print(f"{row.watch_id} is {after.health_status}")
    if not after.enabled:
        print(f"It is disabled by {after.disabled_by}: `wqm watch enable {row.watch_id}` takes it up again.")


def _advice(record: dict[str, Any]) -> list[str]:
    watch_id = record["watch_id"]
    lines = []
    if record["circuit_state"] != "closed":
        lines.append(
            "Its circuit is open. Mend the cause; after the cooldown it is tried by itself, or at once with "
            f"`wqm watch reset-errors {watch_id} --force` and `wqm watch enable {watch_id}`."
        )
    elif record["disabled_by"] is not None:
        lines.append(f"It is disabled: `wqm watch enable {watch_id}` takes it up again.")
    elif record["health_status"] == "backoff":
        lines.append(
            f"It backs off, {record['backoff_left']} to go. `wqm watch reset-errors {watch_id}` ends that."
        )
    return lines
