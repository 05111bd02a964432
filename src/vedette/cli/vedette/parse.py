"""`vedette parse`: check a text without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vedette.cli.options import JsonOption, read_text

if TYPE_CHECKING:
    from vedette.errors import VedetteError
    from vedette.language.parser.source_file import SourcePart

__all__ = ["parse"]


def parse(
    source: Annotated[
        str, typer.Argument(metavar="FILE|TEXT", help="A file, - for standard input, or a text.")
    ],
    json: JsonOption = False,
) -> None:
    """Check a text and print it in canonical form.

    Nothing is run. Only the grammar is checked, not whether types and attributes exist. All errors are underlined, and
    the exit code is 1.

    \b
    Examples:
      vedette parse board.mew
      vedette parse 'match t: Task return t'
      vedette parse tasks.mew --json
    """
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.output.tables import json_line
    from vedette.cli.script_runner import error_position
    from vedette.errors import VedetteError
    from vedette.language.parser.source_file import parse_source_file

    name, text = _read_source(source)
    try:
        parts = parse_source_file(text)
    except VedetteError as error:
        if json:
            print(json_line({"errors": _error_records(error)}))
        else:
            TableDisplay().error(error, f"{name}:{error_position(error, text)}" if name else "")
        raise typer.Exit(1) from error
    if json:
        print(json_line({"parts": [_record(part, text) for part in parts]}))
    else:
        print("\n".join(_canonical(part) for part in parts))


def _read_source(source: str) -> tuple[str, str]:
    """Return the name of the file (empty for a text) and the text.

    An argument that looks like a path must be a file.
    """
    if source == "-":
        return "stdin", read_text(source)
    looks_like_path = len(source.split()) == 1 and ("/" in source or "." in source)
    return (source, read_text(source)) if looks_like_path or _is_file(source) else ("", source)


def _is_file(source: str) -> bool:
    try:
        return Path(source).is_file()
    except OSError:  # the text is longer than any path
        return False


def _canonical(part: SourcePart) -> str:
    from vedette.language.parser.source_file import DeclarationPart
    from vedette.language.printer import print_declarations, print_statement

    return (
        print_declarations(part.trees)
        if isinstance(part, DeclarationPart)
        else f"{print_statement(part.tree)};"
    )


def _record(part: SourcePart, source: str) -> dict[str, Any]:
    from vedette.language.diagnostics import line_and_column
    from vedette.language.parser.source_file import DeclarationPart

    line, column = line_and_column(source, part.first_token_offset)
    trees = part.trees if isinstance(part, DeclarationPart) else (part.tree,)
    return {
        "part": "declarations" if isinstance(part, DeclarationPart) else "statement",
        "kinds": [type(tree).__name__ for tree in trees],
        "line": line,
        "column": column,
        "text": _canonical(part),
    }


def _error_records(error: VedetteError) -> list[dict[str, Any]]:
    from vedette.language.diagnostics import Diagnostic

    found = [each for each in error.diagnostics if isinstance(each, Diagnostic)]
    return [
        {
            "code": d.code,
            "message": d.message,
            "line": d.line,
            "column": d.column,
            "length": len(d.source[slice(*d.span)]),
        }
        for d in found
    ]
