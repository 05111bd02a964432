"""A process with an engine that writes through sessions until it is killed, and prints what was acknowledged.

    python -m tests.crash.processes.engine_writer LOCATION SEED

Prints `ready`, then one JSON line per step of each writer (a thread or an asyncio task with a session), each in one
write: `{"step": "try", …}` before a transaction, `{"step": "ack", …}` when COMMIT has returned. A family is an order
with two items, each joined to it by an edge; it is created, changed and deleted as a whole. The test can therefore
recognize a partial transaction, and knows for every family its acknowledged version and the version that its last
unacknowledged step may have written.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Iterator
from threading import Thread

import vedette
from vedette.engine.context.result import Result
from vedette.engine.data_directory import Vedette
from vedette.errors import VedetteError

__all__ = ["ONTOLOGY", "main"]

THREADS = 3
TASKS = 2

ONTOLOGY = """
node Order { tag: String [unique], version: Int = 0, pad: String? }
node Item { tag: String [indexed], version: Int = 0 }
edge holds(order: Order, item: Item) { version: Int = 0 }
"""
SPAWN = """
BEGIN;
SPAWN o: Order { tag = $tag, pad = $pad } RETURNING id;
SPAWN a: Item { tag = $tag } RETURNING id;
LINK holds(#o, #a) RETURNING id;
SPAWN b: Item { tag = $tag } RETURNING id;
LINK holds(#o, #b) RETURNING id;
COMMIT
"""
CHANGE = """
BEGIN SERIALIZABLE;
MATCH o: Order WHERE o.tag = $tag SET o.version = $version RETURNING id;
MATCH o: Order, i: Item, holds(o, i) AS h WHERE o.tag = $tag SET h.version = $version RETURNING id;
MATCH i: Item WHERE i.tag = $tag SET i.version = $version RETURNING id;
COMMIT
"""
KILL = """
BEGIN;
MATCH i: Item WHERE i.tag = $tag KILL i RETURNING id;
MATCH o: Order WHERE o.tag = $tag KILL o RETURNING id;
COMMIT
"""
REGRET = "BEGIN; SPAWN o: Order { tag = $tag }; MATCH x: Order SET x.version = 999; ROLLBACK"


def report(**fields: object) -> None:
    os.write(1, f"{json.dumps(fields)}\n".encode())


class Writer:
    """Chooses the steps of one session. A step is a script and its parameters; the writer reports the outcome back."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = random.Random(seed)
        self.alive: dict[str, int] = {}
        self.count = 0

    def steps(self) -> Iterator[tuple[str, str, dict[str, object]]]:
        while True:
            self.count += 1
            what = self.rng.random()
            if what < 0.05:
                yield "regret", REGRET, {"tag": f"regret {self.name}.{self.count}"}
            elif what < 0.5 or not self.alive:
                tag = f"{self.name}.{self.count}"
                yield "spawn", SPAWN, {"tag": tag, "pad": "x" * self.rng.choice([0, 10, 3_000])}
                self.alive[tag] = 0
            elif what < 0.8:
                tag = self.rng.choice(list(self.alive))
                self.alive[tag] += 1
                yield "change", CHANGE, {"tag": tag, "version": self.alive[tag]}
            else:
                tag = self.rng.choice(list(self.alive))
                del self.alive[tag]
                yield "kill", KILL, {"tag": tag}

    def acknowledge(self, kind: str, parameters: dict[str, object], results: list[Result]) -> None:
        ids = [row[0] for result in results for row in result.rows]
        facts = {name: parameters[name] for name in ("tag", "version") if name in parameters}
        report(step="ack", kind=kind, tick=results[-1].tick, ids=ids, **facts)

    def announce(self, kind: str, parameters: dict[str, object]) -> None:
        report(step="try", kind=kind, tag=parameters["tag"], version=parameters.get("version"))


def write(db: Vedette, writer: Writer) -> None:
    session = db.session()
    for kind, script, parameters in writer.steps():
        writer.announce(kind, parameters)
        results = None
        while results is None:
            try:
                results = session.run(script, parameters)
            except VedetteError as error:
                if not error.retryable:
                    raise
        writer.acknowledge(kind, parameters, results)


async def write_async(db: Vedette, writers: list[Writer]) -> None:
    async def one(writer: Writer) -> None:
        async with db.async_session() as session:
            for kind, script, parameters in writer.steps():
                writer.announce(kind, parameters)
                results = None
                while results is None:
                    try:
                        results = await session.run(script, parameters)
                    except VedetteError as error:
                        if not error.retryable:
                            raise
                writer.acknowledge(kind, parameters, results)

    await asyncio.gather(*map(one, writers))


def main(location: str, seed: str) -> None:
    db = vedette.open(location)
    db.define(ONTOLOGY)
    boot = db.default.boot
    writers = [Writer(f"{boot}.{number}", int(seed) + number) for number in range(THREADS + TASKS)]
    report(step="ready", boot=boot)
    for writer in writers[:THREADS]:
        Thread(target=write, args=(db, writer)).start()
    asyncio.run(write_async(db, writers[THREADS:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
