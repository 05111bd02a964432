"""Keys and tokens like those of an identity provider."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

__all__ = ["KEYS", "key_pairs", "token"]


def key_pairs() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Algorithm ▸ the signing key, and its public key as a JWK."""
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ed_key = ed25519.Ed25519PrivateKey.generate()
    rsa_jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key.public_key()))
    ed_jwk = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(ed_key.public_key()))
    secret = os.urandom(32)
    shared = json.loads(jwt.algorithms.HMACAlgorithm.to_jwk(secret))
    return {
        "HS256": (secret, {**shared, "kid": "h"}),
        "RS256": (rsa_key, {**rsa_jwk, "kid": "r"}),
        "EdDSA": (ed_key, {**ed_jwk, "kid": "e"}),
    }


KEYS = key_pairs()


def token(algorithm: str = "HS256", seconds: float = 3_600, **claims: Any) -> str:
    key, jwk = KEYS[algorithm]
    expires = datetime.now(UTC) + timedelta(seconds=seconds)
    return jwt.encode(
        {"tenant": "shop", "admin": True, "exp": expires, **claims},
        key,
        algorithm,
        headers={"kid": jwk["kid"]},
    )
