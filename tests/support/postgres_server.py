"""A temporary PostgreSQL server for the tests, with its own data directory and a Unix socket only.

The server refuses to run as root, so a root test run starts it as another user. Durability is off (`fsync=off`),
because these tests do not crash PostgreSQL itself.
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
    """No server could be started. The text states the reason and the remedy."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Return the address of an empty server for this test session.

    Without a server the test is skipped; CI fails on that skip.
    """
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
    folder: Path  # has data/, the log and the socket; short, because a socket path is limited to 107 bytes
    user: pwd.struct_passwd  # the user that runs the server

    @classmethod
    def create(cls) -> Server:
        binaries = find_binaries()
        user = find_user()
        folder = Path(tempfile.mkdtemp(prefix="vedette-pg-", dir="/tmp"))
        os.chown(folder, user.pw_uid, user.pw_gid)
        return cls(binaries=binaries, folder=folder, user=user)

    @property
    def url(self) -> str:
        return f"postgresql://vedette@/postgres?host={quote(str(self.folder), safe='')}"

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self._call(
                "initdb", "--username=vedette", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"
            )
            self._call(
                "pg_ctl", "start", "--wait", "--log", f"{self.folder}/log", "--options", self._options()
            )
            try:
                yield
            finally:
                self._call("pg_ctl", "stop", "--wait", "--mode=immediate")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _options(self) -> str:
        options = SERVER_OPTIONS | {"unix_socket_directories": str(self.folder)}
        return " ".join(f"-c {name}={value}" for name, value in options.items())

    def _call(self, program: str, *arguments: str) -> None:
        """Run a PostgreSQL program on the data directory, as the server's user."""
        foreign = self.user.pw_uid != os.geteuid()
        # A file, not a pipe: the server inherits it, and a pipe would stay open as long as the server runs.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self.binaries / program, "--pgdata", self.folder / "data", *arguments],
                cwd=self.folder,
                env={"HOME": str(self.folder), "PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
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
                log = self.folder / "log"
                words = output.read().decode(errors="replace") + (log.read_text() if log.exists() else "")
                raise PostgresUnavailable(f"{program} failed as user {self.user.pw_name}:\n{words}")


def find_binaries() -> Path:
    """Return the folder of the newest server programs. Debian does not put them in PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if debian:
        return debian[-1].parent
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    raise PostgresUnavailable("no initdb found: install PostgreSQL's server programs (Debian: postgresql)")


def find_user() -> pwd.struct_passwd:
    """Return the current user, or a user without rights if this process is root."""
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
