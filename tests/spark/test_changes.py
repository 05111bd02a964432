"""The delivery query on a real Spark: every change reaches the gateway once and in order, also if a worker dies."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

from tests.spark.conftest import Shop
from vedette.pipeline.checkpoint import last_committed_offset
from vedette.pipeline.offsets import encode_offset
from vedette.pipeline.queries.changes import drain_and_stop, start_changes_query


def delivered(shop: Shop) -> list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    unique = sorted(shop.receiver.unique.values(), key=lambda change: change.offset)
    return [(c.key, tuple(c.enter), tuple(c.update), tuple(c.leave)) for c in unique]


def complete(shop: Shop, offset: int) -> bool:
    return any(frame.offset >= offset for frame in shop.receiver.completed)


def more_than(shop: Shop, count: int) -> bool:
    return len(shop.receiver.changes) > count


def test_changes_reach_the_gateway_and_late_subscriptions_are_backfilled(
    spark: Any, shop: Shop, tmp_path: Path
):
    paid = shop.subscribe("paid", "doc.status == 'paid'")
    large = shop.subscribe("large", "doc.total > 100")
    query = start_changes_query(spark, shop.config, tmp_path / "checkpoint", start=0)
    try:
        shop.write(("a", {"status": "paid", "total": 10}), ("b", {"status": "open", "total": 500}))
        shop.write(("a", {"status": "open", "total": 200}), ("b", None), ("c", {"status": "x", "total": 1}))
        last = shop.write(("c", {"status": "paid", "total": 1}))
        assert shop.receiver.wait_for(partial(complete, shop, last))
        assert delivered(shop) == [
            ("a", (paid,), (), ()),
            ("b", (large,), (), ()),
            ("a", (large,), (), (paid,)),
            ("b", (), (), (large,)),
            ("c", (paid,), (), ()),
        ]
        # A late subscription receives the changes after its snapshot, from a later batch.
        late = shop.subscribe("late", "doc.status == 'new'", publish=False)
        last = shop.write(("d", {"status": "new", "total": 1}), ("e", {"status": "new", "total": 101}))
        assert shop.receiver.wait_for(partial(complete, shop, last))
        assert not any(late in c.enter for c in shop.receiver.changes)
        shop.compactor.publish()
        assert shop.receiver.wait_for(lambda: sum(late in c.enter for c in shop.receiver.changes) == 2)
        assert all(c.is_backfill for c in shop.receiver.changes if late in c.enter)
    finally:
        drain_and_stop(query)
    # After a restart the query continues at its checkpoint, without duplicates or gaps.
    before = len(shop.receiver.changes)
    last = shop.write(("f", {"status": "paid", "total": 1}))
    query = start_changes_query(spark, shop.config, tmp_path / "checkpoint")
    try:
        assert shop.receiver.wait_for(partial(complete, shop, last))
        assert [c.key for c in shop.receiver.changes[before:]] == ["f"]
    finally:
        drain_and_stop(query)


def latest_alive(shop: Shop) -> int:
    """Return the process id of the worker that connected last and is still alive."""
    pids = [int(sender.split()[-1]) for sender in reversed(shop.receiver.senders)]
    return next(pid for pid in pids if Path(f"/proc/{pid}").exists())


def test_a_killed_worker_causes_a_retry_and_loses_no_change(spark: Any, shop: Shop, tmp_path: Path):
    everything = shop.subscribe("all", "true")
    query = start_changes_query(spark, shop.config, tmp_path / "checkpoint", start=0, max_rows=50)
    try:
        first = shop.write(("first", {"n": 0}))
        assert shop.receiver.wait_for(partial(complete, shop, first))
        for round_ in range(3):
            seen = len(shop.receiver.changes)
            last = shop.write(*((f"k{n}", {"round": round_, "n": n}) for n in range(200)))
            assert shop.receiver.wait_for(partial(more_than, shop, seen))
            # A worker sends its process id when it connects. A killed driver-side reader ends the query instead
            # (test_pipeline_process.py).
            os.kill(latest_alive(shop), signal.SIGKILL)
            assert shop.receiver.wait_for(partial(complete, shop, last), 240)
        assert query.isActive
        unique = shop.receiver.unique
        assert len(unique) == 601
        for partition in {key[0] for key in unique}:
            seqs = sorted(seq for p, _, seq in unique if p == partition)
            assert seqs == list(range(1, len(seqs) + 1))
        assert all(everything in (*c.enter, *c.update) for c in unique.values())
    finally:
        drain_and_stop(query)


def test_the_checkpoint_has_the_offset_of_the_last_batch(spark: Any, shop: Shop, tmp_path: Path):
    shop.subscribe("all", "true")
    query = start_changes_query(spark, shop.config, tmp_path / "checkpoint", start=0)
    try:
        last = shop.write(("a", {"n": 1}))
        assert shop.receiver.wait_for(partial(complete, shop, last))
    finally:
        drain_and_stop(query)
    assert (tmp_path / "checkpoint" / "offsets" / "0").read_text().startswith("v1\n")
    assert last_committed_offset(tmp_path / "checkpoint") == encode_offset(last, 1)


def test_the_plan_names_the_source_and_the_function(spark: Any, shop: Shop, tmp_path: Path):
    shop.subscribe("all", "true")
    query = start_changes_query(spark, shop.config, tmp_path / "checkpoint", start=0)
    try:
        last = shop.write(("a", {"n": 1}))
        assert shop.receiver.wait_for(partial(complete, shop, last))
        plan = query._jsq.explainInternal(True)
    finally:
        drain_and_stop(query)
    assert "MatchAndDeliver" in plan
    assert "vedette_journal" in plan
    assert "ingest_secret" not in plan
