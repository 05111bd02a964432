"""A hint names a program as it can be typed where the user is."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.cli.program import command_path


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """An interpreter with a program beside it."""
    folder = tmp_path / "project/.venv/bin"
    folder.mkdir(parents=True)
    for name in ("python", "wqm"):
        (folder / name).touch(mode=0o755)
    return folder / "python"


@pytest.mark.parametrize(
    ("path", "here", "wanted"),
    [
        ("{bin}", "project", "wqm"),
        ("/nowhere", "project", ".venv/bin/wqm"),
        ("{other}", "project", ".venv/bin/wqm"),  # the shell finds another installation
        ("/nowhere", ".", "project/.venv/bin/wqm"),
        ("/nowhere", "elsewhere", "{bin}/wqm"),
    ],
)
def test_command_path(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, here: str, wanted: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "wqm").touch(mode=0o755)
    monkeypatch.setenv("PATH", path.format(bin=installed.parent, other=tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path / here)
    assert command_path("wqm", str(installed)) == wanted.format(bin=installed.parent)
    assert command_path("vedette", str(installed)) == "vedette", (
        "it is not there: its name says what to look for"
    )
