"""Tools for tests, also of users: a manual clock, in-memory twins, and the story runner."""

from vedette.testing.clock import ManualClock, Timer

__all__ = ["ManualClock", "Timer"]
