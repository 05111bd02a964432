"""Servers that contenders need. Each is started in its own folder on a free port and stopped by its process id."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["beanstalkd", "free_port", "nats", "postgres", "rabbitmq", "redis"]

_PATIENCE_S = 90
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(name: str, *places: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise RuntimeError(f"{name} is not installed: scripts/ensure-benchmark-peers")
    return found


@contextmanager
def _running(
    command: Sequence[str],
    folder: Path,
    ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    user: pwd.struct_passwd | None = None,
) -> Iterator[int]:
    """Start a program and wait until it answers. At the end it is asked to stop, and killed if it does not."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=user.pw_uid if user is not None else None,
            group=user.pw_gid if user is not None else None,
            extra_groups=[] if user is not None else None,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not answer: {log.read_text(errors='replace')[-300:]}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT if "postgres" in command[0] else signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=30)


def _answers(port: int) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        except OSError:
            return False

    return ready


@contextmanager
def nats(folder: Path) -> Iterator[str]:
    """NATS with JetStream in files, synced at every write."""
    port = free_port()
    settings = folder / "nats.conf"
    settings.write_text(
        f'host: "127.0.0.1"\nport: {port}\n'
        f'jetstream {{ store_dir: "{folder / "store"}", sync_interval: always }}\n',
        encoding="utf-8",
    )
    command = [_program("nats-server", str(Path(sys.executable).parent)), "-c", str(settings)]
    with _running(command, folder, _answers(port)):
        yield f"nats://127.0.0.1:{port}"


@contextmanager
def redis(folder: Path) -> Iterator[int]:
    """Start Redis with an append-only file that is synced before every reply; yield its port."""
    port = free_port()
    options = {"bind": "127.0.0.1", "port": str(port), "dir": str(folder), "save": ""}
    options |= {"appendonly": "yes", "appendfsync": "always"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with _running([_program("redis-server"), *words], folder, _answers(port)):
        yield port


@contextmanager
def beanstalkd(folder: Path) -> Iterator[int]:
    """Start beanstalkd with a binlog that is synced at every write (-f0); yield its port."""
    port = free_port()
    log = folder / "binlog"
    log.mkdir()
    command = [_program("beanstalkd"), "-l", "127.0.0.1", "-p", str(port), "-b", str(log), "-f0"]
    with _running(command, folder, _answers(port)):
        yield port


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """Start RabbitMQ on one node with its own name server (epmd), which would otherwise keep running."""
    if not _RABBITMQ.exists():
        raise RuntimeError("rabbitmq-server is not installed: scripts/ensure-benchmark-peers")
    port, distribution, names = free_port(), free_port(), free_port()
    environment = os.environ | {
        "HOME": str(folder),  # contains the cookie
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
    }
    epmd = [_program("epmd"), "-port", str(names), "-address", "127.0.0.1"]
    with (
        _running(epmd, folder, _answers(names)),
        _running([str(_RABBITMQ)], folder, _answers(port), environment),
    ):
        yield f"amqp://guest:guest@127.0.0.1:{port}/"


def _server_user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Start PostgreSQL with default settings: every commit is synced."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    places = [str(path) for path in reversed(debian)]
    user = _server_user()
    data, port = folder / "data", free_port()
    folder.parent.chmod(0o711)
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    initialise = [_program("initdb", *places), "--pgdata", str(data), "--username=bench", "--auth=trust"]
    done = subprocess.run(
        [*initialise, "--encoding=UTF8", "--locale=C"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        user=user.pw_uid if user is not None else None,
        group=user.pw_gid if user is not None else None,
        extra_groups=[] if user is not None else None,
    )
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stderr[-300:]}")
    options = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": ""}
    words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    url = f"postgresql://bench@127.0.0.1:{port}/postgres"
    probe = [_program("pg_isready", *places), "-q", "-d", url]

    def ready() -> bool:
        return subprocess.run(probe, check=False, timeout=_PATIENCE_S).returncode == 0

    with _running([_program("postgres", *places), "-D", str(data), *words], folder, ready, user=user):
        yield url
