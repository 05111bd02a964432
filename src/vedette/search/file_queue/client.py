"""The queue from outside of the process that owns it: looking is reading a table, changing is asking the owner.

When no daemon runs there is no owner, and the queue is opened for as long as the change takes.
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
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue, queue_home
from vedette.search.file_queue.requests import QueueRequests
from vedette.search.file_queue.task_table import QueueTable
from vedette.search.file_queue.tasks import QueueRow, TaskStatus
from vedette.values import timestamp_to_text

__all__ = ["OutsideQueue"]

_LOOK_SECONDS = 0.05


class OutsideQueue:
    """`vedette.search.file_queue.tasks.QueueInspection` for a data directory."""

    def __init__(self, directory: Path, clock: Clock, *, patience_seconds: float = 20.0) -> None:
        """`patience_seconds`: how long the owner may take to answer."""
        self._directory, self._clock, self._patience = directory, clock, patience_seconds
        self._table = QueueTable(directory / FILE_NAME)
        self._requests = QueueRequests(directory / FILE_NAME)

    def close(self) -> None:
        self._table.close()
        self._requests.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, *, status: TaskStatus | None = None, limit: int = 100) -> list[QueueRow]:
        return self._table.rows(self._clock.now(), status=status, limit=limit)

    def counts(self) -> Mapping[str, Mapping[TaskStatus, int]]:
        return self._table.counts(self._clock.now())

    def retry(self, path: str | None = None) -> int:
        return self._change("retry", path, lambda queue: queue.retry(path))

    def purge(self, before: datetime) -> int:
        return self._change("purge", timestamp_to_text(before), lambda queue: queue.purge(before))

    def _change(self, verb: str, argument: str | None, act: Callable[[EngineFileQueue], int]) -> int:
        try:
            home = open_vedette(queue_home(self._directory), clock=self._clock)
        except StoreError as error:
            if error.code != "E6002":  # somebody has it open
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
