"""A process that creates many watches and measures their memory: python -m benchmarks.watched vedette|drasi COUNT.

Prints the bytes per watch, without the first of its shape, as one number.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys

import vedette
from benchmarks.live.drasi import drasi_module
from benchmarks.live.vedette import ONTOLOGY
from benchmarks.opened import resident_bytes

__all__: list[str] = []


def _vedette(count: int) -> float:
    db = vedette.open(":memory:")
    db.define(ONTOLOGY)
    session = db.session()

    def make(keys: range) -> None:
        for key in keys:
            session.execute("WATCH p: Person WHERE p.key = $key [initial: none] RETURN p.rank", key=key)

    make(range(1000))  # the shape, and memory that the allocator reserves in advance
    gc.collect()
    before = resident_bytes()
    make(range(1000, 1000 + count))
    gc.collect()
    return (resident_bytes() - before) / count


async def _drasi(count: int) -> float:
    drasi = await drasi_module().Drasi.create("watches")
    await drasi.start()
    await drasi.add_python_source("people")
    before = 0
    for key in range(count + 10):
        if key == 10:
            before = resident_bytes()
        text = f"MATCH (p:Person) WHERE p.key = {key} RETURN p.rank AS rank"
        await drasi.add_query(f"query {key}", text, ["people"])
    return (resident_bytes() - before) / count


if __name__ == "__main__":
    who, count = sys.argv[1], int(sys.argv[2])
    print(_vedette(count) if who == "vedette" else asyncio.run(_drasi(count)), flush=True)
    os._exit(0)  # freeing a million watches is not measured
