"""The data directory: layout, lock, and errors of directories that cannot be used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.faulty_disk import as_nobody
from vedette.errors import StoreError
from vedette.storage.catalog import open_catalog
from vedette.storage.memory import MemoryCatalog
from vedette.storage.seam import Batch
from vedette.storage.sqlite.directory import DataDirectory, list_databases

HOLD = """
import sys
from vedette.storage.catalog import open_catalog
home = open_catalog(sys.argv[1])
home.open("default").open_for_writing()
print("held", flush=True)
sys.stdin.read()
home.close()
"""


@contextmanager
def another_engine(directory: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "held\n"
        yield engine
        engine.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "data"


def test_layout(directory: Path) -> None:
    data_directory = DataDirectory(directory)
    for name in ("default", "Acme/1"):
        data_directory.open(name).open_for_writing()
    files = sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if "sqlite-" not in path.name
    )
    assert files == [
        "databases",
        "databases/%41cme%2f1.sqlite",
        "databases/default.sqlite",
        "engine.lock",
        "format",
    ]
    assert (directory / "format").read_text() == "vedette data directory, format 1\n"
    assert (directory / "engine.lock").read_text() == f"{os.getpid()}\n"
    assert directory.stat().st_mode & 0o777 == 0o700
    data_directory.close()
    assert (directory / "engine.lock").read_text() == ""


def test_databases_are_listed_without_the_lock(directory: Path) -> None:
    assert list_databases(directory) == []
    data_directory = DataDirectory(directory)
    data_directory.open("b").open_for_writing()
    data_directory.open("default").open_for_writing()
    (directory / "databases" / "Not Ours.sqlite").write_text("")
    assert list_databases(directory) == data_directory.databases() == ["default", "b"]
    data_directory.close()


def test_second_engine_is_refused_with_the_holder(directory: Path) -> None:
    with another_engine(directory) as engine:
        with pytest.raises(StoreError) as caught:
            open_catalog(directory)
        assert caught.value.code == "E6002"
        assert caught.value.fields["pid"] == engine.pid
        assert f"pid {engine.pid}" in str(caught.value)
        assert "stop it" in str(caught.value)
    open_catalog(directory).close()


def test_lock_of_a_dead_engine_is_released(directory: Path) -> None:
    with another_engine(directory) as engine:
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        assert (directory / "engine.lock").read_text() == f"{engine.pid}\n"
        data_directory = open_catalog(directory)
        assert data_directory.open("default").open_for_writing().boot_count == 2
        data_directory.close()


def test_second_open_in_one_process_is_refused(directory: Path) -> None:
    data_directory = open_catalog(directory)
    with pytest.raises(StoreError, match="already open in this process") as caught:
        open_catalog(directory)
    assert caught.value.code == "E6002"
    data_directory.close()
    open_catalog(directory).close()


def test_failed_open_releases_the_lock(directory: Path) -> None:
    open_catalog(directory).close()
    (directory / "format").write_text("vedette data directory, format 99\n")
    for _ in range(2):
        with pytest.raises(StoreError, match="has format 99") as caught:
            open_catalog(directory)
        assert caught.value.code == "E6004"
    (directory / "format").write_bytes(b"\xff nonsense")
    with pytest.raises(StoreError, match="an unknown format"):
        open_catalog(directory)
    (directory / "format").unlink()
    open_catalog(directory).close()


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="vedette-public-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def use(directory: Path) -> None:
    data_directory = open_catalog(directory)
    try:
        data_directory.open("default").open_for_writing()
    finally:
        data_directory.close()


def refused(directory: Path) -> StoreError:
    with as_nobody(), pytest.raises(StoreError) as caught:
        use(directory)
    assert caught.value.code == "E6003"
    assert str(directory) in str(caught.value)
    return caught.value


def test_unusable_directories(public: Path) -> None:
    file = public / "file"
    file.write_text("")
    assert "must be a directory" in str(refused(file))
    assert "Not a directory" in str(refused(file / "below"))
    locked = public / "locked"
    locked.mkdir(mode=0o500)
    assert "Permission denied" in str(refused(locked))
    assert "Permission denied" in str(refused(locked / "below"))


def test_read_only_database(public: Path) -> None:
    directory = public / "data"
    data_directory = open_catalog(directory)
    store = data_directory.open("default")
    store.open_for_writing()
    store.append(Batch(sequence=3))
    data_directory.close()
    database = directory / "databases" / "default.sqlite"
    for path, mode in [
        (directory, 0o777),
        (directory / "databases", 0o777),
        (directory / "engine.lock", 0o666),
        (directory / "format", 0o644),
        (database, 0o444),
    ]:
        path.chmod(mode)
    assert "cannot be written" in str(refused(directory))
    database.chmod(0o644)
    data_directory = open_catalog(directory)
    assert data_directory.open("default").open_for_writing().sequence == 3
    data_directory.close()


def test_name_cannot_leave_the_directory(directory: Path, tmp_path: Path) -> None:
    data_directory = open_catalog(directory)
    data_directory.open("../../../outside").open_for_writing()
    data_directory.close()
    assert not list(tmp_path.glob("outside*"))
    assert list_databases(directory) == ["../../../outside"]


def test_open_catalog_accepts_directory_url_and_memory(directory: Path) -> None:
    assert isinstance(open_catalog(":memory:"), MemoryCatalog)
    data_directory = open_catalog(str(directory))
    assert isinstance(data_directory, DataDirectory)
    data_directory.close()
