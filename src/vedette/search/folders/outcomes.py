"""Record the outcomes of ingested files in the handshake tables. Used by the worker and by `wqm watch sync`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vedette.errors import FolderError
from vedette.handshake.failures import FaultDomain
from vedette.handshake.tables import HandshakeTables
from vedette.search.ingestion import FileOutcome

__all__ = ["record_file_outcomes"]

log = logging.getLogger(__name__)


def record_file_outcomes(tables: HandshakeTables, outcomes: Sequence[FileOutcome]) -> None:
    """Update the health of each watch, one transaction per watch, and then the circuit breaker of the sink.

    A successful deletion does not count as a success of its watch. Outcomes of a watch that was removed meanwhile are
    ignored.
    """
    by_watch: dict[str, list[FileOutcome]] = {}
    for outcome in outcomes:
        by_watch.setdefault(outcome.file.watch_id, []).append(outcome)
    for watch_id, watch_outcomes in by_watch.items():
        _record_watch_outcomes(tables, watch_id, watch_outcomes)
    if any(
        outcome.failure is not None and outcome.failure.policy.fault_domain is FaultDomain.SINK
        for outcome in outcomes
    ):
        tables.system_state.record_sink_failure()
    elif outcomes:
        tables.system_state.record_sink_success()


def _record_watch_outcomes(tables: HandshakeTables, watch_id: str, outcomes: Sequence[FileOutcome]) -> None:
    succeeded = [
        outcome.file.path for outcome in outcomes if outcome.failure is None and not outcome.file.delete
    ]
    failed = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    try:
        recorded = tables.record_outcomes(watch_id, succeeded=succeeded, failed=failed)
    except FolderError:
        return  # the watch was removed meanwhile
    if recorded.circuit_opened:
        log.warning(
            "The circuit breaker of watch %s opened; the watch is disabled until the cooldown ends",
            watch_id,
            extra={"action": "watch.disabled", "watch_id": watch_id},
        )
    for exclusion in recorded.new_exclusions:
        log.warning(
            "A file failed repeatedly and is excluded: %s",
            exclusion.value,
            extra={"action": "file.excluded", "watch_id": watch_id, "path": exclusion.value},
        )
