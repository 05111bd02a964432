"""Running the parts of a text in a session: declarations are defined, statements executed, each result is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from vedette.cli.errors import traceback_wanted
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
    """Run one part of `source`, into which errors will point. With a `clock`, the time it took is shown."""
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
    """Define declarations in the session's database; returns what is new. An actor may not: no policy speaks of it."""
    if session.actor is not None:
        raise PolicyError(
            "E7001",
            "Only the system context may change the ontology: leave the actor's session (END SESSION, or start "
            "without --actor) and define it there",
        )
    before = session.database.schema
    session.database.define(text)
    return changed_names(before, session.database.schema)


def changed_names(old: Schema, new: Schema) -> list[str]:
    """What a definition added: new names, and types that have new attributes."""
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
    """An error within is shown with its place in the file `name`, and ends the command."""
    try:
        yield
    except VedetteError as error:
        if traceback_wanted():
            raise
        display.error(error, f"{name}:{error_position(error, source, start)}")
        raise typer.Exit(1) from error


def error_position(error: VedetteError, source: str, start: int = 0) -> str:
    """`line:column` of the error's first place; of what begins at `start` when it has none."""
    first = error.diagnostics[0] if error.diagnostics else None
    if isinstance(first, Diagnostic) and first.source == source:
        return f"{first.line}:{first.column}"
    line, column = line_and_column(source, start)
    return f"{line}:{column}"
