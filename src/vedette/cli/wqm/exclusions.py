"""`wqm watch exclusions`: what of a watch is left alone."""

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
    clock_of,
    find_watch,
    open_tables,
    print_records,
)

__all__ = ["exclusions"]

_MOST_HOURS = 876_000
"""A hundred years."""


def exclusions(
    watch: WatchArgument,
    add: Annotated[
        str | None, typer.Option("--add", metavar="PATH|GLOB", help="Leave this alone from now on.")
    ] = None,
    type: Annotated[
        str, typer.Option("--type", help="Of the added one: file, pattern or directory.")
    ] = "file",
    hours: Annotated[
        float | None, typer.Option("--hours", help="How long the added one holds; without, for ever.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why.")] = "by hand",
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="PATH|GLOB", help="Take this one up again.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Those that have ended, too.")] = False,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show what of a watch is left alone, and why; add to it or take from it.

    A file that failed five times in a row is here by itself. It stays, also when it changes, until it is removed.
    """
    from vedette.cli.wqm.records import exclusion_record
    from vedette.handshake.exclusions import Exclusion, ExclusionType

    if type not in set(ExclusionType):
        raise CommandFailed(f"There is no type {type!r}. Known are {', '.join(ExclusionType)}.")
    if hours is not None and not 0 < hours <= _MOST_HOURS:  # nan is neither
        raise CommandFailed(f"--hours must be above 0 and at most {_MOST_HOURS:,}, and this is {hours}.")
    with open_tables(data) as tables:
        config = find_watch(tables, watch).config
        watch_id = config.watch_id
        if add is not None:
            now = clock_of().now()
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
            lifted = [each for value in named for each in tables.remove_exclusions(watch_id, value)]
            if not lifted:
                raise CommandFailed(
                    f"{watch_id} has no exclusion {remove}. Without --remove they are listed."
                )
            tables.request_rescan(watch_id)
        records = [exclusion_record(each) for each in tables.exclusions(watch_id, also_expired=all)]
    columns = ["type", "value", "reason", "error_count", "expires_at", "is_permanent"]
    print_records(records, columns, format, empty="Nothing is excluded.")


def _path_in_folder(root: Path, named: str, watch_id: str) -> str:
    path = _watched_path(root, Path(named).expanduser().absolute())
    if path is None:
        raise CommandFailed(
            f"{named} is not below {root}, the folder of {watch_id}. Name what is in it, or use --type pattern."
        )
    return str(path)


def _watched_path(root: Path, path: Path) -> Path | None:
    """A path as the watch of a folder knows it, through whatever links and dots it is named; None when it is elsewhere.

    Inside the folder links are left out, and what they point at has its own name. What is behind a link that leads out
    is known by that link.
    """
    real = path.resolve() if path.name == ".." else path.parent.resolve() / path.name
    if real.is_relative_to(root):
        return real
    return next((root / path.relative_to(above) for above in path.parents if above.resolve() == root), None)
