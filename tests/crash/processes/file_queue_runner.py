"""`python file_queue_runner.py DATA FIRST`: put numbered file tasks, claim and settle them, until killed.

Prints one line per step: `put N` and `deleted N` when the task is durable, `claimed N OPERATION`, `acked N OPERATION`
and `nacked N` after the call has returned.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from random import Random

import vedette
from vedette.handshake.tables.handshake_db import FILE_NAME
from vedette.search.file_queue.engine_queue import QUEUE_DATABASE, EngineFileQueue
from vedette.search.file_queue.tasks import FileOperation, FileTask


def task(number: int, operation: FileOperation) -> FileTask:
    return FileTask(
        path=f"/{number}", watch_id="w", collection="c", operation=operation, priority=number % 11
    )


def report(*words: object) -> None:
    print(*words, flush=True)


def main() -> None:
    data, first, rng = Path(sys.argv[1]), int(sys.argv[2]), Random(int(sys.argv[2]))
    with (
        vedette.open(data) as queue_vedette,
        EngineFileQueue(queue_vedette.database(QUEUE_DATABASE), data / FILE_NAME) as queue,
    ):
        report("started")
        for number in count(first):
            queue.put([task(number, FileOperation.INGEST)])
            report("put", number)
            for claim in queue.claim(2, "runner"):
                claimed = int(claim.task.path[1:])
                report("claimed", claimed, claim.task.operation)
                if rng.random() < 0.3 and claim.task.operation is FileOperation.INGEST:
                    # The file changes while its task is claimed.
                    queue.put([task(claimed, FileOperation.DELETE)])
                    report("deleted", claimed)
                if rng.random() < 0.2:
                    queue.nack(claim.claim_id, error="later", counts_attempt=False)
                    report("nacked", claimed)
                else:
                    queue.ack([claim.claim_id])
                    report("acked", claimed, claim.task.operation)


main()
