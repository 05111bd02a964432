"""Where what is said ends: at a terminal when Enter is pressed, in a pipe line by line. The parser decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vedette.cli.scripts import check_completeness

__all__ = ["is_complete", "split_entries"]


def is_complete(text: str) -> bool:
    """Whether Enter runs the text, or begins a new line.

    One line that is whole runs at once. Several lines go on until `;` or an empty line, for a whole statement may
    have more clauses. An empty line always ends it; and what no more text can make right, is shown to be wrong.
    """
    first, *more = text.split("\n")
    if first.lstrip().startswith(".") or not text.strip():
        return True
    if more and not more[-1].strip():
        return True
    reading = check_completeness(text)
    if reading == "open":
        return False
    return reading == "wrong" or not more or text.rstrip().endswith(";")


def split_entries(lines: Iterable[str]) -> Iterator[str]:
    """What is said in a pipe: texts that end with `;`, an empty line or the end, and dot-commands on their lines."""
    text = ""
    for line in lines:
        bare = line.strip()
        if bare.startswith(".") and check_completeness(text) != "open":
            yield from _nonblank(text)
            yield bare
            text = ""
            continue
        text += line
        if (not bare or bare.endswith(";")) and check_completeness(text) != "open":
            yield from _nonblank(text)
            text = ""
    yield from _nonblank(text)


def _nonblank(text: str) -> Iterator[str]:
    if text.strip():
        yield text
