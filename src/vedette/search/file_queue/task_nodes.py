"""Every statement that creates, changes and deletes `FileTask` nodes and their dead letters."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from vedette.engine.session.session import Session
from vedette.errors import VedetteError
from vedette.search.file_queue.task_table import TaskRecord
from vedette.search.file_queue.tasks import FileOperation, FileTask
from vedette.values import timestamp_from_text

__all__ = ["TASK_COLUMNS", "TaskNodes", "merge_tasks"]

log = logging.getLogger(__name__)

TASK_COLUMNS = (
    "t.id AS file_task, t.key, t.path, t.watch_id, t.collection, t.operation, t.priority, t.queued_at"
)
"""Columns of a task in MATCH and WATCH."""
TASKS_PER_SPAWN = 50
"""Tasks in one SPAWN, for tasks that share everything except key and path."""


def _spawn_statement(tasks: int) -> str:
    items = (
        f"""SPAWN t{place}: FileTask {{
    key = $key{place}, path = $path{place}, watch_id = $watch_id, collection = $collection, operation = $operation,
    deletes = $deletes, priority = $priority, queued_at = $queued_at }}"""
        for place in range(tasks)
    )
    return f"{', '.join(items)} RETURNING id"


_SPAWN, _SPAWN_TOGETHER = _spawn_statement(1), _spawn_statement(TASKS_PER_SPAWN)
_PLACES = tuple(chain.from_iterable((f"key{place}", f"path{place}") for place in range(TASKS_PER_SPAWN)))
_CHANGE = """MATCH t: FileTask WHERE t.key = $key SET t {
    watch_id = $watch_id, operation = $operation, deletes = $deletes, priority = $priority,
    generation = t.generation + 1 }"""
_KILL = "MATCH t: FileTask WHERE t.key = $key KILL t"
_TASKS = f"MATCH t: FileTask RETURN {TASK_COLUMNS}"
_LETTERS = "MATCH l: _DeadLetter RETURN l.original_match, l.delivery_attempts, l.cause, l.created_at"
_LETTER_IDS = "MATCH l: _DeadLetter RETURN l.id, l.element"


class TaskNodes:
    def __init__(self, session: Session) -> None:
        self._session = session

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """Without `durable`, the caller must call `wait_until_durable` before it reports the result."""
        self._session.execute_without_waiting("BEGIN", {})
        try:
            yield
            self._session.execute_without_waiting("COMMIT", {})
        except BaseException:
            self._roll_back()
            raise
        if durable:
            self.wait_until_durable()

    def wait_until_durable(self) -> None:
        """Wait until everything committed so far is durable."""
        self._session.database.wait_durable(self._session.lock_scope)

    def put(self, before: TaskRecord, task: FileTask, now: datetime, *, claimed: bool) -> TaskRecord:
        """Create the node again, within a transaction. A new node has no failures and no delay."""
        if before.dead_at is not None:
            self.delete(task.key)
            return self.spawn(task, now)
        task = merge_tasks(before.task, task)
        if before.due_at is not None and not claimed:
            self.delete(task.key)
            return self.spawn(task, before.queued_at)
        self._session.execute_without_waiting(_CHANGE, {**_values(task), "key": task.key})
        return before._replace(task=task, due_at=None)

    def spawn(self, task: FileTask, queued_at: datetime) -> TaskRecord:
        """Within a transaction."""
        (image,) = self.spawn_all([task], queued_at)
        return image

    def spawn_all(self, tasks: Iterable[FileTask], queued_at: datetime) -> list[TaskRecord]:
        """Within a transaction; records in the order of the tasks."""
        images: list[TaskRecord] = []
        for _, group in groupby(tasks, _shared_attributes):
            alike = list(group)
            values = {**_values(alike[0]), "queued_at": queued_at}
            whole = len(alike) - len(alike) % TASKS_PER_SPAWN
            for start in range(0, whole, TASKS_PER_SPAWN):
                images += self._spawn(_SPAWN_TOGETHER, alike[start : start + TASKS_PER_SPAWN], values)
            for task in alike[whole:]:
                images += self._spawn(_SPAWN, [task], values)
        return images

    def _spawn(self, text: str, tasks: Sequence[FileTask], common: Mapping[str, Any]) -> list[TaskRecord]:
        own = chain.from_iterable([(task.key, task.path) for task in tasks])
        made = self._session.execute_without_waiting(
            text, {**common, **dict(zip(_PLACES, own, strict=False))}
        )
        queued_at = common["queued_at"]
        return [
            TaskRecord(element, task, queued_at) for (element,), task in zip(made.rows, tasks, strict=True)
        ]

    def delete(self, key: str) -> None:
        """Within a transaction."""
        self._session.execute_without_waiting(_KILL, {"key": key})

    def redrive(self, dead: Iterable[TaskRecord]) -> None:
        """Redrive dead letters."""
        elements = {image.element for image in dead}
        if not elements:
            return
        for letter, element in self._session.execute(_LETTER_IDS).rows:
            if element in elements:
                self._session.execute("REDRIVE #$letter", letter=letter)

    def load_records(self) -> Iterator[TaskRecord]:
        """Records of every task and dead letter, as far as the graph knows them."""
        tasks = self._session.execute(_TASKS)
        for row in tasks.rows:
            match = dict(zip(tasks.columns, row, strict=True))
            yield TaskRecord(element=match["file_task"], task=_task(match), queued_at=match["t.queued_at"])
        for text, attempts, cause, created_at in self._session.execute(_LETTERS).rows:
            match = json.loads(text)
            if "file_task" in match:
                yield TaskRecord(
                    element=match["file_task"],
                    task=_task(match),
                    queued_at=timestamp_from_text(match["t.queued_at"]),
                    attempts=attempts,
                    error=cause,
                    dead_at=created_at,
                )

    def _roll_back(self) -> None:
        try:
            self._session.execute("ROLLBACK")
        except VedetteError as error:
            log.debug("There is no transaction to roll back: %s", error, extra={"action": "queue.rollback"})


_shared_attributes = attrgetter("watch_id", "collection", "operation", "priority")
"""Attributes that the tasks of one folder usually share."""


def _values(task: FileTask) -> dict[str, Any]:
    """The same, as attributes of the node."""
    return {
        "watch_id": task.watch_id,
        "collection": task.collection,
        "operation": task.operation.value,
        "deletes": task.operation is FileOperation.DELETE,
        "priority": task.priority,
    }


def merge_tasks(earlier: FileTask, later: FileTask) -> FileTask:
    """Merge two tasks of one path: the later operation, the higher priority."""
    return replace(later, priority=max(earlier.priority, later.priority))


def _task(match: Mapping[str, Any]) -> FileTask:
    return FileTask(
        path=match["t.path"],
        watch_id=match["t.watch_id"],
        collection=match["t.collection"],
        operation=FileOperation(match["t.operation"]),
        priority=match["t.priority"],
    )
