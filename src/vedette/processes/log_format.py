"""Format log records as text or JSON.

A log line holds a sentence, its `action` and ids. It never holds a value that a client sent: no token, no password, no
parameter, no literal of a statement. Exceptions are the usual leak, because their texts quote the value that was
wrong. Both formatters therefore replace an exception, as an argument of the message or as its traceback, by its type
(and code), and keep the text only of exceptions that describe files, servers and settings. Passwords in addresses are
masked. The traceback keeps its frames; Python prints no local variables there.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from vedette.errors import (
    FolderError,
    IngestError,
    PipelineError,
    SettingsError,
    SourceError,
    StoreError,
    VedetteError,
)

__all__ = ["JsonFormatter", "TextFormatter", "exception_summary", "exception_traceback"]

_TEXT_IS_SAFE = (FolderError, IngestError, OSError, PipelineError, SettingsError, SourceError, StoreError)
"""Their texts name files, servers, sources and settings, and no value of a statement."""
_SPARK_PACKAGES = frozenset({"py4j", "pyspark"})
"""The first line of their texts names the failed call; the lines after it are a stack of Java and Python."""
_PASSWORDS = re.compile(
    r"""(:// [^/\s:@]* :) [^/\s@]+ (?=@)   # postgresql://ann:secret@host
    | (password \s*=\s*) ('[^']*' | [^&\s]+)  # password=secret""",
    re.VERBOSE | re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Line breaks and terminal controls: an id that a client chose must not look like another log line."""
_MAX_CHAINED_EXCEPTIONS = 10
_STANDARD_FIELDS = frozenset({*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"})
"""Attributes of every log record; all others come from `extra`."""
_LEVELS: Mapping[int, str] = MappingProxyType(
    {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical"}
)


class TextFormatter(logging.Formatter):
    """One line: time, level, process, logger, sentence, `key=value` for each id. A traceback follows on more lines."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        ids = "".join(f" {name}={_text_value(value)}" for name, value in _extra_fields(record).items())
        head = f"{_time(record)} {_level(record)} {self._process} {record.name}"
        line = f"{head}: {_escape(_message(record))}{ids}"
        error = _exception(record)
        return line if error is None else f"{line}\n{exception_traceback(error)}"


class JsonFormatter(logging.Formatter):
    """One JSON object: `time`, `level`, `process`, `pid`, `logger`, `message`, the ids, and `exception` if any."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": _level(record),
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in _extra_fields(record).items():
            fields.setdefault(name, _json_value(value))
        error = _exception(record)
        if error is not None:
            fields["exception"] = exception_traceback(error)
        return json.dumps(fields, ensure_ascii=False)


def exception_summary(error: BaseException) -> str:
    """Return the type of the error, its code, and its text where that cannot quote a value."""
    return _mask_passwords(_escape(_summary(error)))


def _summary(error: BaseException) -> str:
    name, text = type(error).__name__, str(error)
    if isinstance(error, VedetteError):
        name, text = f"{error.code} {error.name}", error.text
    if isinstance(error, _TEXT_IS_SAFE):
        return f"{name}: {text}"
    if type(error).__module__.partition(".")[0] in _SPARK_PACKAGES and text:
        return f"{name}: {text.splitlines()[0]}"
    return name


def exception_traceback(error: BaseException) -> str:
    """Return the traceback of the error and of its causes, oldest first, with a summary in place of each text."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < _MAX_CHAINED_EXCEPTIONS:
        frames = "".join(traceback.format_tb(current.__traceback__))
        head = "Traceback (most recent call last):\n" if frames else ""
        parts.append(f"{head}{frames}{exception_summary(current)}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\n\nwhich led to:\n\n".join(reversed(parts))


def _message(record: logging.LogRecord) -> str:
    """Return the sentence, with a summary in place of each exception among the arguments."""
    if isinstance(record.msg, BaseException):
        return exception_summary(record.msg)
    message, args = str(record.msg), record.args
    if isinstance(args, Mapping):
        message %= {name: _argument(value) for name, value in args.items()}
    elif args:
        message %= tuple(_argument(value) for value in args)
    return _mask_passwords(message)


def _escape(text: str) -> str:
    """Return the text with `\\u000a` in place of a line break, and so for every control character."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _mask_passwords(text: str) -> str:
    return _PASSWORDS.sub(lambda found: f"{found[1] or found[2]}***", text)


def _argument(value: object) -> object:
    return exception_summary(value) if isinstance(value, BaseException) else value


def _exception(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _level(record: logging.LogRecord) -> str:
    return _LEVELS.get(record.levelno, record.levelname.lower())


def _json_value(value: object) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case BaseException():
            return exception_summary(value)
        case list() | tuple() | set() | frozenset():
            return [_json_value(item) for item in value]
        case dict():
            return {str(key): _json_value(item) for key, item in value.items()}
    return str(value)


def _text_value(value: object) -> str:
    """Return the value as one word; a text with spaces, quotes or an equals sign is quoted."""
    if isinstance(value, str):
        is_word = bool(value) and not any(character.isspace() or character in "\"'=" for character in value)
        return _escape(value if is_word else json.dumps(value, ensure_ascii=False))
    return _escape(json.dumps(_json_value(value), ensure_ascii=False))
