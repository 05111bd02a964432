"""`vedette source`: add, list, pause and remove external databases."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vedette.cli.errors import CommandFailed
from vedette.cli.options import (
    DEFAULT_DATA,
    DatabaseOption,
    DataOption,
    JsonOption,
    journal_address,
    local_directory,
)
from vedette.extras import missing_extra_note

if TYPE_CHECKING:
    from vedette.sources.journal.seam import CollectionJournal
    from vedette.sources.records import Source

__all__ = ["source_app"]

source_app = typer.Typer(
    help="External collections: MongoDB, PostgreSQL, the graph's own log.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the source.")]


@source_app.callback()
def source() -> None:
    """External collections: MongoDB, PostgreSQL, the graph's own log."""


@source_app.command()
def add(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="mongodb, postgres or graph.")],
    address: Annotated[str, typer.Argument(metavar="URI", help="Address of the database.")],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Prefix of its types, as in NAME::orders.")
    ],
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the reader.")
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", help="Number of partitions.", min=1, max=256)
    ] = 4,
    database: DatabaseOption = "default",
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Make the collections of another database watchable.

    \b
    Examples:
      vedette source add mongodb mongodb://localhost/shop --name shop
      vedette source add postgres postgresql://localhost/shop --name shop --option tables=orders,customers
    """
    from vedette.sources.records import Source
    from vedette.sources.source_options import validate_source

    options = dict(_pair(text) for text in option or [])
    added = Source(
        name=name, kind=kind, address=address, tenant=database, partitions=partitions, options=options
    )
    validate_source(added)
    with _journal(data) as journal:
        validate_source(added, journal.sources())
        journal.add_source(added)
    _register_health(data, added)
    print(
        f"Added {name}. A running server or `vedette pipeline` reads it; `vedette source "
        f"status {name}` shows its state."
    )
    _note(missing_extra_note("pipeline"))


@source_app.command(name="list")
def list_sources(data: DataOption = DEFAULT_DATA, json: JsonOption = False) -> None:
    """List the sources."""
    with _journal(data) as journal:
        records: list[dict[str, Any]] = [
            {
                "name": source.name,
                "kind": source.kind,
                "address": _without_password(source.address),
                "database": source.tenant,
                "state": "paused" if source.paused else _state(journal, source.name),
                "problem": _problem(data, source.name),
            }
            for source in journal.sources()
        ]
    _show(records, json)


@source_app.command()
def status(name: NameArgument, data: DataOption = DEFAULT_DATA, json: JsonOption = False) -> None:
    """Show the partitions of a source, its last error, and its quarantined changes."""
    with _journal(data) as journal:
        journal.source(name)
        unread = journal.resume_token(name) is None
        partitions = [
            {
                "partition": p.id,
                "state": "unread" if unread and p.state == "live" else p.state,
                "epoch": p.epoch,
                "seq": p.seq,
                "reason": p.reason,
            }
            for p in journal.partitions(name)
        ]
        quarantined = [
            {"quarantined": item.event_id, "reason": item.reason, "excerpt": item.excerpt}
            for item in journal.quarantined(name, 10)
        ]
    _show(partitions, json)
    problem = _problem(data, name)
    if problem:
        _show([{"problem": problem}], json)
    if quarantined:
        _show(quarantined, json)


@source_app.command()
def pause(name: NameArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Stop reading a source. `resume` continues at the same place."""
    with _journal(data) as journal:
        journal.set_paused(name, True)
    print(f"Paused {name}.")


@source_app.command()
def resume(name: NameArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Continue reading a paused source."""
    with _journal(data) as journal:
        journal.set_paused(name, False)
    print(f"Resumed {name}.")


@source_app.command()
def remove(name: NameArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Remove a source with its recorded changes and documents. The data of the source itself is not changed.

    The replication slot and the publication of a PostgreSQL source are dropped if the server can be reached.
    """
    from vedette.clock import SystemClock
    from vedette.errors import VedetteError
    from vedette.sources.reader_supervisor import open_reader

    with _journal(data) as journal:
        source = journal.source(name)
        journal.remove_source(name)  # first, because a running reader would create its slot again
        if source.kind == "postgres":
            try:
                reader = open_reader(source, journal, SystemClock())
                reader.release_server_resources()
                reader.close()
            except VedetteError as error:
                print(f"Could not drop the replication slot of {name}: {error}")
    _unregister_health(data, name)
    print(f"Removed {name}.")


def _register_health(data: str, source: Source) -> None:
    """Add the source to the handshake, so that `wqm watch list` shows it."""
    from vedette.cli.wqm.access import open_tables
    from vedette.handshake.tables.source_health import source_watch

    if local_directory(data) is not None:
        with open_tables(data) as tables:
            tables.register_source(source_watch(source))


def _unregister_health(data: str, name: str) -> None:
    from vedette.cli.wqm.access import open_tables
    from vedette.errors import FolderError
    from vedette.handshake.tables.source_health import source_watch_id

    if local_directory(data) is not None:
        with open_tables(data) as tables, suppress(FolderError):  # E4501: not registered
            tables.remove_watch(source_watch_id(name))


@contextmanager
def _journal(location: str) -> Iterator[CollectionJournal]:
    """Open the journal of a data directory for a command."""
    from vedette.sources.journal.seam import open_journal

    directory = local_directory(location)
    if directory is None and not location.startswith("postgres"):
        raise CommandFailed(f"{location} has no sources. Choose a data directory with --data.")
    with closing(open_journal(location if directory is None else journal_address(directory))) as journal:
        yield journal


def _note(text: str) -> None:
    from vedette.cli.output.display import TableDisplay

    if text:
        TableDisplay().note(text)


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise CommandFailed(f"--option takes KEY=VALUE, not {text!r}.")
    return key, value


def _state(journal: CollectionJournal, name: str) -> str:
    states = {partition.state for partition in journal.partitions(name)}
    usual = "unread" if journal.resume_token(name) is None else "live"
    return next((state for state in ("stale", "catching-up") if state in states), usual)


def _problem(data: str, name: str) -> str:
    """Return the last error of a source, or an empty text if its last read succeeded."""
    from vedette.cli.wqm.access import open_tables
    from vedette.errors import FolderError
    from vedette.handshake.tables.source_health import source_watch_id

    if local_directory(data) is None:
        return ""
    with open_tables(data) as tables:
        try:
            health = tables.watch(source_watch_id(name)).health
        except FolderError:  # E4501: not registered
            return ""
    return (health.last_error_message or "") if health.consecutive_errors else ""


def _without_password(address: str) -> str:
    """Remove the password from the user part and from the options of an address."""
    scheme, sign, rest = address.partition("://")
    user, at, host = rest.rpartition("@")
    shown = f"{scheme}{sign}{user.partition(':')[0]}{at}{host}"
    return re.sub(r"(password\s*=\s*)('[^']*'|[^&\s]+)", r"\1***", shown, flags=re.IGNORECASE)


def _show(records: list[dict[str, Any]], json: bool) -> None:
    from vedette.cli.output.display import TableDisplay

    if json:
        for record in records:
            print(json_module.dumps(record))
    elif records:
        TableDisplay().show_table(list(records[0]), [list(record.values()) for record in records])
    else:
        print("None.")
