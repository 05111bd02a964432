"""The audit log: lines, file mode, rotation, several writers, write errors."""

from __future__ import annotations

import json
import logging
import multiprocessing
import stat
from pathlib import Path

import pytest

from vedette.processes.audit_log import audit_logging

AUDIT = logging.getLogger("vedette.audit")
GATEWAY_AUDIT = logging.getLogger("vedette.gateway.audit")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_are_json_lines_readable_by_the_owner_only(tmp_path: Path) -> None:
    with audit_logging(tmp_path, process="engine", max_bytes=65_536, max_files=2):
        assert not (tmp_path / "audit.log").exists(), "the first record makes the file"
        AUDIT.warning("MATCH was denied", extra={"action": "policy.denied", "tenant": "shop", "actor": "ann"})
        GATEWAY_AUDIT.info("Subscription created", extra={"action": "subscription.created", "sub": "s1"})
    AUDIT.warning("after the end")
    first, second = lines(tmp_path / "audit.log")
    assert (first["action"], first["tenant"], first["actor"]) == ("policy.denied", "shop", "ann")
    assert (first["level"], first["process"], first["logger"]) == ("warning", "engine", "vedette.audit")
    assert (second["action"], second["level"], second["sub"]) == ("subscription.created", "info", "s1")
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600


def test_permissions_of_an_existing_file_are_restricted(tmp_path: Path) -> None:
    (tmp_path / "audit.log").touch(0o644)
    with audit_logging(tmp_path, process="engine", max_bytes=65_536, max_files=2):
        AUDIT.warning("x")
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600


def test_no_file_without_a_directory() -> None:
    with audit_logging(None, process="engine", max_bytes=65_536, max_files=2) as audit:
        assert audit is None


def test_full_file_is_rotated_and_old_files_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "audit.log.7").write_text("from a time when more were kept\n")
    with audit_logging(tmp_path, process="engine", max_bytes=1_000, max_files=3):
        for number in range(60):
            AUDIT.warning("%d %s", number, "x" * 100)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"]
    assert all(path.stat().st_size <= 1_000 for path in tmp_path.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    kept = [line for name in reversed(names) for line in lines(tmp_path / name)]
    numbers = [int(str(line["message"]).split()[0]) for line in kept]
    assert numbers == list(range(60 - len(numbers), 60)), "the last ones, in order, none twice"


def write_many(directory: str, process: str) -> None:
    with audit_logging(Path(directory), process=process, max_bytes=4_000, max_files=100):
        for number in range(200):
            AUDIT.warning("%d", number)


def test_several_processes_share_a_file_without_losing_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(tmp_path), f"p{n}")) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = [line for path in tmp_path.iterdir() for line in lines(path)]
    assert len(found) == 600
    for process in ("p0", "p1", "p2"):
        assert {line["message"] for line in found if line["process"] == process} == {
            str(number) for number in range(200)
        }


def test_removed_file_is_created_again(tmp_path: Path) -> None:
    with audit_logging(tmp_path, process="engine", max_bytes=65_536, max_files=2):
        AUDIT.warning("first")
        (tmp_path / "audit.log").unlink()
        AUDIT.warning("second")
    assert [line["message"] for line in lines(tmp_path / "audit.log")] == ["second"]


def test_failure_is_logged_once_and_raises_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with audit_logging(tmp_path / "missing", process="engine", max_bytes=65_536, max_files=2):
        AUDIT.warning("first")
        AUDIT.warning("second")
    failures = [r for r in caplog.records if getattr(r, "action", "") == "audit.write_failed"]
    assert len(failures) == 1
    assert "No such file" in failures[0].getMessage()
