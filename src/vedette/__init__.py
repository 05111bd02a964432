"""Vedette, a reactive database: WATCH sends an event whenever a match appears, changes or disappears.

    import vedette

    db = vedette.open("data")
    db.define('node Task { title: String, status: String = "todo" }')
    s = db.session()
    w = s.watch('WATCH t: Task WHERE t.status = "done" RETURN t.title')

Names are imported on first use, so `vedette --help` does not load the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from vedette.compiled import install_compiled

if TYPE_CHECKING:
    from vedette.change import Change, Event, Position
    from vedette.client.blocking import BlockingSession, connect_sync
    from vedette.client.session import RemoteSession, connect
    from vedette.clock import Clock, SystemClock
    from vedette.engine.context.result import Result
    from vedette.engine.data_directory import Vedette
    from vedette.engine.data_directory import open_vedette as open
    from vedette.engine.database import Database
    from vedette.engine.session.async_session import AsyncSession
    from vedette.engine.session.async_watch import AsyncWatch
    from vedette.engine.session.jobs import Job, Jobs
    from vedette.engine.session.session import Session
    from vedette.engine.session.watch_handle import WatchHandle
    from vedette.errors import (
        AnalysisError,
        ConstraintViolation,
        FilterError,
        FolderError,
        GatewayError,
        IngestError,
        InstallationError,
        InvalidStatement,
        MutationError,
        ParseError,
        PatternError,
        PipelineError,
        PolicyError,
        QueryError,
        RuleError,
        SettingsError,
        SourceError,
        StoreError,
        SubscriptionError,
        TimeError,
        TransactionError,
        VedetteError,
        WatchError,
    )
    from vedette.language.parser import parse_script as parse
    from vedette.settings import Settings

__version__ = "0.1.0.dev0"

install_compiled()

_HOMES = {
    "vedette.change": ("Change", "Event", "Position"),
    "vedette.client.blocking": ("BlockingSession", "connect_sync"),
    "vedette.client.session": ("RemoteSession", "connect"),
    "vedette.clock": ("Clock", "SystemClock"),
    "vedette.engine.session.async_session": ("AsyncSession",),
    "vedette.engine.session.async_watch": ("AsyncWatch",),
    "vedette.engine.database": ("Database",),
    "vedette.engine.data_directory": ("Vedette", ("open", "open_vedette")),
    "vedette.engine.session.jobs": ("Job", "Jobs"),
    "vedette.engine.context.result": ("Result",),
    "vedette.engine.session.session": ("Session",),
    "vedette.engine.session.watch_handle": ("WatchHandle",),
    "vedette.errors": (
        "AnalysisError",
        "ConstraintViolation",
        "FilterError",
        "GatewayError",
        "FolderError",
        "IngestError",
        "InstallationError",
        "InvalidStatement",
        "MutationError",
        "ParseError",
        "PatternError",
        "PipelineError",
        "PolicyError",
        "QueryError",
        "RuleError",
        "SettingsError",
        "SourceError",
        "StoreError",
        "SubscriptionError",
        "TimeError",
        "TransactionError",
        "VedetteError",
        "WatchError",
    ),
    "vedette.language.parser": (("parse", "parse_script"),),
    "vedette.settings": ("Settings",),
}
"""Module ▸ the public names it defines; a pair if the public name differs."""

_FOUND = {
    (name if isinstance(name, str) else name[0]): (module, name if isinstance(name, str) else name[1])
    for module, names in _HOMES.items()
    for name in names
}

__all__ = [
    "AnalysisError",
    "AsyncSession",
    "AsyncWatch",
    "BlockingSession",
    "Change",
    "Clock",
    "ConstraintViolation",
    "Database",
    "Event",
    "FilterError",
    "FolderError",
    "GatewayError",
    "IngestError",
    "InstallationError",
    "InvalidStatement",
    "Job",
    "Jobs",
    "MutationError",
    "ParseError",
    "PatternError",
    "PipelineError",
    "PolicyError",
    "Position",
    "QueryError",
    "RemoteSession",
    "Result",
    "RuleError",
    "Session",
    "Settings",
    "SettingsError",
    "SourceError",
    "StoreError",
    "SubscriptionError",
    "SystemClock",
    "TimeError",
    "TransactionError",
    "Vedette",
    "VedetteError",
    "WatchError",
    "WatchHandle",
    "connect",
    "connect_sync",
    "open",
    "parse",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _FOUND:
            raise AttributeError(f"module 'vedette' has no attribute '{name}'")
        module, own_name = _FOUND[name]
        value = globals()[name] = getattr(import_module(module), own_name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_FOUND})
