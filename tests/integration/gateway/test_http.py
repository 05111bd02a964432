"""The HTTP API and server-sent events, requested with the standard library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.gateway_server import Serving
from vedette.control.status import STATUS_FILE, PartitionSummary, PipelineStatus


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data") as server:
        server.vedette.define("node Task { n: Int = 0 }")
        yield server


def get(server: Serving, path: str, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def post(server: Serving, path: str, body: Any, kind: str = "application/json") -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, body=data, headers={"Content-Type": kind})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


class Events:
    """A stream of server-sent events."""

    def __init__(self, server: Serving, path: str, **headers: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        self._connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        self.answer: HTTPResponse = self._connection.getresponse()
        self.last_id = ""

    def next(self) -> dict[str, Any]:
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("data: "):
                found: dict[str, Any] = json.loads(line[6:])
                return found

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def test_health_readiness_and_metrics(server: Serving):
    assert get(server, "/health") == (200, b'{"status":"ok"}')
    assert get(server, "/ready")[0] == 200
    status, text = get(server, "/metrics")
    assert status == 200
    assert b'vedette_connections{gateway="engine"} 0.0' in text
    assert b"vedette_pipeline" not in text, "there is none"


def test_the_front_page_is_the_console_for_browsers_and_an_index_for_others(server: Serving):
    status, words = get(server, "/")
    assert (status, b"/v1/databases/{database}/execute" in words) == (200, True)
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    connection.request("GET", "/", headers={"Accept": "text/html,application/xhtml+xml"})
    answer = connection.getresponse()
    assert b"/static/console.js" in answer.read()
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    for file in ("console.js", "console.css", "vedette.js"):
        assert get(server, f"/static/{file}")[0] == 200
    connection.close()


def test_server_information_for_the_console(server: Serving, tmp_path: Path):
    found = json.loads(get(server, "/v1/server")[1])
    assert found == {"webSocketPort": server.port, "secure": False, "tokens": False, "databases": ["default"]}
    keys = {"keys": [{"kty": "oct", "k": "A" * 43}]}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    with Serving(tmp_path / "guarded", auth_keys=str(tmp_path / "keys.json")) as guarded:
        found = json.loads(get(guarded, "/v1/server")[1])
        assert found == {"webSocketPort": guarded.port, "secure": False, "tokens": True}


def test_metrics_include_the_pipeline_status(server: Serving, tmp_path: Path):
    partition = PartitionSummary(
        partition=1,
        source="shop",
        lag_changes=3,
        lag_seconds=0.5,
        delivery_p99_seconds=0.2,
        state="live",
        mode="normal",
    )
    status = PipelineStatus(state="running", totals={"changes": 7}, partitions=[partition])
    (tmp_path / "data" / STATUS_FILE).write_bytes(msgspec.json.encode(status))
    text = get(server, "/metrics")[1]
    assert b"vedette_pipeline_changes_total 7.0" in text
    assert b'vedette_pipeline_partition_lag_changes{partition="1",source="shop"} 3.0' in text


def test_statements(server: Serving):
    path = "/v1/databases/default/execute"
    assert (
        post(server, path, {"statement": "SPAWN t: Task { n = $n }", "params": {"n": 3}})[1]["created"] == 1
    )
    assert post(server, path, {"statement": "MATCH t: Task RETURN t.n"})[1]["rows"] == [[3]]
    assert post(server, "/v1/databases/default/define", {"ontology": "node X { n: Int }"})[0] == 200
    status, body = post(server, path, {"statement": "MATCH t: Nothing RETURN t"})
    assert (status, body["error"]["code"]) == (400, "E2001")
    assert server.on_loop(lambda: len(server.service.router.connections)) == 0


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"{}", "text/plain"),
        (b"{}", "application/json"),
    ],
)
def test_bad_bodies(server: Serving, body: bytes, kind: str):
    status, answer = post(server, "/v1/databases/default/execute", body, kind)
    assert (status, answer["error"]["code"]) == (400, "invalid_payload")


def test_other_origins_and_host_names_are_refused(server: Serving):
    assert get(server, "/health", Origin="https://elsewhere.example")[0] == 403
    assert get(server, "/health", Host="rebound.example")[0] == 403
    assert get(server, "/health", Origin=f"http://127.0.0.1:{server.http_port}")[0] == 200


def test_only_allowed_origins_get_cors_headers(server: Serving):
    """A browser sends a preflight, and lets a page read the response only if its headers allow it."""
    own, other = f"http://127.0.0.1:{server.http_port + 1}", "https://elsewhere.example"
    for method in ("GET", "OPTIONS"):
        for origin, delivered in ((own, own), (other, None), ("null", None), ("", None)):
            connection = HTTPConnection("127.0.0.1", server.http_port, timeout=60)
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"} if origin else {}
            connection.request(method, "/health", headers=headers)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            assert answer.getheader("Access-Control-Allow-Origin") == delivered, (method, origin)
            assert answer.getheader("Access-Control-Allow-Credentials") is None
    assert b"/realtime/v1" in get(server, "/")[1]


def test_events_and_resuming_with_last_event_id(server: Serving):
    path = "/realtime/sse?database=default&collection=Task"
    events = Events(server, path)
    assert events.answer.getheader("Content-Type", "").startswith("text/event-stream")
    assert events.next()["type"] == "subscribe_ack"
    with server.vedette.session() as session:
        session.execute("SPAWN t: Task { n = 1 }")
        assert events.next()["payload"]["delta"]["document"]["n"] == 1
        last = events.last_id
        events.close()
        session.execute("SPAWN t: Task { n = 2 }")
        again = Events(server, "/realtime/v1/databases/default/sse?collection=Task", Last_Event_ID=last)
        assert again.next()["status"] == "ok"
        assert again.next()["payload"]["delta"]["document"]["n"] == 2
        again.close()


def test_a_failed_resume_is_reported_before_the_new_subscription(server: Serving):
    events = Events(
        server, "/realtime/sse?database=default&watch=WATCH%20t:%20Task%20RETURN%20t.n", Last_Event_ID="x"
    )
    refused, ack, initial = (events.next() for _ in range(3))
    assert (refused["type"], refused["status"]) == ("resume-ack", "resync-required")
    assert ack["type"] == "subscribe_ack"
    assert initial["payload"]["payload"]["type"] == "initial"
    events.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/realtime/sse?database=default&collection=Nothing", 400),
        ("/realtime/sse?collection=Task", 400),
        ("/realtime/sse?database=default&collection=Task&token=x", 401),
        ("/realtime/sse?database=default&watch=WATCH&params=x", 400),
    ],
)
def test_invalid_server_sent_event_requests_are_refused(server: Serving, path: str, status: int):
    assert get(server, path)[0] == status
