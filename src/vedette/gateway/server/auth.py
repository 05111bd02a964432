"""Authentication: verifies tokens and returns what they grant.

A token is a JWT signed with HS256, RS256 or EdDSA. The key determines the algorithm, never the token. Claims: `tenant`
must be the requested database, `sub` is the node id of the actor, `admin: true` grants the system context, and `exp` is
required and also ends live connections.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import jwt

from vedette.clock import Clock
from vedette.gateway.server.jwk_set import JwkSet, load_from
from vedette.gateway.wire.messages import MAX_NESTING, is_portable
from vedette.settings import Settings

__all__ = [
    "AuthError",
    "Authenticator",
    "Grant",
    "JwtAuthenticator",
    "LoopbackAuthenticator",
    "SecretAuthenticator",
    "make_authenticator",
]

_MAX_TOKEN_CHARS = 16_384
_MAX_CACHED_GRANTS = 1_000


class AuthError(Exception):
    """Authentication failed. The text reveals nothing to an unauthenticated client."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    tenant: str
    actor: str | None
    is_system: bool
    expires_at: datetime | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    via_local_socket: bool = False
    """True for the data directory's Unix socket; grants access to information about all databases."""

    def same_identity(self, other: Grant) -> bool:
        return (self.tenant, self.actor, self.is_system) == (other.tenant, other.actor, other.is_system)


class Authenticator(Protocol):
    """Verifies a token for a database."""

    def authenticate(self, token: str, database: str | None) -> Grant:
        """Return the grant, or raise AuthError."""
        ...


class LoopbackAuthenticator:
    """No authentication is configured: any client on the loopback interface gets the system context."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def authenticate(self, token: str, database: str | None) -> Grant:  # noqa: ARG002 - any token is accepted
        if not database:
            raise AuthError("invalid_auth", "database is required")
        grant = self._grants.get(database)
        if grant is None:
            grant = Grant(tenant=database, actor=None, is_system=True)
            if len(self._grants) < _MAX_CACHED_GRANTS:
                self._grants[database] = grant  # one grant is shared by all connections of a database
        return grant


class SecretAuthenticator:
    """The data directory's Unix socket: a client that knows the directory's secret gets the system context."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret.hex()

    def authenticate(self, token: str, database: str | None) -> Grant:
        if not database:
            raise AuthError("invalid_auth", "database is required")
        if not token.isascii() or not hmac.compare_digest(token, self._secret):
            raise _invalid_token()
        return Grant(tenant=database, actor=None, is_system=True, via_local_socket=True)


class JwtAuthenticator:
    def __init__(self, keys: JwkSet, clock: Clock, *, audience: str = "", issuer: str = "") -> None:
        self.keys = keys
        self._clock = clock
        self._audience, self._issuer = audience, issuer

    def authenticate(self, token: str, database: str | None) -> Grant:
        if not database:
            raise AuthError("invalid_auth", "database is required")
        claims = self._claims(token)
        expires_at = datetime.fromtimestamp(claims["exp"], self._clock.now().tzinfo)
        actor = claims.get("sub")
        system = claims.get("admin") is True
        known = isinstance(actor, str) or (actor is None and system)
        if claims.get("tenant") != database or not known or expires_at <= self._clock.now():
            raise _invalid_token()
        return Grant(
            tenant=database,
            actor=None if system else actor,
            is_system=system,
            expires_at=expires_at,
            claims={k: v for k, v in claims.items() if k not in ("exp", "iat", "nbf", "jti")},
        )

    def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > _MAX_TOKEN_CHARS:
            raise _invalid_token()
        try:
            found = self.keys.find(jwt.get_unverified_header(token).get("kid"))
            if found is None and self.keys.needs_refresh:
                raise AuthError("busy", "the keys are being refreshed: try again in a moment")
            if found is None:
                raise _invalid_token()
            algorithm, key = found
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience or None,
                issuer=self._issuer or None,
                options={
                    "require": ["exp"],
                    "verify_exp": False,  # checked below against the injected clock
                    "verify_iat": False,
                    "verify_nbf": False,
                    "verify_aud": bool(self._audience),
                    "verify_sub": False,
                },
            )
            moment = self._clock.now().timestamp()
            if not float(claims.get("nbf", 0)) <= moment < float(claims["exp"]) < 253_402_300_800:
                raise _invalid_token()
            claims["exp"] = float(claims["exp"])
        except (jwt.PyJWTError, TypeError, ValueError, OverflowError, RecursionError):
            raise _invalid_token() from None
        if not is_portable(claims, MAX_NESTING):
            raise _invalid_token()
        return claims


def _invalid_token() -> AuthError:
    return AuthError("unauthorized", "invalid token")


def make_authenticator(settings: Settings, clock: Clock) -> Authenticator:
    """Return the authenticator that the settings configure. Keys are read now, so that a mistake shows at startup."""
    if not settings.auth_keys:
        return LoopbackAuthenticator()
    keys = JwkSet(load_from(settings.auth_keys, clock), clock)
    return JwtAuthenticator(keys, clock, audience=settings.auth_audience, issuer=settings.auth_issuer)
