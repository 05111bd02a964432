"""`for job in s.consume(…)`: acknowledged on success, requeued on failure; the loop continues."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest

import vedette
from tests.support.waiting import TIMEOUT_SECONDS
from vedette.engine.data_directory import Vedette
from vedette.errors import VedetteError, WatchError
from vedette.testing import ManualClock

WORK = "WATCH j: Job WHERE j.state = 'new' RETURN j.n".replace("'", '"')
LETTERS = "MATCH l: _DeadLetter RETURN l.failure_reason, l.failures, l.timeouts, l.cause"


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.db: Vedette = vedette.open(":memory:", clock=self.clock, environment={})
        self.db.define("""
            node Job { n: Int, state: String = "new" }
            node Done { n: Int [unique] }
        """)
        self.s = self.db.session()

    def spawn(self, *numbers: int) -> None:
        for n in numbers:
            self.s.execute("SPAWN j: Job { n = $n }", n=n)

    def left(self) -> list[int]:
        return sorted(n for (n,) in self.s.execute("MATCH j: Job RETURN j.n").rows)

    def done(self) -> list[int]:
        return sorted(n for (n,) in self.s.execute("MATCH d: Done RETURN d.n").rows)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        return list(self.s.execute(text).rows)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.db.default.watching.consuming.validate()
    bench.db.close()


def consuming(options: str) -> str:
    return WORK.replace(" RETURN", f" [mode: consume, {options}] RETURN")


# How a job ends


def test_success_acknowledges(bench: Bench) -> None:
    bench.spawn(1, 2, 3)
    seen = []
    for job in bench.s.consume(WORK, prefetch=10, timeout=0):
        with job:
            seen.append((job.match["j.n"], job.attempt))
    assert seen == [(1, 1), (2, 1), (3, 1)]
    assert bench.left() == []
    assert bench.rows("MATCH w: _Watch RETURN w.status") == [("cancelled",)]


def test_exception_requeues_and_the_loop_continues(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.spawn(1, 2)
    seen = []
    for job in bench.s.consume(WORK, timeout=0):
        with job:
            seen.append((job.match["j.n"], job.attempt))
            if job.match["j.n"] == 1 and job.attempt < 3:
                raise ValueError("not yet")
    assert seen == [(1, 1), (2, 1), (1, 2), (1, 3)]
    assert bench.left() == []
    assert "ValueError: not yet" in caplog.text


def test_repeated_failure_becomes_a_dead_letter_with_its_cause(bench: Bench) -> None:
    bench.spawn(1)
    attempts = 0
    for job in bench.s.consume(consuming("max_redeliveries: 2"), timeout=0):
        with job:
            attempts += 1
            raise KeyError("customer")
    assert attempts == 3
    assert bench.rows(LETTERS) == [("max_redeliveries_exceeded", 3, 0, "KeyError: 'customer'")]


def test_reject_does_not_retry(bench: Bench) -> None:
    bench.spawn(1)
    for job in bench.s.consume(WORK, timeout=0):
        with job:
            job.reject("no such customer")
    assert bench.rows(LETTERS) == [("no_retry", 1, 0, "no such customer")]


@pytest.mark.parametrize("delay", [timedelta(seconds=30), 30, 30.0])
def test_job_can_be_delayed(bench: Bench, delay: Any) -> None:
    bench.spawn(1)
    for job in bench.s.consume(WORK, timeout=0):
        with job:
            job.nack(delay=delay, cause="the other side is down")
    watch = bench.s.watch(consuming("initial: none"))
    assert watch.poll() == []
    again = bench.s.consume(WORK, timeout=0)
    bench.clock.advance(30)
    assert [job.attempt for job in again] == [2]


def test_settled_job_is_not_settled_again(bench: Bench) -> None:
    bench.spawn(1, 2)
    for job in bench.s.consume(WORK, timeout=0):
        with job:
            job.ack()
            assert job.ended
            with pytest.raises(WatchError) as caught:
                job.ack()
            assert caught.value.code == "E8004"
    assert bench.left() == []


def test_failure_after_ack_keeps_the_job_done(bench: Bench) -> None:
    bench.spawn(1)
    for job in bench.s.consume(WORK, timeout=0):
        with job:
            job.ack()
            raise RuntimeError("afterwards")
    assert bench.left() == []
    assert bench.rows(LETTERS) == []


def test_an_interruption_counts_no_attempt(bench: Bench) -> None:
    bench.spawn(1)
    job = next(jobs := iter(bench.s.consume(WORK, timeout=0)))
    with pytest.raises(KeyboardInterrupt), job:
        raise KeyboardInterrupt
    assert [again.attempt for again in jobs] == [1]


# Jobs with writes of the worker


def work_in_transaction(bench: Bench, options: str, fails: Any = lambda job: None) -> None:
    for job in bench.s.consume(consuming(options), timeout=0):
        with job:
            bench.s.execute("BEGIN")
            bench.s.execute("SPAWN d: Done { n = $n }", n=job.match["j.n"])
            job.ack()
            fails(job)
            bench.s.execute("COMMIT")


def test_result_and_acknowledgement_commit_together(bench: Bench) -> None:
    bench.spawn(1, 2, 3)
    work_in_transaction(bench, "buffer: 10")
    assert (bench.left(), bench.done()) == ([], [1, 2, 3])


def test_failure_before_commit_rolls_back_both(bench: Bench) -> None:
    bench.spawn(1, 2)

    def fails(job: Any) -> None:
        if job.match["j.n"] == 1 and job.attempt == 1:
            raise ValueError("half way")

    work_in_transaction(bench, "buffer: 10", fails)
    assert (bench.left(), bench.done()) == ([], [1, 2])
    assert bench.s.transaction is None


def test_refused_commit_is_a_failed_attempt(bench: Bench) -> None:
    bench.spawn(1)
    bench.s.execute("SPAWN d: Done { n = 1 }")
    work_in_transaction(bench, "max_redeliveries: 1")
    assert bench.done() == [1]
    ((reason, failures, _, cause),) = bench.rows(LETTERS)
    assert (reason, failures) == ("max_redeliveries_exceeded", 2)
    assert "E3" in cause


def test_expired_lease_before_commit_rolls_back_both(bench: Bench) -> None:
    bench.spawn(1)

    def too_slow(job: Any) -> None:
        if job.attempt == 1:
            bench.clock.advance(31)

    work_in_transaction(bench, "buffer: 10", too_slow)
    assert (bench.left(), bench.done()) == ([], [1])


def test_earlier_transaction_is_kept(bench: Bench) -> None:
    bench.spawn(1)
    for job in bench.s.consume(WORK, timeout=0):
        bench.s.execute("BEGIN")
        bench.s.execute("SPAWN d: Done { n = 7 }")
        with job:
            raise ValueError
        bench.s.execute("COMMIT")
        break
    assert bench.done() == [7]


# Time


def test_late_ack_is_reported_and_the_loop_continues(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.spawn(1)
    attempts = []
    for job in bench.s.consume(consuming("ack_timeout: 10s"), timeout=0):
        with job:
            attempts.append(job.attempt)
            if job.attempt == 1:
                bench.clock.advance(11)
    assert attempts == [1, 2]
    assert bench.left() == []
    assert "finished after its lease" in caplog.text


def test_long_job_extends_its_lease(bench: Bench) -> None:
    bench.spawn(1)
    for job in bench.s.consume(consuming("ack_timeout: 10s"), timeout=0):
        with job:
            for _ in range(5):
                bench.clock.advance(8)
                job.extend()
            job.extend(timedelta(minutes=5))
            bench.clock.advance(200)
            job.extend(by=60)
            bench.clock.advance(50)
        assert job.attempt == 1
    assert bench.left() == []
    assert bench.rows(LETTERS) == []


def test_prefetched_jobs_are_renewed(bench: Bench) -> None:
    """Ten jobs of four seconds with a lease of ten: waiting jobs do not fail."""
    bench.spawn(*range(10))
    attempts = []
    for job in bench.s.consume(consuming("ack_timeout: 10s"), prefetch=10, timeout=0):
        with job:
            bench.clock.advance(4)
            attempts.append(job.attempt)
    assert attempts == [1] * 10
    assert bench.left() == []


def test_extending_one_job_renews_prefetched_jobs(bench: Bench) -> None:
    bench.spawn(1, 2, 3)
    attempts = []
    for job in bench.s.consume(consuming("ack_timeout: 10s"), timeout=0):
        with job:
            attempts.append(job.attempt)
            for _ in range(4):
                bench.clock.advance(6)
                job.extend()
    assert attempts == [1, 1, 1]


def test_withdrawn_prefetched_job_is_skipped(bench: Bench) -> None:
    bench.spawn(1, 2, 3)
    seen = []
    for job in bench.s.consume(WORK, timeout=0):
        with job:
            seen.append(job.match["j.n"])
            if job.match["j.n"] == 1:
                bench.s.execute('MATCH j: Job WHERE j.n = 2 SET j.state = "cancelled"')
    assert seen == [1, 3]
    assert bench.left() == [2]


# The loop


def test_prefetch_is_the_maximum(bench: Bench) -> None:
    bench.spawn(*range(10))
    jobs = iter(bench.s.consume(WORK, prefetch=3, timeout=0))
    next(jobs)
    assert bench.rows("MATCH w: _Watch RETURN w.events_pending") == [(7,)]


def test_leaving_the_loop_releases_prefetched_jobs(bench: Bench) -> None:
    bench.spawn(1, 2, 3)
    for job in bench.s.consume(WORK, timeout=0):
        with job:
            pass
        break
    assert [(job.match["j.n"], job.attempt) for job in bench.s.consume(WORK, timeout=0)] == [(2, 1), (3, 1)]


@pytest.mark.parametrize("end", ["CANCEL", "close"])
def test_loop_ends_with_its_watch(bench: Bench, end: str) -> None:
    bench.spawn(1, 2, 3)
    session = bench.db.session()
    seen = []
    jobs = session.consume(WORK, prefetch=3)
    for job in jobs:
        with job:
            seen.append(job.match["j.n"])
        if end == "CANCEL":
            bench.s.execute("CANCEL WATCH #$w", w=jobs.handle.id)
        else:
            session.close()
    assert seen == [1]
    assert bench.left() == [2, 3]


def test_reliable_consumer_survives_the_loop(bench: Bench) -> None:
    bench.spawn(1, 2)
    for job in bench.s.consume(f"work = {consuming('delivery: reliable')}", timeout=0):
        with job:
            pass
        break
    again = bench.s.attach("work")
    assert again.status == "active"
    assert [(event.match or {})["j.n"] for event in again.poll()] == [2]


def test_jobs_is_a_context_manager(bench: Bench) -> None:
    bench.spawn(1, 2)
    with bench.s.consume(WORK, timeout=0) as jobs:
        waiting = iter(jobs)
        next(waiting).ack()
    assert jobs.handle.status == "cancelled"
    assert bench.left() == [2]


def test_loop_waits_for_new_work(bench: Bench) -> None:
    seen = []

    def work() -> None:
        with bench.db.session() as s:
            for job in s.consume(WORK, timeout=TIMEOUT_SECONDS):
                with job:
                    seen.append(job.match["j.n"])
                if len(seen) == 20:
                    break

    worker = Thread(target=work)
    worker.start()
    bench.spawn(*range(20))
    worker.join(TIMEOUT_SECONDS)
    assert not worker.is_alive()
    assert seen == list(range(20))


def test_group_processes_each_job_once(bench: Bench) -> None:
    bench.spawn(*range(50))
    seen: list[int] = []

    def work() -> None:
        with bench.db.session() as s:
            for job in s.consume(consuming('group: "g"'), prefetch=3, timeout=0.5):
                with job:
                    seen.append(job.match["j.n"])

    workers = [Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_SECONDS)
    assert sorted(seen) == list(range(50))
    assert bench.left() == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (WORK.replace(" RETURN", " [mode: watch] RETURN"), "E8009"),
        ("MATCH j: Job RETURN j", "E1101"),
        (f"{WORK}; {WORK}", "E1101"),
        ("WATCH j: Job RETURN COUNT(*)", "E8009"),
    ],
)
def test_non_consume_watch_is_refused(bench: Bench, text: str, code: str) -> None:
    with pytest.raises(VedetteError) as caught:
        bench.s.consume(text)
    assert caught.value.code == code


def test_prefetch_is_at_least_one(bench: Bench) -> None:
    with pytest.raises(WatchError) as caught:
        bench.s.consume(WORK, prefetch=0)
    assert caught.value.code == "E8009"


def test_parameters(bench: Bench) -> None:
    bench.spawn(1, 2)
    text = "WATCH j: Job WHERE j.n = $n RETURN j.n"
    assert [job.match["j.n"] for job in bench.s.consume(text, {"n": 2}, timeout=0)] == [2]
    assert [job.match["j.n"] for job in bench.s.consume(text, n=1, timeout=0)] == [1]


# Handles


def test_handle_settles_deliveries(bench: Bench) -> None:
    bench.spawn(1, 2, 3, 4)
    watch = bench.s.watch(consuming("ack_timeout: 10s"))
    initial, one, two, three, four = watch.poll()
    watch.ack(initial, one)
    watch.nack(two, retry=False, cause="broken")
    watch.extend(three, by=60)
    watch.release(four)
    (again,) = watch.poll()
    assert (again.match, again.attributes["attempt"]) == (four.match, 1)
    bench.clock.advance(10)
    (record,) = watch.errors()
    assert (record.code, record.fields) == (
        "E8003",
        {"delivery_id": again.delivery_id, "timeout": timedelta(seconds=10)},
    )
    assert bench.left() == [3, 4]
    assert bench.rows(LETTERS) == [("no_retry", 1, 0, "broken")]
    for end in (watch.ack, watch.nack, watch.extend, watch.release):
        with pytest.raises(WatchError) as caught:
            end(one)
        assert caught.value.code == "E8004"
        assert caught.value.fields == {"delivery_id": one.delivery_id}


def test_event_without_delivery_cannot_be_released(bench: Bench) -> None:
    watch = bench.s.watch(consuming("buffer: 1"))
    (initial,) = watch.poll()
    with pytest.raises(WatchError) as caught:
        watch.nack(initial)
    assert caught.value.code == "E8004"


def test_session_errors_of_all_watches(bench: Bench) -> None:
    bench.spawn(1, 2)
    watch = bench.s.watch(consuming("dead_letter: #nowhere"))
    _, other, event = watch.poll()
    bench.s.execute('MATCH j: Job WHERE j.n = 1 SET j.state = "cancelled"')
    watch.nack(event, retry=False)
    withdrawn, unmoved = bench.s.errors()
    assert (withdrawn.code, withdrawn.fields["delivery_id"]) == ("WITHDRAWN", other.delivery_id)
    assert (unmoved.code, unmoved.fields) == (
        "E8007",
        {
            "delivery_id": event.delivery_id,
            "dead_letter": "nowhere",
            "reason": "the destination does not exist",
        },
    )
    assert bench.s.errors() == []
