"""`vedette run`: run scripts."""

from __future__ import annotations

from typing import Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, ActorOption, DatabaseOption, DataOption, JsonOption, read_text

__all__ = ["run"]


def run(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Scripts; - is standard input.")],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = "default",
    actor: ActorOption = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="Value of $NAME; may be repeated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run scripts of declarations and statements.

    Declarations are defined and statements executed in order. All files are read and parsed before anything runs. The
    first error ends the run with exit code 1. Earlier statements stay committed, unless they are part of an open
    transaction (BEGIN … COMMIT).

    The value of a parameter is a literal: 3, 1.5, true, null, 30s, @2026-01-31, ["a", "b"]. Any other value is text;
    '"3"' is the text 3.

    \b
    Examples:
      vedette run board.mew
      vedette run tasks.mew --param owner=Ada --param limit=10 --json
      echo 'MATCH t: Task RETURN t' | vedette run -
    """
    from vedette.cli.data_access import open_session
    from vedette.cli.output.display import display_for
    from vedette.cli.parameters import read_parameters
    from vedette.cli.script_runner import report_errors, run_part
    from vedette.language.parser.source_file import parse_source_file

    display = display_for(json=json)
    params = read_parameters(param or [])
    scripts = []
    for name, text in [(name, read_text(name)) for name in files]:
        with report_errors(display, name, text):
            scripts.append((name, text, parse_source_file(text)))
    with open_session(data, database, actor, display=display) as session:
        for name, text, parts in scripts:
            for part in parts:
                with report_errors(display, name, text, part.first_token_offset):
                    run_part(session, part, text, display, params=params)
