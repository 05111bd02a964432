"""A throw-away PostgreSQL server for the tests: its own data, a Unix socket only, gone at the end.

The server refuses to run as root, so a root test run starts it as another user. Nothing here is durable on purpose
(`fsync=off`): what survives a crash of PostgreSQL itself is PostgreSQL's business.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

__all__ = ["postgres_url"]

SERVER_OPTIONS = {
    "listen_addresses": "''",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "wal_level": "logical",
}


class PostgresUnavailable(Exception):
    """No server could be started; the text says why and what to do."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of an empty server, for this test session only. Without one: a skip, which CI refuses."""
    with ExitStack() as stack:
        try:
            server = Server.create()
            stack.enter_context(server.running())
        except PostgresUnavailable as reason:
            pytest.skip(str(reason))
        yield server.url


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    binaries: Path
    home: Path  # holds data/, the log and the socket; short, because a socket's path is limited to 107 bytes
    user: pwd.struct_passwd  # who runs the server

    @classmethod
    def create(cls) -> Server:
        binaries = find_binaries()
        user = find_user()
        home = Path(tempfile.mkdtemp(prefix="vedette-pg-", dir="/tmp"))
        os.chown(home, user.pw_uid, user.pw_gid)
        return cls(binaries=binaries, home=home, user=user)

    @property
    def url(self) -> str:
        return f"postgresql://vedette@/postgres?host={quote(str(self.home), safe='')}"

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self._call(
                "initdb", "--username=vedette", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"
            )
            self._call("pg_ctl", "start", "--wait", "--log", f"{self.home}/log", "--options", self._options())
            try:
                yield
            finally:
                self._call("pg_ctl", "stop", "--wait", "--mode=immediate")
        finally:
            shutil.rmtree(self.home, ignore_errors=True)

    def _options(self) -> str:
        options = SERVER_OPTIONS | {"unix_socket_directories": str(self.home)}
        return " ".join(f"-c {name}={value}" for name, value in options.items())

    def _call(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs on our data, as our user."""
        foreign = self.user.pw_uid != os.geteuid()
        # A file and not a pipe: the server inherits it, and a pipe would stay open as long as the server runs.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self.binaries / program, "--pgdata", self.home / "data", *arguments],
                cwd=self.home,
                env={"HOME": str(self.home), "PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=200,
                user=self.user.pw_uid if foreign else None,
                group=self.user.pw_gid if foreign else None,
                extra_groups=[] if foreign else None,
            )
            if done.returncode != 0:
                output.seek(0)
                log = self.home / "log"
                words = output.read().decode(errors="replace") + (log.read_text() if log.exists() else "")
                raise PostgresUnavailable(f"{program} failed as user {self.user.pw_name}:\n{words}")


def find_binaries() -> Path:
    """The folder of the newest server programs; Debian keeps them out of the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if debian:
        return debian[-1].parent
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    raise PostgresUnavailable("no initdb found: install PostgreSQL's server programs (Debian: postgresql)")


def find_user() -> pwd.struct_passwd:
    """Ourselves, or for root somebody with no rights to speak of."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresUnavailable(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody"
    )
