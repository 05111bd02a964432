"""Close codes, in ranges from which a client knows whether to reconnect.

1000, 1001      normal close: reconnect at any time; after 1001 wait for a short random time
1011, 1013      server error or overload: reconnect with backoff
4000 .. 4099    reconnect after a short random time, and resume
4100 .. 4199    reconnect with other credentials
4200 .. 4299    do not reconnect: the same would happen again
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["CloseCode", "may_reconnect", "needs_credentials"]


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    UNSUPPORTED = 1003
    TOO_BIG = 1009
    INTERNAL = 1011
    TRY_LATER = 1013
    DRAINING = 4000
    STALLED = 4001
    """The client did not read for too long."""
    UNRESPONSIVE = 4002
    """The client did not answer pings."""
    ENGINE_LOST = 4003
    AUTH_TIMEOUT = 4100
    AUTH_EXPIRED = 4101
    AUTH_REFUSED = 4102


def may_reconnect(code: int) -> bool:
    """Return True if reconnecting with the same credentials can succeed."""
    return code not in (1002, 1003, 1007, 1008, 1009, 1010) and not 4100 <= code <= 4299


def needs_credentials(code: int) -> bool:
    """Return True if the client must authenticate with another token."""
    return 4100 <= code <= 4199
