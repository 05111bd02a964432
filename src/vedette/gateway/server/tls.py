"""Optional TLS, with a limit on connections that have not finished the handshake.

A protocol learns of a connection, and counts it, only after the TLS handshake. Before that the connection already uses
a file descriptor, so clients that never finish the handshake could exhaust them. The context therefore counts its own
connections.
"""

from __future__ import annotations

import ssl
from typing import Any
from weakref import WeakSet

from vedette.errors import SettingsError
from vedette.settings import Settings

__all__ = ["BoundedTls", "make_tls_context"]


class BoundedTls(ssl.SSLContext):
    """A TLS context with a limit on open connections, before and after the handshake.

    It counts live objects. uvloop, which servers use, frees a closed connection at once; asyncio's own loop frees it
    only at garbage collection.
    """

    max_connections: int
    _live: WeakSet[ssl.SSLObject]

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Called by the event loop for each connection. Above the limit it raises, and the loop closes it."""
        if len(self._live) >= self.max_connections:
            raise ssl.SSLError("connection limit reached")
        connection = super().wrap_bio(*given, **named)
        self._live.add(connection)
        return connection


def make_tls_context(settings: Settings, max_connections: int) -> BoundedTls | None:
    """Return a context if a certificate is configured."""
    if not settings.tls_certificate:
        return None
    context = BoundedTls(ssl.PROTOCOL_TLS_SERVER)
    context.max_connections, context._live = max_connections, WeakSet()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        text = f"The setting 'tls_certificate' cannot be used: {error.strerror or error}"
        raise SettingsError("E0101", text, fields={"setting": "tls_certificate"}) from error
    return context
