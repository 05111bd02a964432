"""Authenticators: the loopback context, the secret of the data directory, and JSON Web Tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import jwt
import pytest

from vedette.gateway.server.auth import (
    AuthError,
    JwtAuthenticator,
    LoopbackAuthenticator,
    SecretAuthenticator,
)
from vedette.gateway.server.jwk_set import JwkSet
from vedette.testing import ManualClock

KEY = "k" * 32
JWK = {"kty": "oct", "kid": "one", "k": "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"}


def token(clock: ManualClock, **claims: Any) -> str:
    expires = (clock.now() + timedelta(seconds=60)).timestamp()
    payload = {"tenant": "shop", "sub": "u1", "exp": expires, **claims}
    return jwt.encode(payload, KEY, "HS256", headers={"kid": "one"})


def authenticator(clock: ManualClock) -> JwtAuthenticator:
    return JwtAuthenticator(JwkSet(lambda: {"keys": [JWK]}, clock), clock)


def test_a_token_names_its_database_and_actor():
    clock = ManualClock()
    grant = authenticator(clock).authenticate(token(clock, level=3), "shop")
    assert (grant.tenant, grant.actor, grant.is_system) == ("shop", "u1", False)
    assert grant.claims == {"tenant": "shop", "sub": "u1", "level": 3}
    assert grant.expires_at == clock.now() + timedelta(seconds=60)


def test_an_administrator_has_the_system_context():
    clock = ManualClock()
    grant = authenticator(clock).authenticate(token(clock, admin=True), "shop")
    assert (grant.actor, grant.is_system) == (None, True)


@pytest.mark.parametrize("claims", [{"tenant": "other"}, {"sub": 5}, {"exp": 1}, {"nbf": 9e9}, {"sub": None}])
def test_a_token_that_does_not_fit_is_refused_with_the_same_text(claims: dict[str, Any]):
    clock = ManualClock()
    with pytest.raises(AuthError) as failed:
        authenticator(clock).authenticate(token(clock, **claims), "shop")
    assert (failed.value.code, failed.value.text) == ("unauthorized", "invalid token")


@pytest.mark.parametrize("made", [LoopbackAuthenticator(), SecretAuthenticator(b"s" * 32)])
def test_a_database_is_required(made: LoopbackAuthenticator | SecretAuthenticator):
    with pytest.raises(AuthError, match="database is required"):
        made.authenticate("", None)


def test_the_secret_of_the_directory_gives_the_system_context():
    made = SecretAuthenticator(b"s" * 32)
    grant = made.authenticate((b"s" * 32).hex(), "shop")
    assert (grant.is_system, grant.via_local_socket) == (True, True)
    with pytest.raises(AuthError, match="invalid token"):
        made.authenticate("é", "shop")
