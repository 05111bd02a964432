"""Running a text in a session: declarations are defined, statements executed, each result shown as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vedette.cli.display import Display
from vedette.cli.script import Declarations, Part, read_script, relocate
from vedette.clock import Clock
from vedette.engine.session import Session
from vedette.errors import PolicyError, VedetteError
from vedette.language.schema import Schema

__all__ = ["changed_names", "define_text", "first_place", "run_parts", "run_text"]


def run_text(
    session: Session, text: str, display: Display, *, params: Mapping[str, Any] | None = None, clock: Clock | None = None
) -> None:
    """Parse the whole text, then run it; stops at the first error, whose places are places in `text`."""
    run_parts(session, text, read_script(text), display, params=params, clock=clock)


def run_parts(
    session: Session,
    text: str,
    parts: Sequence[Part],
    display: Display,
    *,
    params: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
) -> None:
    """With a `clock`, each result is shown with the time it took."""
    for part in parts:
        try:
            _run_part(session, part, display, params or {}, clock)
        except VedetteError as error:
            relocate(error, part, text)
            error.add_note(f"{part.start}")
            raise


def _run_part(
    session: Session, part: Part, display: Display, params: Mapping[str, Any], clock: Clock | None
) -> None:
    if isinstance(part, Declarations):
        display.defined(define_text(session, part.text))
        return
    started = clock.monotonic() if clock is not None else 0.0
    result = session.execute(part.text, params)
    display.result(result, None if clock is None else clock.monotonic() - started)


def define_text(session: Session, text: str) -> list[str]:
    """Define declarations in the session's database; what is new. An actor may not: no policy speaks of it."""
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
    holders = [(old.nodes, new.nodes), (old.edges, new.edges)]
    grown = [
        name
        for before, after in holders
        for name, held in after.items()  # type: ignore[attr-defined]
        if name not in before or before[name].attributes != held.attributes  # type: ignore[index]
    ]
    others = [
        (old.aliases, new.aliases),
        (old.constraints, new.constraints),
        (old.rules, new.rules),
        (old.policies, new.policies),
    ]
    return grown + [name for before, after in others for name in after if name not in before]  # type: ignore[attr-defined]
