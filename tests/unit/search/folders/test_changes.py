"""Which operations a change needs, as a table of cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vedette.handshake.exclusions import Exclusion, ExclusionType
from vedette.search.folders.changes import plan_change
from vedette.sources.files.file_stamp import ChangeKind, FileChange, FileStamp

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = FileStamp(1, 1, 1, 1, 1)
EXCLUSION = Exclusion(
    type=ExclusionType.PATTERN,
    value="*.log",
    reason="noise",
    error_count=0,
    created_at=NOW,
    expires_at=NOW + timedelta(days=1),
)


@pytest.mark.parametrize(
    ("kind", "path", "old_path", "needed_elsewhere", "operations"),
    [
        ("created", "a", None, (), [("/r/a", "ingest")]),
        ("changed", "a", None, (), [("/r/a", "update")]),
        ("deleted", "a", None, (), [("/r/a", "delete")]),
        ("moved", "b", "a", (), [("/r/a", "delete"), ("/r/b", "ingest")]),
        ("deleted", "a", None, ("/r/a",), []),
        ("moved", "b", "a", ("/r/a", "/r/b"), [("/r/b", "ingest")]),
        ("changed", "a", None, ("/r/a",), [("/r/a", "update")]),
        ("created", "a.log", None, (), [("/r/a.log", "delete")]),
        ("changed", "a.log", None, ("/r/a.log",), []),
        ("moved", "b.log", "a", (), [("/r/a", "delete"), ("/r/b.log", "delete")]),
    ],
)
def test_operations(
    kind: str,
    path: str,
    old_path: str | None,
    needed_elsewhere: tuple[str, ...],
    operations: list[tuple[str, str]],
) -> None:
    change = FileChange(
        kind=ChangeKind(kind), path=path, stamp=None if kind == "deleted" else STAMP, old_path=old_path
    )
    plan = plan_change(change, "/r", [EXCLUSION], needed_elsewhere.__contains__, NOW)
    assert list(plan.operations) == operations
    assert plan.is_excluded == path.endswith(".log")


def test_expired_exclusion_has_no_effect() -> None:
    change = FileChange(kind=ChangeKind.CREATED, path="a.log", stamp=STAMP)
    plan = plan_change(change, "/r", [EXCLUSION], lambda _: False, NOW + timedelta(days=2))
    assert list(plan.operations) == [("/r/a.log", "ingest")]
    assert not plan.is_excluded
