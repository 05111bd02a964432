"""Access to the file queue from a process other than the daemon, for example a `wqm` command.

Queries read the table `file_tasks`. Changes need the queue itself, which only one process can open. If the folder
daemon has it open, the change is a request to the daemon (`DaemonApi`); otherwise this process opens the queue for the
duration of the change (docs/design/decisions/0070-requests-to-the-folder-daemon.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Self

from vedette.clock import Clock
from vedette.engine.data_directory import open_vedette
from vedette.errors import FolderError, StoreError
from vedette.handshake.tables.handshake_db import FILE_NAME
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue, queue_directory
from vedette.search.file_queue.task_table import TaskTable
from vedette.search.file_queue.tasks import TaskStatus, TaskView
from vedette.search.folders.daemon_api import DaemonClient, connect_daemon

__all__ = ["FileQueueClient"]

POLL_INTERVAL_SECONDS = 0.05
"""Delay between two attempts while another process has the queue open and no daemon answers."""
DIRECTORY_LOCKED_CODE = "E6002"
"""The store's error code for a directory that another process has open."""


class FileQueueClient:
    """A `QueueAdmin` (`vedette.search.file_queue.tasks`) for a data directory."""

    def __init__(self, directory: Path, clock: Clock, *, timeout_seconds: float = 20.0) -> None:
        """`timeout_seconds` limits how long a change waits while another process has the queue open."""
        self._directory, self._clock, self._timeout_seconds = directory, clock, timeout_seconds
        self._table = TaskTable(directory / FILE_NAME)

    def close(self) -> None:
        self._table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        return self._table.list_tasks(self._clock.now(), status=status, limit=limit)

    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        return self._table.count_by_status(self._clock.now())

    def retry_dead_letters(self, path: str | None = None) -> int:
        return self._run_or_request(
            lambda queue: queue.retry_dead_letters(path), lambda daemon: daemon.retry_dead_letters(path)
        )

    def purge_dead_letters(self, before: datetime) -> int:
        return self._run_or_request(
            lambda queue: queue.purge_dead_letters(before), lambda daemon: daemon.purge_dead_letters(before)
        )

    def _run_or_request(
        self, run: Callable[[EngineFileQueue], int], request: Callable[[DaemonClient], int]
    ) -> int:
        """Run the change here, or request it from the daemon. Try both until one works or the timeout has passed.

        Neither works while a daemon starts or stops: it has the queue open and does not listen.
        """
        daemon = connect_daemon(self._directory, timeout_seconds=self._timeout_seconds)
        deadline = self._clock.monotonic() + self._timeout_seconds
        while True:
            try:
                vedette = open_vedette(queue_directory(self._directory), clock=self._clock)
            except StoreError as error:
                if error.code != DIRECTORY_LOCKED_CODE:
                    raise
            else:
                with (
                    vedette,
                    EngineFileQueue(vedette.database(QUEUE_DATABASE), self._directory / FILE_NAME) as queue,
                ):
                    return run(queue)
            if daemon.is_running():
                return request(daemon)
            if self._clock.monotonic() >= deadline:
                raise FolderError(
                    "E4504",
                    f"another process has the file queue of {self._directory} open, and no folder daemon answers: "
                    "try again, or stop that process and run `wqm daemon`",
                    fields={"directory": str(self._directory)},
                )
            Event().wait(POLL_INTERVAL_SECONDS)
