"""Vedette: say once what you care about, and be told the moment it becomes true, changes, or stops being true.

import vedette

db = vedette.open("data")
db.define('node Task { title: String, status: String = "todo" }')
s = db.session()
s.execute("SPAWN t: Task { title = $title }", title="write docs")
"""

from vedette.change import Change, Event, Position
from vedette.clock import Clock, SystemClock
from vedette.engine.database import Database
from vedette.engine.home import Vedette
from vedette.engine.home import open_vedette as open
from vedette.engine.result import Result
from vedette.engine.session import Session
from vedette.errors import (
    AnalysisError,
    ConstraintViolation,
    FilterError,
    InvalidStatement,
    MutationError,
    ParseError,
    PatternError,
    PolicyError,
    QueryError,
    RuleError,
    SettingsError,
    StoreError,
    TimeError,
    TransactionError,
    VedetteError,
    WatchError,
)
from vedette.language.parser import parse_script as parse
from vedette.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "AnalysisError",
    "Change",
    "Clock",
    "ConstraintViolation",
    "Database",
    "Event",
    "FilterError",
    "InvalidStatement",
    "MutationError",
    "ParseError",
    "PatternError",
    "PolicyError",
    "Position",
    "QueryError",
    "Result",
    "RuleError",
    "Session",
    "Settings",
    "SettingsError",
    "StoreError",
    "SystemClock",
    "TimeError",
    "TransactionError",
    "Vedette",
    "VedetteError",
    "WatchError",
    "open",
    "parse",
]
