"""The temporary PostgreSQL server that the store tests use."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from tests.support.postgres_server import PostgresUnavailable, Server


def test_server_answers_queries(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT current_user, current_setting('listen_addresses')").fetchone()
    assert row == ("vedette", "")


@pytest.mark.usefixtures("postgres_url")
def test_stopped_server_leaves_no_files() -> None:
    server = Server.create()
    with server.running():
        folder = Path(parse_qs(urlsplit(server.url).query)["host"][0])
        assert (folder / "data" / "postmaster.pid").exists()
    assert not folder.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url)


@pytest.mark.usefixtures("postgres_url")
def test_start_failure_quotes_postgres() -> None:
    server = Server.create()
    (server.folder / "data").mkdir()
    (server.folder / "data" / "foreign").touch()
    with pytest.raises(PostgresUnavailable, match="not empty"), server.running():
        pass
    assert not server.folder.exists()
