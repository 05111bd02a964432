"""Where what is said ends: at a terminal when Enter is pressed, in a pipe line by line. The parser decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vedette.cli.scripts import reading_of

__all__ = ["entries", "is_finished"]


def is_finished(text: str) -> bool:
    """Whether Enter runs the text, or begins a new line.

    One line that is whole runs at once. Several lines go on until `;` or an empty line, for a whole statement may
    have more clauses. An empty line always ends it; and what no more text can make right, is shown to be wrong.
    """
    first, *more = text.split("\n")
    if first.lstrip().startswith(".") or not text.strip():
        return True
    if more and not more[-1].strip():
        return True
    reading = reading_of(text)
    if reading == "open":
        return False
    return reading == "wrong" or not more or text.rstrip().endswith(";")


def entries(lines: Iterable[str]) -> Iterator[str]:
    """What is said in a pipe: texts that end with `;`, an empty line or the end, and dot-commands on their lines."""
    text = ""
    for line in lines:
        bare = line.strip()
        if bare.startswith(".") and reading_of(text) != "open":
            yield from _said(text)
            yield bare
            text = ""
            continue
        text += line
        if (not bare or bare.endswith(";")) and reading_of(text) != "open":
            yield from _said(text)
            text = ""
    yield from _said(text)


def _said(text: str) -> Iterator[str]:
    if text.strip():
        yield text
