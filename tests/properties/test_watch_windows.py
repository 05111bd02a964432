"""Random tumbling and sliding windows send the events that the window model computes from the history."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import vedette
from tests.conftest import SOAK
from tests.properties.models.watch_fold import frozen
from tests.properties.models.window import AGGREGATES, History, Snapshot, WindowSpec, window_events_until
from vedette.change import Event
from vedette.engine.session.session import Session
from vedette.errors import VedetteError
from vedette.testing import ManualClock

EXAMPLES = 10_000 if SOAK else 150
WITH_RESTARTS = 1_000 if SOAK else 20
ONTOLOGY = """
node User { name: String? }
node Item { k: String?, v: Int?, shown: Bool = true }
edge owns(who: User, what: Item)
"""
POLICIES = """
policy watching: ON META SPAWN(_Watch) ALLOW IF true
policy users: ON MATCH(u: User) ALLOW IF true
policy items: ON MATCH(t: Item) ALLOW IF t.shown OR EXISTS(owns(current_actor(), t))
policy values: ON MATCH(t: Item).v DENY IF t.k = "secret"
"""
PATTERNS = {
    "t: Item": ("t",),
    "t: Item WHERE t.v > 0": ("t",),
    'u: User, t: Item, owns(u, t) WHERE t.k != "b"': ("u", "t"),
    "t: Item WHERE NOT EXISTS(owns(_, t))": ("t",),
}
"""Pattern ▸ the variables that identify its matches."""
KEYS = {"k": "t.k AS k", "big": "t.v > 1 AS big"}
FILTERS = ("true", "t.v > 1", 't.k != "a"')
SPANS = (1, 2, 3, 5, 7)


@dataclass
class WindowReader:
    """One windowed watch, its session, and the results of MATCH in that session after every commit."""

    session: Session
    pattern: str
    spec: WindowSpec
    clock: ManualClock
    initial: str = "none"
    delivery: str = "best_effort"

    def __post_init__(self) -> None:
        self.history = History()
        self.filter = "true"
        self.events: list[Event] = []
        """Events since the windows started."""
        self.position = 0
        self._unconfirmed: list[Event] = []
        """Events of the last poll. A reliable watch may repeat them."""
        self._confirmed = 0
        """Number of snapshots before the end of the last confirmed window."""
        self.look()
        options = (
            f"[window: {self.spec.text}, buffer: 1000000, initial: {self.initial}, delivery: {self.delivery}]"
        )
        self.handle = self.session.watch(f"WATCH {self.pattern} {options} RETURN {self._returns()}")

    def _returns(self) -> str:
        if not self.spec.aggregates:
            return "t.k AS k, t.v AS v"
        return ", ".join([*(KEYS[key] for key in self.spec.keys), *self.spec.aggregates])

    def look(self) -> None:
        """Record the matches after a commit."""
        ids = PATTERNS[self.pattern]
        known = ", ".join(f"{name}.id AS i{name}" for name in ids)
        columns = {"k": "t.k", "v": "t.v"}
        if self.spec.aggregates:
            columns |= {"big": "t.v > 1", "shown": "t.shown"}
        values = ", ".join(f"{text} AS {name}" for name, text in columns.items())
        narrowed = f"{'AND' if 'WHERE' in self.pattern else 'WHERE'} ({self.filter})"
        found = self.session.execute(f"MATCH {self.pattern} {narrowed} RETURN {known}, {values}").rows
        rows = {row[: len(ids)]: dict(zip(columns, row[len(ids) :], strict=True)) for row in found}
        tick = self.session.database.state.tick
        self.history.add(Snapshot(self.clock.now(), tick, rows))

    def alter(self, filter: str) -> None:
        """Record the matches of another filter, as if the data had changed."""
        self.session.execute(f"ALTER WATCH #{self.handle.id} SET [filter: {filter}]")
        self.filter = filter
        self.look()

    def begin_again(self, session: Session) -> None:
        """Attach in another process: windows start again, and unconfirmed changes are in the first of them."""
        self.session = session
        self.handle = session.attach(self.handle.id)
        self.history = self.history.begun_again(self._confirmed, self.clock.now())
        self.events, self._unconfirmed, self._confirmed = [], [], 0

    def _poll(self) -> None:
        for event in self._unconfirmed:
            if event.window_end is not None:
                self._confirmed = self.history.before(event.window_end)
        self._unconfirmed = self.handle.poll()
        for event in self._unconfirmed:
            assert event.position > self.position or event.type == "initial", (
                f"hidden from who counts: {event}"
            )
            self.position = event.position
        if self._unconfirmed and self._unconfirmed[0].window_end is None:
            first = self._unconfirmed.pop(0)
            assert first.type == self.initial.replace("full", "initial")
            rows = [
                {name: row[name] for name in ("k", "v")} for row in self.history.snapshots[0].rows.values()
            ]
            assert sorted(map(frozen, first.matches or ()), key=repr) == sorted(map(frozen, rows), key=repr)
        self.events += self._unconfirmed

    def check(self) -> None:
        self._poll()
        assert self.handle.status == "active", self.handle.errors()
        expected = window_events_until(self.spec, self.history, self.clock.now())
        received = [_plain(event) for event in self.events]
        for one, other in zip_longest(_sorted(received), _sorted(expected)):
            assert one == other, f"{self.pattern} {self.spec}\nreceived: {one}\nexpected: {other}"


def _plain(event: Event) -> dict[str, Any]:
    given = {
        name: getattr(event, name) for name in ("match", "prev", "matches", "window_start", "window_end")
    }
    plain = {"type": event.type, **{name: value for name, value in given.items() if value is not None}}
    if event.events is not None:
        plain["events"] = [
            {
                "type": e.type,
                "tick": e.tick,
                "match": e.match,
                **({"prev": e.prev} if e.prev is not None else {}),
            }
            for e in event.events
        ]
    return plain


def _sorted(events: list[dict[str, Any]]) -> Iterator[Any]:
    """Sort within each window: groups of one window and events of one commit have no order."""
    by_end: dict[datetime, list[Any]] = {}
    for event in events:
        by_end.setdefault(event["window_end"], []).append(event)
    for end, window_events in by_end.items():
        yield end, sorted((_frozen_event(event) for event in window_events), key=repr)


def _frozen_event(event: dict[str, Any]) -> Any:
    inner = event.get("events", ())
    ticks = [each["tick"] for each in inner]
    assert ticks == sorted(ticks), f"out of order: {event}"
    by_commit = sorted((e["tick"], repr(frozen(_without_tick(e)))) for e in inner)
    return [frozen({name: value for name, value in event.items() if name != "events"}), by_commit]


def _without_tick(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sorted(event.items()) if name != "tick"}


class WindowScenario:
    """The case with this number: some items, some watches, then random steps."""

    def __init__(self, number: int, place: str = ":memory:") -> None:
        """`place` is a directory that is sometimes closed and reopened."""
        self.random = Random(number)
        self.clock = ManualClock()
        self.log: list[str] = []
        self._place, self.durable = place, place != ":memory:"
        self.db = vedette.open(place, environment={}, clock=self.clock)
        self.db.define(ONTOLOGY)
        self.guarded = self.random.random() < 0.5
        self.system = self.db.session()
        self.system.run('SPAWN ann: User { name = "ann" }; SPAWN bob: User { name = "bob" }')
        self.items = 0
        for _ in range(self.random.randint(0, 4)):
            self.write()
        if self.guarded:
            self.db.define(POLICIES)
        ann = self._ann()
        self.readers: list[WindowReader] = []
        for _ in range(self.random.randint(1, 4)):
            self.clock.advance(self.random.choice((0, 0, 0.5, 1)))
            session = self.random.choice((self.system, ann))
            pattern = self.random.choice(list(PATTERNS))
            initial = self.random.choice(("none", "full"))
            delivery = "reliable" if self.durable else "best_effort"
            reader = WindowReader(session, pattern, self._spec(), self.clock, initial, delivery)
            self.readers.append(reader)
            who = "system" if session is self.system else "ann"
            self.log.append(f"{who}, initial {initial}: {pattern} {reader.spec}")

    def _ann(self) -> Session:
        return self.db.session(actor=self.system.bindings["ann"]) if self.guarded else self.system

    def _spec(self) -> WindowSpec:
        random = self.random
        kind, duration = random.choice(("tumbling", "sliding")), timedelta(seconds=random.choice(SPANS))
        interval = duration if kind == "tumbling" else timedelta(seconds=random.choice(SPANS))
        if random.random() < 0.35:
            return WindowSpec(kind, duration, interval)
        keys = tuple(random.sample(sorted(KEYS), random.randint(0, 2)))
        aggregates = tuple(random.sample(sorted(AGGREGATES), random.randint(1, 3)))
        return WindowSpec(kind, duration, interval, keys, aggregates)

    # Steps

    def _statement(self) -> str:
        random = self.random
        some = f"#t{random.randint(1, self.items)}" if self.items else None
        value, shown = random.choice(("null", "0", "1", "2", "3")), random.choice(("true", "false"))
        kind = random.choice(('"a"', '"b"', '"secret"', "null"))
        form = random.choice(("spawn", "spawn", "v", "v", "k", "kill", "link", "unlink", "shown", "all"))
        if form == "spawn" or some is None:
            self.items += 1
            return f"SPAWN t{self.items}: Item {{ k = {kind}, v = {value}, shown = {shown} }}"
        return {
            "v": f"SET {some}.v = {value}",
            "k": f"SET {some}.k = {kind}",
            "kill": f"KILL {some}",
            "link": f"LINK IF NOT EXISTS owns(#{random.choice(('ann', 'bob'))}, {some})",
            "unlink": f"UNLINK owns(_, {some})",
            "shown": f"SET {some}.shown = {shown}",
            "all": f"MATCH t: Item WHERE t.v = {random.randint(0, 3)} SET t.v = {random.randint(0, 3)}",
        }[form]

    def write(self) -> None:
        text = self._statement()
        self.log.append(text)
        with suppress(VedetteError):
            self.system.execute(text)

    def step(self) -> None:
        random = self.random
        forms = ("write", "write", "write", "several", "late", "wait", "wait", "jump", "tick")
        form = random.choice(
            (*forms, "restart", "restart") if self.durable else (*forms, "alter", "pause", "define")
        )
        if form == "write":
            self.write()
        elif form == "tick":
            self.log.append("TICK")
            self.system.execute("TICK")
        elif form == "restart":
            self.restart()
            return
        elif form == "alter":
            reader, text = random.choice(self.readers), random.choice(FILTERS)
            self.log.append(f"{self.readers.index(reader)}: {text}")
            reader.alter(text)
            return
        elif form == "define":
            text = f"policy p{len(self.log)}: ON MATCH(t: Item) DENY IF t.v = {random.randint(0, 3)}"
            self.log.append(text)
            if self.guarded:
                self.db.define(text)
        elif form == "pause":
            self.pause(random.choice(self.readers))
            return
        elif form in ("wait", "jump"):
            self.wait(random.choice((0.5, 1, 2, 5)) if form == "wait" else random.choice((20, 63.5)))
            return
        else:
            self.transaction(late=form == "late")
        for reader in self.readers:
            reader.look()

    def pause(self, reader: WindowReader) -> None:
        """Events in the meantime stay pending."""
        self.log.append(f"PAUSE {self.readers.index(reader)}")
        reader.handle.pause()
        self.step()
        self.log.append(f"RESUME {self.readers.index(reader)}")
        reader.handle.resume()

    def restart(self) -> None:
        """Restart the process on the same files, or on a copy of them as after a crash."""
        death, bindings = self.random.random() < 0.5, dict(self.system.bindings)
        self.log.append("death" if death else "restart")
        if death:
            gate = self.db.default.log_writer
            gate.wait_durable(gate.submitted_sequence)
            former, self._place = self._place, f"{self._place}+"
            shutil.copytree(former, self._place)
        former_system = self.system
        self.db.close()
        self.clock.advance(self.random.choice((0, 0.5, 4, 30)))
        self.db = vedette.open(self._place, environment={}, clock=self.clock)
        self.system = self.db.session()
        self.system.bindings.update(bindings)
        ann = self._ann()
        for reader in self.readers:
            reader.begin_again(self.system if reader.session is former_system else ann)

    def wait(self, seconds: float) -> None:
        self.log.append(f"… {seconds} s")
        self.clock.advance(seconds)

    def transaction(self, *, late: bool) -> None:
        """Run some statements in one transaction. A late transaction begins long before its commit."""
        self.log.append("BEGIN")
        self.system.execute("BEGIN")
        for _ in range(self.random.randint(1, 3)):
            text = self._statement()
            self.log.append(text)
            try:
                self.system.execute(text)
            except VedetteError:
                self.log.append("ROLLBACK")
                self.system.execute("ROLLBACK")
                return
            if late:
                self.wait(self.random.choice((0.5, 2, 8)))
        self.log.append("COMMIT")
        self.system.execute("COMMIT")

    def run(self) -> None:
        for _ in range(self.random.randint(1, 14)):
            self.step()
            if self.random.random() < 0.5:
                self.check()
        self.wait(10)
        self.check()

    def check(self) -> None:
        for reader in self.readers:
            reader.check()


@settings(max_examples=WITH_RESTARTS, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 2**64 - 1))
def test_windows_across_restarts(number: int) -> None:
    with TemporaryDirectory() as place:
        _try(WindowScenario(number, f"{place}/data"), f"Story({number}, …)")


@settings(max_examples=EXAMPLES, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 2**64 - 1))
def test_window_events_equal_the_model(number: int) -> None:
    _try(WindowScenario(number), f"Story({number})")


def _try(story: WindowScenario, name: str) -> None:
    try:
        story.run()
    except AssertionError as error:
        raise AssertionError("\n".join((name, *story.log, str(error)))) from error
    finally:
        story.db.close()
