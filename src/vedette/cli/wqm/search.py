"""`wqm search`: the places in the files whose text is nearest in meaning."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DataOption
from vedette.cli.wqm.access import (
    FormatOption,
    OutputFormat,
    open_vectors,
    print_records,
    require_directory,
    running_daemon,
    settings_at,
)
from vedette.extras import require_extra

if TYPE_CHECKING:
    from vedette.search.vectors.store import SearchHit

__all__ = ["search"]

_SHOWN = 120
"""Characters of a chunk in a table."""


def search(
    text: Annotated[str, typer.Argument(help="What to look for, in words.")],
    collection: Annotated[str, typer.Option("--collection", "-c", help="Where to look.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many places.")] = 10,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = OutputFormat.TABLE,
) -> None:
    """Search the text of files: path, lines or pages, score.

    A running daemon answers from what it has at this moment. The score is 1 for the same direction of meaning and
    about 0 for none in common.

    \b
    Examples:
      wqm search "how are leases renewed" --collection code
      wqm search "invoice march" -c papers -n 3 --format json
    """
    hits = _found(require_directory(data), text, collection, limit)
    records = [
        {
            **asdict(hit),
            "score": round(hit.score, 4),
            "place": _place(hit.path, hit.start, hit.end, hit.unit),
        }
        for hit in hits
    ]
    if format is OutputFormat.TABLE:
        for record in records:
            shown = " ".join(record["text"].split())
            record["text"] = f"{shown[: _SHOWN - 1]}…" if len(shown) > _SHOWN else shown
    empty = f"Nothing is stored in {collection}. `wqm admin system-stats` lists the collections."
    print_records(records, ["score", "place", "title", "text"], format, empty=empty)


def _found(directory: Path, text: str, collection: str, limit: int) -> list[SearchHit]:
    """By the daemon that holds the vectors, should one run; else here."""
    from vedette.search.embedding import create_embedder

    if (daemon := running_daemon(directory)) is not None:
        return daemon.search(collection, text, limit)
    require_extra("files", "`wqm search`")
    embedder = create_embedder(settings_at(directory).embedder)
    (vector,) = embedder.embed([text])
    with open_vectors(directory) as store:
        return store.search(collection, vector, embedder.name, limit)


def _place(path: str, start: int, end: int, unit: str) -> str:
    """`a.py:10-20`, as editors take it; `a.pdf page 3-4`."""
    numbers = str(start) if start == end else f"{start}-{end}"
    return f"{path}:{numbers}" if unit == "line" else f"{path} {unit} {numbers}"
