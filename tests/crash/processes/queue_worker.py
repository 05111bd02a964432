"""A process with an engine, producers and workers that is killed at random moments, and a ledger of its actions.

    python -m tests.crash.processes.queue_worker LOCATION LEDGER FIRST LAST SEED

The ledger is a file of lines. Each line is synced to the disk before the process continues:

    started                 the process has started
    made <n>                SPAWN has returned
    begun <n> <attempt>     the job was delivered, work starts
    ending <n>              work has ended; ACK, NACK, COMMIT or close follows
    done <n>                the side effect, before ACK
    acked <n>               ACK, or the COMMIT that contains it, has returned
    failed <n>              NACK has returned, or the failure of a lost session is durable

Jobs whose number ends in 7 fail at their first two attempts. Jobs whose number ends in 13 always fail and become dead
letters. Every fifth job is acknowledged in one transaction with a node `Effect` that the worker writes.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable
from functools import partial
from threading import Thread

import vedette
from tests.support.crash_ledger import Ledger
from vedette.engine.data_directory import Vedette

__all__ = ["MAX_REDELIVERIES", "WATCH", "account_of", "always_fails", "in_transaction", "main"]

MAX_REDELIVERIES = 2
WORKERS = 3
BATCH = 10
ONTOLOGY = """
node Job { n: Int [unique], priority: Int, account: Int }
node Effect { n: Int [unique] }
"""
WATCH = (
    'WATCH j: Job [mode: consume, group: "workers", ordering: attribute(j.priority DESC, j.n ASC),'
    f" serialize_by: j.account, buffer: 16, max_redeliveries: {MAX_REDELIVERIES}] RETURN j.n"
)


def always_fails(n: int) -> bool:
    return n % 100 == 13


def fails_at(n: int, attempt: int) -> bool:
    return always_fails(n) or (n % 10 == 7 and attempt <= 2)


def in_transaction(n: int) -> bool:
    return n % 5 == 0


def account_of(n: int) -> int:
    return n % 97


def produce(db: Vedette, ledger: Ledger, numbers: range) -> None:
    with db.session() as session:
        for start in range(numbers.start, numbers.stop, BATCH):
            batch = range(start, min(start + BATCH, numbers.stop))
            text = "SPAWN j: Job { n = $n, priority = $priority, account = $account }"
            session.execute("BEGIN")
            for n in batch:
                session.execute(text, n=n, priority=n % 3, account=account_of(n))
            session.execute("COMMIT")
            ledger.write(*(f"made {n}" for n in batch))


def work(db: Vedette, ledger: Ledger, rng: random.Random) -> None:
    """Open and close sessions; some of them disconnect without closing."""
    while True:
        session = db.session()
        handle = session.watch(WATCH)
        for _ in range(rng.randrange(20, 60)):
            event = handle.next(0.05)
            events = [] if event is None else [event, *handle.poll(rng.randrange(1, 8))]
            for each in events:
                if each.type == "consumed":
                    do(session, handle, ledger, each)
        held = [event for event in handle.poll(4) if event.type == "consumed"]
        for event in held:
            ledger.write(f"begun {number_of(event)} {event.attributes['attempt']}")
        ledger.write(*(f"ending {number_of(event)}" for event in held))
        lost = rng.random() < 0.3
        session.close(lost=lost)
        with db.session() as reader:
            reader.execute("MATCH e: Effect WHERE e.n = -1 RETURN e")  # returns once its result is durable
        if lost:
            ledger.write(*(f"failed {number_of(event)}" for event in held))


def number_of(event: vedette.Event) -> int:
    assert event.match is not None
    return int(event.match["j.n"])


def do(session: vedette.Session, handle: vedette.WatchHandle, ledger: Ledger, event: vedette.Event) -> None:
    n, attempt = number_of(event), event.attributes["attempt"]
    ledger.write(f"begun {n} {attempt}")
    if fails_at(n, attempt):
        ledger.write(f"ending {n}")
        handle.nack(event)
        ledger.write(f"failed {n}")
        return
    if in_transaction(n):
        ledger.write(f"ending {n}")
        session.run("BEGIN; SPAWN e: Effect { n = $n }; ACK $id; COMMIT", n=n, id=event.delivery_id)
    else:
        ledger.write(f"done {n}", f"ending {n}")
        handle.ack(event)
    ledger.write(f"acked {n}")


def start(name: str, run: Callable[[], None]) -> None:
    """Run in a thread. Any error there ends the process."""

    def body() -> None:
        try:
            run()
        except Exception:
            traceback.print_exc()
            os._exit(3)

    Thread(target=body, name=name).start()


def main(location: str, ledger_path: str, first: str, last: str, seed: str) -> None:
    rng = random.Random(int(seed))
    ledger = Ledger(ledger_path)
    db = vedette.open(location)
    db.define(ONTOLOGY)
    ledger.write("started")
    start("producer", partial(produce, db, ledger, range(int(first), int(last))))
    for number in range(WORKERS):
        start(f"worker {number}", partial(work, db, ledger, random.Random(rng.random())))


if __name__ == "__main__":
    main(*sys.argv[1:])
