"""`wqm watch`: add, change, list and remove watched folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    open_vectors,
    print_records,
    require_directory,
    running_daemon,
)
from vedette.cli.wqm.exclusions import exclusions
from vedette.cli.wqm.health import errors, health, reset_errors
from vedette.cli.wqm.sync import sync
from vedette.extras import missing_extra_note

if TYPE_CHECKING:
    from vedette.handshake.tables import HandshakeTables
    from vedette.handshake.tables.rows import WatchRow

__all__ = ["watch_app"]

watch_app = typer.Typer(help="The folders that are watched.", no_args_is_help=True, rich_markup_mode=None)
watch_app.command()(health)
watch_app.command()(errors)
watch_app.command()(exclusions)
watch_app.command("reset-errors")(reset_errors)
watch_app.command()(sync)

PatternOption = Annotated[
    list[str] | None,
    typer.Option("--pattern", "-p", help="Take files like this, such as '*.py'; may be repeated."),
]
IgnoreOption = Annotated[
    list[str] | None, typer.Option("--ignore", "-i", help="Leave files like this; may be repeated.")
]
AutoOption = Annotated[bool | None, typer.Option("--auto/--no-auto", help="Ingest changes by itself.")]
RecursiveOption = Annotated[
    bool | None, typer.Option("--recursive/--no-recursive", help="With folders below.")
]
DepthOption = Annotated[int | None, typer.Option("--depth", min=-1, help="How many folders deep; -1 is any.")]
DebounceOption = Annotated[
    float | None, typer.Option("--debounce", min=0, metavar="SECONDS", help="Quiet time before a look.")
]
PriorityOption = Annotated[int | None, typer.Option("--priority", help="From 0 to 10; 10 goes first.")]


@watch_app.command()
def add(
    path: Annotated[Path, typer.Argument(help="The folder.")],
    collection: Annotated[str, typer.Option("--collection", "-c", help="Where its text goes.")],
    id: Annotated[
        str | None, typer.Option("--id", help="What to call it; by default made from the path.")
    ] = None,
    pattern: PatternOption = None,
    ignore: IgnoreOption = None,
    auto: AutoOption = None,
    recursive: RecursiveOption = None,
    depth: DepthOption = None,
    debounce: DebounceOption = None,
    priority: PriorityOption = None,
    library: Annotated[
        str | None, typer.Option("--library", metavar="NAME", help="It is a library of this name.")
    ] = None,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Watch a folder.

    \b
    Examples:
      wqm watch add . --collection code --pattern '*.py' --ignore .git --ignore .venv
      wqm watch add /srv/papers -c papers --id papers --priority 8
    """
    from vedette.cli.output.display import TableDisplay
    from vedette.handshake.config import WatchFolderConfig, WatchType

    folder, directory = path.expanduser().resolve(), require_directory(data, make=True)
    if not folder.is_dir():
        raise CommandFailed(f"{folder} is no folder. Check the path.")
    if folder.is_relative_to(directory.resolve()):
        raise CommandFailed(
            f"{folder} is Vedette's own data directory, or in it. Watch another folder, or keep the data elsewhere "
            "with --data."
        )
    chosen = _given(pattern, ignore, auto, recursive, depth, debounce, priority, None)
    if library is not None:
        chosen.update(watch_type=WatchType.LIBRARY, library_name=library)
    watch_id = id or f"watch_{hashlib.sha256(os.fsencode(f'{collection}:{folder}')).hexdigest()[:8]}"
    config = WatchFolderConfig(watch_id=watch_id, path=str(folder), collection=collection, **chosen)
    with open_tables(data, make=True) as tables:
        tables.add_watch(config)
    print(f"watching {folder} as {watch_id}")
    if note := missing_extra_note("files"):
        TableDisplay().note(note)


@watch_app.command()
def update(
    watch: WatchArgument,
    priority: PriorityOption = None,
    pattern: PatternOption = None,
    ignore: IgnoreOption = None,
    auto: AutoOption = None,
    recursive: RecursiveOption = None,
    depth: DepthOption = None,
    debounce: DebounceOption = None,
    collection: Annotated[
        str | None,
        typer.Option("--collection", "-c", help="Where its text goes; while nothing of it is stored."),
    ] = None,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Change some options of a watch; the others stay, and so do its health and counters."""
    chosen = _given(pattern, ignore, auto, recursive, depth, debounce, priority, collection)
    if not chosen:
        raise CommandFailed("Nothing to change: name at least one option.")
    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        watch_id = row.watch_id
        if collection not in (None, row.config.collection):
            _refuse_collection_change(row, require_directory(data))
        if tables.update_watch(watch_id, **chosen).config.auto_ingest:
            tables.request_rescan(watch_id)
    print(f"{watch_id}: {', '.join(f'{name} = {_plain(value)}' for name, value in chosen.items())}")


@watch_app.command("list")
def list_watches(
    show_priority: Annotated[
        bool, typer.Option("--show-priority", help="With the priority, and the one in effect.")
    ] = False,
    show_degradation: Annotated[
        bool, typer.Option("--show-degradation", help="With the level of load and who is paused by it.")
    ] = False,
    by_priority: Annotated[bool, typer.Option("--by-priority", help="The highest in effect first.")] = False,
    active: Annotated[bool, typer.Option("--active", help="Only those that run.")] = False,
    collection: Annotated[str | None, typer.Option("--collection", "-c", help="Only of this one.")] = None,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """List the watches, folders and other sources."""
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.wqm.records import watch_record

    with open_tables(data) as tables:
        state = tables.system_state.degradation()
        records = [watch_record(row, state, clock_of().now()) for row in tables.watches()]
    chosen = [
        record
        for record in records
        if (not active or record["state"] == "active") and collection in (None, record["collection"])
    ]
    if by_priority:
        chosen.sort(key=lambda record: (-record["effective_priority"], record["watch_id"]))
    columns = ["watch_id", "path", "collection", "state", "health_status"]
    columns += ["watch_priority", "effective_priority"] if show_priority or by_priority else []
    columns += ["paused_by_load"] if show_degradation else []
    if show_degradation and format is OutputFormat.TABLE:
        level, factor = state.level.label, state.polling_interval_multiplier
        TableDisplay().note(f"load is {level}: intervals × {factor}, {len(state.paused_watch_ids)} paused")
    print_records(
        chosen, columns, format, empty="No watches. `wqm watch add FOLDER --collection NAME` makes one."
    )


@watch_app.command()
def status(
    watch: WatchArgument, data: DataOption = DEFAULT_DATA, format: FormatOption = OutputFormat.TABLE
) -> None:
    """Show everything about one watch."""
    from vedette.cli.wqm.records import watch_record

    with open_tables(data) as tables:
        record = watch_record(find_watch(tables, watch), tables.system_state.degradation(), clock_of().now())
    if format is OutputFormat.JSON:
        print_records([record], [], format, empty="")
        return
    print_records(
        [{"field": name, "value": value} for name, value in record.items()],
        ["field", "value"],
        format,
        empty="",
    )


def _change(watch: str, data: str, change: Callable[[HandshakeTables, str], object], becomes: str) -> None:
    with open_tables(data) as tables:
        watch_id = find_watch(tables, watch).watch_id
        change(tables, watch_id)
    print(f"{watch_id} is {becomes}")


@watch_app.command()
def enable(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Watch it again, whoever disabled it; an open circuit is closed."""
    _change(watch, data, lambda tables, id: tables.enable_watch(id), "enabled")


@watch_app.command()
def disable(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Do not watch it until it is enabled. What happens meanwhile is found then."""
    _change(watch, data, lambda tables, id: tables.disable_watch(id), "disabled")


@watch_app.command()
def pause(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Go on noting what changes, but process nothing."""
    _change(watch, data, lambda tables, id: tables.pause_watch(id), "paused")


@watch_app.command()
def resume(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Process again what was noted."""
    _change(watch, data, lambda tables, id: tables.resume_watch(id), "resumed")


@watch_app.command()
def remove(
    watch: WatchArgument,
    keep_chunks: Annotated[
        bool, typer.Option("--keep-chunks", help="Leave its text in the collection.")
    ] = False,
    force: ForceOption = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Watch it no more; its text leaves the collection. The files stay as they are."""
    from vedette.handshake.config import WatchType
    from vedette.sources.files.file_state import FILE_NAME, FileStateStore

    directory = require_directory(data)
    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        if row.config.watch_type is WatchType.SOURCE:
            name = row.watch_id.removeprefix("source:")
            raise CommandFailed(f"{row.watch_id} is no folder: `vedette source remove {name}` removes it.")
        confirm(f"Stop watching {row.config.path} ({row.watch_id})?", force=force)
        with closing(FileStateStore(directory / FILE_NAME)) as seen:
            known = set() if keep_chunks else set(seen.known(row.watch_id))
            removed = _removed(directory, row, known, tables)
            seen.forget(row.watch_id)
    print(f"{row.watch_id} is removed{f', with the text of {removed} files' if removed else ''}")


def _given(
    pattern: list[str] | None,
    ignore: list[str] | None,
    auto: bool | None,
    recursive: bool | None,
    depth: int | None,
    debounce: float | None,
    priority: int | None,
    collection: str | None,
) -> dict[str, Any]:
    """The fields that the command line names, and no others."""
    fields = {
        "patterns": tuple(pattern) if pattern else None,
        "ignore_patterns": tuple(ignore) if ignore else None,
        "auto_ingest": auto,
        "recursive": recursive,
        "recursive_depth": depth,
        "debounce_seconds": debounce,
        "watch_priority": priority,
        "collection": collection,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _plain(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value).lower()


def _refuse_collection_change(row: WatchRow, directory: Path) -> None:
    """What is stored would stay in the old collection, where nobody looks after it any more."""
    from vedette.sources.files.file_state import FILE_NAME, FileStateStore

    with closing(FileStateStore(directory / FILE_NAME)) as seen:
        files = len(seen.known(row.watch_id))
    if files:
        raise CommandFailed(
            f"{row.watch_id} has taken up {files:,} files into {row.config.collection}, and they are not moved. "
            f"`wqm watch remove {row.watch_id}` takes their text out; then add the folder with the other collection."
        )


def _removed(directory: Path, row: WatchRow, known: set[str], tables: HandshakeTables) -> int:
    """Remove a watch, and the chunks of its known files that no other watch puts there; how many files.

    Beside a daemon the watch goes first, so that nothing comes back while its text is removed. Without one the text
    goes first: whoever is interrupted can begin again.
    """
    from vedette.search.folders.overlapping_watches import OverlappingWatches
    from vedette.search.vectors.store import remove_files

    root, others = row.config.path.rstrip("/"), OverlappingWatches(tables, row.config, clock_of())
    paths = [path for path in (f"{root}/{name}" for name in known) if not others.any_covers(path)]
    if (daemon := running_daemon(directory)) is not None:
        tables.remove_watch(row.watch_id)
        return daemon.remove(row.watch_id, row.config.collection, paths)
    removed = 0
    if paths:
        with open_vectors(directory) as store:
            removed = remove_files(store, row.config.collection, paths)
    tables.remove_watch(row.watch_id)
    return removed
