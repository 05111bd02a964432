"""`wqm watch exclusions`: paths of a watch that are not processed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import (
    FormatOption,
    OutputFormat,
    WatchArgument,
    find_watch,
    open_tables,
    print_records,
)
from vedette.clock import SystemClock

__all__ = ["exclusions"]

_MAX_HOURS = 876_000
"""One hundred years."""


def exclusions(
    watch: WatchArgument,
    add: Annotated[
        str | None, typer.Option("--add", metavar="PATH|GLOB", help="Exclude this path or glob.")
    ] = None,
    type: Annotated[
        str, typer.Option("--type", help="Type of the new exclusion: file, pattern or directory.")
    ] = "file",
    hours: Annotated[
        float | None, typer.Option("--hours", help="Duration of the new exclusion; permanent by default.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason of the new exclusion.")] = "by hand",
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="PATH|GLOB", help="Remove this exclusion.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Also show expired exclusions.")] = False,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show, add or remove the exclusions of a watch.

    A file that fails five times in a row is excluded automatically. It stays excluded until the exclusion is removed,
    also when the file changes.
    """
    from vedette.cli.wqm.records import exclusion_record
    from vedette.handshake.exclusions import Exclusion, ExclusionType

    if type not in set(ExclusionType):
        raise CommandFailed(f"Unknown type {type!r}. The types are {', '.join(ExclusionType)}.")
    if hours is not None and not 0 < hours <= _MAX_HOURS:  # false for nan too
        raise CommandFailed(f"--hours must be greater than 0 and at most {_MAX_HOURS:,}, not {hours}.")
    with open_tables(data) as tables:
        config = find_watch(tables, watch).config
        watch_id = config.watch_id
        if add is not None:
            now = SystemClock().now()
            made = Exclusion(
                type=ExclusionType(type),
                value=add
                if type == ExclusionType.PATTERN
                else _path_in_folder(Path(config.path), add, watch_id),
                reason=reason,
                error_count=0,
                created_at=now,
                expires_at=None if hours is None else now + timedelta(hours=hours),
                is_permanent=hours is None,
            )
            tables.add_exclusion(watch_id, made)
        if remove is not None:
            as_named = Path(remove).expanduser().absolute()
            named = dict.fromkeys(
                (remove, str(as_named), str(_watched_path(Path(config.path), as_named) or as_named))
            )
            removed = [each for value in named for each in tables.remove_exclusions(watch_id, value)]
            if not removed:
                raise CommandFailed(
                    f"{watch_id} has no exclusion {remove}. Run the command without --remove to list them."
                )
            tables.request_rescan(watch_id)
        records = [exclusion_record(each) for each in tables.exclusions(watch_id, also_expired=all)]
    columns = ["type", "value", "reason", "error_count", "expires_at", "is_permanent"]
    print_records(records, columns, format, empty="Nothing is excluded.")


def _path_in_folder(root: Path, named: str, watch_id: str) -> str:
    path = _watched_path(root, Path(named).expanduser().absolute())
    if path is None:
        raise CommandFailed(
            f"{named} is not below {root}, the folder of {watch_id}. Name a path inside the "
            f"folder, or use --type pattern."
        )
    return str(path)


def _watched_path(root: Path, path: Path) -> Path | None:
    """Return the path as the folder watch stores it, with links resolved, or None if it is outside the folder.

    A path behind a link that leads out of the folder is stored under the link.
    """
    real = path.resolve() if path.name == ".." else path.parent.resolve() / path.name
    if real.is_relative_to(root):
        return real
    return next((root / path.relative_to(above) for above in path.parents if above.resolve() == root), None)
