"""The audit log of a data directory: `DIR/audit.log`, one JSON object a line, readable by its owner only.

The engine, the gateway and the pipeline send audit records to the loggers in `AUDIT_LOGGERS`: denied operations and
watches, subscriptions that begin and end, refused resumes, routing changes. `audit_logging` adds the file to these
loggers for as long as a command runs. A program that embeds Vedette adds its own handler instead.

Several processes append to one file. Each takes a lock on the file, checks that the file was not rotated meanwhile,
and writes a whole line. The process whose line would exceed the limit rotates: `audit.log` becomes `audit.log.1`,
`audit.log.1` becomes `audit.log.2`, and so on. A line reaches the operating system before the call returns; it is not
flushed to the disk.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vedette.processes.log_format import JsonFormatter

__all__ = ["AUDIT_LOGGERS", "FILE_NAME", "AuditLog", "audit_logging"]

FILE_NAME = "audit.log"
AUDIT_LOGGERS = ("vedette.audit", "vedette.gateway.audit")
_OWNER_ONLY = 0o600
_REPORT_SECONDS = 60.0
"""A failing audit log is reported at most once in this time."""

log = logging.getLogger("vedette.process")


@contextmanager
def audit_logging(
    directory: Path | None, *, process: str, max_bytes: int, max_files: int
) -> Iterator[AuditLog | None]:
    """Write audit records to the audit log of the directory; without a directory there is none."""
    if directory is None:
        yield None
        return
    audit = AuditLog(directory / FILE_NAME, max_bytes=max_bytes, max_files=max_files)
    audit.setFormatter(JsonFormatter(process))
    levels = {logger: logger.level for logger in map(logging.getLogger, AUDIT_LOGGERS)}
    for logger in levels:
        logger.setLevel(logging.INFO)
        logger.addHandler(audit)
    try:
        yield audit
    finally:
        for logger, level in levels.items():
            logger.removeHandler(audit)
            logger.setLevel(level)
        audit.close()


class AuditLog(logging.Handler):
    """Appends records to a file that it rotates. The file is created with the first record."""

    def __init__(self, path: Path, *, max_bytes: int, max_files: int) -> None:
        """Rotate before a line would make the file longer than `max_bytes`; keep `max_files` rotated files."""
        super().__init__(logging.INFO)
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._descriptor: int | None = None
        self._reported_at = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._append(f"{self.format(record)}\n".encode(errors="replace"))
        except Exception as error:
            self._report(record, error)

    def close(self) -> None:
        self.acquire()
        try:
            self._close_file()
        finally:
            self.release()
        super().close()

    def _append(self, line: bytes) -> None:
        descriptor = self._open_locked()
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > self._max_bytes:
                self._rotate()
                self._close_file()  # releases the lock of the rotated file; a waiting process then reopens
                descriptor = self._open_locked()
            os.write(descriptor, line)
        finally:
            if self._descriptor is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _open_locked(self) -> int:
        """Return the descriptor of the current file, locked. Another process may rotate before the lock is granted."""
        while True:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._descriptor = os.open(self._path, flags, _OWNER_ONLY)
                os.fchmod(self._descriptor, _OWNER_ONLY)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if self._is_current(self._descriptor):
                return self._descriptor
            self._close_file()

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        for path in self._path.parent.glob(f"{self._path.name}.*"):
            suffix = path.name.removeprefix(f"{self._path.name}.")
            if suffix.isdecimal() and int(suffix) >= self._max_files:
                path.unlink(missing_ok=True)
        for number in range(self._max_files - 1, 0, -1):
            rotated = self._rotated(number)
            if rotated.exists():
                rotated.replace(self._rotated(number + 1))
        self._path.replace(self._rotated(1))

    def _rotated(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _report(self, record: logging.LogRecord, error: Exception) -> None:
        """Log the failure, and go on: an audit log on a full disk does not stop the server."""
        if record.created - self._reported_at < _REPORT_SECONDS:
            return
        self._reported_at = record.created
        log.error(
            "The audit log cannot be written: %s",
            error,
            extra={"action": "audit.write_failed", "path": str(self._path)},
        )
