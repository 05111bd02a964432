"""Servers that send one message to many clients: Vedette and its peers, each one process on a free port."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gateway.processes import cpu_seconds
from benchmarks.waiting import WaitTimeoutError, stop_process

__all__ = ["PUSHERS", "Pusher", "pushing"]

_NODE = Path(__file__).parents[1] / "node"
_NGINX = Path("/usr/sbin/nginx")
_NCHAN = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
_WATCH = "WATCH n: News [initial: none] RETURN n.text"
Texts = Sequence[str]


def _json(*messages: object) -> Texts:
    return [json.dumps(message) for message in messages]


@dataclass(frozen=True, kw_only=True)
class Pusher:
    name: str
    command: Callable[[int, Path], list[str]]
    """Returns the command that starts the server on a port, with its own folder."""
    reads_at: str
    writes_at: str
    reader_says: Texts = ()
    """Messages that a reader sends to subscribe."""
    reader_hears: int = 0
    """Number of messages that a reader receives before the first event."""
    writer_says: Texts = ()
    writer_hears: int = 0
    wrapped: Callable[[str], str] = staticmethod(lambda text: text)
    """Encodes a text as the writer sends it."""

    def missing(self) -> str | None:
        """Returns what is not installed, or None."""
        if self.name == "nchan" and not (_NGINX.exists() and _NCHAN.exists()):
            return "scripts/ensure-benchmark-peers"
        if self.name in ("ws", "Socket.IO") and not (_NODE / "node_modules" / "ws").exists():
            return "scripts/ensure-benchmark-peers"
        if self.name == "socketify" and find_spec("socketify") is None:
            return "make setup-bench"
        return None


def _nchan(port: int, folder: Path) -> list[str]:
    config = folder / "nginx.conf"
    config.write_text(
        f"""load_module {_NCHAN};
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 20000; }}
http {{
  access_log off;
  nchan_shared_memory_size 128M;
  server {{
    listen 127.0.0.1:{port};
    location /sub {{ nchan_subscriber websocket; nchan_channel_id all; nchan_subscriber_first_message newest; }}
    location /pub {{ nchan_publisher websocket; nchan_channel_id all; nchan_message_buffer_length 100; }}
  }}
}}
"""
    )
    return [str(_NGINX), "-p", str(folder), "-c", str(config)]


def _vedette(port: int, folder: Path) -> list[str]:
    serve = [sys.executable, "-m", "vedette", "serve", "--data", str(folder / "data"), "--port", str(port)]
    return [*serve, "--http-port", "0", "--no-pipeline"]


_AUTH = {"type": "auth", "id": "a", "payload": {"database": "default"}}
PUSHERS = (
    Pusher(
        name="vedette",
        command=_vedette,
        reads_at="/realtime/ws",
        writes_at="/realtime/ws",
        reader_says=_json(_AUTH, {"type": "subscribe", "id": "s", "payload": {"watch": _WATCH}}),
        reader_hears=2,
        writer_says=_json(_AUTH, {"type": "define", "payload": {"ontology": "node News { text: String }"}}),
        writer_hears=2,
        wrapped=lambda text: json.dumps(
            {
                "type": "execute",
                "payload": {"statement": "SPAWN n: News { text = $t }", "params": {"t": text}},
            }
        ),
    ),
    Pusher(
        name="ws",
        command=lambda port, _: ["node", str(_NODE / "push_ws.mjs"), str(port)],
        reads_at="/sub",
        writes_at="/pub",
    ),
    Pusher(
        name="Socket.IO",
        command=lambda port, _: ["node", str(_NODE / "push_socketio.mjs"), str(port)],
        reads_at="/socket.io/?EIO=4&transport=websocket",
        writes_at="/socket.io/?EIO=4&transport=websocket",
        reader_says=["40"],
        reader_hears=2,
        writer_says=["40"],
        writer_hears=2,
        wrapped=lambda text: "42" + json.dumps(["m", text]),
    ),
    Pusher(name="nchan", command=_nchan, reads_at="/sub", writes_at="/pub"),
    Pusher(
        name="socketify",
        command=lambda port, _: [sys.executable, "-m", "benchmarks.gateway.push_socketify", str(port)],
        reads_at="/sub",
        writes_at="/pub",
    ),
)


@contextmanager
def pushing(pusher: Pusher, folder: Path) -> Iterator[tuple[int, Callable[[], float]]]:
    """Start the server. Yield its port and a function that returns its CPU seconds."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        pusher.command(port, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_port(process, port)
        yield port, lambda: cpu_seconds(process.pid)
    finally:
        stop_process(process)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with exit code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise WaitTimeoutError(f"{process.args!r} listening on port {port}", 30)
