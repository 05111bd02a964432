"""Which Vedette this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["version_text"]


def version_text() -> str:
    """`vedette 0.1.0`, as it is installed."""
    try:
        return f"vedette {version('vedette')}"
    except PackageNotFoundError:
        return "vedette, not installed (run from its source)"
