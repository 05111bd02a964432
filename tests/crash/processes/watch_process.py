"""A process with an engine, a writer, a reliable watch, a trigger and a reactor that is killed at random moments.

    python -m tests.crash.processes.watch_process LOCATION LEDGER LAST

The ledger is a file of lines. Each line is synced to the disk before the process continues:

    started                        the process has started
    made <n>                       the transaction with number n has returned
    event <position> <type> <n>    the reader received this event; the next poll confirms it
    snapshot <position> <n> <n> …  the reader received a snapshot with these numbers
    called <n>                     the reactor was called
    drained                        writer, reader and reactor have nothing left to do
"""

from __future__ import annotations

import sys
import time
from threading import Thread

import vedette
from tests.support.crash_ledger import Ledger
from vedette.change import Event
from vedette.engine.data_directory import Vedette
from vedette.errors import WatchError

__all__ = ["main"]

ONTOLOGY = "node Task { n: Int [unique], done: Bool = false } node Echo { n: Int }"
WATCH = "WATCH t: Task WHERE t.done = false [delivery: reliable, buffer: 8] RETURN t.n AS inbox"
TRIGGER = "echo = WATCH t: Task ON MATCH DO SPAWN e: Echo { n = t.n }"
REACTION = "WATCH t: Task [initial: none] RETURN t.n"


def write(db: Vedette, ledger: Ledger, last: int) -> None:
    """Create each number, and delete every third again."""
    session = db.session()
    known = session.execute("MATCH t: Task RETURN MAX(t.n)").rows[0][0]
    for n in range(0 if known is None else known + 1, last):
        session.execute("SPAWN t: Task { n = $n }", n=n)
        ledger.write(f"made {n}")
        if n % 3 == 2:
            session.execute("MATCH t: Task WHERE t.n = $n SET t.done = true", n=n)


def read(db: Vedette, ledger: Ledger, writer: Thread) -> None:
    session = db.session()
    try:
        watch = session.attach("inbox")
    except WatchError:
        watch = session.watch(WATCH)
    while True:
        over = not writer.is_alive()
        events = watch.poll(limit=3)
        ledger.write(*map(line_of, events))
        if over and not events:
            return


def line_of(event: Event) -> str:
    if event.type == "initial":
        return " ".join(
            ("snapshot", str(event.position), *(str(row["inbox"]) for row in event.matches or ()))
        )
    assert event.match is not None
    return f"event {event.position} {event.type} {event.match['inbox']}"


def main(location: str, path: str, last: int) -> None:
    ledger = Ledger(path)
    with vedette.open(location, environment={}) as db:
        db.define(ONTOLOGY)

        def react(event: Event) -> None:
            if event.type == "added" and event.match is not None:
                ledger.write(f"called {event.match['t.n']}")

        reactor = db.reactor("reactor", REACTION, react)
        if not db.session().execute('MATCH w: _Watch WHERE w.name = "echo" RETURN w.id').rows:
            db.session().execute(TRIGGER)
        ledger.write("started")
        writer = Thread(target=write, args=(db, ledger, last))
        writer.start()
        read(db, ledger, writer)
        writer.join()
        while not reactor.idle:
            time.sleep(0.01)
        ledger.write("drained")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
