"""Runs the fenced examples of a Markdown page, top to bottom, the way a reader would.

    ```python run             one namespace per page, in an empty folder
    ```mew define             given to db.define of the page's database, which is in memory
    ```mew run                given to session.run of the page's session, which is the system's
    ```… run fails=E2003      must raise that error
    ```output                 what the example just above prints: what Python printed, the rows of the
                              statements, or the text of the error

Blocks without `run` or `define` are for reading only. A table is printed as its columns, then its rows:

    t.title | t.priority
    write docs | 2
"""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vedette.values import duration_to_text, timestamp_to_text

__all__ = ["Block", "ExampleFailed", "Page", "blocks_of", "render"]

FENCE = re.compile(
    r"^(?P<ticks>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=ticks)[ \t]*$", re.MULTILINE | re.DOTALL
)


class ExampleFailed(AssertionError):
    """The output of an example differs from the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    line: int  # line of the opening fence, from 1
    words: tuple[str, ...]  # the info string: ("mew", "run", "fails=E2003")
    text: str

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def runs(self) -> bool:
        return not {"run", "define"}.isdisjoint(self.words[1:])

    @property
    def expected_error(self) -> str | None:
        codes = [word.removeprefix("fails=") for word in self.words if word.startswith("fails=")]
        return codes[0] if codes else None


def blocks_of(text: str) -> Iterator[Block]:
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        yield Block(line=line, words=tuple(fence["info"].split()), text=fence["text"])


class Page:
    """The state of one page while its examples run. The first example that needs the database opens it."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.blocks = list(blocks_of(text))
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self._database: Any = None
        self._session: Any = None

    def run(self) -> None:
        try:
            for block, following in zip_longest(self.blocks, self.blocks[1:]):
                if block.runs:
                    output = self._run_block(block)
                    if following is not None and following.language == "output":
                        self._compare(following, output)
        finally:
            self._end_processes()
            if self._database is not None:
                self._database.close()

    def _end_processes(self) -> None:
        """End the processes that a failed page started and did not end."""
        for value in self.namespace.values():
            if isinstance(value, subprocess.Popen):
                with value:  # closes its pipes and waits for it
                    value.kill()

    def _run_block(self, block: Block) -> str:
        """Return the output of the block. An error is raised unless the block expects it."""
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                print(self._execute(block), end="")
        except Exception as error:
            if block.expected_error is None or getattr(error, "code", None) != block.expected_error:
                error.add_note(f"in the example at {self.path}:{block.line}")
                raise
            return str(error)
        if block.expected_error is not None:
            raise ExampleFailed(f"{self.path}:{block.line}: {block.expected_error} was expected, but it ran")
        return printed.getvalue()

    def _execute(self, block: Block) -> str:
        if block.language == "python":
            # Empty lines before the text, so that a traceback shows the line of the page.
            code = compile("\n" * block.line + block.text, str(self.path), "exec")
            exec(code, self.namespace)
            return ""
        if block.language == "mew":
            self._open()
            if "define" in block.words:
                self._database.define(block.text)
                return ""
            return render(self._session.run(block.text))
        raise ExampleFailed(f"{self.path}:{block.line}: {block.language!r} examples cannot be run")

    def _open(self) -> None:
        if self._database is None:
            import vedette

            self._database = vedette.open(":memory:")
            self._session = self._database.session()

    def _compare(self, block: Block, output: str) -> None:
        if _lines(block.text) != _lines(output):
            raise ExampleFailed(
                f"{self.path}:{block.line}: the page says\n\n{block.text}\nbut the example gives\n\n{output}"
            )


def render(results: Iterable[Any]) -> str:
    """Format the results of a script as on the pages: results with columns, separated by an empty line."""
    tables = [
        "\n".join([" | ".join(result.columns), *(" | ".join(map(_cell, row)) for row in result.rows)])
        for result in results
        if result.columns
    ]
    return "\n\n".join(tables)


def _cell(value: object) -> str:
    if isinstance(value, str | datetime | timedelta):
        return _text(value)
    return json.dumps(value, default=_text, ensure_ascii=False)


def _text(value: object) -> str:
    match value:
        case str():
            return value
        case datetime():
            return timestamp_to_text(value)
        case timedelta():
            return duration_to_text(value)
    raise TypeError(f"no way to print {value!r}")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]
