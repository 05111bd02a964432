"""TLS by option, and a bound for those who never shake hands.

A connection is known to its protocol, and counted there, when the handshake is over. Before that it has a descriptor
already: whoever opens sockets and says nothing would take the last one. So the context counts its own.
"""

from __future__ import annotations

import ssl
from typing import Any
from weakref import WeakSet

from vedette.errors import SettingsError
from vedette.settings import Settings

__all__ = ["BoundedTls", "tls_of"]


class BoundedTls(ssl.SSLContext):
    """A context for at most so many connections at a time, whether they have shaken hands or not.

    It counts what is alive: uvloop, which servers run on, lets go of a connection that ends at once; asyncio's own loop
    only when garbage is collected.
    """

    most_connections: int
    _live: WeakSet[ssl.SSLObject]

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """What event loops ask for with every connection; one too many is refused, and the loop closes it."""
        if len(self._live) >= self.most_connections:
            raise ssl.SSLError("as many connections as there may be")
        connection = super().wrap_bio(*given, **named)
        self._live.add(connection)
        return connection


def tls_of(settings: Settings, most_connections: int) -> BoundedTls | None:
    """TLS when a certificate is set."""
    if not settings.tls_certificate:
        return None
    context = BoundedTls(ssl.PROTOCOL_TLS_SERVER)
    context.most_connections, context._live = most_connections, WeakSet()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        text = f"The setting 'tls_certificate' cannot be used: {error.strerror or error}"
        raise SettingsError("E0101", text, fields={"setting": "tls_certificate"}) from error
    return context
