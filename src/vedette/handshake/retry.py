"""How long to wait after errors: seeds/watch-queue-handshake.md, Exponential Backoff.

The formula wins over the table's "capped" row (spec/handshake.md, ruling 2): 2, 4, 8, 16, 32, 64, 128, 256, 300 s.
Jitter is symmetric and comes after the cap (ruling 4), so a capped delay is between 270 and 330 s.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from vedette.handshake.config import BackoffConfig

__all__ = ["backoff_delay", "backoff_milliseconds"]


def backoff_milliseconds(errors: int, config: BackoffConfig, *, network: bool = False) -> float:
    """The delay after so many errors in a row, in milliseconds, before jitter. None in a row is no delay."""
    if errors <= 0:
        return 0.0
    try:
        grown = config.base_delay_ms * config.backoff_multiplier**errors
    except OverflowError:
        grown = float(config.max_delay_ms)
    return min(grown * (config.network_multiplier if network else 1.0), float(config.max_delay_ms))


def backoff_delay(errors: int, config: BackoffConfig, chance: Random, *, network: bool = False) -> timedelta:
    """The delay with jitter, in whole milliseconds, never outside ± `jitter_factor`."""
    delay = backoff_milliseconds(errors, config, network=network)
    factor = 1.0 + config.jitter_factor * (2.0 * chance.random() - 1.0)
    return timedelta(milliseconds=round(delay * factor))
