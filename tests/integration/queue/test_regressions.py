"""Regressions of consume mode, and rules that no other test covers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import vedette
from vedette.engine.data_directory import Vedette
from vedette.errors import VedetteError
from vedette.testing import ManualClock

ONTOLOGY = """
node Job { n: Int = 0, state: String = "new", rank: Int?, account: String? }
node Channel { open: Bool = true }
node Grave { }
edge lies_in(job: Job, channel: Channel) { }
"""


class Bench:
    """An empty database with a manual clock, and short methods for the cases."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.db: Vedette = vedette.open(":memory:", clock=self.clock, environment={})
        self.db.define(ONTOLOGY)
        self.session = self.db.session()

    def spawn(self, n: int, **values: Any) -> str:
        given = ", ".join([f"n = {n}", *(f"{name} = ${name}" for name in values)])
        return str(self.session.execute(f"SPAWN j: Job {{ {given} }} RETURNING id", values).rows[0][0])

    def channel(self) -> str:
        return str(self.session.execute("SPAWN c: Channel { } RETURNING id").rows[0][0])

    def put_in(self, job: str, channel: str) -> None:
        self.session.execute("LINK lies_in(#$job, #$channel)", job=job, channel=channel)

    def set(self, n: int, assignment: str) -> None:
        self.session.execute(f"MATCH j: Job WHERE j.n = {n} SET {assignment}")

    def watch(self, options: str = "", pattern: str = "j: Job", session: Any = None) -> Any:
        text = f"WATCH {pattern} [mode: consume{', ' if options else ''}{options}] RETURN j.n"
        handle = (session or self.session).watch(text)
        assert [event.type for event in handle.poll(1)] == ["initial"]
        return handle

    def jobs(self) -> list[int]:
        return sorted(row[0] for row in self.session.execute("MATCH j: Job RETURN j.n").rows)

    def check(self) -> None:
        self.db.default.watching.consuming.validate()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.check()
    bench.db.close()


def numbers(events: list[Any]) -> list[int]:
    assert all(event.type == "consumed" for event in events)
    return [event.match["j.n"] for event in events]


def attempt(event: Any) -> int:
    return int(event.attributes["attempt"])


# Changing matches


def test_replaced_match_is_not_withdrawn(bench: Bench) -> None:
    """A job that moves to another channel still matches and keeps its position, attempts and holder."""
    one, other = bench.channel(), bench.channel()
    jobs = [bench.spawn(n) for n in range(3)]
    for job in jobs:
        bench.put_in(job, one)
    worker = bench.watch("max_redeliveries: 5", "j: Job, c: Channel, lies_in(j, c)")
    (event,) = worker.poll(1)
    worker.nack(event)

    def move(job: str, source: str, target: str) -> None:
        bench.session.run(
            "BEGIN; MATCH j: Job, c: Channel, lies_in(j, c) AS l WHERE j.id = $job AND c.id = $source UNLINK l;"
            " LINK lies_in(#$job, #$target); COMMIT",
            job=job,
            source=source,
            target=target,
        )

    move(jobs[0], one, other)
    bench.check()
    (again,) = worker.poll(1)
    assert (numbers([again]), attempt(again)) == ([0], 2)
    move(jobs[0], other, one)
    assert worker.errors() == []
    worker.nack(again)
    assert [(event.match["j.n"], attempt(event)) for event in worker.poll()] == [(0, 3), (1, 1), (2, 1)]


def test_losing_the_best_match_keeps_all_key_lines(bench: Bench) -> None:
    """The key of serialize_by may differ in the remaining match."""
    channels = [bench.channel() for _ in range(2)]
    job, rival = bench.spawn(1), bench.spawn(2)
    bench.put_in(rival, channels[1])
    for channel in channels:
        bench.put_in(job, channel)
    worker = bench.watch(
        "serialize_by: c.id, ordering: attribute(c.id ASC)", "j: Job, c: Channel, lies_in(j, c)"
    )
    other = bench.watch(pattern="j: Job WHERE j.n < 0")
    assert other.poll() == []
    bench.db.default.watching.consuming.deliver(worker.watch, 0)
    bench.session.execute(
        "MATCH j: Job, c: Channel, lies_in(j, c) AS l WHERE j.n = 1 AND c.id = $c UNLINK l", c=channels[0]
    )
    bench.check()
    (first,) = worker.poll()
    worker.ack(first)
    (second,) = worker.poll()
    assert sorted(numbers([first, second])) == [1, 2]


def test_element_that_matches_again_starts_with_fresh_attempts(bench: Bench) -> None:
    """Attempts are deleted when the element stops matching, also while it is delivered."""
    bench.spawn(1)
    worker = bench.watch("max_redeliveries: 1", 'j: Job WHERE j.state = "new"')
    (event,) = worker.poll()
    worker.nack(event)
    (event,) = worker.poll()
    assert attempt(event) == 2
    bench.set(1, 'j.state = "done"')
    assert [record.code for record in worker.errors()] == ["WITHDRAWN"]
    worker.nack(event)
    assert worker.poll() == []
    bench.set(1, 'j.state = "new"')
    (event,) = worker.poll()
    assert attempt(event) == 1


def test_element_that_matches_again_while_pending_keeps_its_attempt(bench: Bench) -> None:
    bench.spawn(1)
    worker = bench.watch("max_redeliveries: 1", 'j: Job WHERE j.state = "new"')
    (event,) = worker.poll()
    bench.set(1, 'j.state = "done"')
    bench.set(1, 'j.state = "new"')
    assert worker.poll() == []
    worker.nack(event)
    (event,) = worker.poll()
    assert attempt(event) == 2
    worker.nack(event)
    assert bench.jobs() == []


def test_attempts_survive_a_change_in_another_group(bench: Bench) -> None:
    bench.spawn(1)
    first = bench.watch('group: "a", max_redeliveries: 3')
    (event,) = first.poll()
    first.nack(event)
    first.cancel()
    other = bench.watch('group: "b"', 'j: Job WHERE j.state = "new"')
    bench.set(1, 'j.state = "done"')
    assert other.poll() == []
    (event,) = bench.watch('group: "a", max_redeliveries: 3').poll()
    assert attempt(event) == 2


def test_initial_none_ignores_later_matches_of_existing_elements(bench: Bench) -> None:
    old, new = bench.channel(), bench.channel()
    job = bench.spawn(1)
    bench.put_in(job, old)
    text = "WATCH j: Job, c: Channel, lies_in(j, c) [mode: consume, initial: none] RETURN j.n, c.id"
    worker = bench.session.watch(text)
    assert worker.poll() == []
    bench.put_in(job, new)
    bench.set(1, "j.n = 2")
    bench.check()
    (event,) = worker.poll()
    assert event.match == {"j.n": 2, "c.id": new}


# Dead letters


def test_unmatched_element_is_not_dead_lettered(bench: Bench) -> None:
    grave = bench.session.execute("SPAWN g: Grave { } RETURNING id").rows[0][0]
    bench.spawn(1)
    worker = bench.session.watch(
        'WATCH j: Job WHERE j.state = "new" [mode: consume, dead_letter: #$grave] RETURN j.n', grave=grave
    )
    (event,) = worker.poll()[1:]
    bench.session.execute("KILL #$grave", grave=grave)
    bench.set(1, 'j.state = "done"')
    worker.nack(event, retry=False)
    bench.check()
    assert [record.code for record in worker.errors()] == ["WITHDRAWN"]
    bench.set(1, 'j.state = "new"')
    assert [attempt(event) for event in worker.poll()] == [1]


# Transactions


def test_older_snapshot_cannot_acknowledge(bench: Bench) -> None:
    worker = bench.watch()
    with bench.db.session() as session:
        bench.session.execute("BEGIN SERIALIZABLE")
        session.execute("SPAWN j: Job { n = 7 }")
    (event,) = worker.poll()
    with pytest.raises(VedetteError) as caught:
        worker.ack(event)
    assert caught.value.code == "E5002"
    bench.session.execute("ROLLBACK")
    worker.ack(event)
    assert bench.jobs() == []


# Management


def test_altered_filter_selects_from_the_queue(bench: Bench) -> None:
    bench.spawn(1, rank=1)
    bench.spawn(2, rank=2)
    bench.spawn(3, rank=2)
    rival = bench.watch('group: "g"')
    worker = bench.watch('group: "g"')
    (held,) = worker.poll(1)
    worker.alter("[filter: j.rank = 2]")
    bench.check()
    assert numbers(worker.poll(1)) == [2]
    worker.ack(held)
    assert numbers(rival.poll()) == [3]
    worker.alter("[filter: j.rank = 1]")
    bench.check()
    assert worker.poll() == []
    bench.spawn(4, rank=1)
    assert numbers(worker.poll()) == [4]


def test_altered_filter_of_the_only_consumer(bench: Bench) -> None:
    bench.spawn(1, rank=1)
    bench.spawn(2, rank=2)
    worker = bench.watch()
    (held,) = worker.poll(1)
    worker.alter("[filter: j.rank = 2]")
    bench.check()
    assert numbers(worker.poll()) == [2]
    worker.nack(held)
    assert worker.poll() == []
    assert numbers(bench.watch().poll()) == [1]


def test_failed_consumer_creation_leaves_nothing_behind(bench: Bench) -> None:
    bench.spawn(0)
    with pytest.raises(VedetteError):
        bench.watch('group: "g"', "j: Job WHERE 1 / j.n > 0")
    consuming = bench.db.default.watching.consuming
    assert not consuming.consumers
    assert not consuming.dispatcher.groups


def test_define_keeps_one_queue_per_group(bench: Bench) -> None:
    bench.spawn(1)
    bench.spawn(2)
    first = bench.watch('group: "g"')
    bench.db.define("node Other { }")
    second = bench.watch('group: "g"')
    assert len(bench.db.default.watching.consuming.matcher.queues) == 1
    assert sorted(numbers(first.poll()) + numbers(second.poll())) == [1, 2]


def test_cost_of_a_delay_is_constant(bench: Bench) -> None:
    """The deadline heap is compacted occasionally, not with every deadline."""
    dispatcher = bench.db.default.watching.consuming.dispatcher
    for n in range(3_000):
        bench.spawn(n)
    worker = bench.watch("buffer: 5000")
    for event in worker.poll():
        worker.nack(event, delay=60)
    agenda = dispatcher._deadlines
    bench.spawn(9_999)
    (event,) = worker.poll()
    worker.nack(event, delay=60)
    assert dispatcher._deadlines is agenda


def test_unpark_is_permanent(bench: Bench) -> None:
    """Another group may have parked the job and may be detached. After a restart it must not be parked again."""
    job = bench.spawn(1)
    grave = bench.session.execute("SPAWN g: Grave { } RETURNING id").rows[0][0]
    text = 'WATCH j: Job [mode: consume, group: "a", dead_letter: #$grave] RETURN j.n'
    first = bench.session.watch(text, grave=grave)
    bench.session.execute("KILL #$grave", grave=grave)
    first.nack(first.poll()[1], retry=False)
    first.cancel()
    other = bench.watch('group: "b"')
    assert other.poll() == []
    bench.session.execute("REDRIVE WATCH #$id", id=other.id)
    assert job not in bench.db.default.watching.consuming.dispatcher.attempts
    assert numbers(other.poll()) == [1]
