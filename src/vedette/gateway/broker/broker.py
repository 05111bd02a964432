"""The broker: executes batches of gateway requests and sends their replies and events. Engine thread only.

Theory of operation. Requests arrive in batches. Each request is executed without waiting for the disk, and its replies
and events are queued (`streams/send_queue.py`). One flush then makes the whole batch durable, and only after it are
replies, snapshots, errors and events sent. Requests of one connection are executed in order. A long read continues in a
thread; later requests of its connection are deferred until it finishes.

Other threads post events, which are handled between batches in the order in which they were posted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from vedette.clock import Clock
from vedette.engine.data_directory import Vedette
from vedette.errors import PolicyError, VedetteError
from vedette.gateway.broker.requests import RequestDispatcher
from vedette.gateway.broker.restore import WaitingStream, restore_collections, restore_windows, save_windows
from vedette.gateway.broker.resume import StreamResumer
from vedette.gateway.broker.statements import StatementExecutor
from vedette.gateway.broker.subscribe import GraphSubscriber
from vedette.gateway.collections.broker import CollectionBroker, CollectionEvent
from vedette.gateway.collections.registry_thread import RegistryThread
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.streams.client import Client
from vedette.gateway.streams.pump import StreamPump
from vedette.gateway.streams.send_queue import SendQueue
from vedette.gateway.streams.subscription_table import SubscriptionTable
from vedette.gateway.streams.tenant import Tenant
from vedette.gateway.wire import broker_link as link
from vedette.gateway.wire.broker_link import Port
from vedette.gateway.wire.close_codes import CloseCode
from vedette.gateway.wire.messages import MessageError, error_payload
from vedette.gateway.wire.resume_token import TokenSigner

__all__ = ["Broker", "GatewayLost", "RestoreCollections"]

log = logging.getLogger(__name__)


class GatewayLost(NamedTuple):
    """Event: the link to a worker broke."""

    port: Port


class RestoreCollections(NamedTuple):
    """Event: the ingest server is open, so saved collection streams can continue."""


class Broker:
    """Serves the clients of all databases of one data directory."""

    def __init__(
        self,
        catalog: Vedette,
        *,
        signer: TokenSigner,
        limits: GatewayLimits,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        windows: Path | None = None,
    ) -> None:
        """`wake` makes the engine thread run a batch. `windows`: file that keeps replay windows across restarts; None
        disables it.
        """
        self._catalog, self._signer, self._windows = catalog, signer, windows
        self._limits, self._clock = limits, clock
        self.tenants: dict[str, Tenant] = {}
        self.subscriptions = SubscriptionTable(limits, clock)
        self.send_queue = SendQueue()
        self.pump = StreamPump(self.send_queue, self.subscriptions, limits=limits, clock=clock, wake=wake)
        parts = (self.send_queue, self.subscriptions, self.pump)
        self.statements = StatementExecutor(catalog, *parts, limits=limits, wake=wake)
        self.graph_subscriber = GraphSubscriber(*parts, limits)
        self.resumer = StreamResumer(*parts)
        self.requests = RequestDispatcher(
            *parts,
            statements=self.statements,
            graph_subscriber=self.graph_subscriber,
            resumer=self.resumer,
            limits=limits,
            clock=clock,
        )
        self._waiting_streams: list[WaitingStream] = []
        """Collection streams of the previous server that are still to be restored."""

    @property
    def collections(self) -> CollectionBroker | None:
        """External collections; None until `open_collections`, and on a server without a data directory."""
        return self.requests.collections

    def open_collections(self, registry_thread: RegistryThread, post_event: Callable[[Any], None]) -> None:
        """Enable external collections. `post_event` passes an event to the engine thread, from any thread."""
        self.requests.collections = CollectionBroker(
            self.send_queue,
            self.subscriptions,
            self.pump,
            registry_thread,
            limits=self._limits,
            post_event=post_event,
        )

    # --- batches ------------------------------------------------------------------------------------------------

    def process(self, requests: Iterable[tuple[Port, Any]]) -> None:
        """Execute a batch of requests, make it durable, and send the replies and events."""
        self.requests.finish_threaded()
        for port, record in requests:
            try:
                self._dispatch(port, record)
            except Exception:  # a failing request must not stop the batch
                extra = {"action": "broker.request_not_processed", "conn": getattr(record, "conn", None)}
                log.exception("A request could not be processed", extra=extra)
            if self.send_queue.is_over_threshold:
                self._flush_and_send()
        self._flush_and_send()

    def _flush_and_send(self) -> None:
        self.pump.flush()
        for port, records in self.send_queue.drain().items():
            port.send(records)

    def handle_event(self, event: GatewayLost | RestoreCollections | CollectionEvent) -> None:
        """Handle an event that another thread posted."""
        match event:
            case GatewayLost(port=port):
                self._on_gateway_lost(port)
            case RestoreCollections():
                self._restore_collections()
            case _:
                if self.collections is not None:
                    self.collections.handle_event(event)

    def _dispatch(self, port: Port, record: Any) -> None:
        if isinstance(record, link.OpenConnection):
            self._open(port, record)
            return
        client = self.subscriptions.clients.get((port, record.conn))
        if client is None:
            return  # the client disconnected; no reply is needed
        if isinstance(record, link.CloseConnection):
            self._close_connection(client, clean=record.clean, may_resume=record.may_resume)
        elif client.busy:
            client.defer(record)
        else:
            self.requests.handle(client, record)

    # --- connections --------------------------------------------------------------------------------------------

    def _open(self, port: Port, record: link.OpenConnection) -> None:
        refusal: dict[str, Any] | None = None
        close = 0
        try:
            tenant = self.tenant(record.tenant)
            if not record.system:
                tenant.database.session(record.actor or "").close()  # raises if the actor does not exist
            if tenant.connections >= self._limits.max_connections_per_tenant and not record.local:
                text = "the database has reached its connection limit: try again later"
                raise MessageError("too_many_connections", text)
            tenant.connections += 1
            client = self.subscriptions.clients[port, record.conn] = Client(port, record, tenant)
            self.send_queue.reply(client, link.ConnectionOpened(conn=record.conn, id=record.id), record.id)
        except VedetteError as error:
            refusal = error_payload(error)
            close = CloseCode.AUTH_REFUSED if isinstance(error, PolicyError) else 0
        except MessageError as error:
            refusal = {"code": error.code, "message": error.text, "retryable": True}
            close = CloseCode.TRY_LATER
        except Exception:
            extra = {"action": "broker.open_failed", "conn": record.conn}
            log.exception("A connection could not be opened", extra=extra)
            refusal = {"code": "internal", "message": "internal error"}
        if refusal is not None:
            failed = link.RequestFailed(conn=record.conn, id=record.id, payload=refusal, close=close)
            self.send_queue.notify(port, failed)

    def tenant(self, name: str) -> Tenant:
        """Return the broker's state for a database, opening the database on first use."""
        known = self.tenants.get(name)
        if known is None:
            known = self.tenants[name] = Tenant(
                self._catalog.database(name),
                signer=self._signer,
                limits=self._limits.window,
                clock=self._clock,
                mark_ready=self.pump.mark_ready,
            )
        return known

    def _close_connection(self, client: Client, *, clean: bool, may_resume: bool) -> None:
        del self.subscriptions.clients[client.port, client.conn]
        client.tenant.connections -= 1
        if client.session is not None and not client.busy:
            # Close the session first: its watches then report how they ended. After an unclean disconnect, held
            # deliveries count as failed attempts.
            client.session.close(lost=not clean)
        for sub_id in list(client.subscriptions):
            self.subscriptions.remove(client, sub_id, may_resume=may_resume)

    def _on_gateway_lost(self, port: Port) -> None:
        """Close all connections of a gateway whose link broke."""
        for client in [each for each in self.subscriptions.clients.values() if each.port is port]:
            self._close_connection(client, clean=False, may_resume=True)

    # --- lifetime -----------------------------------------------------------------------------------------------

    def evict_expired(self) -> None:
        """Drop expired events and idle streams. Called periodically."""
        now = self._clock.monotonic()
        for tenant in self.tenants.values():
            tenant.event_log.window.expire(now)
        self.subscriptions.evict_idle()

    def restore_streams(self) -> None:
        """Restore the streams of the previous server if it stopped gracefully. Call before the first request."""
        if self._windows is not None:
            self._waiting_streams = restore_windows(
                self._windows, self.tenant, self.subscriptions, self.graph_subscriber, self._clock
            )

    def _restore_collections(self) -> None:
        waiting, self._waiting_streams = self._waiting_streams, []
        if self.collections is not None:
            restore_collections(waiting, self.collections, self.subscriptions)

    def close(self) -> None:
        """Close all connections, publish what is durable, and save the replay windows."""
        for client in list(self.subscriptions.clients.values()):
            self._close_connection(client, clean=True, may_resume=self._windows is not None)
        self.pump.flush()
        if self.collections is not None:
            self.collections.save()
        if self._windows is not None:
            save_windows(self._windows, self.tenants.values(), self._clock)
        self.statements.close()
