"""The server on real sockets, with clients of others: websockets, websocat, raw bytes."""

from __future__ import annotations

import hmac
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from tests.support.gateway_server import Serving
from tests.support.jumping_clock import JumpingClock
from tests.support.signing import KEYS, token
from vedette.client.blocking import connect_sync
from vedette.errors import GatewayError, SettingsError
from vedette.gateway.limits import GatewayLimits
from vedette.gateway.server.access import origin_allowed, require_auth_or_loopback

ONTOLOGY = "node Task { n: Int = 0 } node Person { name: String }"


def say(socket: ClientConnection, type: str, payload: Any = None, id: str | None = None) -> None:
    socket.send(json.dumps({"type": type, "id": id, "payload": payload}))


def hear(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(socket.recv(timeout=60))
    return message if message["type"] != "heartbeat" else hear(socket)


def ask(socket: ClientConnection, type: str, payload: Any = None) -> dict[str, Any]:
    say(socket, type, payload, "q")
    while (message := hear(socket)).get("id") != "q":
        pass
    return message


@contextmanager
def join(
    server: Serving, database: str = "default", token: str = "", **options: Any
) -> Iterator[ClientConnection]:
    with connect(f"{server.url}/realtime/ws", **options) as socket:
        assert ask(socket, "auth", {"token": token, "database": database})["type"] == "auth_ack"
        yield socket


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data") as server:
        yield server


def test_two_clients_get_one_event(server: Serving):
    with join(server) as writer, join(server) as reader:
        assert ask(writer, "define", {"ontology": ONTOLOGY})["type"] == "define_ack"
        say(reader, "subscribe", {"watch": "WATCH t: Task RETURN t.n"}, "s")
        assert [hear(reader)["type"] for _ in range(2)] == ["subscribe_ack", "event"]
        assert ask(writer, "execute", {"statement": "SPAWN t: Task { n = 7 }"})["payload"]["created"] == 1
        assert hear(reader)["payload"]["payload"]["match"] == {"t.n": 7}


def test_fragments_and_large_messages(server: Serving):
    with join(server) as client:
        assert ask(client, "define", {"ontology": "node T { s: String }"})["type"] == "define_ack"
        text = json.dumps(
            {
                "type": "execute",
                "id": "q",
                "payload": {"statement": "SPAWN t: T { s = $s }", "params": {"s": "x" * 300_000}},
            }
        )
        client.send([text[i : i + 10_000] for i in range(0, len(text), 10_000)])
        assert hear(client)["payload"]["created"] == 1
        rows = ask(client, "execute", {"statement": "MATCH t: T RETURN t.s"})["payload"]["rows"]
        assert len(rows[0][0]) == 300_000


def test_frames_may_arrive_in_any_pieces(server: Serving):
    """Every byte arrives alone: the parser is released between messages only."""
    with join(server) as client:
        for pieces in (1, 2, 3, 5):
            text = json.dumps(
                {
                    "type": "execute",
                    "id": f"p{pieces}",
                    "payload": {"statement": "BEGIN" if pieces == 1 else "MATCH s: _Session RETURN COUNT(*)"},
                }
            )
            frame = Frame(Opcode.TEXT, text.encode()).serialize(mask=True)
            for start in range(0, len(frame), pieces):
                client.socket.sendall(frame[start : start + pieces])
                client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert hear(client)["id"] == f"p{pieces}"


def test_frames_before_auth_have_a_lower_limit(server: Serving):
    with connect(f"{server.url}/realtime/ws") as client:
        client.send("x" * 100_000)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_binary_frames_are_errors(server: Serving):
    with join(server) as client:
        client.send(b"\x00\x01")
        assert hear(client)["payload"]["code"] == "invalid_frame"
        assert ask(client, "execute", {"statement": "BEGIN"})["type"] == "result"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 404),
        ("/realtime/ws?token=x", {}, 401),
        ("/realtime/ws?access_token=x", {}, 401),
        ("/realtime/ws", {"Origin": "https://elsewhere.example"}, 403),
    ],
)
def test_invalid_upgrades_are_refused(server: Serving, path: str, headers: dict[str, str], status: int):
    with pytest.raises(InvalidStatus) as refused, connect(f"{server.url}{path}", additional_headers=headers):
        pass
    assert refused.value.response.status_code == status


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "guarded", "fine"),
    [
        (None, "a", (), False, True),
        ("http://localhost:7708", "localhost:7707", (), False, True),
        ("http://127.0.0.1:7708", "127.0.0.1:7707", (), False, True),
        ("http://evil.example", "evil.example:7707", (), False, False),  # a name that was made to point here
        ("https://app.example", "app.example", (), True, True),
        ("https://other.example", "app.example", (), True, False),
        ("https://other.example", "app.example", ("https://other.example",), True, True),
        ("null", "localhost", (), False, False),
    ],
)
def test_origins(origin: str | None, host: str, allowed: tuple[str, ...], guarded: bool, fine: bool):
    assert origin_allowed(origin, host, allowed, requires_auth=guarded) is fine


def test_without_authentication_only_loopback_is_served():
    require_auth_or_loopback("127.0.0.1", requires_auth=False)
    require_auth_or_loopback("::1", requires_auth=False)
    require_auth_or_loopback("0.0.0.0", requires_auth=True)
    with pytest.raises(SettingsError, match="auth_keys"):
        require_auth_or_loopback("0.0.0.0", requires_auth=False)


def test_garbage_on_one_socket_does_not_affect_others(server: Serving):
    with join(server) as bystander:
        for garbage in (
            b"",
            b"\x00" * 5000,
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET " + b"x" * 100_000,
            os.urandom(3000),
        ):
            with socket.create_connection(("127.0.0.1", server.port)) as raw:
                raw.sendall(garbage)
        with connect(f"{server.url}/realtime/ws") as client:
            client.socket.sendall(b"\xff\xff\xff\xff")  # no frame
        assert ask(bystander, "execute", {"statement": "BEGIN"})["type"] == "result"


def test_a_stalled_client_does_not_affect_others(tmp_path: Path):
    limits = GatewayLimits(outbox_high_bytes=65_536, outbox_low_bytes=16_384)
    with ExitStack() as stack:
        server = stack.enter_context(Serving(tmp_path / "data", limits=limits))
        writer, reader = stack.enter_context(join(server)), stack.enter_context(join(server))
        assert ask(writer, "define", {"ontology": "node T { s: String, n: Int }"})["type"] == "define_ack"
        stuck = stack.enter_context(join(server, max_queue=1))
        for client in (reader, stuck):
            say(client, "subscribe", {"watch": "WATCH t: T [initial: none] RETURN t.s, t.n"}, "s")
            assert hear(client)["type"] == "subscribe_ack"
        for n in range(400):
            params = {"s": "x" * 20_000, "n": n}
            answer = ask(writer, "execute", {"statement": "SPAWN t: T { s = $s, n = $n }", "params": params})
            assert answer["type"] == "result"
            assert hear(reader)["payload"]["payload"]["match"]["t.n"] == n
        assert server.on_loop(lambda: server.service.server.sockets.buffers.outbox_bytes) < 20 * 65_536
        got = [hear(stuck)["payload"]["payload"]["match"]["t.n"] for _ in range(400)]
        assert got == list(range(400)), "brought up from the window, in order"


def test_a_stalled_client_is_disconnected(tmp_path: Path):
    limits = GatewayLimits(outbox_high_bytes=4096, outbox_low_bytes=1024, stalled_seconds=0.2)
    with ExitStack() as stack:
        server = stack.enter_context(Serving(tmp_path / "data", limits=limits))
        writer = stack.enter_context(join(server))
        assert ask(writer, "define", {"ontology": "node T { s: String }"})["type"] == "define_ack"
        stuck = stack.enter_context(join(server, max_queue=1))
        say(stuck, "subscribe", {"watch": "WATCH t: T [initial: none] RETURN t.s"}, "s")
        assert hear(stuck)["type"] == "subscribe_ack"
        connections = 2
        while connections == 2:
            statement = {"statement": "SPAWN t: T { s = $s }", "params": {"s": "x" * 100_000}}
            assert ask(writer, "execute", statement)["type"] == "result"
            connections = server.on_loop(lambda: len(server.service.router.connections))
        assert connections == 1


def test_a_connection_without_auth_is_closed(tmp_path: Path):
    clock, limits = JumpingClock(), GatewayLimits(auth_seconds=600.0)
    with (
        Serving(tmp_path / "data", limits=limits, clock=clock) as server,
        connect(f"{server.url}/realtime/ws") as client,
    ):
        clock.jump(limits.auth_seconds)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4100


def test_connections_above_the_limit_are_refused(tmp_path: Path):
    limits = GatewayLimits(max_connections=2, max_connections_per_tenant=1)
    with (
        Serving(tmp_path / "data", limits=limits) as server,
        join(server, "one"),
        connect(f"{server.url}/realtime/ws") as second,
    ):
        with pytest.raises(InvalidStatus) as refused, connect(f"{server.url}/realtime/ws"):
            pass
        say(second, "auth", {"database": "one"}, "q")
        assert hear(second)["payload"]["code"] == "too_many_connections"
    assert refused.value.response.status_code == 503


def test_draining_asks_clients_to_reconnect(tmp_path: Path):
    with Serving(tmp_path / "data") as server, join(server) as client:
        server.stop()
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4000


def test_heartbeats_are_sent(tmp_path: Path):
    with (
        Serving(tmp_path / "data", limits=GatewayLimits(heartbeat_seconds=0.2)) as server,
        join(server) as client,
    ):
        assert json.loads(client.recv(timeout=60))["type"] == "heartbeat"


def test_websocat_can_connect(server: Serving):
    lines = [
        {"type": "auth", "id": "1", "payload": {"token": "", "database": "default"}},
        {"type": "define", "id": "2", "payload": {"ontology": ONTOLOGY}},
        {"type": "subscribe", "id": "3", "payload": {"watch": "WATCH t: Task RETURN t.n"}},
        {"type": "execute", "id": "4", "payload": {"statement": "SPAWN t: Task { n = 7 }"}},
    ]
    program = Path(sys.executable).parent / "websocat"
    with subprocess.Popen(
        [str(program), f"{server.url}/realtime/ws"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        process.stdin.flush()
        received = [json.loads(process.stdout.readline())["type"] for _ in range(6)]
        process.stdin.close()
        process.terminate()
    assert received == ["auth_ack", "define_ack", "subscribe_ack", "event", "result", "event"]


# Tokens


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def guarded(tmp_path: Path, clock: JumpingClock) -> Iterator[Serving]:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [jwk for _, jwk in KEYS.values()]}))
    with Serving(tmp_path / "data", auth_keys=str(keys), clock=clock) as server:
        server.vedette.database("shop").define(ONTOLOGY)
        yield server


@pytest.mark.parametrize("algorithm", sorted(KEYS))
def test_tokens_of_each_algorithm_are_verified(guarded: Serving, algorithm: str):
    with join(guarded, "shop", token(algorithm)) as client:
        assert ask(client, "execute", {"statement": "SPAWN t: Task { n = 1 }"})["type"] == "result"


def public_key_as_secret() -> str:
    """The classic confusion: an RSA public key used as an HMAC secret."""
    _, jwk = KEYS["RS256"]
    public = jwt.PyJWK(jwk).key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head = jwt.utils.base64url_encode(b'{"alg":"HS256","kid":"r"}')
    claims = jwt.utils.base64url_encode(json.dumps({"tenant": "shop", "admin": True, "exp": 2**33}).encode())
    mac = hmac.digest(public, head + b"." + claims, "sha256")
    return (head + b"." + claims + b"." + jwt.utils.base64url_encode(mac)).decode()


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "a.b.c",
        token()[:-2] + "xx",
        token(seconds=-1),
        token(tenant="other"),
        token(admin=False),
        token(admin="true"),
        token(nbf=2**33),
        jwt.encode({"tenant": "shop", "admin": True, "exp": 2**33}, "", "none"),
        jwt.encode({"tenant": "shop", "admin": True}, KEYS["HS256"][0], "HS256", headers={"kid": "h"}),
        jwt.encode(
            {"tenant": "shop", "admin": True, "exp": 2**33}, KEYS["HS256"][0], "HS256", headers={"kid": "?"}
        ),
        public_key_as_secret(),
        "x" * 20_000,
    ],
)
def test_invalid_tokens_are_refused_with_the_same_text(guarded: Serving, bad: str):
    with connect(f"{guarded.url}/realtime/ws") as client:
        answer = ask(client, "auth", {"token": bad, "database": "shop"})
        assert answer["payload"] == {"code": "unauthorized", "message": "invalid token"}
        assert ask(client, "execute", {"statement": "BEGIN"})["payload"]["code"] == "unauthorized"


def test_the_subject_of_a_token_must_be_an_existing_actor(guarded: Serving):
    with join(guarded, "shop", token()) as admin:
        text = "policy people: ON MATCH(p: Person) ALLOW IF true"
        assert ask(admin, "define", {"ontology": text})["type"] == "define_ack"
        made = ask(admin, "execute", {"statement": 'SPAWN p: Person { name = "Ada" } RETURNING id'})
        ada = made["payload"]["rows"][0][0]
    with join(guarded, "shop", token(sub=ada, admin=False)) as client:
        assert ask(client, "execute", {"statement": "SPAWN t: Task { n = 1 }"})["payload"]["code"] == "E7001"
        assert ask(client, "define", {"ontology": "node X { n: Int }"})["payload"]["code"] == "forbidden"
    with connect(f"{guarded.url}/realtime/ws") as client:
        answer = ask(client, "auth", {"token": token(sub="nobody", admin=False), "database": "shop"})
        assert answer["payload"]["code"] == "E7003"
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4102


def test_an_expired_token_closes_the_connection_unless_refreshed(guarded: Serving, clock: JumpingClock):
    short = token(seconds=600)
    with join(guarded, "shop", short) as expiring, join(guarded, "shop", short) as kept:
        say(expiring, "subscribe", {"watch": "WATCH t: Task RETURN t.n"}, "s")
        assert [hear(expiring)["type"] for _ in range(2)] == ["subscribe_ack", "event"]
        fresh = token(sub="x", seconds=3_600)
        assert ask(kept, "auth", {"token": fresh, "database": "shop"})["type"] == "auth_ack"
        other = ask(kept, "auth", {"token": token(tenant="default"), "database": "default"})
        assert other["payload"]["code"] == "invalid_auth"
        clock.jump_wall(600)
        status = hear(expiring)
        assert (status["type"], status["payload"]["reason"]) == ("status", "auth")
        with pytest.raises(ConnectionClosed) as closed:
            expiring.recv(timeout=60)
        assert ask(kept, "execute", {"statement": "BEGIN"})["type"] == "result"
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4101


def certified(tmp_path: Path) -> dict[str, Any]:
    """Settings for TLS with a certificate of our own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return {"tls_certificate": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}


def test_sockets_without_a_tls_handshake_are_bounded(tmp_path: Path):
    """They have descriptors, and no protocol knows them yet."""
    limits = GatewayLimits(max_connections=1, auth_seconds=120.0)
    server = Serving(tmp_path / "data", limits=limits, **certified(tmp_path))
    server.most_http, server.runner = 65, uvloop.run  # the loop that servers have
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with server:
        for port in (server.port, server.http_port):
            lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(65)]
            with socket.create_connection(("127.0.0.1", port)) as late:
                late.settimeout(60)
                assert late.recv(1) == b"", "one too many is closed at once"
            for line in lines:
                line.close()
            while True:  # until the others have gone
                try:
                    with socket.create_connection(("127.0.0.1", port)) as raw:
                        context.wrap_socket(raw, server_hostname="localhost").close()
                        break
                except OSError:
                    pass


def test_tls_is_optional(tmp_path: Path):
    settings = certified(tmp_path)
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with Serving(tmp_path / "data", **settings) as server:
        url = f"wss://localhost:{server.port}/realtime/ws"
        with (
            socket.create_connection(("127.0.0.1", server.port)) as raw,
            connect(url, sock=raw, ssl=context, server_hostname="localhost") as client,
        ):
            assert ask(client, "auth", {"database": "default"})["type"] == "auth_ack"
        address = f"wss://localhost:{server.port}"
        with connect_sync(address, tls=context) as session:
            assert session.run("BEGIN; ROLLBACK")
        for wrong, why in (
            (address, "certificate verify failed"),
            (f"ws://localhost:{server.port}", "InvalidMessage"),
        ):
            with pytest.raises(GatewayError, match=why), connect_sync(wrong, timeout=1):
                pass
