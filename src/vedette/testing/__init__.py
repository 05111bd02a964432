"""For tests, ours and those of users: a clock to hold in the hand, and stories that run on every host."""

from vedette.testing.clock import ManualClock, Timer

__all__ = ["ManualClock", "Timer"]
