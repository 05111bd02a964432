"""Commits ▸ one batch for the store: the net effect on elements, and every change in the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vedette.engine.state.graph_state import Commit
from vedette.storage.element_codec import ElementCodec
from vedette.storage.seam import Batch, ElementRecord, JournalRow
from vedette.values import timestamp_to_ms

__all__ = ["POLICY_CHANGE_NOTE", "TICK_NOTE", "PolicyChange", "encode_commits"]

TICK_NOTE = "tick"
"""The fact that holds logical time after the last commit."""
POLICY_CHANGE_NOTE = "rights"


class PolicyChange(NamedTuple):
    """The last commit that declared a policy: what actors were told before it was judged by others."""

    sequence: int
    tick: int


def encode_commits(codec: Callable[[], ElementCodec], commits: Sequence[Commit]) -> Batch:
    """Runs in the thread that leads the flush, outside every lock: elements never change, so it may take its time."""
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
        # An element keeps the place of its first change: an edge stays behind the edges that it joins.
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
