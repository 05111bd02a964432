"""Watches over Layer 0: whatever happens to watches and sessions, events equal a fresh MATCH."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vedette
from tests.conftest import SOAK
from tests.properties.models.watch_fold import Fold
from vedette.engine.data_directory import Vedette
from vedette.engine.layer0.view import Layer0, Layer0Visibility
from vedette.engine.session.session import Session
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError

EXAMPLES = 5_000 if SOAK else 40
ONTOLOGY = """
node User { name: String }
node Task { n: Int = 0 }
edge leads(who: User, what: Task)
policy watching: ON META SPAWN(_Watch) ALLOW IF true
policy seeing: ON MATCH(_) ALLOW IF true
policy leading: ON META MATCH(_Watch) ALLOW IF EXISTS(leads(current_actor(), _))
"""
FOLLOWED = (
    ("w: _Watch", "w.id AS i, w.name AS n, w.status AS s, w.buffer_size AS b, w.delivery AS d", ("i",)),
    ('w: _Watch WHERE w.status = "active" AND w.name != "w2"', "w.id AS i, w.pattern AS p", ("i",)),
    ("w: _Watch", "w.status AS s, COUNT(*) AS c, MAX(w.buffer_size) AS m", ("s",)),
    ("w: _Watch", "DISTINCT w.status AS s", None),
    ("x: _Session, w: _Watch, _session_has_watch(x, w)", "x.id AS x, w.id AS i, w.status AS s", ("x", "i")),
    ("w: _Watch, _session_has_watch(current_session(), w)", "COUNT(w) AS c", ()),
    ("x: _Session", "x.id AS x", ("x",)),
    ("w: _Watch WHERE NOT EXISTS(x: _Session, _session_has_watch(x, w))", "w.id AS i", ("i",)),
)


@dataclass
class Layer0Reader:
    session: Session
    pattern: str
    returns: str
    fold: Fold
    handle: WatchHandle

    def check(self) -> None:
        events = self.handle.poll()
        self.fold.take(events)
        result = self.session.execute(f"MATCH {self.pattern} RETURN {self.returns}")
        expected = Fold()
        expected.begin([dict(zip(result.columns, row, strict=True)) for row in result.rows])
        assert self.fold.rows == expected.rows, f"{self.pattern} RETURN {self.returns}: {events}"


class Layer0Fixture:
    """Sessions of the system and of two actors, their watches, and the readers of Layer 0 watches."""

    def __init__(self, followed: Iterable[tuple[int, int]]) -> None:
        self.db = vedette.open(":memory:", environment={})
        self.db.define(ONTOLOGY)
        self.system = self.db.session()
        self.system.run(
            'SPAWN ann: User { name = "ann" }; SPAWN bob: User { name = "bob" }; SPAWN t: Task {}'
        )
        self.actors = [None, self.system.bindings["ann"], self.system.bindings["bob"]]
        self.sessions = [self.db.session(actor=actor) for actor in self.actors]
        self.watches: list[str] = []
        self.readers: list[Layer0Reader] = []
        sessions = [self.db.session(actor=actor) for actor in self.actors]
        for who, what in followed:
            pattern, returns, identity = FOLLOWED[what]
            handle = sessions[who].watch(f"WATCH {pattern} [buffer: 100000] RETURN {returns}")
            fold = Fold(identity=identity, changes="DISTINCT" not in returns)
            self.readers.append(Layer0Reader(sessions[who], pattern, returns, fold, handle))
        self.check()

    def check(self) -> None:
        for reader in self.readers:
            reader.check()

    def step(self, form: str, one: int, other: int) -> None:
        session = self.sessions[one % len(self.sessions)]
        watch = f"#{self.watches[other % len(self.watches)]}" if self.watches else "#none"
        match form:
            case "open":
                self.sessions.append(self.db.session(actor=self.actors[other % 3]))
            case "close" if len(self.sessions) > 1:
                self.sessions.pop(one % len(self.sessions)).close()
            case "watch":
                delivery = "reliable" if other % 3 == 0 else "best_effort"
                made = session.execute(f"w{other % 4} = WATCH t: Task [delivery: {delivery}] RETURN t")
                self.watches.append(str(made.handle))
            case "attach":
                session.attach(watch[1:])
            case "alter":
                session.execute(f"ALTER WATCH {watch} SET [buffer: {one % 3 + 1}]")
            case "refilter":
                session.execute(f"ALTER WATCH {watch} SET [filter: t.n > {one}]")
            case "overflow":
                session.execute(f"ALTER WATCH {watch} SET [buffer: 1, on_full: error]")
            case "act" if session.actor is None:
                session.execute(f"BEGIN SESSION AS #{self.actors[1]}")
            case "act":
                session.execute("END SESSION")
            case "write":
                self.system.execute("MATCH t: Task SET t.n = t.n + 1")
            case "grant":
                self.system.execute(f"LINK IF NOT EXISTS leads(#{self.actors[1 + other % 2]}, #t)")
            case "revoke":
                self.system.execute("UNLINK leads(_, _)")
            case "PAUSE" | "RESUME" | "CANCEL":
                session.execute(f"{form} WATCH {watch}")


FORMS = (
    "open",
    "close",
    "watch",
    "watch",
    "watch",
    "attach",
    "alter",
    "refilter",
    "overflow",
    "act",
    "write",
)
STEPS = st.tuples(
    st.sampled_from((*FORMS, "grant", "revoke", "PAUSE", "RESUME", "CANCEL")),
    st.integers(0, 9),
    st.integers(0, 9),
)


WATCHED_QUERIES = st.tuples(st.integers(0, 2), st.integers(0, len(FOLLOWED) - 1))
"""Start the Layer 0 watches that are checked."""


@settings(max_examples=EXAMPLES)
@given(st.lists(WATCHED_QUERIES, min_size=1, max_size=5), st.lists(STEPS, max_size=12))
def test_layer0_events_equal_a_fresh_match(
    followed: list[tuple[int, int]], steps: list[tuple[str, int, int]]
) -> None:
    theatre = Layer0Fixture(followed)
    try:
        for step in steps:
            with suppress(VedetteError):
                theatre.step(*step)
            theatre.check()
    finally:
        theatre.db.close()


# Cost


class ReadCounter:
    """Counts the watches that were converted to elements or read one by one."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> ReadCounter:
    made, looked, visits = Layer0.watch_element, Layer0Visibility.sees_watch_of, ReadCounter()

    def watch_element(self: Layer0, watch: Any) -> Any:
        visits.count += 1
        return made(self, watch)

    def sees_watch_of(self: Layer0Visibility, actor: str | None) -> bool:
        visits.count += 1
        return looked(self, actor)

    monkeypatch.setattr(Layer0, "watch_element", watch_element)
    monkeypatch.setattr(Layer0Visibility, "sees_watch_of", sees_watch_of)
    return visits


@pytest.fixture
def db() -> Iterator[Vedette]:
    with vedette.open(":memory:", environment={}) as db:
        db.define(ONTOLOGY)
        yield db


def _life(session: Session) -> None:
    """The whole life cycle of a watch."""
    handle = session.watch("WATCH t: Task WHERE t.n = -1 RETURN t")
    for text in ("PAUSE", "RESUME", "ALTER", "CANCEL"):
        session.execute(f"{text} WATCH #{handle.id}{' SET [buffer: 9]' if text == 'ALTER' else ''}")


@pytest.mark.parametrize("place", range(len(FOLLOWED) - 1), ids=[returns for _, returns, _ in FOLLOWED[:-1]])
@pytest.mark.parametrize("actor", [False, True], ids=["system", "actor"])
def test_cost_of_layer0_watch_depends_on_changes_only(
    db: Vedette, visits: ReadCounter, place: int, actor: bool
) -> None:
    pattern, returns, _ = FOLLOWED[place]
    system = db.session()
    system.run("SPAWN u: User; SPAWN t: Task; LINK leads(u, t)")
    crowd, other = db.session(), db.session()
    reader = db.session(actor=system.bindings["u"] if actor else None)
    reader.watch(f"WATCH {pattern} RETURN {returns}")
    costs = []
    for number in range(300):
        if number in (10, 299):
            visits.count = 0
            _life(other)
            costs.append(visits.count)
        crowd.watch("WATCH t: Task WHERE t.n = $n RETURN t", n=number)
    few, many = costs
    assert many == few
    assert many < 60


def test_watch_lookup_by_id_reads_one_element(db: Vedette, visits: ReadCounter) -> None:
    crowd = db.session()
    for number in range(100):
        crowd.watch("WATCH t: Task WHERE t.n = $n RETURN t", n=number)
    handle = crowd.watch("WATCH t: Task RETURN t")
    visits.count = 0
    rows = db.session().execute(f"MATCH w: _Watch WHERE w.id = #{handle.id} RETURN w.status").rows
    assert rows == [("active",)]
    assert visits.count < 5
