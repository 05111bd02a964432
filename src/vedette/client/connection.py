"""Where a server is and how one gets in: the address, whom to trust, and who one says one is."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from vedette.client.wire_errors import decode_error
from vedette.errors import GatewayError

__all__ = ["Endpoint", "Token", "send_message"]

Token = str | Callable[[], str | Awaitable[str]]
"""A token, or where to get one: asked before every connection."""
PATH = "/realtime/ws"
PATIENCE_SECONDS = 90.0
"""For the answer to a ping: it comes after a large message that is on its way, over a slow line."""
_encoder = msgspec.json.Encoder()


async def send_message(socket: ClientConnection, message: dict[str, Any]) -> None:
    try:
        await socket.send(_encoder.encode(message).decode())
    except ConnectionClosed as error:
        raise GatewayError("E4002", "The connection broke before the message was sent") from error


class Endpoint:
    """Of one database of one server. `timeout`: seconds that the server has to let one in."""

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
        self.url = _address(url)
        self._database, self._token, self._timeout = database, token, timeout
        self._tls, self._local_socket = tls, local_socket

    @property
    def can_refresh_token(self) -> bool:
        """Whether there may be another token when one was refused."""
        return callable(self._token)

    def open(self) -> open_socket:
        """A connection that nobody has introduced yet; for `async with`."""
        bounds: dict[str, Any] = {
            "max_size": None,
            "ping_interval": 20,
            "ping_timeout": PATIENCE_SECONDS,
        }
        if self._local_socket is not None:
            return unix_connect(self._local_socket, self.url, **bounds)
        trusted = True if self.url.startswith("wss:") else None  # whom this machine trusts
        return open_socket(self.url, ssl=self._tls or trusted, **bounds)

    async def authenticate(self, socket: ClientConnection) -> None:
        """Say who one is; returns when the server has let one in, and raises GatewayError when it does not."""
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
            raise GatewayError("E4002", "The connection broke while it was opened") from error
        if answer["type"] == "error":
            refusal = decode_error(answer["payload"])
            if isinstance(refusal, GatewayError):
                raise refusal
            raise GatewayError("E4001", refusal.text, fields=refusal.fields)


def _address(url: str) -> str:
    """`ws://host:7707` means its realtime endpoint."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise GatewayError("E4003", f"{url!r} is no address: use ws://host:7707 or wss://host:7707")
    return urlunsplit(parts._replace(path=PATH if parts.path in ("", "/") else parts.path))
