"""Engine and gateway in one process: the engine on its own thread, sockets on the event loop."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Any

from vedette.clock import Clock, SystemClock
from vedette.engine.data_directory import Vedette
from vedette.errors import SettingsError
from vedette.gateway.broker import window_file
from vedette.gateway.broker.broker import Broker, RestoreCollections
from vedette.gateway.broker.engine_thread import EngineThread
from vedette.gateway.broker.ports import LoopPort, WorkerLinks
from vedette.gateway.collections.ingest_server import IngestServer
from vedette.gateway.collections.registry_thread import RegistryThread
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import (
    Authenticator,
    JwtAuthenticator,
    SecretAuthenticator,
    make_authenticator,
)
from vedette.gateway.server.jwk_set import refresh_periodically
from vedette.gateway.server.listener import GatewayServer
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.server.sockets import max_sockets
from vedette.gateway.server.tls import make_tls_context
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.resume_token import TokenSigner
from vedette.subscriptions.registry.quotas import Quotas
from vedette.subscriptions.registry.records import REGISTRY_FILE
from vedette.transport.secret import load_or_create_secret
from vedette.transport.unix_socket import socket_path

__all__ = ["CollectionStats", "DatabaseStats", "GatewayService", "ServiceStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionStats:
    """Counters for external collections since the process started."""

    streams: int
    events: int
    resyncs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseStats:
    """Figures of one database."""

    window_events: int
    window_bytes: int
    lag_commits: int
    """Commits that are not yet durable."""
    ticks: int
    filter_candidates: int
    filter_matches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStats:
    """Figures of the engine and of all its gateways, for `/metrics`."""

    inbox_requests: int
    streams: int
    events: int
    resumes: Mapping[str, int]
    """Number of resumes by outcome."""
    databases: Mapping[str, DatabaseStats]
    collections: CollectionStats | None
    """None on a server without a data directory."""
    gateways: Mapping[str, link.GatewayStats]
    """By name: `engine` for sockets and HTTP of this process, `local` for command lines, then the workers."""


class GatewayService:
    """What `vedette serve` runs. Create and start it inside a running event loop."""

    def __init__(
        self,
        catalog: Vedette,
        *,
        directory: Path | None = None,
        authenticator: Authenticator | None = None,
        limits: GatewayLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.catalog = catalog
        self.directory = directory
        self.clock = clock or catalog.clock
        self.limits = limits or GatewayLimits.from_settings(catalog.settings)
        self.authenticator = authenticator or make_authenticator(catalog.settings, self.clock)
        self.secret = load_or_create_secret(directory)
        signer = TokenSigner(self.secret)
        windows = directory / window_file.FILE if directory is not None else None
        self.engine = EngineThread(
            lambda wake: Broker(
                catalog, signer=signer, limits=self.limits, clock=self.clock, wake=wake, windows=windows
            )
        )
        self.port = LoopPort(asyncio.get_running_loop())
        self.router = ConnectionRouter(
            limits=self.limits, authenticator=self.authenticator, clock=self.clock, submit=self._submit
        )
        self.port.deliver = self.router.deliver
        self.server = GatewayServer(
            self.router,
            clock=self.clock,
            allowed_origins=catalog.settings.allowed_origins,
            tls=make_tls_context(catalog.settings, max_sockets(self.limits.max_connections)),
        )
        self.links = WorkerLinks(self.engine, self.secret)
        self._local_port = LoopPort(asyncio.get_running_loop())
        self.local_router = ConnectionRouter(
            limits=self.limits,
            authenticator=SecretAuthenticator(self.secret),
            clock=self.clock,
            submit=self._submit_local,
        )
        self._local_port.deliver = self.local_router.deliver
        self.local = GatewayServer(self.local_router, clock=self.clock)
        """Server for command lines on this machine, over a Unix socket."""
        self._key_refresh: asyncio.Task[None] | None = None
        self.ingest = IngestServer(self.secret.hex(), self.engine.post_event)
        self._registry_thread: RegistryThread | None = None

    def _submit(self, record: Any) -> bool:
        return self.engine.post(self.port, record, bypass_limit=link.is_control(record))

    def _submit_local(self, record: Any) -> bool:
        return self.engine.post(self._local_port, record, bypass_limit=link.is_control(record))

    async def open_ingest(self, directory: Path) -> None:
        """Accept deliveries of the pipeline and enable external collections."""
        path = socket_path(directory, "ingest.sock")
        await self.ingest.start_local(path)
        address, setting = str(path), self.catalog.settings.ingest_address
        if setting:
            host, port = _host_and_port(setting)
            address = f"{host}:{await self.ingest.start(host, port)}"
        self._open_collections(directory, address)

    def _open_collections(self, directory: Path, address: str) -> None:
        settings, broker = self.catalog.settings, self.engine.broker
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
            post_event=self.engine.post_event,
        )
        broker.open_collections(self._registry_thread, self.engine.post_event)
        if settings.pipeline_store or (directory / REGISTRY_FILE).is_file():
            self._registry_thread.start()
        self.engine.post_event(RestoreCollections())

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
        if isinstance(self.authenticator, JwtAuthenticator):
            self._key_refresh = asyncio.create_task(refresh_periodically(self.authenticator.keys))
        await asyncio.to_thread(self.engine.ready.wait)
        return await self.server.start(host, port)

    def stats(self) -> ServiceStats:
        """Return the current figures. May be called from any thread; the figures may be of different moments."""
        broker = self.engine.broker
        collections = broker.collections
        # A restarted worker replaces the leaving one of the same name, because the most recent link comes last.
        workers = {port.name: port.stats for port in self.links.ports if port.stats is not None}
        return ServiceStats(
            inbox_requests=self.engine.waiting,
            streams=broker.subscriptions.stream_count,
            events=broker.pump.events,
            resumes=dict(broker.resumer.outcomes),
            databases={name: _database_stats(tenant) for name, tenant in dict(broker.tenants).items()},
            collections=None
            if collections is None
            else CollectionStats(
                streams=collections.streams, events=collections.events, resyncs=collections.resyncs
            ),
            gateways={"engine": self.server.stats(), "local": self.local.stats(), **workers},
        )

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


def _database_stats(tenant: Tenant) -> DatabaseStats:
    window, log_writer = tenant.event_log.window, tenant.database.log_writer
    return DatabaseStats(
        window_events=len(window),
        window_bytes=window.bytes,
        lag_commits=log_writer.submitted_sequence - log_writer.durable_sequence,
        ticks=tenant.database.state.tick,
        filter_candidates=tenant.filter_counters.candidates,
        filter_matches=tenant.filter_counters.matches,
    )
