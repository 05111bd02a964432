"""A gateway and its engine in the thread of a test: no sockets, no other threads, a manual clock."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

from vedette.engine.data_directory import Vedette, open_vedette
from vedette.gateway.broker import window_file
from vedette.gateway.broker.broker import Broker
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.auth import Authenticator, LoopbackAuthenticator
from vedette.gateway.server.connection import Connection
from vedette.gateway.server.outbound import FrameBatch, OutboundFrame
from vedette.gateway.server.router import ConnectionRouter
from vedette.gateway.wire.broker_link import decode_batch, encode_batch
from vedette.gateway.wire.resume_token import TokenSigner
from vedette.testing import ManualClock

SECRET = b"0123456789abcdef0123456789abcdef"


class Mailbox:
    """A client's sink: the messages sent to it, decoded."""

    def __init__(self) -> None:
        self.received: deque[dict[str, Any]] = deque()
        self.closed: tuple[int, str] | None = None

    def send(self, outbound_frame: OutboundFrame) -> None:
        self.received.append(json.loads(outbound_frame.message))

    def send_batch(self, bundle: FrameBatch) -> None:
        for outbound_frame in bundle.frames:
            self.send(outbound_frame)

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


class LocalPort:
    """A gateway as the broker sees it. Batches are encoded and decoded, as between processes."""

    def __init__(self, router: ConnectionRouter) -> None:
        self.router = router

    congested = False

    def send(self, records: list[Any]) -> None:
        self.router.deliver(decode_batch(encode_batch(records)[4:], from_gateway=False))


class Wire:
    """One engine, one or more gateways."""

    def __init__(
        self,
        location: str = ":memory:",
        *,
        limits: GatewayLimits | None = None,
        authenticator: Authenticator | None = None,
        settings: dict[str, Any] | None = None,
        clock: ManualClock | None = None,
        opened: Vedette | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.limits = limits or GatewayLimits()
        self.authenticator = authenticator or LoopbackAuthenticator()
        self.vedette = opened or open_vedette(
            location, clock=self.clock, environment={}, manage_gc=False, **(settings or {})
        )
        windows = Path(location) / window_file.FILE if location != ":memory:" else None
        self.broker = Broker(
            self.vedette, signer=TokenSigner(SECRET), limits=self.limits, clock=self.clock, windows=windows
        )
        self.broker.restore_streams()
        self._requests: deque[tuple[LocalPort, Any]] = deque()
        self.routers: list[ConnectionRouter] = []
        self.gateway()

    def gateway(self) -> ConnectionRouter:
        """One more gateway process."""

        def ask(record: Any) -> bool:
            self._requests.append((port, decode_batch(encode_batch([record])[4:], from_gateway=True)[0]))
            return True

        router = ConnectionRouter(
            limits=self.limits, authenticator=self.authenticator, clock=self.clock, submit=ask
        )
        port = LocalPort(router)
        self.routers.append(router)
        return router

    def run(self) -> None:
        """Process requests and events until none is left."""
        self.broker.process(())
        while self._requests:
            batch = list(self._requests)
            self._requests.clear()
            self.broker.process(batch)
            self.broker.process(())

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.evict_expired()
        self.run()

    def client(self, database: str = "default", *, gateway: int = 0, version: int = 0, **auth: Any) -> Client:
        client = Client(self, self.routers[gateway])
        if database:
            client.send("auth", {"token": "", "database": database, "version": version, **auth}, id="auth")
            answer = client.take()
            assert answer["type"] == "auth_ack", answer
        return client

    def close(self) -> None:
        self.broker.close()
        self.vedette.close()


class Client:
    def __init__(self, wire: Wire, router: ConnectionRouter) -> None:
        self.wire, self.router = wire, router
        self.mailbox = Mailbox()
        self.connection: Connection = router.connect(self.mailbox)

    def raw(self, data: bytes | str) -> None:
        self.connection.receive(data)
        self.wire.run()

    def send(self, type: str, payload: Any = None, *, id: str | None = None, **top: Any) -> None:
        message: dict[str, Any] = {"type": type, **top}
        if id is not None:
            message["id"] = id
        if payload is not None:
            message["payload"] = payload
        self.raw(json.dumps(message))

    def all(self) -> list[dict[str, Any]]:
        self.wire.run()
        messages = list(self.mailbox.received)
        self.mailbox.received.clear()
        return messages

    def take(self) -> dict[str, Any]:
        self.wire.run()
        return self.mailbox.received.popleft()

    def ask(self, type: str, payload: Any = None, **more: Any) -> dict[str, Any]:
        """Send a message and return its reply; events stay in the mailbox."""
        self.send(type, payload, id="q", **more)
        self.wire.run()
        (answer,) = [message for message in self.mailbox.received if message.get("id") == "q"]
        self.mailbox.received.remove(answer)
        return answer

    def execute(self, statement: str, **params: Any) -> dict[str, Any]:
        answer = self.ask("execute", {"statement": statement, "params": params})
        assert answer["type"] == "result", answer
        payload: dict[str, Any] = answer["payload"]
        return payload

    def define(self, ontology: str) -> None:
        answer = self.ask("define", {"ontology": ontology})
        assert answer["type"] == "define_ack", answer

    def cut(self) -> None:
        """Break the connection without a close message."""
        self.router.disconnect(self.connection, clean=False)
        self.wire.run()

    def leave(self) -> None:
        self.router.disconnect(self.connection, clean=True)
        self.wire.run()
