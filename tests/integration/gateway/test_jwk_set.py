"""Key sets from a URL: rotated, unreachable, huge, endless, redirected; and server-sent events whose token expires."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest

from tests.integration.gateway.test_http import Events
from tests.support.gateway_server import Serving
from tests.support.gateway_wire import Wire
from tests.support.jumping_clock import JumpingClock
from tests.support.signing import KEYS, key_pairs, token
from vedette.clock import SystemClock
from vedette.errors import SettingsError
from vedette.gateway.server import jwk_set
from vedette.gateway.server.auth import JwtAuthenticator
from vedette.gateway.server.jwk_set import (
    MIN_REFRESH_SECONDS,
    REFRESH_SECONDS,
    JwkSet,
    load_from,
    refresh_periodically,
)
from vedette.testing import ManualClock

SET = json.dumps({"keys": [jwk for _, jwk in KEYS.values()]}).encode()


class Provider:
    """An identity provider on the loopback address; `answer` says what it does."""

    def __init__(self) -> None:
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.gives(SET)
        self.asked = 0
        provider = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                provider.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        Thread(target=self._server.serve_forever, daemon=True).start()

    @staticmethod
    def gives(data: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(data)

        return answer

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


def keys_of(provider: Provider, clock: ManualClock) -> JwkSet:
    return JwkSet(load_from(provider.url, SystemClock()), clock)


def test_keys_are_read_from_a_url(provider: Provider):
    keys = keys_of(provider, ManualClock())
    assert {name: found[0] for name in ("h", "r", "e") if (found := keys.find(name))} == {
        "h": "HS256",
        "r": "RS256",
        "e": "EdDSA",
    }


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Provider.gives(b"no json"), "the response is not valid JSON"),
        (Provider.gives(b"[]"), "must be an object"),
        (Provider.gives(b'{"keys": []}'), "no key for"),
        (Provider.gives(b'{"keys": [{"kty": "oct", "k": 7}]}'), "key 0 is invalid"),
        (Provider.gives(b'{"keys": [{"kty": "oct", "k": "eA", "kid": {}}]}'), "the kid of key 0"),
        (Provider.gives(b"[" * 100_000), "the response is not valid JSON"),
        (Provider.gives(b" " * 1_100_000 + SET), "exceeds 1048576 bytes"),
        (Provider.gives(b"", 404), "Not Found"),
        (Provider.gives(b"", 302, Location="http://elsewhere.example/keys"), "without https"),
        (Provider.gives(b"", 302, Location="ftp://127.0.0.1/keys"), "without https"),
        (Provider.gives(b"", 302, Location="file:///etc/passwd"), "file:///etc/passwd|without https"),
        (Provider.gives(b"", 302, Location="http://127.0.0.1.elsewhere.example/"), "without https"),
    ],
)
def test_an_invalid_key_set_stops_the_start_with_the_reason(provider: Provider, answer: Any, reason: str):
    provider.answer = answer
    with pytest.raises(SettingsError, match=f"auth_keys.*({reason})"):
        keys_of(provider, ManualClock())


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/keys",
        "http://127.0.0.1.example.com/",
        "http://localhost.example.com/",
        "http://[/",
        "x://y",
    ],
)
def test_a_key_url_without_https_must_be_loopback(url: str):
    with pytest.raises(SettingsError, match="https"):
        load_from(url, SystemClock())


def test_an_endless_key_set_response_is_aborted(provider: Provider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jwk_set, "_TIMEOUT_SECONDS", 0.2)

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        with suppress(OSError):  # until the client disconnects
            while True:
                request.wfile.write(b" ")
                request.wfile.flush()

    provider.answer = drip
    with pytest.raises(SettingsError, match=r"longer|bytes"):
        keys_of(provider, ManualClock())


def test_known_keys_stay_in_use_while_the_url_is_unreachable(provider: Provider):
    clock = ManualClock()
    keys = keys_of(provider, clock)
    provider.answer = Provider.gives(b"", 500)
    with pytest.raises(SettingsError, match="cannot be read"):
        keys.refresh()
    provider.close()
    with pytest.raises(SettingsError, match="cannot be read"):
        keys.refresh()
    assert keys.find("h") is not None
    clock.advance(REFRESH_SECONDS + 1)
    assert keys.needs_refresh


def test_a_new_key_is_read_soon_and_invented_key_ids_cause_few_requests(provider: Provider):
    clock = ManualClock()
    clock.advance(10**9)  # the tokens below are for now
    fresh = key_pairs()["EdDSA"]
    keys = keys_of(provider, clock)
    authenticator = JwtAuthenticator(keys, clock)
    wire = Wire(authenticator=authenticator, clock=clock)
    signed = jwt.encode(
        {"tenant": "shop", "admin": True, "exp": 2**33}, fresh[0], "EdDSA", headers={"kid": "new"}
    )

    def shown() -> dict[str, Any]:
        client = wire.client("")
        answer = client.ask("auth", {"token": signed, "database": "shop"})
        return {"type": answer["type"], **answer["payload"]}

    async def read_again() -> None:
        reading = asyncio.create_task(refresh_periodically(authenticator.keys, every_seconds=0.001))
        asked = provider.asked
        while provider.asked == asked:  # noqa: ASYNC110 - another thread asks
            await asyncio.sleep(0.001)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    assert shown()["code"] == "unauthorized", "the set was read a moment ago"
    provider.answer = Provider.gives(json.dumps({"keys": [{**fresh[1], "kid": "new"}]}).encode())
    clock.advance(MIN_REFRESH_SECONDS + 1)
    assert (shown()["code"], shown()["retryable"]) == ("busy", True)
    asyncio.run(read_again())
    assert shown()["type"] == "auth_ack"
    for _ in range(50):
        keys.find("invented")
    assert not keys.needs_refresh, "and who invents names waits"
    wire.close()


def test_server_sent_events_end_when_the_token_expires(tmp_path: Path):
    """Later events are not sent, and the client gets the reason."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(SET)
    clock = JumpingClock()
    with Serving(tmp_path / "data", auth_keys=str(keys), clock=clock) as server:
        server.vedette.database("shop").define("node Task { n: Int = 0 }")
        path = "/realtime/sse?database=shop&collection=Task"
        durable = Events(server, path, Authorization=f"Bearer {token(seconds=3_600)}")
        ending = Events(server, path, Authorization=f"Bearer {token(seconds=600)}")
        assert [durable.next()["type"], ending.next()["type"]] == ["subscribe_ack", "subscribe_ack"]
        with server.vedette.database("shop").session() as session:
            session.execute("SPAWN t: Task { n = 1 }")
            assert ending.next()["payload"]["delta"]["document"]["n"] == 1
            clock.jump_wall(600)
            session.execute("SPAWN t: Task { n = 2 }")
            status = ending.next()
            assert (status["type"], status["payload"]["reason"]) == ("status", "auth")
            assert ending.answer.read().strip() == b"", "the stream has ended"
        assert [durable.next()["payload"]["delta"]["document"]["n"] for _ in range(2)] == [1, 2]
        durable.close()
        ending.close()
