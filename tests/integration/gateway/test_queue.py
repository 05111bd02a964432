"""Consume mode over the network: credit, ACK, NACK, EXTEND, consumers that leave, and consume loops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_server import Serving
from tests.support.gateway_wire import Client, Wire
from vedette.change import Event
from vedette.client.blocking import connect_sync
from vedette.client.jobs import JobFeed
from vedette.client.session import connect
from vedette.client.watch import RemoteWatch
from vedette.errors import WatchError

ONTOLOGY = "node Job { n: Int = 0 }"
TEXT = "WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j.n"


@pytest.fixture
def writer(wire: Wire) -> Client:
    writer = wire.client()
    writer.define(ONTOLOGY)
    return writer


def spawn(writer: Client, *numbers: int) -> None:
    for n in numbers:
        writer.execute("SPAWN j: Job { n = $n }", n=n)


def consumer(wire: Wire, **more: Any) -> Client:
    client = wire.client()
    client.send("subscribe", {"watch": TEXT, **more}, id="jobs")
    assert client.take()["payload"]["mode"] == "consume"
    return client


def deliveries(client: Client) -> list[tuple[int, str]]:
    found = [m["payload"]["payload"] for m in client.all() if m["type"] == "event"]
    return [(e["match"]["j.n"], e["delivery_id"]) for e in found if e["type"] == "consumed"]


def test_prefetch_limits_deliveries_and_an_ack_frees_one(wire: Wire, writer: Client):
    client = consumer(wire, prefetch=2)
    spawn(writer, 1, 2, 3, 4)
    first = deliveries(client)
    assert [n for n, _ in first] == [1, 2]
    assert client.ask("ack", {"deliveryId": first[0][1]})["type"] == "ack_ack"
    assert [n for n, _ in deliveries(client)] == [3]
    assert client.ask("ack", {"deliveryId": first[0][1]})["payload"]["code"] == "E8004"
    assert writer.execute("MATCH j: Job RETURN j.n")["rows"] == [[2], [3], [4]]


def test_a_nacked_delivery_is_retried_and_becomes_a_dead_letter(wire: Wire, writer: Client):
    client = consumer(wire, prefetch=1)
    spawn(writer, 1)
    for attempt in range(2):
        ((n, delivery),) = deliveries(client)
        assert n == 1, attempt
        client.send("nack", {"deliveryId": delivery, "cause": "tired"}, id="n")
        answers = [m for m in client.mailbox.received if m.get("id") == "n"]
        assert answers[0]["type"] == "nack_ack"
    assert deliveries(client) == []
    assert writer.execute("MATCH d: _DeadLetter RETURN COUNT(*)")["rows"] == [[1]]


def test_leases_expire_unless_extended(wire: Wire, writer: Client):
    client = consumer(wire, prefetch=1)
    spawn(writer, 1)
    ((_, delivery),) = deliveries(client)
    wire.advance(20)
    assert client.ask("extend", {"deliveryId": delivery, "by": 40_000})["type"] == "extend_ack"
    wire.advance(35)
    assert deliveries(client) == []
    wire.advance(10)
    messages = client.all()
    notices = [m["payload"] for m in messages if m["type"] == "status"]
    assert [e["code"] for notice in notices for e in notice["errors"]] == ["E8003"]
    assert any(m["type"] == "event" for m in messages), "it is delivered again"


def test_a_clean_close_counts_no_attempt_and_a_lost_connection_does(wire: Wire, writer: Client):
    spawn(writer, 1)
    leaving = consumer(wire)
    assert len(deliveries(leaving)) == 1
    leaving.leave()
    attempts = []
    for _ in range(2):
        client = consumer(wire)
        events = [m["payload"]["payload"] for m in client.all() if m["type"] == "event"]
        attempts += [e["attempt"] for e in events if e["type"] == "consumed"]
        client.cut()
    assert attempts == [1, 2], "who said goodbye is not blamed, who was lost is"
    assert deliveries(consumer(wire)) == [], "a job that kills its workers ends as a dead letter"


def test_two_tenants_cannot_settle_each_others_deliveries(wire: Wire, writer: Client):
    client = consumer(wire)
    spawn(writer, 1)
    ((_, delivery),) = deliveries(client)
    stranger = wire.client("other")
    stranger.define(ONTOLOGY)
    for type in ("ack", "nack", "extend"):
        assert stranger.ask(type, {"deliveryId": delivery})["payload"]["code"] == "E8004"
    assert client.ask("ack", {"deliveryId": delivery})["type"] == "ack_ack"


# With the clients


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data") as server:
        server.vedette.define(ONTOLOGY)
        with server.vedette.session() as session:
            for n in range(20):
                session.execute("SPAWN j: Job { n = $n }", n=n)
        yield server


async def work_together(server: Serving) -> list[int]:
    done: list[int] = []

    async def worker(number: int) -> None:
        async with connect(server.url) as c:
            async for job in c.consume(TEXT, prefetch=2):
                async with job:
                    await asyncio.sleep(0.001 * number)
                done.append(job.match["j.n"])  # acknowledged: the last one stops the other consumers
                if len(done) >= 20:
                    return

    workers = [asyncio.create_task(worker(n)) for n in range(3)]
    await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return done


def test_consumers_share_the_deliveries(server: Serving):
    done = asyncio.run(work_together(server))
    assert sorted(done) == list(range(20)), "each once"
    with server.vedette.session() as session:
        assert session.execute("MATCH j: Job RETURN COUNT(*)").rows == [(0,)]


def test_the_blocking_consume_loop(server: Serving):
    seen: list[tuple[int, int]] = []
    with connect_sync(server.url) as c:
        for job in c.consume("WATCH j: Job WHERE j.n < 2 [mode: consume, max_redeliveries: 3] RETURN j.n"):
            seen.append((job.match["j.n"], job.attempt))
            if job.attempt == 1 and job.match["j.n"] == 0:
                with job:  # it goes no further, as inside a program
                    raise ZeroDivisionError
                assert job.ended
                continue
            with job:
                pass
            if len(seen) == 3:
                break
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1)]


def test_an_expired_lease_does_not_end_the_loop(server: Serving):
    """Its lease was over, and it was ended elsewhere: the next one comes."""
    seen: list[int] = []
    with connect_sync(server.url) as c:
        for job in c.consume("WATCH j: Job WHERE j.n < 2 [mode: consume] RETURN j.n", prefetch=1):
            with job:
                seen.append(job.match["j.n"])
                c.execute("ACK $id", id=job.delivery_id)  # so that the job's own comes too late
            if len(seen) == 2:
                break
    assert sorted(seen) == [0, 1]


def test_keyboard_interrupt_is_raised_and_counts_no_attempt(server: Serving):
    text = "WATCH j: Job WHERE j.n = 0 [mode: consume] RETURN j.n"

    def interrupted() -> None:
        with connect_sync(server.url) as c:
            for job in c.consume(text):
                with job:
                    raise KeyboardInterrupt

    async def attempts() -> int:
        async with connect(server.url) as again:
            async for job in again.consume(text):
                async with job:
                    return job.attempt
        raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert asyncio.run(attempts()) == 1


def test_an_exception_in_an_async_job_is_suppressed(server: Serving):
    async def work() -> list[int]:
        tries: list[int] = []
        async with connect(server.url) as c:
            async for job in c.consume("WATCH j: Job WHERE j.n = 0 [mode: consume] RETURN j.n"):
                async with job:
                    tries.append(job.attempt)
                    if job.attempt < 3:
                        raise ConnectionError("try again")
                if job.attempt == 3:
                    return tries
        raise AssertionError

    assert asyncio.run(work()) == [1, 2, 3]


def test_consume_implies_the_mode_and_ends_after_the_timeout(server: Serving):
    text = "WATCH j: Job WHERE j.n < 3 RETURN j.n"
    with connect_sync(server.url) as c:
        done: list[int] = []
        for job in c.consume(text):
            with job:
                done.append(job.match["j.n"])
            if len(done) == 3:
                break
        assert list(c.consume(text, timeout=0.3)) == []
        with pytest.raises(WatchError, match="E8009"):
            next(iter(c.consume("WATCH j: Job [mode: watch] RETURN j.n")))
    assert sorted(done) == [0, 1, 2]


def test_buffered_deliveries_keep_their_lease_and_withdrawn_ones_are_dropped(
    server: Serving, monkeypatch: pytest.MonkeyPatch
):
    renewed: list[str | None] = []
    extend = RemoteWatch.extend

    async def counted(watch: RemoteWatch, event: Event, by: float | None = None) -> None:
        renewed.append(event.delivery_id)
        await extend(watch, event, by)

    monkeypatch.setattr(RemoteWatch, "extend", counted)
    monkeypatch.setattr(JobFeed, "_since", lambda *_: float("-inf"))  # as if each had waited for long
    seen: list[tuple[int, str | None]] = []
    with connect_sync(server.url) as c, connect_sync(server.url) as other:
        for job in c.consume("WATCH j: Job WHERE j.n < 4 RETURN j.n", prefetch=4):
            seen.append((job.match["j.n"], job.delivery_id))
            if len(seen) == 1:
                other.execute("MATCH j: Job WHERE j.n = 3 SET j.n = 33")
                c.execute("MATCH j: Job RETURN j.n")  # events sent before this reply have arrived
                c.execute("MATCH j: Job RETURN j.n")
            with job:
                pass
            if len(seen) == 3:
                break
        assert c.execute("MATCH j: Job WHERE j.n < 4 OR j.n = 33 RETURN j.n").rows == [(33,)]
    assert [n for n, _ in seen] == [0, 1, 2], "3 is no work any more"
    first, second, third = (id for _, id in seen)
    assert renewed.count(first) == 1
    assert renewed.count(second) == 2, "while it waited, and when it was begun"
    assert renewed.count(third) == 3


def test_a_reliable_consumer_outlives_its_loop(server: Serving):
    text = "jobs = WATCH j: Job WHERE j.n < 2 [mode: consume, delivery: reliable] RETURN j.n"
    with connect_sync(server.url) as c:
        for job in c.consume(text, prefetch=2):
            with job:
                pass
            break
        again = c.attach("jobs")
        event = again.next(timeout=60)
        assert event is not None
        assert event.match == {"j.n": 1}
        assert event.attributes["attempt"] == 1, "given back untried"


def test_a_reattached_consumer_without_credit_gets_what_it_holds(wire: Wire, writer: Client):
    text = "held = WATCH j: Job [mode: consume, delivery: reliable, buffer: 1] RETURN j.n"
    spawn(writer, 1, 2)
    first = wire.client()
    first.send("subscribe", {"watch": text}, id="jobs")
    ((_, delivery),) = deliveries(first)
    first.leave()
    second = wire.client()
    second.send("subscribe", {"attach": "held"}, id="jobs")
    assert deliveries(second) == [(1, delivery)]
    assert second.ask("ack", {"deliveryId": delivery})["type"] == "ack_ack"
    assert [n for n, _ in deliveries(second)] == [2]


def test_withdrawals_keep_their_code(wire: Wire, writer: Client):
    client = wire.client()
    client.send("subscribe", {"watch": "WATCH j: Job WHERE j.n = 1 [mode: consume] RETURN j.n"}, id="jobs")
    spawn(writer, 1)
    ((_, delivery),) = deliveries(client)
    writer.execute("MATCH j: Job SET j.n = 2")
    (notice,) = [m["payload"] for m in client.all() if m["type"] == "status"]
    (record,) = notice["errors"]
    assert (record["code"], record["fields"]["delivery_id"]) == ("WITHDRAWN", delivery)


def test_prefetch_0_delivers_only_on_pull(wire: Wire, writer: Client):
    client = consumer(wire, prefetch=0)
    spawn(writer, 1, 2, 3)
    assert deliveries(client) == []
    answer = client.ask("manage", {"subId": "jobs", "operation": "pull", "limit": 3})
    assert answer["payload"]["count"] == 3, "what it begins with, and two jobs"
    assert [n for n, _ in deliveries(client)] == [1, 2]
    assert client.ask("manage", {"subId": "jobs", "operation": "pull", "limit": 0})["type"] == "error"
    pushed = consumer(wire)
    assert (
        pushed.ask("manage", {"subId": "jobs", "operation": "pull"})["payload"]["code"] == "invalid_payload"
    )


def test_consumers_get_a_fair_share_whatever_their_credit(wire: Wire, writer: Client):
    """Surface.md, Fairness: one poll hands a member its part; credit is no licence to poll again for the others'."""
    text = 'WATCH j: Job [mode: consume, group: "g"] RETURN j.n'
    members = [wire.client() for _ in range(2)]
    for member in members:
        member.send("subscribe", {"watch": text, "prefetch": 40}, id="jobs")
        member.all()
    writer.execute("BEGIN")
    spawn(writer, *range(40))
    writer.execute("COMMIT")
    held = [deliveries(member) for member in members]
    assert [len(each) for each in held] == [20, 20]
    for _, id in held[0]:
        members[0].ask("ack", {"deliveryId": id})
    spawn(writer, 40, 41)
    assert len(deliveries(members[0])) >= 1, "a consumer without deliveries gets more"


def test_a_pull_is_bounded_in_bytes(wire: Wire, writer: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vedette.gateway.streams.watch_stream.MAX_UNCONFIRMED_BYTES", 4_000)
    writer.define("node Big { text: String }")
    client = wire.client()
    client.send("subscribe", {"watch": "WATCH b: Big [mode: consume] RETURN b", "prefetch": 0}, id="jobs")
    for _ in range(100):
        writer.execute("SPAWN b: Big { text = $text }", text="x" * 1_000)
    counts = []
    while count := client.ask("manage", {"subId": "jobs", "operation": "pull"})["payload"]["count"]:
        counts.append(count)
    assert sum(counts) == 101, "what it begins with, and the work"
    assert max(counts) <= 17, "16 at a time are looked at"
