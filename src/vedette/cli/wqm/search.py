"""`wqm search`: search the text of files by meaning."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import (
    FormatOption,
    OutputFormat,
    directory_settings,
    open_vectors,
    print_records,
    require_directory,
    running_daemon,
)
from vedette.extras import require_extra

if TYPE_CHECKING:
    from vedette.search.vectors.store import SearchHit

__all__ = ["search"]

_MAX_TEXT_CHARACTERS = 120
"""Length of a chunk's text in a table."""


def search(
    text: Annotated[str, typer.Argument(help="Text to search for.")],
    collection: Annotated[str, typer.Option("--collection", "-c", help="Collection to search.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of results.")] = 10,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Search the text of files by meaning. Prints path, lines or pages, and score.

    A running daemon answers from its current state. The score is 1 for equal meaning and about 0 for unrelated text.

    \b
    Examples:
      wqm search "how are leases renewed" --collection code
      wqm search "invoice march" -c papers -n 3 --format json
    """
    hits = _search(require_directory(data), text, collection, limit)
    records = [
        {
            **asdict(hit),
            "score": round(hit.score, 4),
            "place": _location(hit.path, hit.start, hit.end, hit.unit),
        }
        for hit in hits
    ]
    if format is OutputFormat.TABLE:
        for record in records:
            shown = " ".join(record["text"].split())
            record["text"] = (
                f"{shown[: _MAX_TEXT_CHARACTERS - 1]}…" if len(shown) > _MAX_TEXT_CHARACTERS else shown
            )
    empty = f"The collection {collection} is empty. `wqm admin system-stats` lists the collections."
    print_records(records, ["score", "place", "title", "text"], format, empty=empty)


def _search(directory: Path, text: str, collection: str, limit: int) -> list[SearchHit]:
    """Search through the running daemon, or in this process without one."""
    from vedette.search.embedding import create_embedder

    if (daemon := running_daemon(directory)) is not None:
        return daemon.search(collection, text, limit)
    require_extra("files", "`wqm search`")
    embedder = create_embedder(directory_settings(directory).embedder)
    (vector,) = embedder.embed([text])
    with open_vectors(directory) as store:
        return store.search(collection, vector, embedder.name, limit)


def _location(path: str, start: int, end: int, unit: str) -> str:
    """Return `a.py:10-20`, as editors accept it, or `a.pdf page 3-4`."""
    numbers = str(start) if start == end else f"{start}-{end}"
    return f"{path}:{numbers}" if unit == "line" else f"{path} {unit} {numbers}"
