"""From the journal to a client's picture, whatever happens on the way, in any order: no Spark, no threads.

Spark is a machine here that asks what Spark asks (`SparkDriver`): offsets are written down before a batch and
committed after it, the first offset is asked for again until something is committed, and a driver that was killed may
have left a Java that goes on for a while. Frames of all drivers arrive in any interleaving. Clients come, join, are cut
off in the middle of what they are told, and resume at another gateway, perhaps one that has just been started.
Several engines share journal, registry and driver, each a gateway of its own; they join, leave in good order, and their
clients go to the others.

What must hold: every client's picture, made of nothing but what it was told, is in the end what the documents say, and
on the way no event contradicts it: no repeat, no hole, and nobody had to begin anew. Where deliveries are lost for
good, because the gateway was taken for dead, those whom it concerns are told to begin anew, and it all holds again.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gateway_wire import Client, Wire
from vedette.client.sequence import SequenceCheck, SequenceTracker
from vedette.clock import SystemClock
from vedette.gateway.collections.ingest_server import FrameReceived
from vedette.gateway.collections.registry_thread import LEASE_SECONDS, LeaseLost, RegistryThread
from vedette.pipeline.checkpoint import initial_offset
from vedette.pipeline.datasource import ChangesStreamReader, journal_options
from vedette.pipeline.offsets import Offset
from vedette.pipeline.task import PipelineConfig
from vedette.pipeline.topology import MatchAndDeliver
from vedette.pipeline.worker_cache import client_cache, close_connections, gateways
from vedette.sources.images import encode_image
from vedette.sources.journal.seam import open_journal
from vedette.sources.records import Source, SourceEvent
from vedette.subscriptions.index.compactor import Compactor
from vedette.subscriptions.registry.quotas import Quotas
from vedette.subscriptions.registry.registry import SubscriptionRegistry
from vedette.testing import ManualClock
from vedette.transport.ingest_client import IngestClient
from vedette.transport.ingest_messages import Complete, Deliver, Frame


class Recorded(IngestClient):
    """The link to the gateway without a socket: what a task sends is kept, and arrives when the storm lets it."""

    def __init__(self, address: str) -> None:
        with socket.socket() as closed:
            super().__init__(closed, address)
        self.frames: list[Frame] = []

    def _send(self, frame: Frame) -> None:
        self.frames.append(frame)

    def wait_until_accepted(self) -> None:
        """As if everything was accepted: when it arrives is the storm's business."""


class Checkpoint:
    """What a driver finds of those before it."""

    def __init__(self) -> None:
        self.offsets: list[Offset] = []
        """Where each batch ends, written down before it runs."""
        self.committed = 0
        """Number of batches that were delivered completely."""


class SparkDriver:
    """One life of the query. It ends when another one has done what it was about to write down."""

    def __init__(self, storm: Storm) -> None:
        self._storm, self._checkpoint = storm, storm.checkpoint
        self._stream = storm.stream()
        self._batch = self._checkpoint.committed
        self._start = self._checkpoint.offsets[self._batch - 1] if self._batch else None
        self._lines: list[list[tuple[Gateway, Deliver | Complete]]] | None = None
        self.ended = False

    def _first(self) -> Offset:
        """Until a batch is committed Spark asks the source where it begins, each time that it has to know."""
        if self._start is not None:
            return self._start
        self._storm.perhaps_write()
        return self._stream.initialOffset()

    @property
    def reached(self) -> Complete | None:
        """The end of the last batch that is committed, as far as it knows."""
        if self._start is None:
            return None
        return Complete(
            offset=self._start["offset"], share=0, shares=1, index_version=self._start["index_version"]
        )

    def step(self) -> bool:
        """Plan a batch, have one frame of it arrive, or commit it; whether there was anything to do."""
        if self._lines is None:
            return self._plan()
        lines = [line for line in self._lines if line]
        if lines:
            self._storm.arrive(*self._storm.rng.choice(lines).pop(0))
        elif self._checkpoint.committed > self._batch:
            self.ended = True
        else:
            self._checkpoint.committed = self._batch = self._batch + 1
            self._start, self._lines = self._checkpoint.offsets[self._batch - 1], None
        return True

    def lose(self) -> None:
        """The rest of the batch is dropped and counts as delivered."""
        self._lines = [[] for _ in self._lines or ()] if self._lines is not None else None

    def _plan(self) -> bool:
        offsets = self._checkpoint.offsets
        if len(offsets) == self._batch:
            start = self._first()
            end = self._stream.latestOffset(start, self._stream.getDefaultReadLimit())
            if start == end:
                return False
            offsets.append(end)
        elif self._start is not None and len(offsets) > self._batch + 1:
            self.ended = True
            return True
        tasks = self._stream.partitions(self._first(), offsets[self._batch])
        self._lines = [line for task in tasks for line in self._storm.lines_of(self._stream.read(task))]
        return True


class Follower:
    """A client and its picture."""

    def __init__(self, storm: Storm, least: int, *, causal: bool) -> None:
        self._storm, self.least, self.causal = storm, least, causal
        self._chain = SequenceTracker()
        self._token: str | None = None
        self._client: Client | None = None
        self.gateway: Gateway | None = None
        self._moved = False
        """True if the client resumes at a gateway with a token of another gateway."""
        self.rows: dict[str, int] | None = None
        self.ticks: list[int] = []
        self.connect()

    def connect(self) -> None:
        """Subscribe, or go on where it was."""
        if self.gateway not in self._storm.gateways:
            self.gateway, self._moved = (
                self._storm.rng.choice(self._storm.gateways),
                self._token is not None,
            )
        wire = self.gateway.wire
        self._client = client = wire.client(gateway=self._storm.rng.randrange(len(wire.routers)))
        if self._token is not None:
            seqs = {str(partition): seq for partition, seq in self._chain.seqs.items()}
            client.send("resume", id="s", token=self._token, lastSeq=seqs)
        else:
            order = " [ordering: causal]" if self.causal else ""
            text = f"WATCH o: shop::orders WHERE o.n >= {self.least}{order} RETURN o.id, o.n"
            client.send("subscribe", {"watch": text}, id="s")

    def cut(self) -> None:
        """What is on its way is lost from some place on."""
        client = self._client
        if client is None:
            return
        received = client.mailbox.received
        for _ in range(self._storm.rng.randint(0, len(received))):
            self._take(received.popleft())
            if self._client is not client:
                return
        client.cut()
        self._client = None

    def read(self) -> None:
        if self._client is None:
            self.connect()
        while self._client is not None and self._client.mailbox.received:
            self._take(self._client.mailbox.received.popleft())

    def _take(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "subscribe_ack":
                self._token = message["payload"]["resumeToken"]
                self._chain.start_at(0, message["payload"]["seq"])
            case "resume-ack":
                if message["status"] != "ok":
                    unread = (message["reason"], self.rows) == ("snapshot", None)
                    assert self._storm.losses or self._moved or unread, message
                    self._begin_anew()
                assert not self._moved, "a token is valid at its own gateway only"
            case "status":
                assert self._storm.losses, message
                assert message["payload"]["status"] == "resync-required"
                self._begin_anew()
            case "event":
                self._event(message["payload"])
            case other:
                pytest.fail(f"{other}: {message}")

    def _begin_anew(self) -> None:
        self._token, self._chain, self.rows, self.ticks, self._moved = (
            None,
            SequenceTracker(),
            None,
            [],
            False,
        )
        if self._client is not None:
            self._client.cut()
            self._client = None

    def _event(self, event: dict[str, Any]) -> None:
        link = self._chain.check(event)
        assert link is not SequenceCheck.GAP, "something was left out"
        if link is SequenceCheck.DUPLICATE:
            return
        self._token = event["resumeToken"]
        delivered = event["payload"]
        self.ticks.append(delivered["tick"])
        if delivered["type"] == "initial":
            assert self.rows is None, "it had to resync"
            self.rows = {row["o.id"]: row["o.n"] for row in delivered["matches"]}
            return
        assert self.rows is not None
        key, n = delivered["match"]["o.id"], delivered["match"]["o.n"]
        if delivered["type"] == "added":
            assert key not in self.rows, f"{key} was delivered twice"
            self.rows[key] = n
        elif delivered["type"] == "changed":
            assert self.rows[key] == delivered["prev"]["o.n"], f"a change of {key} was left out"
            self.rows[key] = n
        else:
            assert self.rows.pop(key) == n


class ManualRegistrar(RegistryThread):
    """Runs its jobs when the test asks for it, without a thread."""

    def start(self) -> None: ...

    def leave(self) -> None:
        """As its thread does in the end."""
        self._release_lease()


MOST_GATEWAYS = 3


class HastyClock(SystemClock):
    """Advances by a third of a lease at each reading, so that the gateway renews its lease each time."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0

    def monotonic(self) -> float:
        self._passed += LEASE_SECONDS * 0.4
        return self._passed


class Gateway:
    """An engine with its gateway. All of them may have one secret, but each has an epoch of its own."""

    def __init__(self, storm: Storm, directory: Path, number: int) -> None:
        self._storm = storm
        self.address = f"gateway {number}"
        clock = ManualClock()
        clock.advance(number)
        self.wire = Wire(clock=clock)
        self.registrar = ManualRegistrar(
            directory,
            name=self.address,
            address=self.address,
            quotas=Quotas(),
            clock=HastyClock(),
            post_event=self._post_event,
        )
        self.wire.broker.open_collections(self.registrar, self._post_event)

    def _post_event(self, event: Any) -> None:
        assert self._storm.losses or not isinstance(event, LeaseLost), "the lease was lost"
        self.wire.broker.handle_event(event)

    def receive(self, frame: Any) -> None:
        self.wire.broker.handle_event(FrameReceived(frame))

    def work(self) -> None:
        self.registrar.run_batch()
        self.wire.run()


class Storm:
    def __init__(self, rng: Random, directory: Path, *, losses: bool) -> None:
        self.rng, self.losses = rng, losses
        self._home = directory
        self.journal = open_journal(directory)
        self.journal.add_source(Source(name="shop", kind="mongodb", address="mongodb://there", partitions=3))
        self.registry = SubscriptionRegistry(directory)
        self._compactor = Compactor(self.registry, directory / "index")
        self.context = PipelineConfig(
            journal_url=self.journal.address,
            registry_url=self.registry.address,
            index_folder=directory / "index",
            ingest_secret="",
        )
        self.gateways: list[Gateway] = []
        self._former: list[Gateway] = []
        self.join()
        self.checkpoint = Checkpoint()
        self.drivers = [SparkDriver(self)]
        self.documents: dict[str, int] = {}
        self.followers: list[Follower] = []
        self._written = 0

    def stream(self) -> ChangesStreamReader:
        start = initial_offset(self._home / "checkpoint", self.journal.address)
        return ChangesStreamReader(
            journal_options(self.context, start=start, max_rows=12, max_wait_seconds=0)
        )

    # What may happen

    def perhaps_write(self) -> None:
        if self.rng.random() < 0.3:
            self.write()

    def write(self) -> None:
        events = []
        for _ in range(self.rng.randint(1, 5)):
            key = f"k{self.rng.randrange(4)}"
            document: dict[str, Any] | None = None
            if self.rng.random() < 0.25:
                self.documents.pop(key, None)
            else:
                self.documents[key] = self.rng.randrange(10)
                document = {"n": self.documents[key]}
            self._written += 1
            events.append(
                SourceEvent(
                    event_id=str(self._written),
                    collection="shop::orders",
                    key=key,
                    after=None if document is None else encode_image(document),
                    time_ms=self._written,
                )
            )
        self.journal.append("shop", events, None)

    def come(self) -> None:
        self.followers.append(Follower(self, self.rng.choice((0, 5)), causal=self.rng.random() < 0.3))

    def cut(self) -> None:
        if self.followers:
            self.rng.choice(self.followers).cut()

    def renew(self) -> None:
        """A gateway process restarts: its clients are disconnected and reconnect to another one."""
        gateway = self.rng.choice(self.gateways)
        self._cut_all(gateway)
        gateway.wire.routers.clear()
        gateway.wire.gateway()

    def join(self) -> None:
        """One more engine takes deliveries."""
        if len(self.gateways) < MOST_GATEWAYS:
            number = len(self.gateways) + len(self._former)
            self.gateways.append(Gateway(self, self._home, number))

    def leave(self) -> None:
        """One of several gateways stops gracefully; deliveries in flight to it are dropped."""
        if len(self.gateways) > 1:
            gateway = self.rng.choice(self.gateways)
            gateway.work()
            self._cut_all(gateway)
            gateway.registrar.leave()
            self.gateways.remove(gateway)
            self._former.append(gateway)

    def _cut_all(self, gateway: Gateway) -> None:
        for follower in self.followers:
            if follower.gateway is gateway:
                follower.cut()

    def read(self) -> None:
        if self.followers:
            self.rng.choice(self.followers).read()

    def publish(self) -> None:
        self._compactor.publish()

    def work(self) -> None:
        for gateway in self.gateways:
            gateway.work()

    def kill(self) -> None:
        """A new driver begins. The one before goes on for a while, or is gone at once."""
        if self.rng.random() < 0.5:
            self.drivers.clear()
        self.drivers = [*self.drivers[-1:], SparkDriver(self)]

    def tell(self) -> None:
        """A driver sometimes sends the completed offset."""
        for driver in self.drivers:
            if driver.reached is not None:
                for gateway in self.gateways:
                    self.arrive(gateway, driver.reached)

    def pass_over(self) -> None:
        """The gateways are taken for dead, and what was on its way to them is dropped."""
        for gateway in self.registry.gateways():
            for driver in self.drivers:
                driver.lose()
            gateways(self.registry.address).evict(gateway.number)

    def bury(self) -> None:
        del self.drivers[:-1]

    def drive(self) -> bool:
        driver = self.rng.choice(self.drivers)
        went = driver.step()
        if driver.ended:
            self.drivers.remove(driver)
            if not self.drivers:
                self.drivers.append(SparkDriver(self))
        return went

    def lines_of(self, batches: Iterator[Any]) -> list[list[tuple[Gateway, Deliver | Complete]]]:
        """What a task says to each gateway. One that has just left may still take something, and be gone."""
        links = {gateway: Recorded(gateway.address) for gateway in (*self.gateways, *self._former)}
        clients = client_cache(self.context.ingest_secret)
        clients._clients.update({gateway.address: link for gateway, link in links.items()})
        list(MatchAndDeliver(self.context)(batches))
        clients._clients.clear()
        return [
            [(gateway, piece) for frame in link.frames for piece in self._pieces(frame)]
            for gateway, link in links.items()
        ]

    def _pieces(self, frame: Frame) -> Iterator[Deliver | Complete]:
        """A few changes at a time."""
        assert isinstance(frame, Deliver | Complete)
        changes = frame.changes if isinstance(frame, Deliver) else []
        while changes:
            size = self.rng.randint(1, 4)
            yield Deliver(number=1, changes=changes[:size])
            changes = changes[size:]
        if isinstance(frame, Complete) and self.rng.random() < 0.7:  # the driver does not wait for it
            yield frame

    def arrive(self, gateway: Gateway, frame: Deliver | Complete) -> None:
        if gateway in self.gateways:
            gateway.receive(frame)
            gateway.wire.run()

    # The end

    def settle(self) -> None:
        quiet = 0
        while quiet < 5:
            self.work()
            self.publish()
            went = self.drive()
            self.tell()
            for follower in self.followers:
                follower.read()
            quiet = 0 if went else quiet + 1

    def close(self) -> None:
        close_connections()
        self.registry.close()
        self.journal.close()
        for gateway in (*self.gateways, *self._former):
            gateway.registrar.stop()
            gateway.wire.close()


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=60)
def test_every_client_state_is_correct_under_random_faults_and_order(seed: int, losses: bool):
    rng = Random(seed)
    with TemporaryDirectory() as directory:
        storm = Storm(rng, Path(directory), losses=losses)
        happenings = [
            *[storm.drive] * 8, *[storm.read] * 3, *[storm.work] * 2, storm.publish, storm.write, storm.write,
            storm.come, storm.cut, storm.renew, storm.kill, storm.bury, storm.tell, storm.join, storm.leave,
            *[storm.pass_over] * losses,
        ]  # fmt: skip
        for _ in range(rng.randint(10, 120)):
            rng.choice(happenings)()
        storm.settle()
        for follower in storm.followers:
            expected = {key: n for key, n in storm.documents.items() if n >= follower.least}
            assert follower.rows == expected
            if follower.causal:
                assert follower.ticks == sorted(follower.ticks)
        storm.close()
