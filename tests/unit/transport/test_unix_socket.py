"""Paths and owners of the Unix sockets of a data directory."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from vedette.errors import StoreError
from vedette.transport.unix_socket import socket_path


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory whose path is too long for a socket."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    far = tmp_path / ("x" * 120)
    far.mkdir()
    return far


def test_a_path_that_is_too_long_is_replaced_by_a_private_one(far: Path):
    path = socket_path(far, "local.sock")
    assert len(str(path)) <= 100 + len(str(far.parent))
    assert path == socket_path(far, "local.sock")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_socket_directory_of_another_user_is_refused(far: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever has the folder could put a socket of his own there, and be told the directory's secret."""
    folder = socket_path(far, "local.sock").parent
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StoreError, match="not a directory of this user"):
        socket_path(far, "local.sock")
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(far.parent))
    elsewhere = far.parent / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    folder.rmdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(StoreError, match="not a directory of this user"):
        socket_path(far, "local.sock")
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755, "and it was left alone"
