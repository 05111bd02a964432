"""doctor: each check, in surroundings that are well and in surroundings that are not."""

from __future__ import annotations

import json
import os
import re
import resource
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from vedette.cli.vedette import doctor_checks as inspection
from vedette.cli.vedette.doctor_checks import DoctorContext, Finding
from vedette.clock import SystemClock


def look(check: Callable[[DoctorContext], Finding], place: Path | None = None, **others: str) -> Finding:
    return check(DoctorContext(directory=place or Path("data"), clock=SystemClock(), **others))


def java_at(home: Path, version: str) -> str:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return str(home)


def test_doctor_runs_all_checks_and_leaves_no_files(cli: Cli, folder: Path) -> None:
    done = cli("doctor")
    assert done.exit_code == 0, done.stdout
    checks = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("ok", "warn", "fail"))]
    extras = ["vedette[pipeline]", "vedette[files]"]
    rest = ["java", "sqlite", "postgresql", "directory", "disk", "descriptors"]
    assert checks == ["python", "core", *extras, *rest]
    assert list(folder.iterdir()) == []


def test_doctor_as_json(cli: Cli) -> None:
    records = [json.loads(line) for line in cli("doctor", "--json").stdout.splitlines()]
    assert {record["status"] for record in records} <= {"ok", "warn"}
    assert all(record["advice"] for record in records if record["status"] != "ok")


def test_a_failed_check_fails_the_command(cli: Cli, folder: Path) -> None:
    (folder / "data").write_text("not a directory")
    done = cli("doctor")
    assert done.exit_code == 1
    assert ["fail", "directory", "data is a file"] in [
        re.split(" {2,}", line) for line in done.stdout.splitlines()
    ]
    assert "Name a directory." in done.stdout


def test_a_missing_extra_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(inspection.files_extra).status == "ok"
    monkeypatch.setitem(sys.modules, "pypdf", None)
    finding = look(inspection.files_extra)
    assert (finding.status, finding.found) == ("warn", "not installed (missing: pypdf)")
    assert "pip install 'vedette[files]'" in finding.advice


@pytest.mark.parametrize(
    ("version", "status"), [("17.0.15", "ok"), ("21-ea", "ok"), ("11.0.2", "warn"), ("1.8.0_392", "warn")]
)
def test_java_home_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str) -> None:
    monkeypatch.setenv("PATH", "/usr/bin/nothing")
    finding = look(inspection.java, java_directory=java_at(folder / "jdk", version))
    assert finding.status == status
    assert str(folder / "jdk") in finding.found


def test_advice_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    finding = look(inspection.java, java_directory="/nowhere")
    assert (finding.status, finding.found) == ("warn", "none")
    assert "openjdk-17-jre-headless" in finding.advice
    assert "JAVA_HOME" in finding.advice


@pytest.mark.parametrize(
    ("compiled", "asked", "status"), [(True, "", "ok"), (False, "0", "ok"), (False, "", "warn")]
)
def test_core_is_reported(monkeypatch: pytest.MonkeyPatch, compiled: bool, asked: str, status: str) -> None:
    monkeypatch.setattr(inspection, "is_compiled", lambda: compiled)
    monkeypatch.setenv("VEDETTE_COMPILED", asked)
    finding = look(inspection.core)
    assert finding.status == status
    assert finding.found.startswith("compiled" if compiled else "plain Python")


def test_old_sqlite_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 8, 0))
    assert look(inspection.sqlite).status == "fail"


def test_slow_disk_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        moment = 0.0

        def monotonic(self) -> float:
            self.moment += 0.04
            return self.moment

    finding = inspection.disk(DoctorContext(directory=Path("data"), clock=Slow()))  # type: ignore[arg-type]
    assert finding.status == "warn"
    assert finding.found.startswith("write and fsync take 40.00 ms")
    assert "relaxed" in finding.advice


def test_low_descriptor_limit_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 4_096))
    finding = look(inspection.descriptors)
    assert finding.status == "warn"
    assert "ulimit -n 1024" in finding.advice


def test_read_only_directory_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    finding = look(inspection.directory, folder)
    assert finding.status == "fail"
    assert "--data" in finding.advice


def test_check_that_raises_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def disk(surroundings: DoctorContext) -> Finding:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(inspection, "CHECKS", (disk,))
    (finding,) = inspection.run_checks(DoctorContext(directory=Path("data"), clock=SystemClock()))
    assert (finding.check, finding.status) == ("disk", "fail")
    assert "Input/output error" in finding.found
