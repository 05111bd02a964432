"""Which ingest and delete operations a file change needs. Used by the intake and by `wqm watch sync`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from vedette.handshake.exclusions import Exclusion, find_exclusion
from vedette.search.file_queue.tasks import FileOperation
from vedette.sources.files.file_stamp import ChangeKind, FileChange

__all__ = ["ChangePlan", "PlannedOperation", "plan_change"]

_OPERATIONS = {
    ChangeKind.CREATED: FileOperation.INGEST,
    ChangeKind.CHANGED: FileOperation.UPDATE,
    ChangeKind.MOVED: FileOperation.INGEST,
    ChangeKind.DELETED: FileOperation.DELETE,
}


class PlannedOperation(NamedTuple):
    path: str
    """Absolute."""
    operation: FileOperation


class ChangePlan(NamedTuple):
    operations: Sequence[PlannedOperation]
    """At most two. Empty if another watch keeps the file's chunks."""
    is_excluded: bool
    """True if an exclusion covers the file, so that its chunks are deleted instead of written."""


def plan_change(
    change: FileChange,
    root: str,
    exclusions: Sequence[Exclusion],
    is_needed_elsewhere: Callable[[str], bool],
    now: datetime,
) -> ChangePlan:
    """Plan the operations for one change below the folder `root`.

    A move deletes the old path and ingests the new one. An excluded file is deleted. A path for which
    `is_needed_elsewhere` returns True is never deleted: another watch of the collection covers it and reports its
    deletion.
    """
    operations = []
    if change.old_path is not None:
        old_path = f"{root}/{change.old_path}"
        if not is_needed_elsewhere(old_path):
            operations.append(PlannedOperation(old_path, FileOperation.DELETE))
    path = f"{root}/{change.path}"
    is_excluded = bool(exclusions) and find_exclusion(exclusions, path, now) is not None
    operation = FileOperation.DELETE if is_excluded else _OPERATIONS[change.kind]
    if operation is not FileOperation.DELETE or not is_needed_elsewhere(path):
        operations.append(PlannedOperation(path, operation))
    return ChangePlan(operations, is_excluded)
