"""Access rules: loopback addresses and origins."""

from __future__ import annotations

import pytest

from vedette.errors import SettingsError
from vedette.gateway.server.access import is_loopback, origin_allowed, require_auth_or_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("192.0.2.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_loopback_addresses(host: str, loopback: bool):
    assert is_loopback(host) is loopback
    if loopback:
        require_auth_or_loopback(host, requires_auth=False)
    else:
        with pytest.raises(SettingsError, match="without authentication"):
            require_auth_or_loopback(host, requires_auth=False)
    require_auth_or_loopback(host, requires_auth=True)


@pytest.mark.parametrize(
    ("origin", "host", "requires_auth", "allowed"),
    [
        (None, "anything", False, True),
        ("https://app.example", "127.0.0.1:7707", False, True),
        ("http://127.0.0.1:7708", "127.0.0.1:7707", False, True),
        ("http://evil.example", "127.0.0.1:7707", False, False),
        ("http://evil.example", "evil.example:7707", False, False),
        ("http://own.example", "own.example:7707", True, True),
        ("http://[broken", "own.example:7707", True, False),
    ],
)
def test_origins(origin: str | None, host: str, requires_auth: bool, allowed: bool):
    found = origin_allowed(origin, host, ("https://app.example",), requires_auth=requires_auth)
    assert found is allowed
