"""`python spark_daemon.py daemon --data DIR`: `wqm` whose daemon has Spark ready before it begins, to be killed.

Lines: `batch` when one begins on Spark.
"""

from __future__ import annotations

from threading import Event
from typing import Any

from vedette.cli.wqm import main
from vedette.pipeline.queries.on_demand_session import BulkThresholds, OnDemandSession

_open, _run = OnDemandSession.at, OnDemandSession.run


def _warm(master: str, clock: Any, _config: Any) -> OnDemandSession:
    session = _open(master, clock, BulkThresholds(start_at_files=1, min_batch_files=1, batch_files=100))
    while not session.batch_size(1):
        Event().wait(0.05)
    return session


def _saying(self: OnDemandSession, *rest: Any) -> Any:
    print("batch", flush=True)
    return _run(self, *rest)


if __name__ == "__main__":
    OnDemandSession.at, OnDemandSession.run = _warm, _saying  # type: ignore[method-assign,assignment]
    main()
