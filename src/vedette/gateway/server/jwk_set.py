"""Verification keys: a JWK set from a file or URL, refreshed periodically.

A token with an unknown key id may be signed with a key newer than the cached set. The client is asked to retry and the
set is refreshed, at most once per `MIN_REFRESH_SECONDS`, so that invented key ids cost little. If the refresh fails,
the known keys stay in use. `PyJWKClient` is not used: it fetches on the calling thread and bounds neither size nor
redirects.
"""

from __future__ import annotations

import asyncio
import json
import logging
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

__all__ = ["MIN_REFRESH_SECONDS", "JwkSet", "load_from", "refresh_periodically"]

log = logging.getLogger(__name__)

_ALGORITHMS: Mapping[str, str] = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}
REFRESH_SECONDS = 300.0
MIN_REFRESH_SECONDS = 10.0
_TIMEOUT_SECONDS = 5.0
"""Timeout of one read, and of the whole response."""
_MAX_BYTES = 1_048_576
"""Maximum size of a key set."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class JwkSet:
    """Public or shared keys by id. `load` may be called from any thread, one call at a time."""

    def __init__(self, load: Callable[[], Any], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._lock = Lock()
        self._keys: dict[str | None, tuple[str, Any]] = {}
        self._unknown_key_requested = False
        """True if an unknown key id was requested since the last refresh."""
        self._refreshed_at = clock.monotonic()
        self.refresh()

    def refresh(self) -> None:
        """Read the set again. Raise SettingsError if it is invalid; the known keys then stay in use."""
        with self._lock:
            self._refreshed_at, self._unknown_key_requested = self._clock.monotonic(), False
            self._keys = _read_keys(self._load())

    @property
    def needs_refresh(self) -> bool:
        """True if the set is due for a refresh."""
        age = self._clock.monotonic() - self._refreshed_at
        return age > REFRESH_SECONDS or (self._unknown_key_requested and age > MIN_REFRESH_SECONDS)

    def find(self, kid: str | None) -> tuple[str, Any] | None:
        """Return algorithm and key, or None. A token may omit its `kid` if the set has a single key."""
        found = self._keys.get(kid)
        if found is None and kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        self._unknown_key_requested = self._unknown_key_requested or found is None
        return found


def load_from(location: str, clock: Clock) -> Callable[[], Any]:
    """Return a function that reads the key set from a file or URL."""
    return _from_url(location, clock) if "://" in location else _from_file(Path(location))


def _from_file(path: Path) -> Callable[[], Any]:
    def load() -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _unusable(f"{path} cannot be read: {type(error).__name__}") from error

    return load


def _is_safe(url: str) -> bool:
    """Return True for https or loopback URLs. Anyone who can answer for the key server can sign tokens."""
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
            raise URLError("redirected to a URL without https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _from_url(url: str, clock: Clock) -> Callable[[], Any]:
    if not _is_safe(url):
        raise _unusable("the URL of a key set must use https")
    opener = build_opener(_SafeRedirects)

    def load() -> Any:
        try:
            request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - checked above
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return json.loads(_read_bounded(answer, clock))
        except (HTTPException, OSError, ValueError, RecursionError) as error:  # URLError is an OSError
            raise _unusable(f"{url} cannot be read: {_describe(error)}") from error

    return load


def _read_bounded(answer: Any, clock: Clock) -> bytes:
    """Read the whole response, bounded in size and time."""
    end, data = clock.monotonic() + _TIMEOUT_SECONDS, bytearray()
    while part := answer.read1(65_536):
        data += part
        if len(data) > _MAX_BYTES:
            raise ValueError(f"the response exceeds {_MAX_BYTES} bytes")
        if clock.monotonic() > end:
            raise TimeoutError(f"the response takes longer than {_TIMEOUT_SECONDS:g} s")
    return bytes(data)


def _describe(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "the response is not valid JSON"
    reason = getattr(error, "reason", None)
    return str(reason if isinstance(reason, str) else error) or type(error).__name__


def _read_keys(document: Any) -> dict[str | None, tuple[str, Any]]:
    keys: dict[str | None, tuple[str, Any]] = {}
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise _unusable('a JWK set must be an object {"keys": […]}')
    for number, item in enumerate(listed):
        kind = item.get("kty") if isinstance(item, dict) else None
        algorithm = _ALGORITHMS.get(str(kind))
        if algorithm is None or item.get("alg", algorithm) != algorithm or item.get("use", "sig") != "sig":
            continue  # a set may hold keys for other purposes
        kid = item.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise _unusable(f"the kid of key {number} is not a string")
        try:
            key = jwt.PyJWK.from_dict(item, algorithm=algorithm)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            raise _unusable(f"key {number} is invalid: {type(error).__name__}") from error
        keys[kid] = (algorithm, key.key)
    if not keys:
        raise _unusable("the set has no key for HS256, RS256 or EdDSA (Ed25519)")
    return keys


def _unusable(reason: str) -> SettingsError:
    text = f"The setting 'auth_keys' cannot be used: {reason}"
    return SettingsError("E0101", text, fields={"setting": "auth_keys"})


async def refresh_periodically(keys: JwkSet, every_seconds: float = 1.0) -> None:
    """Refresh the key set whenever it is due, until cancelled. If a refresh fails, the known keys stay in use."""
    while True:
        await asyncio.sleep(every_seconds)
        if not keys.needs_refresh:
            continue
        try:
            await asyncio.to_thread(keys.refresh)
        except SettingsError as error:
            log.warning(
                "The key set could not be refreshed; the known keys stay in use: %s",
                error,
                extra={"action": "auth.key_refresh_failed"},
            )
