"""Engine and gateway in one process: the engine on its own thread, sockets on the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import Any

from vedette.clock import Clock, SystemClock
from vedette.engine.data_directory import Vedette
from vedette.errors import SettingsError
from vedette.gateway.broker import window_file
from vedette.gateway.broker.broker import Broker
from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.broker.ports import WorkerLinks
from vedette.gateway.collections.broker import CollectionBroker
from vedette.gateway.collections.ingest_server import IngestServer
from vedette.gateway.collections.registry_thread import RegistryThread
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import Authority, JwtAuthenticator, SecretAuthenticator, make_authenticator
from vedette.gateway.server.listener import GatewayServer, max_sockets
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.server.tls import make_tls_context
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import CONGESTED_BYTES
from vedette.gateway.wire.resume_token import TokenSigner
from vedette.subscriptions.registry.registry import REGISTRY_FILE, Quotas
from vedette.transport.ingest_messages import Complete, Deliver, Status
from vedette.transport.secret import load_or_create_secret
from vedette.transport.unix_socket import socket_path

__all__ = ["GatewayService", "LoopPort", "refresh_periodically"]

log = logging.getLogger(__name__)


class LoopPort:
    """The gateway in this process. Records are delivered on the event loop.

    Records sent while the loop is busy are delivered together, so higher load needs fewer writes per record.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queued: deque[tuple[list[Any], int]] = deque()
        """Batches not yet delivered, each with its payload bytes."""
        self._scheduled = False
        """True if delivery is scheduled on the loop and has not started."""
        self.deliver: Callable[[list[Any]], None] | None = None
        self._bytes_sent = 0
        self._bytes_delivered = 0

    @property
    def congested(self) -> bool:
        return self._bytes_sent - self._bytes_delivered > CONGESTED_BYTES

    def send(self, records: list[Any]) -> None:
        size = sum(map(link.payload_bytes, records))
        self._bytes_sent += size
        self._queued.append((records, size))
        if self._scheduled:
            return
        self._scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._deliver_queued)
        except RuntimeError:  # the event loop has stopped, and its clients with it
            self._queued.clear()
            self._scheduled = False
            log.debug(
                "The event loop has ended; records for clients are dropped", extra={"action": "gateway.late"}
            )

    def _deliver_queued(self) -> None:
        self._scheduled = (
            False  # reset first: records sent from here on may miss this delivery and must schedule another
        )
        records: list[Any] = []
        while self._queued:
            batch, size = self._queued.popleft()
            records += batch
            self._bytes_delivered += size
        if records and self.deliver is not None:
            self.deliver(records)


class GatewayService:
    """What `vedette serve` runs. Create and start it inside a running event loop."""

    def __init__(
        self,
        home: Vedette,
        *,
        directory: Path | None = None,
        authority: Authority | None = None,
        limits: GatewayLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.home = home
        self.directory = directory
        self.clock = clock or home.clock
        self.limits = limits or GatewayLimits.from_settings(home.settings)
        self.authority = authority or make_authenticator(home.settings, self.clock)
        self.secret = load_or_create_secret(directory)
        signer = TokenSigner(self.secret)
        windows = directory / window_file.FILE if directory is not None else None
        self.engine = EngineThread(
            lambda wake: Broker(
                home, signer=signer, limits=self.limits, clock=self.clock, wake=wake, windows=windows
            )
        )
        self.port = LoopPort(asyncio.get_running_loop())
        self.router = ConnectionRouter(
            limits=self.limits, authority=self.authority, clock=self.clock, submit=self._submit
        )
        self.port.deliver = self.router.deliver
        self.server = GatewayServer(
            self.router,
            clock=self.clock,
            allowed_origins=home.settings.allowed_origins,
            tls=make_tls_context(home.settings, max_sockets(self.limits.max_connections)),
        )
        self.links = WorkerLinks(self.engine, self.secret)
        self._local_port = LoopPort(asyncio.get_running_loop())
        self.local_router = ConnectionRouter(
            limits=self.limits,
            authority=SecretAuthenticator(self.secret),
            clock=self.clock,
            submit=self._submit_local,
        )
        self._local_port.deliver = self.local_router.deliver
        self.local = GatewayServer(self.local_router, clock=self.clock)
        """Server for command lines on this machine, over a Unix socket."""
        self._key_refresh: asyncio.Task[None] | None = None
        self.ingest = IngestServer(self.secret.hex(), self._receive_ingest_frame)
        self._registry_thread: RegistryThread | None = None

    def _submit(self, record: Any) -> bool:
        return self.engine.post(
            self.port, record, bypass_limit=isinstance(record, link.CloseConnection | link.UpdateClaims)
        )

    def _submit_local(self, record: Any) -> bool:
        return self.engine.post(
            self._local_port,
            record,
            bypass_limit=isinstance(record, link.CloseConnection | link.UpdateClaims),
        )

    def _receive_ingest_frame(
        self, next_frame: Callable[[], Deliver | Complete | Status | None], done: Callable[[], None]
    ) -> None:
        def work() -> None:
            collections, frame = self.engine.broker.collections, next_frame()
            if frame is None:
                return
            if collections is not None:
                collections.receive(frame)
            done()

        self.engine.post_event(work)

    async def open_ingest(self, directory: Path) -> None:
        """Accept deliveries of the pipeline and enable external collections."""
        path = socket_path(directory, "ingest.sock")
        await self.ingest.start_local(path)
        address, setting = str(path), self.home.settings.ingest_address
        if setting:
            host, port = _host_and_port(setting)
            address = f"{host}:{await self.ingest.start(host, port)}"
        self._open_collections(directory, address)

    def _open_collections(self, directory: Path, address: str) -> None:
        settings, broker = self.home.settings, self.engine.broker
        directory_hash = hashlib.blake2b(str(directory.resolve()).encode(), digest_size=6).hexdigest()
        quotas = Quotas(
            gateway=settings.max_subscriptions_per_gateway,
            tenant=settings.max_subscriptions_per_tenant,
            total=settings.max_subscriptions_total,
            collection=settings.max_subscriptions_per_collection,
        )
        self._registry_thread = RegistryThread(
            settings.pipeline_store or directory,
            name=f"engine-{gethostname()}-{directory_hash}",
            address=address,
            quotas=quotas,
            clock=SystemClock(),
            call=self.engine.post_event,
            on_lease_lost=lambda: broker.collection_broker().on_lease_lost(),
            on_source_removed=lambda source: broker.collection_broker().on_source_removed(source),
        )
        broker.collections = CollectionBroker(broker, self._registry_thread)
        if settings.pipeline_store or (directory / REGISTRY_FILE).is_file():
            self._registry_thread.start()
        self.engine.post_event(broker.restore_collection_streams)

    def start_engine(self) -> None:
        """Start the engine thread without listening."""
        self.engine.start()

    async def start(self, host: str = "127.0.0.1", port: int = 7707) -> int:
        """Start the engine, the ingest server and the listener. Return the port."""
        self.start_engine()
        if self.directory is not None:
            await self.open_ingest(self.directory)
        return await self.listen(host, port)

    async def listen(self, host: str, port: int) -> int:
        if isinstance(self.authority, JwtAuthenticator):
            self._key_refresh = asyncio.create_task(refresh_periodically(self.authority))
        await asyncio.to_thread(self.engine.ready.wait)
        return await self.server.start(host, port)

    async def stop(self, *, drain_seconds: float = 5.0) -> None:
        """Drain clients, answer pending requests and stop the engine thread. The databases stay open."""
        if self._key_refresh is not None:
            self._key_refresh.cancel()
        await asyncio.gather(
            self.server.stop(drain_seconds=drain_seconds),
            self.local.stop(drain_seconds=drain_seconds),
            self.links.stop(drain_seconds=drain_seconds),
        )
        await self.ingest.stop()
        if self.engine.alive:
            await asyncio.to_thread(self.engine.stop)
        if self._registry_thread is not None:
            await asyncio.to_thread(self._registry_thread.stop)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        text = f"The setting 'ingest_address' cannot be used: expected host:port, got {address!r}"
        raise SettingsError("E0101", text, fields={"setting": "ingest_address"})
    return host.strip("[]"), int(port)


async def refresh_periodically(authority: JwtAuthenticator, every_seconds: float = 1.0) -> None:
    """Refresh the key set whenever it is due. If that fails, the known keys stay in use."""
    while True:
        await asyncio.sleep(every_seconds)
        if not authority.keys.needs_refresh:
            continue
        try:
            await asyncio.to_thread(authority.keys.refresh)
        except SettingsError as error:
            log.warning(
                "The key set could not be refreshed; the known keys stay in use: %s",
                error,
                extra={"action": "auth.keys_kept"},
            )
