"""Changes per second with active watches: one filter, one pattern over an edge, many with different constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from itertools import count as counting

from benchmarks.case import Case, Contender, Measure, Metric, Setting
from benchmarks.engines.seam import check_same
from benchmarks.live.drasi import DrasiLive
from benchmarks.live.node import NodeLive
from benchmarks.live.seam import Live, Workload
from benchmarks.live.vedette import VedetteLive
from benchmarks.rounds import rate

__all__ = ["CASES", "PGLITE", "SURREAL"]

Start = Callable[[Setting], AbstractContextManager[Measure]]
SURREAL, PGLITE = "SurrealDB (Node)", "PGlite (Node)"


def _watching(
    make: Callable[[Workload], Live], workload: Workload, share: float, *, everyone: bool = False
) -> Start:
    """With `everyone`, the number of people and watches is that of the scale."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Measure]:
        count = max(2, int(setting.scale.changes * share))
        starts = counting(0, count)
        watches = setting.scale.watches
        asked = replace(workload, people=watches, watches=watches) if everyone else workload
        with closing(make(asked)) as live:

            def measure() -> tuple[float]:
                changes = asked.changes(next(starts), count)
                return (rate(count, lambda: check_same(live.change(changes), count)),)

            yield measure

    return start


def _vedette_together(workload: Workload) -> Live:
    return VedetteLive(workload, together=64)


def _drasi_together(workload: Workload) -> Live:
    return DrasiLive(workload, in_flight=64)


def _surreal(workload: Workload) -> Live:
    return NodeLive(workload, engine="surrealdb")


def _pglite(workload: Workload) -> Live:
    return NodeLive(workload, engine="pglite")


_ONE_BY_ONE = (
    "each push_change awaited before the next, as its documentation does; a Python callback counts events"
)
_IN_BATCHES = "Vedette with 64 statements between BEGIN and COMMIT, all events sent at the COMMIT"
_TOGETHER = "64 changes pushed at once: it is unknown which of them have been processed"
_SURREAL = "@surrealdb/node 3, mem://, one LIVE SELECT a watch; does not tell what leaves the filter: half the events"
_PGLITE = "live.changes, in memory: runs the query again after each change"


def _beside_peers(
    name: str,
    title: str,
    metric: str,
    workload: Workload,
    *,
    times: float,
    method: str,
    shares: tuple[float, float, float, float],
) -> Case:
    """Shares of the changes for drasi-lib one by one and together, SurrealDB (0: not supported), PGlite."""
    one, together, surreal, pglite = shares
    peers = [
        Contender(name="drasi-lib", start=_watching(DrasiLive, workload, one), about=_ONE_BY_ONE),
        Contender(
            name="drasi-lib, 64 at once",
            start=_watching(_drasi_together, workload, together),
            about=_TOGETHER,
        ),
        Contender(name=PGLITE, start=_watching(_pglite, workload, pglite), about=_PGLITE),
    ]
    if surreal:
        peers.insert(2, Contender(name=SURREAL, start=_watching(_surreal, workload, surreal), about=_SURREAL))
    if workload.pattern != "keys":
        batches = Contender(
            name="64 a transaction", start=_watching(_vedette_together, workload, 1), about=_IN_BATCHES
        )
        peers.insert(0, batches)
    return Case(
        name=name,
        title=title,
        metrics=(Metric(name=metric, unit="/s", more_is_better=True, times=times, against="drasi-lib"),),
        method=method,
        contenders=(
            Contender(
                name="Vedette",
                start=_watching(VedetteLive, workload, 1),
                about="each change a statement and a transaction; the thread that writes polls the events",
            ),
            *peers,
        ),
    )


_KEYS = Workload(pattern="keys")

CASES = (
    _beside_peers(
        "watch-filter",
        "Changes a second under one watch with a filter",
        "changes under one filter watch",
        Workload(pattern="filter"),
        times=8,
        method=(
            "1,000 people; each change sets one's rank, which moves that person into the filter `rank > 50` or out of "
            "it. The clock runs from the first change until the last event is in the reader's hands. All in memory; "
            "slower peers get fewer changes a round."
        ),
        shares=(0.25, 0.25, 0.1, 0.01),
    ),
    _beside_peers(
        "watch-hop",
        "Changes a second under one watch over an edge",
        "changes under one 1-hop watch",
        Workload(pattern="hop"),
        times=5,
        method=(
            "The same people in a ring, each knowing the next; the watch is for those with a high rank and whom they "
            "know. SurrealDB's LIVE SELECT looks at one table and cannot do it."
        ),
        shares=(0.25, 0.25, 0, 0.01),
    ),
    _beside_peers(
        "watch-thousand",
        "Changes a second under 1,000 watches with different constants",
        "changes under 1,000 watches",
        replace(_KEYS, watches=1_000),
        times=100,
        method=(
            "Each of 1,000 people has a watch of their own, `key = …`; each change concerns one of them. The handle "
            "of that watch is polled after each change. PGlite gets three changes a round: one takes it more "
            "than a second."
        ),
        shares=(0.005, 0.005, 0.001, 0.00015),
    ),
    Case(
        name="watch-many",
        title="100,000 watches with different constants",
        metrics=(
            Metric(
                name="changes under 100,000 watches",
                unit="/s",
                more_is_better=True,
                times=0.8,
                against="one watch",
            ),
        ),
        method=(
            "100,000 people. Either each has a watch of their own, or one watch has a key that all people share. The "
            "changes are the same, each means one event, and its handle is polled after each. No peer was tried with "
            "so many: see what a thousand cost them, above."
        ),
        contenders=(
            Contender(name="Vedette", start=_watching(VedetteLive, _KEYS, 1, everyone=True)),
            Contender(
                name="one watch",
                start=_watching(lambda asked: VedetteLive(asked, one_for_all=True), _KEYS, 1, everyone=True),
                about="Vedette with one watch that every change concerns",
            ),
        ),
    ),
)
