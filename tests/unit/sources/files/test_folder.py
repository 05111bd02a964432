"""A folder on a real file system: the changes since the last known state, also those from before the start."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vedette.clock import SystemClock
from vedette.sources.files.file_stamp import ChangeKind, FileChange, FileStamp
from vedette.sources.files.file_state import FileStateStore
from vedette.sources.files.folder import UNSETTLED_MS, Folder, ScanOutcome
from vedette.sources.files.scan import scan
from vedette.sources.files.selection import FolderSelection


class FolderBench:
    """A folder with its stored state. `restart` opens it again as a new process would."""

    def __init__(self, base: Path) -> None:
        self.base, self.root = base, base / "root"
        self.root.mkdir()
        self.selection = FolderSelection()
        self.restart()

    def restart(self) -> None:
        self.seen = FileStateStore(self.base / "data" / "folders.db")
        self.folder = Folder("w", self.root, self.selection, self.seen, SystemClock())

    def write(self, path: str, text: str = "x") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1_700_000_000, 1_700_000_000))  # long ago, so that the stamp is final

    def settle_folders(self) -> None:
        """Wait until the clock has advanced, so that the next change of a folder changes its mtime."""
        newest = max(path.stat().st_ctime_ns for path in [self.root, *self.root.rglob("*")])
        while SystemClock().now().timestamp() * 1000 - newest / 1_000_000 <= UNSETTLED_MS:
            Event().wait(0.005)

    @property
    def device(self) -> int:
        return self.root.stat().st_dev

    def commit_changes(self, outcome: ScanOutcome) -> list[str]:
        self.folder.commit(outcome.changes)
        return [
            f"{change.kind} {change.old_path + ' ▸ ' if change.old_path else ''}{change.path}"
            for change in outcome.changes
        ]

    def commit_full_scan(self) -> list[str]:
        return self.commit_changes(self.folder.full_scan())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FolderBench]:
    made = FolderBench(tmp_path)
    yield made
    made.seen.close()


def test_changes_since_the_last_scan_are_found(bench: FolderBench) -> None:
    for name in ("same", "edited", "moved", "deleted"):
        bench.write(f"d/{name}", name)
    assert bench.commit_full_scan() == [
        "created d/deleted",
        "created d/edited",
        "created d/moved",
        "created d/same",
    ]
    bench.seen.close()
    bench.write("d/edited", "edited twice")
    (bench.root / "d/moved").rename(bench.root / "here")
    (bench.root / "d/deleted").unlink()
    bench.write("new")
    bench.restart()
    assert bench.commit_full_scan() == [
        "deleted d/deleted",
        "moved d/moved ▸ here",
        "changed d/edited",
        "created new",
    ]
    assert bench.commit_full_scan() == []


def test_data_directory_is_never_entered(tmp_path: Path) -> None:
    """It is excluded under any name: closing one of its files would drop the locks that SQLite holds on it."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    data = outside / "data"
    for folder in (root, data / "vectors"):
        folder.mkdir(parents=True)
    for file in (root / "a", outside / "b", data / "c", data / "vectors" / "d"):
        file.write_text("x")
        os.utime(file, (1_700_000_000, 1_700_000_000))
    (root / "to the data").symlink_to(data)
    (root / "to what is in it").symlink_to(data / "vectors")
    (root / "to a file of it").symlink_to(data / "c")
    (root / "around it").symlink_to(outside)
    seen = FileStateStore(data / "folders.db")
    names = [
        "to the data",
        "to what is in it",
        "to a file of it",
        "around it/data",
        "around it/data/vectors/d",
    ]

    def found(folder: Path, names: list[str]) -> set[str]:
        made = Folder("w", folder, FolderSelection(), seen, SystemClock())
        asked = {change.path for name in names for change in made.scan_paths([name]).changes}
        changes = made.full_scan().changes
        assert asked <= {change.path for change in changes}, "a look and a scan agree"
        made.commit(changes)
        assert made.rescan({"data", "around it/data"}).changes == ()
        seen.delete_watch("w")
        return {change.path for change in changes}

    assert found(root, names) == {"a", "around it/b"}
    assert found(outside, ["data", "data/c"]) == {"b"}, "below the watched folder"
    assert found(data, ["c", "vectors/d"]) == set(), "the watched folder itself"
    seen.close()


def test_recorded_changes_are_written_with_the_next_commit(bench: FolderBench) -> None:
    bench.write("a")
    changes = bench.folder.full_scan().changes
    bench.folder.mark_pending(changes)
    bench.folder.record(changes)
    assert bench.folder.full_scan().changes == ()
    bench.seen.close()
    bench.restart()
    changes = bench.folder.full_scan().changes
    assert [change.path for change in changes] == ["a"], "after a crash the change is reported again"
    bench.folder.record(changes)
    bench.folder.commit(())
    assert bench.folder.unwritten == 0
    bench.seen.close()
    bench.restart()
    assert bench.commit_full_scan() == []


def test_uncommitted_changes_are_reported_again(bench: FolderBench) -> None:
    bench.write("a")
    assert len(bench.folder.full_scan().changes) == 1
    bench.seen.close()
    bench.restart()
    assert bench.commit_full_scan() == ["created a"]


def test_deletion_of_a_reported_file_is_found_after_a_crash(bench: FolderBench) -> None:
    for name in ("a", "b"):
        bench.write(name)
    bench.folder.mark_pending(bench.folder.full_scan().changes)
    bench.seen.close()
    (bench.root / "a").unlink()
    bench.restart()
    assert bench.commit_full_scan() == ["deleted a", "created b"]
    assert bench.commit_full_scan() == []


def test_deletion_of_an_announced_file_is_found(bench: FolderBench) -> None:
    """The listener failed without a crash. A scan of the folder still finds that its files are gone."""
    for name in ("d/a", "d/b"):
        bench.write(name)
    outcome = bench.folder.full_scan()
    bench.folder.mark_pending(outcome.changes)
    bench.folder.mark_pending(outcome.changes)  # reported again
    shutil.rmtree(bench.root / "d")
    assert bench.commit_changes(bench.folder.scan_paths(["d"])) == ["deleted d/a", "deleted d/b"]
    bench.seen.close()
    bench.restart()
    assert bench.commit_full_scan() == []


def test_edit_with_the_same_size_and_mtime_is_found(bench: FolderBench) -> None:
    bench.write("a", "one")
    bench.commit_full_scan()
    bench.write("a", "two")
    assert bench.commit_full_scan() == ["changed a"]


def test_recently_written_file_is_checked_again(bench: FolderBench) -> None:
    (bench.root / "a").write_text("1")
    outcome = bench.folder.full_scan()
    assert bench.commit_changes(outcome) == ["created a"]
    assert outcome.unstable == {"a"}
    assert bench.commit_changes(bench.folder.scan_paths(["a"])) == ["changed a"], (
        "its content decides whether it did"
    )


def test_moved_folder_is_reported_as_moves_of_its_files(bench: FolderBench) -> None:
    for name in ("a/1", "a/b/2"):
        bench.write(name)
    bench.commit_full_scan()
    (bench.root / "a").rename(bench.root / "z")
    assert bench.commit_changes(bench.folder.scan_paths(["a", "z"])) == [
        "moved a/1 ▸ z/1",
        "moved a/b/2 ▸ z/b/2",
    ]


def test_scan_of_a_folder_covers_everything_below_it(bench: FolderBench) -> None:
    for name in ("a/1", "a/b/2", "ab/3"):
        bench.write(name)
    assert bench.commit_changes(bench.folder.scan_paths(["a", "a/b"])) == ["created a/1", "created a/b/2"]
    assert bench.commit_changes(bench.folder.scan_paths(["ab/3"])) == ["created ab/3"]
    shutil.rmtree(bench.root / "a")
    assert bench.commit_changes(bench.folder.scan_paths(["a"])) == ["deleted a/1", "deleted a/b/2"]
    assert bench.commit_changes(bench.folder.scan_paths(["nothing/here"])) == []


def test_deep_paths_are_scanned(bench: FolderBench) -> None:
    deep = "/".join(["d"] * 1_500)
    bench.folder.mark_pending(
        [FileChange(kind=ChangeKind.CREATED, path=f"{deep}/a", stamp=FileStamp.never_seen(bench.device))]
    )
    assert bench.commit_changes(bench.folder.scan_paths([f"{deep}/a", f"{deep}/b"])) == [f"deleted {deep}/a"]


def test_file_replaces_a_folder(bench: FolderBench) -> None:
    bench.write("a/1")
    bench.commit_full_scan()
    shutil.rmtree(bench.root / "a")
    bench.write("a", "not the same")  # the new file may get the same inode
    assert bench.commit_changes(bench.folder.scan_paths(["a"])) == ["deleted a/1", "created a"]
    (bench.root / "a").unlink()
    bench.write("a/1")
    assert bench.commit_changes(bench.folder.scan_paths(["a"])) == ["deleted a", "created a/1"]


def test_missing_root_is_unavailable_and_deletes_nothing(bench: FolderBench) -> None:
    bench.write("a")
    bench.commit_full_scan()
    bench.root.rename(bench.base / "elsewhere")
    for outcome in (bench.folder.full_scan(), bench.folder.scan_paths(["a"])):
        assert outcome.changes == ()
        assert outcome.unavailable_reason == f"{bench.root} is not there"
    (bench.base / "elsewhere").rename(bench.root)
    assert bench.folder.full_scan() == ScanOutcome()


def test_file_replaces_the_root(bench: FolderBench) -> None:
    bench.write("a")
    bench.commit_full_scan()
    bench.root.rename(bench.base / "elsewhere")
    bench.root.write_text("")
    assert bench.folder.full_scan().unavailable_reason == f"{bench.root} is no folder"


def on_another_disk(bench: FolderBench, below: str) -> None:
    """Pretend that the known files below were last seen on a disk that is not mounted now."""
    bench.seen.close()
    with sqlite3.connect(bench.seen.directory / "folders.db") as db:
        db.execute("UPDATE seen_files SET device = '999999' WHERE path LIKE ? || '%'", (below,))
    db.close()
    bench.restart()


def test_unmounted_disk_deletes_nothing(bench: FolderBench) -> None:
    for name in ("a", "b/c"):
        bench.write(name)
    bench.commit_full_scan()
    on_another_disk(bench, "")
    shutil.rmtree(bench.root)
    bench.root.mkdir()  # the empty mount point
    for outcome in (bench.folder.full_scan(), bench.folder.scan_paths(["a", "b"])):
        assert outcome.changes == ()
        assert outcome.unavailable_reason == "2 files are missing with the disk they were on"


def test_unmounted_disk_below_the_root_deletes_nothing(bench: FolderBench) -> None:
    for name in ("a", "disk/1", "disk/2"):
        bench.write(name)
    bench.commit_full_scan()
    on_another_disk(bench, "disk/")
    shutil.rmtree(bench.root / "disk")
    (bench.root / "a").unlink()
    outcome = bench.folder.full_scan()
    assert bench.commit_changes(outcome) == ["deleted a"], "the root's own disk is there"
    assert outcome.unavailable_reason is not None
    bench.write("disk/2")
    assert "deleted disk/1" in bench.commit_full_scan(), "one of its files is back, so the disk is"


def test_new_device_number_is_not_a_change(bench: FolderBench) -> None:
    for name in ("a", "b"):
        bench.write(name)
    bench.commit_full_scan()
    on_another_disk(bench, "")
    assert bench.folder.full_scan() == ScanOutcome()
    (bench.root / "a").unlink()
    assert bench.commit_full_scan() == ["deleted a"]


def test_links(bench: FolderBench) -> None:
    outside = bench.base / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "o").write_text("o")
    os.utime(outside / "deep" / "o", (1_700_000_000, 1_700_000_000))
    (outside / "loop").symlink_to(outside)
    (outside / "back").symlink_to(bench.root)
    bench.write("a/f")
    (bench.root / "a" / "self").symlink_to(bench.root / "a")
    (bench.root / "up").symlink_to(bench.base)
    (bench.root / "again").symlink_to(bench.root / "a" / "f")
    (bench.root / "broken").symlink_to(bench.base / "nowhere")
    (bench.root / "turning").symlink_to("turning")
    (bench.root / "out").symlink_to(outside)
    (bench.root / "file").symlink_to(outside / "deep" / "o")
    expected = ["created a/f", "created file", "created out/deep/o"]
    assert bench.commit_changes(bench.folder.full_scan()) == expected
    assert (
        bench.commit_changes(
            bench.folder.scan_paths(["a", "out", "file", "up", "again", "out/loop/deep", "turning"])
        )
        == []
    )


def test_path_scan_and_full_scan_agree_on_nested_links(bench: FolderBench) -> None:
    outside, far = bench.base / "outside", bench.base / "far"
    for folder in (outside, far / "deep"):
        folder.mkdir(parents=True)
    for file in (far / "file", far / "deep/file"):
        file.write_text("x")
    bench.write("own")
    for name, target in (("file", far / "file"), ("deep", far / "deep"), ("own", bench.root / "own")):
        (outside / name).symlink_to(target)
    (bench.root / "link").symlink_to(outside)
    whole = scan(bench.root, FolderSelection()).found
    assert set(whole) == {"own", "link/file"}
    starts = ["own", "link/file", "link/deep", "link/deep/file", "link/own"]
    assert scan(bench.root, FolderSelection(), starts).found == whole


def test_kernel_paths_are_converted_to_relative_paths(bench: FolderBench) -> None:
    bench.write("real/f")
    (bench.root / "link").symlink_to(bench.root / "real")
    root = str(bench.root)
    assert bench.folder.relatives([f"{root}/link/f", f"{root}/real/f", root, "/etc/passwd"]) == {"real/f", ""}


def test_only_regular_files_are_included(bench: FolderBench) -> None:
    os.mkfifo(bench.root / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(bench.root)
        made.bind("socket")
        os.chdir(here)
        bench.write("file")
        assert bench.commit_full_scan() == ["created file"]


def test_name_that_is_not_text_is_reported_as_unreadable(bench: FolderBench) -> None:
    (Path(os.fsdecode(os.fsencode(bench.root) + b"/bad\xff"))).write_text("x")
    bench.write("good")
    outcome = bench.folder.full_scan()
    assert bench.commit_changes(outcome) == ["created good"]
    assert dict(outcome.unreadable) == {"bad\ufffd": "its name is not UTF-8"}


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so the test runs as the user `nobody`."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_unreadable_files_are_neither_changed_nor_deleted() -> None:
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        bench = FolderBench(Path(base))
        for name in ("open/1", "closed/2", "closed/deeper/3"):
            bench.write(name)
        bench.commit_full_scan()
        (bench.root / "closed").chmod(0)
        (bench.root / "open/1").unlink()
        try:
            with as_nobody():
                outcome = bench.folder.full_scan()
                hinted = bench.folder.scan_paths(["closed"])
            bench.root.chmod(0)
            with as_nobody():
                shut = bench.folder.full_scan()
        finally:
            bench.root.chmod(0o755)
            (bench.root / "closed").chmod(0o755)
        assert dict(outcome.unreadable) == {"closed": "Permission denied"} == dict(hinted.unreadable)
        assert hinted.changes == ()
        assert bench.commit_changes(outcome) == ["deleted open/1"]
        assert shut.changes == ()
        assert shut.unavailable_reason is not None
        assert "Permission denied" in shut.unavailable_reason
        assert bench.commit_full_scan() == []
        bench.seen.close()


def test_hard_links_are_not_moves(bench: FolderBench) -> None:
    bench.write("a")
    bench.commit_full_scan()
    os.link(bench.root / "a", bench.root / "b")
    os.link(bench.root / "a", bench.root / "c")
    (bench.root / "a").unlink()
    assert bench.commit_full_scan() == ["deleted a", "created b", "created c"]


def test_selection_applies_to_scans_and_paths(bench: FolderBench) -> None:
    bench.selection = FolderSelection(patterns=("*.md",), ignore_patterns=("skip",), depth=1)
    bench.seen.close()
    bench.restart()
    for name in ("a.md", "x/b.md", "x/y/c.md", "skip/d.md", "e.txt"):
        bench.write(name)
    paths_to_scan = ["x/y/c.md", "x/y", "skip/d.md", "e.txt", "skip"]
    assert bench.commit_changes(bench.folder.scan_paths(paths_to_scan)) == []
    assert bench.commit_full_scan() == ["created a.md", "created x/b.md"]


def test_rescan_enters_notified_and_changed_folders(bench: FolderBench) -> None:
    for folder in ("quiet", "heard", "came", "went"):
        bench.write(f"{folder}/a")
        bench.write(f"{folder}/b")
    bench.commit_full_scan()
    bench.settle_folders()
    bench.commit_full_scan()  # store the current stamps of the folders
    bench.write("quiet/a", "longer")
    bench.write("heard/a", "longer")
    bench.write("came/new/c")
    (bench.root / "went/b").unlink()
    outcome = bench.folder.rescan({"heard"})
    assert bench.commit_changes(outcome) == ["deleted went/b", "created came/new/c", "changed heard/a"]
    assert sorted(outcome.unchecked) == ["quiet/a", "quiet/b"], (
        "nothing says that something was written there"
    )
    assert bench.commit_changes(bench.folder.scan_paths(outcome.unchecked)) == ["changed quiet/a"]


def test_replaced_folder_is_entered_whatever_its_mtime(bench: FolderBench) -> None:
    for folder in ("v1", "v2"):
        bench.write(f"{folder}/deep/a", folder)
        bench.write(f"{folder}/deep/only in {folder}")
    bench.settle_folders()
    bench.commit_full_scan()
    (bench.root / "v1").rename(bench.base / "aside")
    (bench.root / "v2").rename(bench.root / "v1")
    shutil.rmtree(bench.base / "aside")
    bench.settle_folders()
    assert bench.commit_changes(bench.folder.rescan(())) == [
        "deleted v1/deep/only in v1",
        "moved v2/deep/only in v2 ▸ v1/deep/only in v2",
        "deleted v2/deep/a",
        "changed v1/deep/a",
    ]
    assert bench.commit_full_scan() == []


def test_recently_changed_folder_is_entered_again(bench: FolderBench) -> None:
    """A second change within the same tick of the clock leaves the same mtime."""
    bench.write("d/a")
    bench.commit_full_scan()
    status = (bench.root / "d").stat()
    bench.write("d/b")
    os.utime(bench.root / "d", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert bench.commit_changes(bench.folder.rescan(())) == ["created d/b"]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["write", "append", "delete", "move", "move folder", "remove folder", "wait_for_clock_tick"]
        ),
        st.sampled_from(["a", "b", "a/b", "b/a"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["a", "b", "a/b", "b/a", "c"]),
    ),
    max_size=25,
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_STEPS, st.sets(st.sampled_from(["", "a", "b", "a/b", "c"])))
def test_rescan_with_its_unchecked_files_equals_a_scan(
    steps: list[tuple[str, str, str, str]], notified: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as base:
        bench = FolderBench(Path(base))
        for number, (step, folder, name, other) in enumerate(steps):
            _do(bench, step, folder, name, other, number)
            if number % 7 == 6:
                bench.commit_full_scan()
        outcome = bench.folder.rescan(notified)
        bench.commit_changes(outcome)
        bench.commit_changes(bench.folder.scan_paths([*outcome.unchecked, *outcome.unstable]))
        known = {path: stamp[:4] for path, stamp in bench.seen.known("w").items()}
        bench.folder.full_scan()
        found = scan(bench.root, bench.selection).found
        assert {path: known[path][0] for path in known} == {path: found[path].size for path in found}
        bench.seen.close()


def _do(bench: FolderBench, step: str, folder: str, name: str, other: str, number: int) -> None:
    file, target = bench.root / folder / name, bench.root / other
    try:
        match step:
            case "write":
                bench.write(f"{folder}/{name}", "w" * number)
            case "append" if file.exists():
                with file.open("a") as opened:
                    opened.write("more")
            case "delete":
                file.unlink(missing_ok=True)
            case "move" if file.exists():
                target.mkdir(parents=True, exist_ok=True)
                file.rename(target / name)
            case "move folder" if (bench.root / folder).is_dir() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                (bench.root / folder).rename(target)
            case "remove folder":
                shutil.rmtree(bench.root / folder, ignore_errors=True)
            case "wait_for_clock_tick":
                bench.settle_folders()
    except (FileExistsError, NotADirectoryError, IsADirectoryError, OSError):
        pass  # the step does not apply to the current files
