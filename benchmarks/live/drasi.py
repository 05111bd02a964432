"""drasi-lib: continuous queries in Cypher over changes that are pushed from Python, results by a Python callback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from benchmarks.live.seam import HIGH, Change, Workload
from benchmarks.waiting import WaitTimeoutError

__all__ = ["DrasiLive", "drasi_module"]

_QUERIES = {
    "filter": f"MATCH (p:Person) WHERE p.rank > {HIGH} RETURN p.key AS key, p.rank AS rank",
    "hop": f"MATCH (a:Person)-[:KNOWS]->(b:Person) WHERE a.rank > {HIGH} RETURN a.key AS a, b.key AS b",
    "keys": "MATCH (p:Person) WHERE p.key = {key} RETURN p.key AS key, p.rank AS rank",
}
_PATIENCE_S = 60
_CHUNK = 100


def drasi_module() -> Any:
    os.environ.setdefault("RUST_LOG", "off")  # it logs to the terminal
    return import_module("drasi")


class DrasiLive:
    """`in_flight` is the number of changes pushed before the first result is awaited."""

    def __init__(self, workload: Workload, *, in_flight: int = 1) -> None:
        self._in_flight = in_flight
        self._runner = asyncio.Runner()
        self._seen = 0
        self._runner.run(self._start(workload))

    async def _start(self, workload: Workload) -> None:
        self._drasi = await drasi_module().Drasi.create("benchmark")
        await self._drasi.start()
        await self._drasi.add_python_source("people")
        text = _QUERIES[workload.pattern]
        names = [f"query {number}" for number in range(workload.watches)]
        for number, name in enumerate(names):
            await self._drasi.add_query(name, text.format(key=number), ["people"])
        await self._drasi.add_python_reaction("reader", names, self._on_results)
        ranks = workload.first_ranks()
        for start in range(0, len(ranks), _CHUNK):
            for key in range(start, min(len(ranks), start + _CHUNK)):
                await self._push("insert", key, ranks[key])
            await self._quiet()
        if workload.pattern == "hop":
            for key in range(len(ranks)):
                await self._link(key, (key + 1) % len(ranks))
        await self._quiet()

    def _on_results(self, event: dict[str, Any]) -> None:
        self._seen += len(event["results"])

    async def _quiet(self) -> None:
        """Wait until no more results arrive."""
        seen, end = -1, asyncio.get_running_loop().time() + _PATIENCE_S
        while seen != self._seen:
            if asyncio.get_running_loop().time() > end:
                raise WaitTimeoutError("the end of the events of the first changes", _PATIENCE_S)
            seen = self._seen
            await asyncio.sleep(0.3)

    async def _push(self, op: str, key: int, rank: int) -> None:
        change = {
            "op": op,
            "id": f"person {key}",
            "labels": ["Person"],
            "properties": {"key": key, "rank": rank},
        }
        await self._drasi.push_change("people", change)

    async def _link(self, a: int, b: int) -> None:
        ends = {"start_id": f"person {a}", "end_id": f"person {b}"}
        change = {"op": "insert", "id": f"knows {a}", "labels": ["KNOWS"], "properties": {}, **ends}
        await self._drasi.push_change("people", change)

    def change(self, changes: Sequence[Change]) -> int:
        return self._runner.run(self._change(changes))

    async def _change(self, changes: Sequence[Change]) -> int:
        before = self._seen
        waiting = iter(changes)
        await asyncio.gather(*[self._push_all(waiting) for _ in range(self._in_flight)])
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while self._seen - before < len(changes):
            if asyncio.get_running_loop().time() > deadline:
                raise WaitTimeoutError(f"{len(changes)} events ({self._seen - before} came)", _PATIENCE_S)
            await asyncio.sleep(0.0005)
        return self._seen - before

    async def _push_all(self, waiting: Iterator[Change]) -> None:
        for key, rank in waiting:
            await self._push("update", key, rank)

    def close(self) -> None:
        async def end() -> None:  # the package creates its awaitables inside a running loop only
            await self._drasi.close()

        self._runner.run(end())
        self._runner.close()
