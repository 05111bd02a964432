"""The error of a process that cannot start for a reason that the user can fix."""

from __future__ import annotations

__all__ = ["StartupError"]


class StartupError(Exception):
    """A process cannot start. The text says why and what to do; command lines print it without a traceback."""
