"""Set up the log of a long-running command: `serve`, `gateway`, `pipeline`, `wqm daemon`.

Records of the level of `--log-level` and above go to standard error, as text or as JSON (`--log-format`). The level
applies to Vedette's own loggers; libraries log warnings and above, because the debug output of an HTTP or WebSocket
library contains tokens. A supervisor passes both options to the processes that it starts (`LogOptions.arguments`), and
they share its standard error. The first line names the version, the data directory and its format, at every level.

Unhandled exceptions of threads and event loops become log records too; Python's own report would print the text of the
exception, which may quote a client's data.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import typer

from vedette.processes.log_format import JsonFormatter, TextFormatter

__all__ = [
    "LogFormat",
    "LogLevel",
    "LogOptions",
    "log_loop_exceptions",
    "process_logging",
]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


log = logging.getLogger("vedette.process")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the command line says about the log."""

    level: LogLevel = LogLevel.WARNING
    format: LogFormat = LogFormat.TEXT

    def arguments(self) -> list[str]:
        """Return the options for the command line of a child process."""
        return ["--log-level", self.level.value, "--log-format", self.format.value]

    def formatter(self, process: str) -> logging.Formatter:
        return JsonFormatter(process) if self.format is LogFormat.JSON else TextFormatter(process)


@contextmanager
def process_logging(
    options: LogOptions, *, process: str, announce: str | None = None, copy_to: TextIO | None = None
) -> Iterator[None]:
    """Log to standard error until the block ends, and to `copy_to` if given.

    `process` names this process in each line. `announce` is the location of the data; with it the log begins with a
    line about this process. An exception that leaves the block becomes the last line of the log if the format is JSON
    or if there is a copy; otherwise the command line prints it.
    """
    level = logging.getLevelNamesMapping()[options.level.name]
    outputs = [_LogStream(level)]
    if copy_to is not None:
        outputs.append(_LogStream(level, copy_to))
    for output in outputs:
        output.setFormatter(options.formatter(process))
    with _installed(outputs, level):
        if announce is not None:
            record = _start_record(process, announce)
            for output in outputs:
                output.handle(record)  # at every level: the log says what wrote it
        try:
            yield
        except Exception as error:
            is_printed = options.format is LogFormat.TEXT and copy_to is None
            if is_printed or not _is_failure(error):
                raise
            _log_failure(error)
            raise typer.Exit(1) from error


def log_loop_exceptions(loop: asyncio.AbstractEventLoop) -> None:
    """Log what no coroutine of the loop handled, with its traceback."""

    def log_exception(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        log.error(
            "An event loop callback or task failed",
            exc_info=context.get("exception"),
            extra={"action": "process.loop_failed"},
        )

    loop.set_exception_handler(log_exception)


@contextmanager
def _installed(outputs: list[_LogStream], level: int) -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("vedette")
    levels = {root: root.level, ours: ours.level}
    thread_hook = threading.excepthook
    root.setLevel(max(level, logging.WARNING))
    ours.setLevel(level)
    for output in outputs:
        root.addHandler(output)
    threading.excepthook = _log_thread_exception
    try:
        yield
    finally:
        threading.excepthook = thread_hook
        for output in outputs:
            root.removeHandler(output)
        for logger, before in levels.items():
            logger.setLevel(before)


class _LogStream(logging.Handler):
    """Writes to a stream, by default to the present `sys.stderr`. A line that cannot be written is dropped."""

    def __init__(self, level: int, stream: TextIO | None = None) -> None:
        super().__init__(level)
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError):  # the other end or the stream is closed
            stream.write(
                f"{self.format(record)}\n"
            )  # one write, so that lines of several processes do not mix
            stream.flush()


def _log_thread_exception(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or isinstance(args.exc_value, SystemExit):
        return
    name = args.thread.name if args.thread is not None else "unknown"
    extra = {"action": "process.thread_failed", "thread_name": name}
    log.error("The thread %s failed", name, exc_info=args.exc_value, extra=extra)


def _start_record(process: str, location: str) -> logging.LogRecord:
    release = _version()
    place, format, is_new = _data_format(location)
    about = "" if format is None else f", format {format}{' (new)' if is_new else ''}"
    text = f"Vedette {release} starts: {process}, data directory {place}{about}"
    extra = {"action": "process.started", "version": release, "data": place, "format": format}
    return log.makeRecord(log.name, logging.INFO, __file__, 0, text, (), None, extra=extra)


def _data_format(location: str) -> tuple[str, int | None, bool]:
    """Return the location without a password, the version of its stored format, and whether it is a new directory."""
    from vedette.storage.catalog import MEMORY

    if location == MEMORY:
        return location, None, False
    if "://" in location:
        from vedette.storage.postgres.catalog import FORMAT_VERSION as POSTGRES_LAYOUT
        from vedette.storage.postgres.connections import display_url

        return display_url(location), POSTGRES_LAYOUT, False
    from vedette.storage.sqlite.directory import FORMAT_VERSION, read_format

    directory = Path(location)
    stated = read_format(directory)
    return str(directory.absolute()), stated or FORMAT_VERSION, stated is None


def _version() -> str:
    try:
        return version("vedette")
    except PackageNotFoundError:
        return "(not installed)"


def _log_failure(error: Exception) -> None:
    if type(error).__module__.startswith("vedette."):
        sentence = str(error)  # for the person who starts the command
        extra = {"action": "process.failed", "code": getattr(error, "code", None)}
        log.critical("%s", sentence, extra=extra)
    else:
        log.critical("The process failed", exc_info=error, extra={"action": "process.failed"})


def _is_failure(error: Exception) -> bool:
    """Typer ends a command with exceptions that have an exit code; those are no failures."""
    return not hasattr(error, "exit_code") and not isinstance(error, typer.Abort)
