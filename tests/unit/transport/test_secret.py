"""The secret of a data directory: created once, readable by its owner only."""

from __future__ import annotations

from pathlib import Path

from vedette.transport.secret import load_or_create_secret


def test_a_secret_is_created_once_for_a_directory(tmp_path: Path):
    secret = load_or_create_secret(tmp_path)
    assert len(secret) >= 16
    assert load_or_create_secret(tmp_path) == secret
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_two_directories_have_different_secrets(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert load_or_create_secret(tmp_path / "a") != load_or_create_secret(tmp_path / "b")


def test_without_a_directory_the_secret_is_random():
    assert load_or_create_secret(None) != load_or_create_secret(None)
