"""A full disk, a damaged file, a torn log: clear errors, no acknowledged commit lost, no exception of sqlite3."""

from __future__ import annotations

import os
import random
import resource
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from vedette.errors import StoreError
from vedette.storage.catalog import open_catalog
from vedette.storage.group_commit import GroupCommitLogWriter
from vedette.storage.seam import Batch, ElementRecord, JournalRow, Store
from vedette.storage.sqlite.store import SqliteStore

PAD = b'{"pad":"' + b"x" * 2_000 + b'"}'


def batch(tick: int) -> Batch:
    return batch_of([tick])


def batch_of(ticks: Sequence[int]) -> Batch:
    puts = [ElementRecord(f"n{tick}-{part}", "Task", PAD) for tick in ticks for part in range(3)]
    rows = [JournalRow(int(r.id[1:].split("-")[0]), "t", "Task", r.id, None, PAD, 0) for r in puts]
    return Batch(sequence=ticks[-1], puts=puts, journal=rows, meta=[("last", str(ticks[-1]))])


def check(store: Store) -> int:
    """Check that the store has exactly the first n batches, complete, and return n."""
    facts = store.info()
    ids = {f"n{tick}-{part}" for tick in range(1, facts.sequence + 1) for part in range(3)}
    assert {record.id for record in store.elements()} == ids
    rows = store.read(0, 100_000)
    assert [row.tick for row in rows] == [tick for tick in range(1, facts.sequence + 1) for _ in range(3)]
    assert facts.meta == ({"last": str(facts.sequence)} if facts.sequence else {})
    return facts.sequence


# No space left


@dataclass(frozen=True, slots=True)
class Disk:
    """A small disk, with functions to fill and to enlarge it."""

    directory: Path
    fill: Callable[[], object]
    grow: Callable[[], object]


@contextmanager
def limited_file_size(tmp_path: Path) -> Iterator[Disk]:
    """Limit files of this process to 600 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    limit(600_000)
    try:
        yield Disk(tmp_path / "data", lambda: limit(0), lambda: limit(soft))
    finally:
        limit(soft)


@contextmanager
def small_file_system(tmp_path: Path) -> Iterator[Disk]:
    """A file system in memory of 1 MB. Only root can mount it."""
    with tempfile.TemporaryDirectory(prefix="vedette-tmpfs-") as path:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=True)
        try:
            yield Disk(
                Path(path) / "data",
                lambda: fill(Path(path)),
                lambda: subprocess.run(["mount", "-o", "remount,size=64m", path], check=True),
            )
        finally:
            subprocess.run(["umount", path], check=True)


def fill(directory: Path) -> None:
    with suppress(OSError), (directory / "filler").open("wb", buffering=0) as file:
        while file.write(b"x" * 4_096):
            pass


def can_mount() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as path:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path]
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
        return mounted and subprocess.run(["umount", path], check=False).returncode == 0


SMALL_DISKS = [limited_file_size, *([small_file_system] if can_mount() else [])]


@pytest.fixture(params=SMALL_DISKS, ids=lambda disk: disk.__name__)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with request.param(tmp_path) as disk:
        yield disk


def test_full_disk_loses_no_acknowledged_commit(disk: Disk) -> None:
    catalog = open_catalog(disk.directory)
    store = catalog.open("default")
    store.open_for_writing()
    acknowledged = 0
    with pytest.raises(StoreError) as caught:  # noqa: PT012 - which of them fails is the disk's choice
        for tick in range(1, 1_000):
            store.append(batch(tick))
            acknowledged = tick
    assert caught.value.code == "E6001"
    assert "default.sqlite" in str(caught.value)
    assert "nothing acknowledged is lost" in str(caught.value)
    assert acknowledged > 3
    assert check(store) == acknowledged, "still to be read, on the full disk"

    disk.grow()
    store.append(batch(acknowledged + 1))  # the store still works
    catalog.close()
    catalog = open_catalog(disk.directory)
    again = catalog.open("default")
    assert again.open_for_writing().boot_count == 2
    assert check(again) == acknowledged + 1
    catalog.close()


def test_full_disk_through_group_commit(disk: Disk) -> None:
    """The failing commit and all later ones get the error; the engine reloads without writing."""
    catalog = open_catalog(disk.directory)
    store = catalog.open("default")
    gate = GroupCommitLogWriter(store, encode=batch_of, sequence=store.open_for_writing().sequence)
    with pytest.raises(StoreError) as caught:  # noqa: PT012 - as above
        for tick in range(1, 1_000):
            gate.append(tick, tick)
            gate.wait_durable(tick, 20)
    assert (caught.value.code, gate.failed is not None) == ("E6001", True)
    assert check(store) == gate.durable_sequence > 3
    gate.close()
    disk.grow()
    again = GroupCommitLogWriter(store, encode=batch_of, sequence=store.info().sequence)
    again.append(again.durable_sequence + 1, again.durable_sequence + 1)
    again.close()
    assert check(store) == again.durable_sequence
    catalog.close()


def test_disk_full_from_the_start(disk: Disk) -> None:
    open_catalog(disk.directory).close()
    disk.fill()
    with pytest.raises(StoreError) as caught:
        use(disk.directory)
    assert caught.value.code == "E6001"
    assert "no space left" in str(caught.value) or "look at the disk" in str(caught.value)
    disk.grow()
    use(disk.directory)


def use(directory: Path) -> None:
    catalog = open_catalog(directory)
    try:
        catalog.open("default").open_for_writing()
    finally:
        catalog.close()


# Damage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of 40 batches, closed."""
    path = tmp_path / "a.sqlite"
    store = SqliteStore(path)
    store.open_for_writing()
    for tick in range(1, 41):
        store.append(batch(tick))
    store.close()
    return path


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4_096 * 4_096)


def tear(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1_000)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def scribble(path: Path) -> None:
    path.write_bytes(b"Dear diary, today was a good day. " * 300)


def overwrite_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 100)


def other_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE meta (key TEXT, value TEXT)")


def drop_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE elements")


def drop_fact(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM meta WHERE key = 'store.boot'")


def corrupt_meta(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = 'many' WHERE key = 'store.tick'")


def corrupt_targets(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE elements SET targets = '[oops' WHERE id = 'n3-1'")


def corrupt_text(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE elements SET type = CAST(x'ff00ff' AS TEXT) WHERE id = 'n3-1'")


DAMAGES = [
    truncate,
    tear,
    empty,
    scribble,
    overwrite_header,
    other_program,
    drop_table,
    drop_fact,
    corrupt_meta,
    corrupt_targets,
    corrupt_text,
]


def read_all(path: Path) -> None:
    store = SqliteStore(path)
    try:
        store.open_for_writing()
        list(store.elements())
        store.read(0, 100_000)
        store.append(Batch(sequence=1_000, puts=[ElementRecord("new", "Task", b"{}")]))
    finally:
        store.close()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_file_is_rejected_with_a_clear_error(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with pytest.raises(StoreError) as caught:
        read_all(path)
    assert caught.value.code == "E6004"
    assert str(path) in str(caught.value)
    assert "backup" in str(caught.value)


def test_flipped_bytes_raise_only_store_errors(path: Path) -> None:
    whole = path.read_bytes()
    rng = random.Random(1)
    for _ in range(60):
        spoiled = bytearray(whole)
        for _ in range(rng.choice([1, 8, 200])):
            spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(spoiled)
        try:
            read_all(path)
        except StoreError as problem:
            assert problem.code in {"E6001", "E6003", "E6004"}  # noqa: PT017 - most of the time there is none


def test_torn_log_gives_a_prefix_of_whole_batches(tmp_path: Path) -> None:
    """A power failure leaves the file and any part of the write-ahead log."""
    source = tmp_path / "source.sqlite"
    store = SqliteStore(source)
    store.open_for_writing()
    for tick in range(1, 31):
        store.append(batch(tick))
    log = source.with_name(f"{source.name}-wal").read_bytes()
    file = source.read_bytes()
    rng = random.Random(2)
    found = set()
    for number in range(40):
        copy = tmp_path / f"copy{number}.sqlite"
        copy.write_bytes(file)
        torn = bytearray(log[: rng.randrange(len(log))])
        if number % 2 and torn:
            torn[rng.randrange(len(torn)) :] = b"\xa5" * 300  # the end was not written, but some part was
        copy.with_name(f"{copy.name}-wal").write_bytes(torn)
        again = SqliteStore(copy)
        found.add(check(again))
        again.close()
    store.close()
    assert len(found) > 10


def test_file_locked_by_another_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.storage.sqlite.connection.BUSY_SECONDS", 0.05)
    store = SqliteStore(path)
    store.open_for_writing()
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another program") as caught:
            store.append(batch(41))
        assert caught.value.code == "E6001"
        shell.execute("ROLLBACK")
    store.append(batch(41))
    assert check(store) == 41
    store.close()


def test_copied_files_can_be_opened(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    shutil.copy(path, copy)
    store = SqliteStore(copy)
    assert store.open_for_writing().boot_count == 2
    assert check(store) == 40
    store.close()
