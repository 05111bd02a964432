"""The keys that tokens may be signed with: a JWK set, from a file or an address, read again from time to time.

A token that names an unknown key may be signed with a key that is newer than our copy of the set. The client is asked
to try again, and the set is read again, at most once per `MIN_REFRESH_SECONDS`: invented key names must cost little. If
the set cannot be read, the known keys stay in force.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from threading import Lock
from typing import IO, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import jwt

from vedette.clock import Clock
from vedette.errors import SettingsError

__all__ = ["MIN_REFRESH_SECONDS", "KeySet", "load_from"]

_ALGORITHMS: Mapping[str, str] = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}
REFRESH_SECONDS = 300.0
MIN_REFRESH_SECONDS = 10.0
_PATIENCE_SECONDS = 5.0
"""For one answer of a server, and for all of it."""
_LARGEST = 1_048_576
"""Bytes of a key set."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class KeySet:
    """Public or shared keys by id. `load` is asked from any thread, one at a time."""

    def __init__(self, load: Callable[[], Any], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._lock = Lock()
        self._keys: dict[str | None, tuple[str, Any]] = {}
        self._missed = False
        """Whether a key was asked for that is not here."""
        self._tried_at = clock.monotonic()
        self.refresh()

    def refresh(self) -> None:
        """Read the set again; raises SettingsError when it is none, and the known keys stay."""
        with self._lock:
            self._tried_at, self._missed = self._clock.monotonic(), False
            self._keys = _read_keys(self._load())

    @property
    def needs_refresh(self) -> bool:
        """Whether it is time to read it again."""
        age = self._clock.monotonic() - self._tried_at
        return age > REFRESH_SECONDS or (self._missed and age > MIN_REFRESH_SECONDS)

    def find(self, kid: str | None) -> tuple[str, Any] | None:
        """The algorithm and the key. A token may leave its `kid` out when there is one key only."""
        found = self._keys.get(kid)
        if found is None and kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        self._missed = self._missed or found is None
        return found


def load_from(place: str, clock: Clock) -> Callable[[], Any]:
    """How to read the set that a file or an address has."""
    return _from_url(place, clock) if "://" in place else _from_file(Path(place))


def _from_file(path: Path) -> Callable[[], Any]:
    def load() -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _unusable(f"{path} cannot be read: {type(error).__name__}") from error

    return load


def _is_safe(url: str) -> bool:
    """Whoever could answer in the server's place would let anyone in: https, or this very machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    except ValueError:
        return False


class _SafeRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not _is_safe(newurl):
            raise URLError("it sends on to an address without https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _from_url(url: str, clock: Clock) -> Callable[[], Any]:
    if not _is_safe(url):
        raise _unusable("a key set comes over https")
    opener = build_opener(_SafeRedirects)

    def load() -> Any:
        try:
            request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - checked above
            with opener.open(request, timeout=_PATIENCE_SECONDS) as answer:
                return json.loads(_whole(answer, clock))
        except (HTTPException, OSError, ValueError, RecursionError) as error:  # URLError is an OSError
            raise _unusable(f"{url} cannot be read: {_words(error)}") from error

    return load


def _whole(answer: Any, clock: Clock) -> bytes:
    """All of an answer, which is neither huge nor endless."""
    end, data = clock.monotonic() + _PATIENCE_SECONDS, bytearray()
    while part := answer.read1(65_536):
        data += part
        if len(data) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} bytes")
        if clock.monotonic() > end:
            raise TimeoutError(f"it takes longer than {_PATIENCE_SECONDS:g} s")
    return bytes(data)


def _words(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "it is no JSON"
    reason = getattr(error, "reason", None)
    return str(reason if isinstance(reason, str) else error) or type(error).__name__


def _read_keys(document: Any) -> dict[str | None, tuple[str, Any]]:
    keys: dict[str | None, tuple[str, Any]] = {}
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise _unusable('a JWK set is an object {"keys": […]}')
    for number, item in enumerate(listed):
        kind = item.get("kty") if isinstance(item, dict) else None
        algorithm = _ALGORITHMS.get(str(kind))
        if algorithm is None or item.get("alg", algorithm) != algorithm or item.get("use", "sig") != "sig":
            continue  # a set may hold keys for other things
        kid = item.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise _unusable(f"the kid of key {number} is no text")
        try:
            key = jwt.PyJWK.from_dict(item, algorithm=algorithm)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            raise _unusable(f"key {number} is none: {type(error).__name__}") from error
        keys[kid] = (algorithm, key.key)
    if not keys:
        raise _unusable("there is no key for HS256, RS256 or EdDSA (Ed25519) in the set")
    return keys


def _unusable(why: str) -> SettingsError:
    text = f"The setting 'auth_keys' cannot be used: {why}"
    return SettingsError("E0101", text, fields={"setting": "auth_keys"})
