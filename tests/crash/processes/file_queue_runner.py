"""`python queue_runner.py DATA FIRST`: puts numbered file tasks and works on them, saying each step, to be killed.

Lines: `put N` and `deleted N` when they are durable, `took N OPERATION`, `acked N OPERATION` and `back N` after
the answer.
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


def say(*words: object) -> None:
    print(*words, flush=True)


def main() -> None:
    data, first, rng = Path(sys.argv[1]), int(sys.argv[2]), Random(int(sys.argv[2]))
    with (
        vedette.open(data) as home,
        EngineFileQueue(home.database(QUEUE_DATABASE), data / FILE_NAME) as queue,
    ):
        say("started")
        for number in count(first):
            queue.put([task(number, FileOperation.INGEST)])
            say("put", number)
            for claim in queue.claim(2, "runner"):
                mine = int(claim.task.path[1:])
                say("took", mine, claim.task.operation)
                if rng.random() < 0.3 and claim.task.operation is FileOperation.INGEST:
                    queue.put([task(mine, FileOperation.DELETE)])  # the file changed during the work
                    say("deleted", mine)
                if rng.random() < 0.2:
                    queue.nack(claim.claim_id, error="later", counts_attempt=False)
                    say("back", mine)
                else:
                    queue.ack([claim.claim_id])
                    say("acked", mine, claim.task.operation)


main()
