"""Access rules: which addresses may be served without authentication, and which origins may connect."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from vedette.errors import SettingsError

__all__ = ["is_loopback", "origin_allowed", "require_auth_or_loopback"]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_auth_or_loopback(host: str, *, requires_auth: bool) -> None:
    """Raise SettingsError unless authentication is configured or the address is loopback."""
    if not requires_auth and not is_loopback(host):
        text = f"Listening on {host} without authentication is open to anyone: set auth_keys, or listen on 127.0.0.1"
        raise SettingsError("E0101", text, fields={"setting": "auth_keys"})


def origin_allowed(origin: str | None, host: str, allowed: tuple[str, ...], *, requires_auth: bool) -> bool:
    """Return True if the origin may connect. Requests without an origin do not come from a web page.

    The server's own host is allowed. Without authentication it must also be loopback, since another name could be made
    to resolve to this machine (DNS rebinding).
    """
    if not origin:
        return True
    if origin in allowed:
        return True
    name = _host_of(origin)
    return name is not None and name == _host_of(f"//{host}") and (requires_auth or is_loopback(name))


def _host_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
