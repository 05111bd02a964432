"""The cost of a change for a watch follows the change, not the graph at the time the watch was created."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

import vedette
from vedette.element import Element
from vedette.engine.data_directory import Vedette
from vedette.graph.graph import Graph

WATCHES = (
    "WATCH u: User WHERE COUNT(p: Paper, likes(u, p)) > 0 RETURN u.name",
    "WATCH u: User WHERE EXISTS(p: Paper, likes(u, p) WHERE p.n > 0) RETURN u.name",
    "WATCH u: User, p: Paper, likes(u, p) RETURN u.name, p.n",
    "WATCH u: User, p: Paper, likes(u, p) RETURN u.name, COUNT(*) AS c, SUM(p.n) AS n",
)


@pytest.fixture
def db() -> Iterator[Vedette]:
    """One user and more edges than users, so that a scan is cheaper now."""
    with vedette.open(":memory:", environment={}) as db:
        db.define("node User { name: String? } node Paper { n: Int = 0 } edge likes(u: User, p: Paper)")
        db.session().run("SPAWN u: User; SPAWN p: Paper" + "; LINK likes(u, p)" * 5)
        yield db


@pytest.mark.parametrize("text", WATCHES)
@pytest.mark.plain_core
def test_long_lived_plan_follows_edges(db: Vedette, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    session = db.session()
    session.watch(text)
    session.execute("SPAWN p: Paper")
    scanned: list[tuple[str, ...]] = []
    scan = Graph.scan

    def watched_scan(self: Graph, types: tuple[str, ...]) -> Iterable[Element]:
        scanned.append(types)
        return scan(self, types)

    monkeypatch.setattr(Graph, "scan", watched_scan)
    session.execute("SET #p.n = 2")
    assert scanned == []


def test_explain_requires_watch_permission(db: Vedette) -> None:
    db.define("""
        policy watching: ON META SPAWN(_Watch) ALLOW IF true
        policy users: ON MATCH(u: User) ALLOW IF true
    """)
    actor = db.session().execute("MATCH u: User RETURN u.id").rows[0][0]
    session = db.session(actor=actor)
    assert session.execute("EXPLAIN WATCH u: User RETURN u.name").rows
    for text in ("WATCH p: Paper RETURN p.n", "EXPLAIN WATCH p: Paper RETURN p.n"):
        with pytest.raises(vedette.VedetteError) as raised:
            session.execute(text)
        assert str(raised.value) == "watch error: E8001 WATCH_PATTERN_DENIED: Watch pattern denied"
        assert raised.value.fields == {}
