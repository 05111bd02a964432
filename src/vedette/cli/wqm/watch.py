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
    confirm,
    find_watch,
    open_tables,
    open_vectors,
    print_record,
    print_records,
    require_directory,
    running_daemon,
)
from vedette.cli.wqm.exclusions import exclusions
from vedette.cli.wqm.health import errors, health, reset_errors
from vedette.cli.wqm.sync import sync
from vedette.clock import SystemClock
from vedette.extras import missing_extra_note

if TYPE_CHECKING:
    from vedette.handshake.tables import HandshakeTables
    from vedette.handshake.tables.rows import WatchRow

__all__ = ["watch_app"]

watch_app = typer.Typer(help="Folder watches.", no_args_is_help=True, rich_markup_mode=None)
watch_app.command()(health)
watch_app.command()(errors)
watch_app.command()(exclusions)
watch_app.command("reset-errors")(reset_errors)
watch_app.command()(sync)

PatternOption = Annotated[
    list[str] | None,
    typer.Option("--pattern", "-p", help="Only files that match, such as '*.py'; may be repeated."),
]
IgnoreOption = Annotated[
    list[str] | None, typer.Option("--ignore", "-i", help="Skip files that match; may be repeated.")
]
AutoOption = Annotated[bool | None, typer.Option("--auto/--no-auto", help="Ingest changes automatically.")]
RecursiveOption = Annotated[
    bool | None, typer.Option("--recursive/--no-recursive", help="Include sub-folders.")
]
DepthOption = Annotated[
    int | None, typer.Option("--depth", min=-1, help="Levels of sub-folders; -1 has no limit.")
]
DebounceOption = Annotated[
    float | None,
    typer.Option("--debounce", min=0, metavar="SECONDS", help="Quiet time before a changed file is read."),
]
PriorityOption = Annotated[
    int | None, typer.Option("--priority", help="From 0 to 10; 10 is processed first.")
]


@watch_app.command()
def add(
    path: Annotated[Path, typer.Argument(help="Folder to watch.")],
    collection: Annotated[str, typer.Option("--collection", "-c", help="Collection for the text.")],
    id: Annotated[
        str | None, typer.Option("--id", help="Id of the watch; derived from the path by default.")
    ] = None,
    pattern: PatternOption = None,
    ignore: IgnoreOption = None,
    auto: AutoOption = None,
    recursive: RecursiveOption = None,
    depth: DepthOption = None,
    debounce: DebounceOption = None,
    priority: PriorityOption = None,
    library: Annotated[
        str | None, typer.Option("--library", metavar="NAME", help="Mark the folder as the library NAME.")
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
        raise CommandFailed(f"{folder} is not a folder. Check the path.")
    if folder.is_relative_to(directory.resolve()):
        raise CommandFailed(
            f"{folder} is the data directory of Vedette, or inside it. Watch another folder, or "
            f"choose another data directory "
            "with --data."
        )
    chosen = _given_options(pattern, ignore, auto, recursive, depth, debounce, priority, None)
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
        typer.Option("--collection", "-c", help="Collection for the text; only while no text is stored."),
    ] = None,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Change options of a watch. Other options, health and counters are kept."""
    chosen = _given_options(pattern, ignore, auto, recursive, depth, debounce, priority, collection)
    if not chosen:
        raise CommandFailed("Nothing to change: name at least one option.")
    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        watch_id = row.watch_id
        if collection not in (None, row.config.collection):
            _refuse_collection_update(row, require_directory(data))
        if tables.update_watch(watch_id, **chosen).config.auto_ingest:
            tables.request_rescan(watch_id)
    print(f"{watch_id}: {', '.join(f'{name} = {_plain(value)}' for name, value in chosen.items())}")


@watch_app.command("list")
def list_watches(
    show_priority: Annotated[
        bool, typer.Option("--show-priority", help="Show configured and effective priority.")
    ] = False,
    show_degradation: Annotated[
        bool, typer.Option("--show-degradation", help="Show the load level and which watches it pauses.")
    ] = False,
    by_priority: Annotated[bool, typer.Option("--by-priority", help="Sort by effective priority.")] = False,
    active: Annotated[bool, typer.Option("--active", help="Only active watches.")] = False,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Only watches of this collection.")
    ] = None,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """List folder watches and sources."""
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.wqm.records import watch_record

    with open_tables(data) as tables:
        state = tables.system_state.degradation()
        records = [watch_record(row, state, SystemClock().now()) for row in tables.watches()]
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
        chosen, columns, format, empty="No watches. `wqm watch add FOLDER --collection NAME` adds one."
    )


@watch_app.command()
def status(
    watch: WatchArgument, data: DataOption = DEFAULT_DATA, format: FormatOption = OutputFormat.TABLE
) -> None:
    """Show everything about one watch."""
    from vedette.cli.wqm.records import watch_record

    with open_tables(data) as tables:
        record = watch_record(
            find_watch(tables, watch), tables.system_state.degradation(), SystemClock().now()
        )
    if format is OutputFormat.JSON:
        print_records([record], [], format, empty="")
    else:
        print_record(record, format)


def _update(watch: str, data: str, change: Callable[[HandshakeTables, str], object], becomes: str) -> None:
    with open_tables(data) as tables:
        watch_id = find_watch(tables, watch).watch_id
        change(tables, watch_id)
    print(f"{watch_id} is {becomes}")


@watch_app.command()
def enable(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Enable a watch, also one that its circuit breaker disabled."""
    _update(watch, data, lambda tables, id: tables.enable_watch(id), "enabled")


@watch_app.command()
def disable(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Disable a watch until it is enabled. Changes made meanwhile are found then."""
    _update(watch, data, lambda tables, id: tables.disable_watch(id), "disabled")


@watch_app.command()
def pause(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Record changes but process nothing."""
    _update(watch, data, lambda tables, id: tables.pause_watch(id), "paused")


@watch_app.command()
def resume(watch: WatchArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Process the recorded changes."""
    _update(watch, data, lambda tables, id: tables.resume_watch(id), "resumed")


@watch_app.command()
def remove(
    watch: WatchArgument,
    keep_chunks: Annotated[
        bool, typer.Option("--keep-chunks", help="Keep its text in the collection.")
    ] = False,
    force: ForceOption = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Remove a watch and its text from the collection. The files are not changed."""
    from vedette.handshake.config import WatchType
    from vedette.sources.files.file_state import FILE_NAME, FileStateStore

    directory = require_directory(data)
    with open_tables(data) as tables:
        row = find_watch(tables, watch)
        if row.config.watch_type is WatchType.SOURCE:
            name = row.watch_id.removeprefix("source:")
            raise CommandFailed(f"{row.watch_id} is a source: `vedette source remove {name}` removes it.")
        confirm(f"Stop watching {row.config.path} ({row.watch_id})?", force=force)
        with closing(FileStateStore(directory / FILE_NAME)) as file_states:
            known = set() if keep_chunks else set(file_states.known(row.watch_id))
            removed = _remove_watch(directory, row, known, tables)
            file_states.delete_watch(row.watch_id)
    print(f"{row.watch_id} is removed{f', with the text of {removed} files' if removed else ''}")


def _given_options(
    pattern: list[str] | None,
    ignore: list[str] | None,
    auto: bool | None,
    recursive: bool | None,
    depth: int | None,
    debounce: float | None,
    priority: int | None,
    collection: str | None,
) -> dict[str, Any]:
    """Return the fields that were given on the command line."""
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


def _refuse_collection_update(row: WatchRow, directory: Path) -> None:
    """Raise if text is stored: it would stay in the old collection and never be updated."""
    from vedette.sources.files.file_state import FILE_NAME, FileStateStore

    with closing(FileStateStore(directory / FILE_NAME)) as file_states:
        files = len(file_states.known(row.watch_id))
    if files:
        raise CommandFailed(
            f"{row.watch_id} has stored {files:,} files in {row.config.collection}, and they cannot be moved. "
            f"Remove their text with `wqm watch remove {row.watch_id}`, then add the folder with the other collection."
        )


def _remove_watch(directory: Path, row: WatchRow, known: set[str], tables: HandshakeTables) -> int:
    """Remove a watch and the chunks of its files that no other watch covers. Return the number of files.

    With a running daemon the watch is removed first, so that the daemon does not ingest the files again. Without one
    the text is removed first, so that an interrupted command can be repeated.
    """
    from vedette.search.folders.overlapping_watches import OverlappingWatches
    from vedette.search.vectors.store import remove_files

    root, overlapping = row.config.path.rstrip("/"), OverlappingWatches(tables, row.config, SystemClock())
    paths = [path for path in (f"{root}/{name}" for name in known) if not overlapping.any_covers(path)]
    if (daemon := running_daemon(directory)) is not None:
        tables.remove_watch(row.watch_id)
        return daemon.remove(row.watch_id, row.config.collection, paths)
    removed = 0
    if paths:
        with open_vectors(directory) as store:
            removed = remove_files(store, row.config.collection, paths)
    tables.remove_watch(row.watch_id)
    return removed
