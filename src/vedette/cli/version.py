"""The version of the installed package. A module of its own, so that `--version` loads nothing else."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["version_text"]


def version_text() -> str:
    """Return the name and version of the installed package, such as `vedette 0.1.0`."""
    try:
        return f"vedette {version('vedette')}"
    except PackageNotFoundError:
        return "vedette, not installed (run from its source)"
