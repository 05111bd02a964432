"""`vedette define`: add the declarations of ontology files."""

from __future__ import annotations

from typing import Annotated

import typer

from vedette.cli.options import DEFAULT_DATA, DatabaseOption, DataOption, read_text

__all__ = ["define"]


def define(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Ontology files; - is standard input.")],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = "default",
) -> None:
    """Add the declarations of ontology files to a database.

    Existing declarations are accepted again. New types and optional attributes are added. A change that existing data
    contradicts is rejected with a list of the violations. Files are read in the given order.

    \b
    Examples:
      vedette define board.mew
      vedette define people.mew tasks.mew --data /var/lib/vedette --database team-b
    """
    from vedette.cli.data_access import open_session
    from vedette.cli.output.display import TableDisplay
    from vedette.cli.script_runner import define_text, report_errors
    from vedette.language.parser import parse_declarations

    display = TableDisplay()
    texts = [(name, read_text(name)) for name in files]
    for name, text in texts:
        with report_errors(display, name, text):
            parse_declarations(text)
    with open_session(data, database, display=display) as session:
        for name, text in texts:
            with report_errors(display, name, text):
                display.show_defined(define_text(session, text))
