"""A consumer that waits in `next()` is woken when an element becomes deliverable; one case per reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vedette
from vedette.testing import ManualClock

GROUP = 'group: "g"'


class Pair:
    """Consumer A holds the first job, B waits. `wakes` counts the wake-ups of B."""

    def __init__(self, options: str, others: str | None, jobs: int) -> None:
        self.clock = ManualClock()
        self.db = vedette.open(":memory:", clock=self.clock, environment={})
        self.db.define('node Job { n: Int, account: Int = 0, state: String = "new" }')
        self.system, self.a, self.b = self.db.session(), self.db.session(), self.db.session()
        for n in range(jobs):
            self.spawn(n)
        self.one, self.two = self._consumer(self.a, options), self._consumer(self.b, others or options)
        (self.held,) = self.one.poll(1)
        self.wakes = 0
        assert self.two.poll() == []
        self.two.watch.details.wakeup = self._woken

    def _consumer(self, session: Any, options: str) -> Any:
        handle = session.watch(f'WATCH j: Job WHERE j.state = "new" [mode: consume, {options}] RETURN j.n')
        handle.poll(1)
        return handle

    def _woken(self) -> None:
        self.wakes += 1

    def spawn(self, n: int) -> None:
        self.system.execute("SPAWN j: Job { n = $n }", n=n)

    def roll_back_and_return(self) -> None:
        self.a.execute("BEGIN")
        self.a.execute("ACK $id", id=self.held.delivery_id)
        self.a.execute("ROLLBACK")
        self.one.nack(self.held)

    def resume(self) -> None:
        self.two.pause()
        self.one.nack(self.held)
        self.two.resume()

    def send_back(self) -> None:
        self.one.nack(self.held, retry=False)
        self.system.execute("REDRIVE WATCH #$w", w=self.one.id)

    def put_off(self) -> None:
        self.one.nack(self.held, delay=5)
        self.wakes = 0
        self.clock.advance(5)

    def put_off_and_delete(self) -> None:
        self.one.nack(self.held, delay=3600)
        self.wakes = 0
        self.system.execute("MATCH j: Job WHERE j.n = 0 KILL j")

    def acknowledge_within(self) -> None:
        self.a.execute("BEGIN")
        self.a.execute("ACK $id", id=self.held.delivery_id)
        self.a.execute("COMMIT")

    def delete(self) -> None:
        self.system.execute("MATCH j: Job WHERE j.n = 0 KILL j")
        self.one.ack(self.held)


Act = Callable[[Pair], object]
CASES: dict[str, tuple[str, int, Act, int]] = {
    # (options of both, jobs, action, the job that B receives)
    "a new job": (GROUP, 1, lambda p: p.spawn(1), 1),
    "NACK": (GROUP, 1, lambda p: p.one.nack(p.held), 0),
    "NACK of a consumer without a group": ("buffer: 5", 1, lambda p: p.one.nack(p.held), 0),
    "the end of a delay": (GROUP, 1, Pair.put_off, 0),
    "the end of a lease": (f"{GROUP}, ack_timeout: 5s", 1, lambda p: p.clock.advance(5), 0),
    "release": (GROUP, 1, lambda p: p.one.release(p.held), 0),
    "a session that is closed": (GROUP, 1, lambda p: p.a.close(), 0),
    "a session that is lost": (GROUP, 1, lambda p: p.a.close(lost=True), 0),
    "CANCEL": (GROUP, 1, lambda p: p.one.cancel(), 0),
    "PAUSE and RESUME": (GROUP, 1, Pair.resume, 0),
    "a rollback, then NACK": (GROUP, 1, Pair.roll_back_and_return, 0),
    "REDRIVE": (GROUP, 1, Pair.send_back, 0),
    "REDRIVE of what is parked": (f"{GROUP}, dead_letter: #nowhere", 1, Pair.send_back, 0),
    "room in the group": (f"{GROUP}, max_in_flight: 1", 2, lambda p: p.one.ack(p.held), 1),
    "a key that is free": (f"{GROUP}, serialize_by: j.account", 2, lambda p: p.one.ack(p.held), 1),
    "a key whose job is dead": (
        f"{GROUP}, serialize_by: j.account",
        2,
        lambda p: p.one.nack(p.held, retry=False),
        1,
    ),
    "a key whose job was deleted": (f"{GROUP}, serialize_by: j.account", 2, Pair.delete, 1),
    "a key whose job was put off, then deleted": (
        f"{GROUP}, serialize_by: j.account",
        2,
        Pair.put_off_and_delete,
        1,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_consumers_are_woken(case: str) -> None:
    options, jobs, act, handed = CASES[case]
    pair = Pair(options, None, jobs)
    act(pair)
    assert pair.wakes, "nobody called"
    assert [event.match for event in pair.two.poll()] == [{"j.n": handed}]
    pair.db.close()


def test_consumer_of_another_group_is_woken() -> None:
    pair = Pair('group: "one"', 'group: "two"', 1)
    pair.one.nack(pair.held)
    assert pair.wakes
    assert [event.match for event in pair.two.poll()] == [{"j.n": 0}]
    pair.db.close()


ENDS: dict[str, Act] = {
    "ACK": lambda p: p.one.ack(p.held),
    "ACK in a transaction": Pair.acknowledge_within,
    "dead letter": lambda p: p.one.nack(p.held, retry=False),
}


@pytest.mark.parametrize("end", ENDS)
def test_key_of_another_group_is_unblocked(end: str) -> None:
    """A claim is global: while another group holds the first job of a key, the next job of the key waits."""
    pair = Pair('group: "one", buffer: 1', 'group: "two", serialize_by: j.account', 2)
    ENDS[end](pair)
    assert pair.wakes, "nobody called"
    assert [event.match for event in pair.two.poll()] == [{"j.n": 1}]
    pair.db.close()


def test_delay_that_ends_in_another_queue_unblocks_its_key() -> None:
    clock = ManualClock()
    with vedette.open(":memory:", clock=clock, environment={}) as db, db.session() as session:
        db.define("node Job { n: Int, account: Int = 0 }")
        first, second = (
            session.watch(
                f'WATCH j: Job WHERE j.n = {n} [mode: consume, group: "g", serialize_by: j.account] RETURN j.n'
            )
            for n in (1, 2)
        )
        session.run("SPAWN j: Job { n = 1 }; SPAWN j: Job { n = 2 }")
        first.poll(1)
        (held,) = first.poll()
        first.nack(held, delay=5)
        second.poll(1)
        assert second.poll() == []
        wakes: list[None] = []
        second.watch.details.wakeup = lambda: wakes.append(None)
        clock.advance(5)
        assert wakes
