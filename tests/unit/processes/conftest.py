"""The command line in an empty folder, for tests of the processes that commands start."""

from __future__ import annotations

from tests.integration.cli.conftest import cli, folder

__all__ = ["cli", "folder"]
