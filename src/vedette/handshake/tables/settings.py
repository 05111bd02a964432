"""Settings of the handshake: tables of `vedette.toml` whose keys are the fields of the configuration records.

[degradation]                [backoff]                    [coordinator]
memory_warning = 0.6         max_delay_ms = 60000         total_capacity = 20000
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from vedette.clock import Clock
from vedette.handshake.config import (
    BackoffConfig,
    CoordinatorConfig,
    DegradationConfig,
    HealthConfig,
)
from vedette.handshake.tables.handshake_db import FILE_NAME, HandshakeTables
from vedette.handshake.validation import require
from vedette.settings import load_handshake_tables

__all__ = ["HandshakeSettings", "open_handshake_tables"]

Record = TypeVar("Record", BackoffConfig, CoordinatorConfig, DegradationConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeSettings:
    degradation: DegradationConfig = field(default_factory=DegradationConfig)
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)
    backoff: BackoffConfig = field(default_factory=BackoffConfig)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the settings of a data directory. Raises E4502 for an unknown name or an invalid value."""
        tables = load_handshake_tables(directory)
        return cls(
            degradation=_record(DegradationConfig(), "degradation", tables),
            coordinator=_record(CoordinatorConfig(), "coordinator", tables),
            backoff=_record(BackoffConfig(), "backoff", tables),
        )

    @property
    def health(self) -> HealthConfig:
        return HealthConfig(backoff=self.backoff)


def open_handshake_tables(directory: Path, clock: Clock | None = None) -> HandshakeTables:
    """Open the tables of a data directory with its settings. Another process sees changes at once."""
    settings = HandshakeSettings.load(directory)
    return HandshakeTables(
        directory / FILE_NAME,
        clock=clock,
        health=settings.health,
        degradation=settings.degradation,
        coordinator=settings.coordinator,
    )


def _record(default: Record, name: str, tables: Mapping[str, Mapping[str, Any]]) -> Record:
    values, known = tables.get(name, {}), {each.name for each in fields(default)}
    for key, value in values.items():
        require(key in known, f"{name}.{key}", value, f"one of {', '.join(sorted(known))}")
    return replace(default, **values)
