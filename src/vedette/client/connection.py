"""Connects to a server: address, TLS settings, authentication, and the delay before the next attempt.

The backoff is written here because whether to reconnect depends on the close code, which retry libraries do not know.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from vedette.client.decode import decode_error
from vedette.errors import GatewayError

__all__ = ["Backoff", "Endpoint", "Token", "send_message"]

Token = str | Callable[[], str | Awaitable[str]]
"""A token, or a function that returns one; it is called before every connection."""
PATH = "/realtime/ws"
PING_TIMEOUT_SECONDS = 90.0
"""Ping timeout. On a slow line the answer may be queued behind a large message."""
_encoder = msgspec.json.Encoder()


async def send_message(socket: ClientConnection, message: dict[str, Any]) -> None:
    try:
        await socket.send(_encoder.encode(message).decode())
    except ConnectionClosed as error:
        raise GatewayError("E4002", "The connection broke before the message was sent") from error


class Endpoint:
    """One database of one server. `timeout`: seconds for the server to complete authentication."""

    def __init__(
        self,
        url: str,
        *,
        database: str,
        token: Token,
        timeout: float,
        tls: ssl.SSLContext | None,
        local_socket: str | None,
    ) -> None:
        self.url = _endpoint_url(url)
        self._database, self._token, self._timeout = database, token, timeout
        self._tls, self._local_socket = tls, local_socket

    @property
    def can_refresh_token(self) -> bool:
        """True if a new token can be requested after one was rejected."""
        return callable(self._token)

    def open(self) -> open_socket:
        """Return a connection that is not yet authenticated; use it with `async with`."""
        bounds: dict[str, Any] = {
            "max_size": None,
            "ping_interval": 20,
            "ping_timeout": PING_TIMEOUT_SECONDS,
        }
        if self._local_socket is not None:
            return unix_connect(self._local_socket, self.url, **bounds)
        trusted = True if self.url.startswith("wss:") else None  # the machine's trusted certificates
        return open_socket(self.url, ssl=self._tls or trusted, **bounds)

    async def authenticate(self, socket: ClientConnection) -> None:
        """Authenticate. Raise GatewayError if the server rejects the token."""
        token = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        payload = {"token": token, "database": self._database, "version": 1}
        await send_message(socket, {"type": "auth", "id": "auth", "payload": payload})
        try:
            async with asyncio.timeout(self._timeout):
                while (answer := msgspec.json.decode(await socket.recv())).get("id") != "auth":
                    pass
        except (ConnectionClosed, msgspec.MsgspecError) as error:
            raise GatewayError("E4002", "The connection broke during authentication") from error
        if answer["type"] == "error":
            refusal = decode_error(answer["payload"])
            if isinstance(refusal, GatewayError):
                raise refusal
            raise GatewayError("E4001", refusal.text, fields=refusal.fields)


def _endpoint_url(url: str) -> str:
    """Return the URL with the realtime path added if it has none."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise GatewayError("E4003", f"{url!r} is not a valid address: use ws://host:7707 or wss://host:7707")
    return urlunsplit(parts._replace(path=PATH if parts.path in ("", "/") else parts.path))


@dataclass(slots=True)
class Backoff:
    """Full jitter: a random delay between 0 and a bound that doubles with each try."""

    random: Random
    base_seconds: float = 0.2
    cap_seconds: float = 15.0
    tries: int = 0

    def next_delay(self) -> float:
        """Return the delay before the next try, in seconds."""
        bound = min(self.cap_seconds, self.base_seconds * 2 ** min(self.tries, 16))
        self.tries += 1
        return self.random.uniform(0, bound)

    def reset(self) -> None:
        self.tries = 0
