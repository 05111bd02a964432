"""Fast paths of consume mode: lazy matches, early admission, and ACK without a transaction.

Each must give the same result as the general path.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vedette
from vedette.engine.data_directory import Vedette
from vedette.errors import VedetteError
from vedette.testing import ManualClock

ONTOLOGY = """
node Job { n: Int = 0, text: String?, rank: Int? }
node User { name: String }
node Channel { }
edge lies_in(job: Job, channel: Channel) [on_kill_source: prevent] { }
"""
ORDERED = "WATCH j: Job [mode: consume, ordering: attribute(j.rank DESC, j.n ASC)] RETURN j.n, j.text"


def make_db(location: str = ":memory:") -> Vedette:
    db: Vedette = vedette.open(location, clock=ManualClock(), environment={})
    db.define(ONTOLOGY)
    return db


@pytest.fixture
def db() -> Iterator[Vedette]:
    db = make_db()
    yield db
    db.default.watching.consuming.validate()
    db.close()


def pool_of(db: Vedette) -> Any:
    (pool,) = db.default.watching.consuming.matcher.queues.values()
    return pool


def taken(handle: Any, limit: int | None = None) -> list[tuple[Any, Any]]:
    events = [event for event in handle.poll(limit) if event.type == "consumed"]
    return [(event.match["j.n"], event.match["j.text"]) for event in events]


# Lazy matches


def test_delivery_shows_the_current_element(db: Vedette) -> None:
    with db.session() as s:
        worker = s.watch(ORDERED)
        for n in range(4):
            s.execute('SPAWN j: Job { n = $n, rank = $n, text = "old" }', n=n)
        assert pool_of(db).lazy_matches is not None
        s.execute('MATCH j: Job WHERE j.n = 0 SET j.rank = 9 SET j.text = "new"')
        s.execute("MATCH j: Job WHERE j.n = 3 SET j.rank = null")  # nulls come first in descending order
        assert taken(worker) == [(3, "old"), (0, "new"), (2, "old"), (1, "old")]


def test_open_transaction_does_not_affect_deliveries(db: Vedette) -> None:
    with db.session() as s, db.session() as other:
        worker = s.watch(ORDERED)
        s.execute('SPAWN j: Job { n = 1, text = "old" }')
        other.run('BEGIN; MATCH j: Job SET j.text = "never"')
        assert taken(worker) == [(1, "old")]
        other.execute("ROLLBACK")


@pytest.mark.parametrize(
    "statement",
    [
        "WATCH j: Job [mode: consume, ordering: attribute(10 / j.n ASC)] RETURN j.n, j.text",
        "WATCH j: Job [mode: consume, serialize_by: j.rank] RETURN j.n, j.text",
        "WATCH j: Job, c: Channel, lies_in(j, c) [mode: consume] RETURN j.n, j.text",
    ],
    ids=["may fail", "by key", "of several elements"],
)
def test_joined_matches_are_stored(db: Vedette, statement: str) -> None:
    with db.session() as s:
        s.watch(statement)
        assert pool_of(db).lazy_matches is None


def test_new_policy_ends_lazy_matches(db: Vedette) -> None:
    with db.session() as s:
        actor = s.execute('SPAWN u: User { name = "ann" } RETURNING id').rows[0][0]
        worker = s.watch(ORDERED)
        theirs = db.session(actor).watch(ORDERED)  # the same shape with a view of its own
        for n in range(3):
            s.execute('SPAWN j: Job { n = $n, rank = $n, text = "old" }', n=n)
        db.define("policy odd_only: ON MATCH(j: Job) ALLOW IF j.n = 1")
        assert {pool.lazy_matches for pool in db.default.watching.consuming.matcher.queues.values()} == {None}
        db.default.watching.consuming.validate()
        assert taken(theirs) == [(1, "old")]
        s.execute('MATCH j: Job WHERE j.n = 2 SET j.text = "new"')
        assert taken(worker) == [(2, "new"), (0, "old")]


# Early admission


def test_large_commit_is_admitted_before_it_returns(tmp_path: Path) -> None:
    with make_db(str(tmp_path / "data")) as db, db.session() as s:
        worker = s.watch(ORDERED)
        s.execute("BEGIN")
        for n in range(1_000):
            s.execute("SPAWN j: Job { n = $n, rank = $rank }", n=n, rank=n % 7)
        s.execute("COMMIT")
        pool = pool_of(db)
        assert (len(pool), pool.not_durable_count) == (1_000, 0)
        expected = sorted(range(1_000), key=lambda n: (-(n % 7), n))
        assert [n for n, _ in taken(worker)] == expected[: worker.watch.options.buffer]


# ACK without a transaction


def acknowledge_all(db: Vedette) -> list[Any]:
    """Everything that can be observed of ten acknowledgements."""
    with db.session() as s:
        worker = s.watch("WATCH j: Job [mode: consume] RETURN j.n, j.text")
        mirror = s.watch("WATCH j: Job RETURN j.n")
        count = s.watch("WATCH j: Job RETURN COUNT(j) AS c")
        for n in range(10):
            s.execute("SPAWN j: Job { n = $n }", n=n)
        _, *jobs = worker.poll()
        worker.nack(jobs[0])
        ids = [str(job.delivery_id) for job in jobs]
        results = [s.ack(ids[1:2]), s.ack(ids[2:])]
        (again,) = worker.poll()
        results.append(s.execute("ACK $id", id=again.delivery_id))
        with pytest.raises(VedetteError, match="E8004"):
            worker.ack(again)
        seen = [event.to_dict() for watch in (mirror, count) for event in watch.poll()]
        received = [(r.tick, r.deleted, r.unlinked, r.warnings) for r in results]
        commits = [
            (
                c.sequence,
                c.tick,
                c.next_tick,
                c.cause,
                c.notes,
                [(b and b.id, a and a.id) for b, a in c.changes],
            )
            for c in db.default.history.commits_after(0)
        ]
        return [seen, received, commits, s.execute("MATCH j: Job RETURN j.n").rows]


@pytest.mark.plain_core
def test_direct_deletion_equals_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = make_db(), make_db()
    short = acknowledge_all(quick)
    monkeypatch.setattr(slow.default.state, "can_delete_directly", lambda element: False)
    assert acknowledge_all(slow) == short
    assert short[-1] == []
    quick.close()
    slow.close()


@pytest.mark.parametrize(
    "declaration",
    [
        "rule mourn: t: Tomb WHERE NOT EXISTS(j: Job) AND t.n = 0 => SET t.n = 1",
        "constraint some: t: Tomb => EXISTS(j: Job)",
    ],
    ids=["rule", "constraint"],
)
def test_rules_and_constraints_prevent_direct_deletion(db: Vedette, declaration: str) -> None:
    db.define(f"node Tomb {{ n: Int = 0 }}\n{declaration}")
    with db.session() as s:
        s.execute("SPAWN j: Job { n = 1 }")
        s.execute("SPAWN t: Tomb { }")
        worker = s.watch("WATCH j: Job [mode: consume] RETURN j.n, j.text")
        _, job = worker.poll()
        if declaration.startswith("rule"):
            worker.ack(job)
            assert s.execute("MATCH t: Tomb RETURN t.n").rows == [(1,)]
        else:
            with pytest.raises(VedetteError, match="constraint violation"):
                worker.ack(job)
            assert s.execute("MATCH j: Job RETURN j.n").rows == [(1,)]


def test_edge_can_prevent_an_ack(db: Vedette) -> None:
    with db.session() as s:
        s.execute("SPAWN j: Job { n = 1 }")
        s.execute("SPAWN c: Channel { }")
        s.execute("MATCH j: Job, c: Channel LINK lies_in(j, c)")
        worker = s.watch("WATCH j: Job [mode: consume] RETURN j.n, j.text")
        _, job = worker.poll()
        with pytest.raises(VedetteError, match="restricted"):
            worker.ack(job)
        s.execute("MATCH lies_in(j, c) AS l UNLINK l")
        worker.ack(job)
        assert s.execute("MATCH j: Job RETURN j.n").rows == []
