"""The queue from other processes: queries read a table, changes are requested from the owner.

If no daemon runs there is no owner, and the queue is opened for the duration of the change.
"""

from __future__ import annotations

import json
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
from vedette.search.file_queue.requests import QueueRequests
from vedette.search.file_queue.task_table import TaskTable
from vedette.search.file_queue.tasks import TaskStatus, TaskView
from vedette.values import timestamp_to_text

__all__ = ["FileQueueClient"]

_LOOK_SECONDS = 0.05


class FileQueueClient:
    """`vedette.search.file_queue.tasks.QueueAdmin` for a data directory."""

    def __init__(self, directory: Path, clock: Clock, *, timeout_seconds: float = 20.0) -> None:
        """`timeout_seconds` is how long to wait for the owner's answer."""
        self._directory, self._clock, self._patience = directory, clock, timeout_seconds
        self._table = TaskTable(directory / FILE_NAME)
        self._requests = QueueRequests(directory / FILE_NAME)

    def close(self) -> None:
        self._table.close()
        self._requests.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list_tasks(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[TaskView]:
        return self._table.rows(self._clock.now(), status=status, limit=limit)

    def count_by_status(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        return self._table.counts(self._clock.now())

    def retry_dead_letters(self, path: str | None = None) -> int:
        return self._run_or_request("retry", path, lambda queue: queue.retry_dead_letters(path))

    def purge_dead_letters(self, before: datetime) -> int:
        return self._run_or_request(
            "purge", timestamp_to_text(before), lambda queue: queue.purge_dead_letters(before)
        )

    def _run_or_request(self, verb: str, argument: str | None, act: Callable[[EngineFileQueue], int]) -> int:
        try:
            home = open_vedette(queue_directory(self._directory), clock=self._clock)
        except StoreError as error:
            if error.code != "E6002":  # another process has it open
                raise
            return self._ask(verb, argument)
        with home, EngineFileQueue(home.database(QUEUE_DATABASE), self._directory / FILE_NAME) as queue:
            return act(queue)

    def _ask(self, verb: str, argument: str | None) -> int:
        request = self._requests.ask(verb, argument, self._clock.now())
        end, never = self._clock.monotonic() + self._patience, Event()
        try:
            while self._clock.monotonic() < end:
                text = self._requests.take_answer(request)
                if text is not None:
                    return _count(json.loads(text))
                never.wait(_LOOK_SECONDS)
        finally:
            self._requests.withdraw(request)
        raise FolderError(
            "E4504",
            f"another process has the file queue of {self._directory} open and does not answer: it is starting, "
            "ending or busy; try again, or stop it and run `wqm daemon` in its place",
            fields={"directory": str(self._directory)},
        )


def _count(answer: Mapping[str, int | str]) -> int:
    if "error" in answer:
        raise FolderError("E4505", str(answer["error"]))
    return int(answer["count"])
