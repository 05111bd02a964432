"""The history in memory is limited by commits and bytes; older commits are read from the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

import vedette
from vedette.errors import WatchError

LARGE = "x" * 100_000
WRITES = 40
LOOK_BACK = "WATCH d: Document [initial: since(1)] RETURN d.n"


def written(place: str) -> vedette.Vedette:
    db = vedette.open(place, environment={}, retained_megabytes=1)
    db.define("node Document { n: Int, text: String }")
    session = db.session()
    for number in range(WRITES):
        session.execute("SPAWN d: Document { n = $n, text = $text }", n=number, text=LARGE)
    return db


def kept(db: vedette.Vedette) -> int:
    return len(db.default.history._recent)


def test_large_commits_are_evicted_from_memory() -> None:
    with written(":memory:") as db:
        assert 5 <= kept(db) <= 12
        with pytest.raises(WatchError) as caught:
            db.session().watch(LOOK_BACK)
        assert caught.value.code == "E8009"


def test_evicted_commits_are_read_from_the_journal(tmp_path: Path) -> None:
    with written(str(tmp_path)) as db:
        assert kept(db) <= 12
        received = [dict(event.match or {})["d.n"] for event in db.session().watch(LOOK_BACK).poll()]
        assert received == list(range(2, WRITES))  # the first two commits have ticks 0 and 1


def test_latest_commit_is_always_kept() -> None:
    with written(":memory:") as db:
        session = db.session()
        watch = session.watch("WATCH d: Document [initial: none] RETURN d.n")
        session.execute("SPAWN d: Document { n = 100, text = $text }", text="x" * 900_000 * 2)
        assert kept(db) == 1
        tick = db.default.state.tick - 2
        again = session.watch(f"WATCH d: Document [initial: since({tick})] RETURN d.n")
        assert [e.match for e in again.poll()] == [e.match for e in watch.poll()] == [{"d.n": 100}]


def test_small_commits_are_limited_by_count() -> None:
    with vedette.open(":memory:", environment={}, retained_commits=5) as db:
        db.define("node Task {}")
        session = db.session()
        for _ in range(20):
            session.execute("SPAWN t: Task")
        assert kept(db) == 5


@pytest.mark.parametrize("commits", [0, 3])
def test_since_continues_after_an_initial(tmp_path: Path, commits: int) -> None:
    """The tick of an `initial` is also that of the next commit."""
    for place in (":memory:", str(tmp_path / "data")):
        with vedette.open(place) as db:
            db.define("node Item { n: Int }")
            session = db.session()
            for n in range(commits):
                session.execute("SPAWN i: Item { n = $n }", n=n)
            (initial,) = session.watch("WATCH i: Item RETURN i.n").poll()
            session.execute("SPAWN i: Item { n = 10 }")
            session.execute("SPAWN i: Item { n = 11 }")
            late = session.watch("WATCH i: Item [initial: since($tick)] RETURN i.n", tick=initial.tick - 1)
            assert [dict(event.match or {})["i.n"] for event in late.poll()] == [10, 11]
