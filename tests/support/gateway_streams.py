"""A database at the broker, without sockets: tenant, clients, and a port that records what it is sent."""

from __future__ import annotations

from typing import Any

from vedette.engine.data_directory import open_vedette
from vedette.gateway.limits import GatewayLimits, ReplayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.stream import Stream
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.resume_token import TokenSigner
from vedette.testing import ManualClock


class RecordingPort:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.congested = False

    def send(self, records: list[Any]) -> None:
        self.sent += records


class StreamBench:
    """The parts of a broker that streams need."""

    def __init__(self, limits: GatewayLimits | None = None) -> None:
        self.clock = ManualClock()
        self.limits = limits or GatewayLimits(window=ReplayLimits(seconds=60.0, events=100, bytes=10_000))
        self.catalog = open_vedette(":memory:", clock=self.clock, environment={}, manage_gc=False)
        self.woken = 0
        self.send_queue = SendQueue()
        self.subscriptions = SubscriptionTable(self.limits, self.clock)
        self.pump = StreamPump(
            self.send_queue, self.subscriptions, limits=self.limits, clock=self.clock, wake=self._wake
        )
        self.tenant = self.make_tenant("default")
        self.port = RecordingPort()

    def _wake(self) -> None:
        self.woken += 1

    def make_tenant(self, name: str) -> Tenant:
        return Tenant(
            self.catalog.database(name),
            signer=TokenSigner(b"k" * 32),
            limits=self.limits.window,
            clock=self.clock,
            mark_ready=self.pump.mark_ready,
        )

    def client(self, conn: int = 1, *, actor: str | None = None, checksum: bool = False) -> Client:
        record = link.OpenConnection(
            conn=conn, id=None, tenant="default", actor=actor, system=actor is None, checksum=checksum
        )
        client = Client(self.port, record, self.tenant)
        self.subscriptions.clients[self.port, conn] = client
        return client

    def stream(self, key: bytes = b"k" * 16) -> Stream:
        """A resumable stream without a watch behind it."""
        stream = Stream(self.tenant.event_log, self.subscriptions.new_stream_id(), key, None)
        self.tenant.streams[key] = stream
        return stream
