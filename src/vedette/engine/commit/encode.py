"""Encodes commits as one batch for the store: the net effect on elements, and every change for the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vedette.engine.state.graph_state import Commit
from vedette.storage.element_codec import ElementCodec
from vedette.storage.seam import Batch, ElementRecord, JournalRow
from vedette.values import timestamp_to_ms

__all__ = ["POLICY_CHANGE_NOTE", "TICK_NOTE", "PolicyChange", "encode_commits"]

TICK_NOTE = "tick"
"""The note that stores logical time after the last commit."""
POLICY_CHANGE_NOTE = "rights"


class PolicyChange(NamedTuple):
    """The last commit that declared a policy. Earlier events were filtered by other policies."""

    sequence: int
    tick: int


def encode_commits(codec: Callable[[], ElementCodec], commits: Sequence[Commit]) -> Batch:
    """Encode commits. Runs without locks in the thread that leads the flush; elements are immutable."""
    current = codec()
    records: dict[str, ElementRecord | None] = {}
    rows: list[JournalRow] = []
    definitions: list[str] = []
    facts: dict[str, str] = {}
    for commit in commits:
        facts.update(commit.notes)
        if commit.definition is not None:
            definitions.append(commit.definition)
        _encode_changes(current, commit, records, rows)
    return Batch(
        sequence=commits[-1].sequence,
        puts=[record for record in records.values() if record is not None],
        deletes=[id for id, record in records.items() if record is None],
        journal=rows,
        definitions=definitions,
        meta=(*facts.items(), (TICK_NOTE, str(commits[-1].next_tick))),
    )


def _encode_changes(
    codec: ElementCodec, commit: Commit, records: dict[str, ElementRecord | None], rows: list[JournalRow]
) -> None:
    moment = timestamp_to_ms(commit.time)
    transaction = f"t{commit.sequence}"
    for before, after in commit.changes:
        element = after if after is not None else before
        assert element is not None
        # A record keeps the position of its first change, so that an edge follows the elements it joins.
        records[element.id], image = codec.record_and_image(after) if after is not None else (None, None)
        earlier = codec.image(before) if before is not None else None
        rows.append(
            JournalRow(
                commit.tick,
                transaction,
                element.type,
                element.id,
                earlier,
                image,
                moment,
                commit.cause,
                seq=commit.sequence,
            )
        )
