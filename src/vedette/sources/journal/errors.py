"""Errors that a journal raises."""

from __future__ import annotations

from vedette.errors import SourceError, StoreError

__all__ = ["name_taken", "trimmed", "unknown_source"]


def name_taken(name: str) -> SourceError:
    text = f"there is a source '{name}' already: choose another name, or remove it first"
    return SourceError("E6101", text, fields={"source": name})


def unknown_source(name: str) -> SourceError:
    text = f"there is no source '{name}': `vedette source list` shows those there are"
    return SourceError("E6103", text, fields={"source": name})


def trimmed(place: str, after: int, first: int) -> StoreError:
    text = (
        f"{place} no longer has the changes after offset {after}; the first that is kept is {first}: "
        "take a snapshot and go on from there, or keep the journal longer (journal_retention_seconds)"
    )
    return StoreError("E6006", text, fields={"place": place, "after": after, "first": first})
