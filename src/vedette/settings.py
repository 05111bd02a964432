"""All settings, with type, unit and bounds.

Precedence, lowest first: defaults, `DIR/vedette.toml`, `VEDETTE_*` variables, arguments of the caller or command
line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from vedette.errors import SettingsError

__all__ = [
    "HANDSHAKE_TABLES",
    "SETTINGS_FILE",
    "Settings",
    "load_handshake_tables",
    "load_settings",
    "validated",
]

SETTINGS_FILE = "vedette.toml"
HANDSHAKE_TABLES = ("backoff", "coordinator", "degradation")
"""Tables of the settings file besides the settings: records of the handshake."""
_PREFIX = "VEDETTE_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def _setting(default: Any, about: str, *, choices: tuple[Any, ...] = (), low: float | None = None) -> Any:
    return field(default=default, metadata={"about": about, "choices": choices, "low": low})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one data directory. `about` is the description that `config show` prints."""

    durability: str = _setting(
        "fsync",
        "fsync: acknowledge a commit when it is on disk; relaxed: up to 50 ms earlier, a crash may lose it",
        choices=("fsync", "relaxed"),
    )
    tick: str = _setting(
        "commit",
        "commit: every writing commit is one tick; manual: only TICK advances",
        choices=("commit", "manual"),
    )
    tick_interval_seconds: float = _setting(0.0, "Seconds between automatic ticks; 0 disables them", low=0.0)
    now: str = _setting(
        "wall",
        "wall: now() is the time of day; logical: now() is the tick as milliseconds",
        choices=("wall", "logical"),
    )
    strict_cardinality: bool = _setting(
        False, "Check minimum cardinalities at every commit, not only at COMMIT"
    )
    max_statement_characters: int = _setting(
        1_048_576, "Maximum length of a statement text, in characters", low=1
    )
    max_statement_work: int = _setting(10_000_000, "Maximum candidates that one statement may examine", low=1)
    statement_slice: int = _setting(
        100_000, "Candidates that a read examines before it releases the lock to others", low=1
    )
    plan_cache_size: int = _setting(10_000, "Maximum number of cached statement plans", low=1)
    log_retention_seconds: float = _setting(
        86_400.0, "How long changes are kept in the log, in seconds", low=0.0
    )
    retained_commits: int = _setting(10_000, "Commits kept in memory for lagging watches", low=1)
    retained_megabytes: int = _setting(64, "Approximate memory for these commits, in MiB", low=1)
    watch_retention_seconds: float = _setting(
        86_400.0, "How long a reliable watch without a session is kept, in seconds", low=0.0
    )
    max_watches_per_session: int = _setting(1_000, "Maximum watches of one session over the network", low=1)
    max_watches_total: int = _setting(2_000_000, "Maximum watches of one database over the network", low=1)
    journal_retention_seconds: float = _setting(
        86_400.0, "How long changes of external collections are kept for the pipeline, in seconds", low=60.0
    )
    pipeline_master: str = _setting("local[2,4]", "The Spark master that the pipeline runs on")
    pipeline_store: str = _setting(
        "",
        "PostgreSQL URL for the journal and the registry of external collections; empty: the data directory",
    )
    pipeline_lag_limit_seconds: float = _setting(
        120.0,
        "How old a change may be before its partition is degraded: clients resync instead, in seconds",
        low=1.0,
    )
    pipeline_index_megabytes: int = _setting(
        1024, "How much of the subscription index a worker of the pipeline keeps mapped, in MiB", low=1
    )
    slo_delivery_seconds: float = _setting(
        5.0,
        "Target p99 of delivery, in seconds; if missed for a minute, low-priority subscriptions are skipped",
        low=0.0,
    )
    slo_false_positive_share: float = _setting(
        0.05, "Share of absent keys that the index may let through before changes are broadcast", low=0.0
    )
    pipeline_metrics_port: int = _setting(
        0, "Port of the pipeline's own /metrics on loopback; 0: only `serve` shows its figures", low=0
    )
    ingest_address: str = _setting(
        "", "host:port where executors on other machines deliver; empty: a socket in the data directory"
    )
    block_timeout_seconds: float = _setting(
        5.0, "How long a commit waits for a full watch with on_full: block, in seconds", low=0.0
    )
    self_check_commits: int = _setting(
        1_000, "Compare one watch with a full evaluation every this many commits; 0 disables it", low=0
    )
    manage_gc: bool = _setting(True, "Freeze loaded objects and run full garbage collections only when idle")
    embedder: str = _setting(
        "wordllama",
        "The embedding model: wordllama, hashing, sentence-transformers:MODEL or http://…#MODEL",
    )
    qdrant_url: str = _setting("", "The Qdrant server for vectors; empty keeps them in the data directory")
    max_file_bytes: int = _setting(
        20_971_520, "Maximum size of a file whose text is extracted, in bytes", low=1
    )
    files_on_spark: str = _setting(
        "auto",
        "Process a backlog of files on Spark: auto (if Java is installed) or never",
        choices=("auto", "never"),
    )
    files_on_spark_from: int = _setting(1_000, "Number of waiting files at which Spark is started", low=1)
    actor_types: tuple[str, ...] = _setting((), "Node types that may be actors; empty: any")
    audit_log_bytes: int = _setting(
        67_108_864, "Size at which the audit log is rotated, in bytes", low=65_536
    )
    audit_log_files: int = _setting(10, "Number of rotated audit logs to keep", low=1)

    # --- the gateway ---
    auth_keys: str = _setting(
        "", "Keys that sign tokens: a JWK set, a file or an https URL; empty: loopback only"
    )
    auth_audience: str = _setting("", "Required `aud` claim of a token; empty: not checked")
    auth_issuer: str = _setting("", "Required `iss` claim of a token; empty: not checked")
    allowed_origins: tuple[str, ...] = _setting(
        (), "Origins of web pages that may connect, besides the server's own"
    )
    tls_certificate: str = _setting("", "File with the certificate chain (PEM); empty: no TLS")
    tls_key: str = _setting("", "File with its private key (PEM)")
    max_frame_bytes: int = _setting(1_048_576, "Maximum size of a client message, in bytes", low=1_024)
    max_filter_bytes: int = _setting(8_192, "Maximum length of a filter, in bytes", low=1)
    max_filter_depth: int = _setting(20, "Maximum nesting depth of a filter, up to 50", low=1)
    max_filter_nodes: int = _setting(500, "Maximum nodes of a filter", low=1)
    max_filter_items: int = _setting(256, "Maximum items of a list in a filter", low=1)
    max_connections: int = _setting(100_000, "Maximum connections of one gateway process", low=1)
    max_connections_per_tenant: int = _setting(100_000, "Maximum connections of one database", low=1)
    max_subscriptions_per_gateway: int = _setting(
        200_000, "Maximum subscriptions of one gateway process", low=1
    )
    max_subscriptions_per_tenant: int = _setting(1_000_000, "Maximum subscriptions of one database", low=1)
    max_subscriptions_per_collection: int = _setting(
        1_000_000, "Maximum subscriptions of one database to one external collection", low=1
    )
    max_subscriptions_total: int = _setting(2_000_000, "Maximum subscriptions of one engine", low=1)
    heartbeat_seconds: float = _setting(30.0, "Seconds between heartbeats on a connection", low=1)
    replay_seconds: float = _setting(180.0, "How far back a client can resume, in seconds", low=0.0)
    replay_events: int = _setting(
        10_000, "How far back a client can resume, in events of one database", low=0
    )
    replay_bytes: int = _setting(33_554_432, "How far back a client can resume, in bytes", low=0)
    outbox_high_bytes: int = _setting(
        1_048_576, "Maximum unsent bytes per client before it counts as lagging", low=1_024
    )
    gateway_outbox_bytes: int = _setting(
        268_435_456, "Maximum unsent bytes of all clients of a gateway", low=65_536
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check(setting.name, getattr(self, setting.name), setting)


def load_settings(
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Settings:
    """The effective settings. An unknown name or invalid value raises with what is allowed."""
    values: dict[str, Any] = {}
    if directory is not None and (directory / SETTINGS_FILE).is_file():
        found = _read_file(directory / SETTINGS_FILE)
        values.update(
            {
                name: value
                for name, value in found.items()
                if name not in HANDSHAKE_TABLES or not isinstance(value, dict)
            }
        )
    known = {f.name: f for f in fields(Settings)}
    for name, text in (environment or {}).items():
        key = name.removeprefix(_PREFIX).lower()
        if name.startswith(_PREFIX) and key in known:
            values[key] = _from_text(known[key], text)
    values.update({name: value for name, value in options.items() if value is not None})
    return validated(values)


def load_handshake_tables(directory: Path) -> Mapping[str, Mapping[str, Any]]:
    """The handshake tables of the settings file (`vedette.handshake.tables.settings`), unchecked."""
    path = directory / SETTINGS_FILE
    found = _read_file(path) if path.is_file() else {}
    return {name: found[name] for name in HANDSHAKE_TABLES if isinstance(found.get(name), dict)}


def validated(values: Mapping[str, Any]) -> Settings:
    """Settings with these values instead of the defaults, each checked."""
    known = {f.name: f for f in fields(Settings)}
    for name, value in values.items():
        if name not in known:
            raise _refused(name, f"there is no such setting; known are {', '.join(sorted(known))}")
        _check(name, value, known[name])
    return Settings(**{name: _coerced(known[name], value) for name, value in values.items()})


def _coerced(setting: Field[Any], value: Any) -> Any:
    kind = _kind(setting)
    return kind(value) if kind in (float, tuple) else value


def _kind(setting: Field[Any]) -> Any:
    return type(setting.default)


def _check(name: str, value: Any, setting: Field[Any]) -> None:
    expected, metadata = _kind(setting), setting.metadata
    accepted = (int, float) if expected is float else (list, tuple) if expected is tuple else (expected,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and expected is not bool):
        raise _refused(name, f"it must be {expected.__name__}, got {value!r}")
    if metadata["choices"] and value not in metadata["choices"]:
        raise _refused(name, f"it must be one of {', '.join(map(str, metadata['choices']))}, got {value!r}")
    if isinstance(value, (list, tuple)) and not all(isinstance(item, str) for item in value):
        raise _refused(name, f"it must be a list of strings, got {value!r}")
    if metadata["low"] is not None and not value >= metadata["low"]:  # also rejects NaN
        raise _refused(name, f"it must be at least {metadata['low']}, got {value!r}")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError("E0101", f"{path} cannot be read: {error}", fields={"file": str(path)}) from error


def _from_text(setting: Field[Any], text: str) -> Any:
    kind = _kind(setting)
    try:
        if kind is bool:
            word = text.strip().lower()
            return True if word in _TRUE else False if word in _FALSE else text
        if kind is tuple:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return kind(text)
    except ValueError:
        return text


def _refused(name: str, why: str) -> SettingsError:
    return SettingsError("E0101", f"The setting '{name}' cannot be used: {why}", fields={"setting": name})
