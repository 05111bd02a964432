"""Run the parts of a script in a session and show each result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from vedette.cli.errors import should_print_traceback
from vedette.cli.output.display import Display
from vedette.cli.scripts import relocate
from vedette.clock import Clock
from vedette.engine.session.session import Session
from vedette.errors import PolicyError, VedetteError
from vedette.language.diagnostics import Diagnostic, line_and_column
from vedette.language.parser.source_file import DeclarationPart, SourcePart
from vedette.language.schema.model import EdgeType, NodeType, Schema

__all__ = ["changed_names", "define_text", "error_position", "report_errors", "run_part"]


def run_part(
    session: Session,
    part: SourcePart,
    source: str,
    display: Display,
    *,
    params: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
) -> None:
    """Run one part of `source`. Positions in errors refer to all of `source`.

    With a `clock`, the elapsed time is shown.
    """
    try:
        if isinstance(part, DeclarationPart):
            display.show_defined(define_text(session, part.text))
            return
        started = clock.monotonic() if clock is not None else 0.0
        result = session.execute(part.text, params)
        display.result(result, None if clock is None else clock.monotonic() - started)
    except VedetteError as error:
        relocate(error, part, source)
        raise


def define_text(session: Session, text: str) -> list[str]:
    """Define declarations in the session's database and return the new names. Not allowed for an actor."""
    if session.actor is not None:
        raise PolicyError(
            "E7001",
            "only the system context may change the ontology; end the actor's session (END SESSION, or start "
            "without --actor) first",
        )
    before = session.database.schema
    session.database.define(text)
    return changed_names(before, session.database.schema)


def changed_names(old: Schema, new: Schema) -> list[str]:
    """Return the names that a definition added, and the types that it gave new attributes."""
    before: dict[str, NodeType | EdgeType] = {**old.nodes, **old.edges}
    after: dict[str, NodeType | EdgeType] = {**new.nodes, **new.edges}
    grown = [
        name
        for name, held in after.items()
        if name not in before or before[name].attributes != held.attributes
    ]
    known = {*old.aliases, *old.constraints, *old.rules, *old.policies}
    others: Iterable[str] = (*new.aliases, *new.constraints, *new.rules, *new.policies)
    return grown + [name for name in others if name not in known]


@contextmanager
def report_errors(display: Display, name: str, source: str, start: int = 0) -> Iterator[None]:
    """Print an error of the block with its position in the file `name`, and exit with 1."""
    try:
        yield
    except VedetteError as error:
        if should_print_traceback():
            raise
        display.error(error, f"{name}:{error_position(error, source, start)}")
        raise typer.Exit(1) from error


def error_position(error: VedetteError, source: str, start: int = 0) -> str:
    """Return `line:column` of the error's first diagnostic, or of `start` if it has none."""
    first = error.diagnostics[0] if error.diagnostics else None
    if isinstance(first, Diagnostic) and first.source == source:
        return f"{first.line}:{first.column}"
    line, column = line_and_column(source, start)
    return f"{line}:{column}"
