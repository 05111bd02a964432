"""What a running server logs: the references of its answers, its children's records, and no value of a client."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vedette
from tests.support.signing import KEYS, token
from vedette.client.blocking import connect_sync
from vedette.processes.server_file import read_server_file

PROGRAM = Path(sys.executable).with_name("vedette")
TITLE, NOTE, LITERAL = "parameter-5f1c", "parameter-8a2e", "literal-77b0"
ONTOLOGY = """
node User
node Board { title: String [unique], note: String?, n: Int? }
policy watching: ON META SPAWN(_Watch) ALLOW IF true
policy reading: ON MATCH(b: Board) ALLOW IF true
policy writing: ON SPAWN(b: Board) ALLOW IF 1 / b.n = 1
"""
FAULT = """
import vedette.gateway.broker.statements as statements

build = statements.result_message

def fail(result, id, limit):
    if "boom" in result.columns:
        raise RuntimeError(f"cannot encode {result.rows}")
    return build(result, id, limit)

statements.result_message = fail
"""


class Server:
    """A server in a process of its own; its two outputs are read as they come."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "fault").mkdir(exist_ok=True)
        (folder / "fault" / "sitecustomize.py").write_text(FAULT)
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--http-port", "0", "--no-pipeline", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder / "fault")},
        )
        self.out: list[str] = []
        self.log: list[str] = []
        self._arrived = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.log))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._arrived:
                lines.append(line.rstrip("\n"))
                self._arrived.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(condition, 60), "\n".join([*self.out, *self.log])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        """Both outputs end when the last child has ended."""
        for reader in self._readers:
            reader.join(60)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Server]:
    server = Server(folder, *arguments)
    try:
        server.wait_for(lambda: any("vedette shell" in line for line in server.out))
        yield server
    finally:
        server.kill()


def reference_of(problem: Exception) -> str:
    return str(problem).rsplit(" ", 1)[-1]


def address(folder: Path) -> str:
    found = read_server_file(folder / "data")
    assert found is not None
    return f"ws://127.0.0.1:{found.port}"


@pytest.mark.parametrize("format", ["text", "json"])
def test_reference_of_an_internal_error_is_in_the_log(folder: Path, format: str) -> None:
    with running(folder, "--log-format", format) as server:
        with connect_sync(address(folder)) as client:
            client.define("node Board { title: String }")
            client.execute("SPAWN b: Board { title = $title }", title=TITLE)
            with pytest.raises(vedette.VedetteError, match="see the server log, reference") as failed:
                client.execute("MATCH b: Board WHERE b.title = $title RETURN b.title AS boom", title=TITLE)
        reference = reference_of(failed.value)
        server.wait_for(lambda: any(reference in line for line in server.log))
        server.stop()
    first, *rest = server.log
    text = "\n".join(rest)
    if format == "json":
        start, *records = map(json.loads, server.log)
        assert (start["action"], start["data"], start["format"]) == (
            "process.started",
            str(folder / "data"),
            1,
        )
        (record,) = [r for r in records if r.get("reference") == reference]
        assert (record["action"], record["process"]) == ("broker.request_failed", "engine")
        assert "RuntimeError" in record["exception"]
    else:
        assert f"data directory {folder / 'data'}, format 1" in first
        assert "action=broker.request_failed" in text
        assert f"reference={reference}" in text
        assert "Traceback (most recent call last):" in text
        assert "RuntimeError" in text
    assert TITLE not in text


def test_logs_contain_no_token_or_value(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk for _, jwk in KEYS.values()]}))
    (folder / "data" / "vedette.toml").write_text(f'auth_keys = "{folder / "keys.json"}"\n')
    tokens = [token(tenant="default"), token(seconds=-60)]
    with running(folder, "--log-level", "debug") as server:
        url = address(folder)
        with connect_sync(url, token=tokens[0]) as admin:
            admin.define(ONTOLOGY)
            ann = admin.execute("SPAWN u: User RETURNING id").rows[0][0]
            tokens.append(token(tenant="default", admin=False, sub=ann))
            admin.execute("SPAWN b: Board { title = $title }", title=TITLE)
            admin.execute(
                f'WATCH b: Board WHERE b.note = "{LITERAL}" [initial: none] '
                "ON MATCH DO SPAWN c: Board { title = $title }",
                title=TITLE,
            )
            admin.execute("SPAWN b: Board { title = $note, note = $literal }", note=NOTE, literal=LITERAL)
            with pytest.raises(vedette.VedetteError, match="see the server log, reference"):
                admin.execute("MATCH b: Board WHERE b.title = $t RETURN b.title AS boom", t=TITLE)
        with pytest.raises(vedette.VedetteError), connect_sync(url, token=tokens[1]):
            pass
        with connect_sync(url, token=tokens[2]) as actor:
            with pytest.raises(vedette.VedetteError, match="E7004"):
                actor.execute("SPAWN b: Board { title = $note, n = 0 }", note=NOTE)
            with pytest.raises(vedette.VedetteError, match="E8001"):
                actor.watch(f'WATCH u: User WHERE u.id = "{LITERAL}" RETURN u').next(timeout=30)
            watch = actor.watch(f'WATCH b: Board WHERE b.title = "{LITERAL}" RETURN b.title')
            assert watch.next(timeout=30) is not None
        server.wait_for(lambda: any("trigger.failed" in line for line in server.log))
        server.stop()
    audit = (folder / "data" / "audit.log").read_text()
    everything = "\n".join([*server.log, audit])
    for secret in (TITLE, NOTE, LITERAL, *tokens, *(part for each in tokens for part in each.split(".")[1:])):
        assert secret not in everything
    assert stat.S_IMODE((folder / "data" / "audit.log").stat().st_mode) == 0o600
    records = [json.loads(line) for line in audit.splitlines()]
    by_action = {record["action"]: record for record in records}
    assert {"policy.denied", "watch.denied", "subscription.created", "subscription.ended"} <= set(by_action)
    assert all(record["tenant"] == "default" and record["actor"] == ann for record in records)
    assert by_action["policy.denied"]["failed"].startswith("E2101")
    assert by_action["watch.denied"]["pattern"] == "WATCH u: User WHERE u.id = ? RETURN u"


def test_children_log_to_the_same_standard_error(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "gateway.window").write_bytes(b"this is no window")
    with running(folder, "--log-format", "json") as server:
        found = read_server_file(folder / "data")
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
        server.wait_for(lambda: any("child.ended" in line for line in server.log))
        server.stop()
    records = [json.loads(line) for line in server.log]
    assert records[0]["action"] == "process.started"
    by_action = {record["action"]: record for record in records}
    assert by_action["window.damaged"]["process"] == "engine"
    assert (by_action["child.ended"]["process"], by_action["child.ended"]["child"]) == ("serve", "engine")


def test_failed_start_is_logged_as_json(folder: Path) -> None:
    command = [str(PROGRAM), "serve", "--host", "0.0.0.0", "--log-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert "auth_keys" in lines[-1]["message"]
    assert lines[-1]["action"] == "process.failed"


def test_unknown_log_level_is_refused(folder: Path) -> None:
    command = [str(PROGRAM), "serve", "--log-level", "loud"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 2
    assert "--log-level" in done.stderr
