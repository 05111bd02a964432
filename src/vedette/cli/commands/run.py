"""`vedette run`: run scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, ActorOption, DatabaseOption, DataOption, JsonOption, read_text

if TYPE_CHECKING:
    from vedette.cli.display import Display
    from vedette.cli.script import Part

__all__ = ["run"]


def run(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Scripts; - is standard input.")],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = "default",
    actor: ActorOption = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="The value of $NAME; may be given several times."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run scripts: declarations are defined, statements executed, in the order in which they stand.

    All files are read and parsed before anything runs. The first error ends the run with exit code 1; what was
    done before it stays done, unless it stands in a transaction (BEGIN … COMMIT).

    A parameter's value is what it would be in a statement: 3, 1.5, true, null, 30s, @2026-01-31, ["a", "b"];
    anything else is text. '"3"' is the text 3.

    \b
    vedette run board.mew
    vedette run tasks.mew --param owner=Ada --param limit=10 --json
    echo 'MATCH t: Task RETURN t' | vedette run -
    """
    from vedette.cli.display import display_for
    from vedette.cli.parameters import read_parameters
    from vedette.cli.place import open_session
    from vedette.cli.running import place_of, run_part
    from vedette.errors import VedetteError

    display = display_for(json=json)
    params = read_parameters(param or [])
    texts = [(name, read_text(name)) for name in files]
    scripts = [(name, text, _parsed(name, text, display)) for name, text in texts]
    with open_session(data, database, actor, display=display) as session:
        for name, text, parts in scripts:
            for part in parts:
                try:
                    run_part(session, part, text, display, params=params)
                except VedetteError as error:
                    display.error(error, f"{name}:{place_of(error, text, part.first)}")
                    raise typer.Exit(1) from error


def _parsed(name: str, text: str, display: Display) -> tuple[Part, ...]:
    from vedette.cli.running import place_of
    from vedette.cli.script import read_script
    from vedette.errors import VedetteError

    try:
        return read_script(text)
    except VedetteError as error:
        display.error(error, f"{name}:{place_of(error, text)}")
        raise typer.Exit(1) from error
