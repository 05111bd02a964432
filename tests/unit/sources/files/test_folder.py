"""A folder on a real file system: what changed since it was last seen, also while nobody looked."""

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


class Place:
    """A folder and what is known of it; `restart` opens it again as a new process would."""

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
        os.utime(file, (1_700_000_000, 1_700_000_000))  # settled long ago

    def settle_folders(self) -> None:
        """Until a change of a folder is sure to be seen by its times: no two are within one tick."""
        newest = max(path.stat().st_ctime_ns for path in [self.root, *self.root.rglob("*")])
        while SystemClock().now().timestamp() * 1000 - newest / 1_000_000 <= UNSETTLED_MS:
            Event().wait(0.005)

    @property
    def device(self) -> int:
        return self.root.stat().st_dev

    def told(self, look: ScanOutcome) -> list[str]:
        self.folder.commit(look.changes)
        return [
            f"{change.kind} {change.old_path + ' ▸ ' if change.old_path else ''}{change.path}"
            for change in look.changes
        ]

    def all_told(self) -> list[str]:
        return self.told(self.folder.full_scan())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.seen.close()


def test_what_happened_while_nobody_looked(place: Place) -> None:
    for name in ("same", "edited", "moved", "deleted"):
        place.write(f"d/{name}", name)
    assert place.all_told() == ["created d/deleted", "created d/edited", "created d/moved", "created d/same"]
    place.seen.close()
    place.write("d/edited", "edited twice")
    (place.root / "d/moved").rename(place.root / "here")
    (place.root / "d/deleted").unlink()
    place.write("new")
    place.restart()
    assert place.all_told() == [
        "deleted d/deleted",
        "moved d/moved ▸ here",
        "changed d/edited",
        "created new",
    ]
    assert place.all_told() == []


def test_the_data_directory_is_never_looked_into(tmp_path: Path) -> None:
    """By whatever name it is reached: closing a file of it would drop the locks that SQLite has on it."""
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
        seen.forget("w")
        return {change.path for change in changes}

    assert found(root, names) == {"a", "around it/b"}
    assert found(outside, ["data", "data/c"]) == {"b"}, "below the watched folder"
    assert found(data, ["c", "vectors/d"]) == set(), "the watched folder itself"
    seen.close()


def test_what_is_noted_is_known_and_written_with_what_is_confirmed_next(place: Place) -> None:
    place.write("a")
    changes = place.folder.full_scan().changes
    place.folder.mark_pending(changes)
    place.folder.record(changes)
    assert place.folder.full_scan().changes == ()
    place.seen.close()
    place.restart()
    changes = place.folder.full_scan().changes
    assert [change.path for change in changes] == ["a"], "whoever died before tells it once more"
    place.folder.record(changes)
    place.folder.commit(())
    assert place.folder.unwritten == 0
    place.seen.close()
    place.restart()
    assert place.all_told() == []


def test_what_is_not_confirmed_is_told_again(place: Place) -> None:
    place.write("a")
    assert len(place.folder.full_scan().changes) == 1
    place.seen.close()
    place.restart()
    assert place.all_told() == ["created a"]


def test_a_file_that_was_told_of_and_is_gone_after_a_crash(place: Place) -> None:
    for name in ("a", "b"):
        place.write(name)
    place.folder.mark_pending(place.folder.full_scan().changes)
    place.seen.close()
    (place.root / "a").unlink()
    place.restart()
    assert place.all_told() == ["deleted a", "created b"]
    assert place.all_told() == []


def test_a_file_that_was_told_of_half_way_and_is_gone(place: Place) -> None:
    """Whoever was told failed, nobody died: a hint at the folder still finds that its files are gone."""
    for name in ("d/a", "d/b"):
        place.write(name)
    look = place.folder.full_scan()
    place.folder.mark_pending(look.changes)
    place.folder.mark_pending(look.changes)  # told once more
    shutil.rmtree(place.root / "d")
    assert place.told(place.folder.scan_paths(["d"])) == ["deleted d/a", "deleted d/b"]
    place.seen.close()
    place.restart()
    assert place.all_told() == []


def test_an_edit_that_keeps_size_and_mtime_is_seen(place: Place) -> None:
    place.write("a", "one")
    place.all_told()
    place.write("a", "two")
    assert place.all_told() == ["changed a"]


def test_a_file_that_was_just_written_is_looked_at_again(place: Place) -> None:
    (place.root / "a").write_text("1")
    look = place.folder.full_scan()
    assert place.told(look) == ["created a"]
    assert look.unstable == {"a"}
    assert place.told(place.folder.scan_paths(["a"])) == ["changed a"], "its content decides whether it did"


def test_a_tree_that_moves_is_moves_of_its_files(place: Place) -> None:
    for name in ("a/1", "a/b/2"):
        place.write(name)
    place.all_told()
    (place.root / "a").rename(place.root / "z")
    assert place.told(place.folder.scan_paths(["a", "z"])) == ["moved a/1 ▸ z/1", "moved a/b/2 ▸ z/b/2"]


def test_a_hint_at_a_folder_looks_below_it(place: Place) -> None:
    for name in ("a/1", "a/b/2", "ab/3"):
        place.write(name)
    assert place.told(place.folder.scan_paths(["a", "a/b"])) == ["created a/1", "created a/b/2"]
    assert place.told(place.folder.scan_paths(["ab/3"])) == ["created ab/3"]
    shutil.rmtree(place.root / "a")
    assert place.told(place.folder.scan_paths(["a"])) == ["deleted a/1", "deleted a/b/2"]
    assert place.told(place.folder.scan_paths(["nothing/here"])) == []


def test_no_path_is_too_deep(place: Place) -> None:
    deep = "/".join(["d"] * 1_500)
    place.folder.mark_pending(
        [FileChange(kind=ChangeKind.CREATED, path=f"{deep}/a", stamp=FileStamp.never_seen(place.device))]
    )
    assert place.told(place.folder.scan_paths([f"{deep}/a", f"{deep}/b"])) == [f"deleted {deep}/a"]


def test_a_file_in_place_of_a_folder(place: Place) -> None:
    place.write("a/1")
    place.all_told()
    shutil.rmtree(place.root / "a")
    place.write("a", "not the same")  # it may well get the number that the other had
    assert place.told(place.folder.scan_paths(["a"])) == ["deleted a/1", "created a"]
    (place.root / "a").unlink()
    place.write("a/1")
    assert place.told(place.folder.scan_paths(["a"])) == ["deleted a", "created a/1"]


def test_a_folder_that_is_gone_is_down_and_nothing_is_deleted(place: Place) -> None:
    place.write("a")
    place.all_told()
    place.root.rename(place.base / "elsewhere")
    for look in (place.folder.full_scan(), place.folder.scan_paths(["a"])):
        assert look.changes == ()
        assert look.unavailable_reason == f"{place.root} is not there"
    (place.base / "elsewhere").rename(place.root)
    assert place.folder.full_scan() == ScanOutcome()


def test_a_file_in_place_of_the_root(place: Place) -> None:
    place.write("a")
    place.all_told()
    place.root.rename(place.base / "elsewhere")
    place.root.write_text("")
    assert place.folder.full_scan().unavailable_reason == f"{place.root} is no folder"


def on_another_disk(place: Place, below: str) -> None:
    """As if what is known below had been seen on a disk that is not mounted now."""
    place.seen.close()
    with sqlite3.connect(place.seen.directory / "folders.db") as db:
        db.execute("UPDATE seen_files SET device = '999999' WHERE path LIKE ? || '%'", (below,))
    db.close()
    place.restart()


def test_an_unmounted_disk_deletes_nothing(place: Place) -> None:
    for name in ("a", "b/c"):
        place.write(name)
    place.all_told()
    on_another_disk(place, "")
    shutil.rmtree(place.root)
    place.root.mkdir()  # the empty mount point
    for look in (place.folder.full_scan(), place.folder.scan_paths(["a", "b"])):
        assert look.changes == ()
        assert look.unavailable_reason == "2 files are missing with the disk they were on"


def test_a_disk_below_the_root_that_is_unmounted(place: Place) -> None:
    for name in ("a", "disk/1", "disk/2"):
        place.write(name)
    place.all_told()
    on_another_disk(place, "disk/")
    shutil.rmtree(place.root / "disk")
    (place.root / "a").unlink()
    look = place.folder.full_scan()
    assert place.told(look) == ["deleted a"], "the root's own disk is there"
    assert look.unavailable_reason is not None
    place.write("disk/2")
    assert "deleted disk/1" in place.all_told(), "one of its files is back, so the disk is"


def test_a_disk_with_a_new_number_is_no_change(place: Place) -> None:
    for name in ("a", "b"):
        place.write(name)
    place.all_told()
    on_another_disk(place, "")
    assert place.folder.full_scan() == ScanOutcome()
    (place.root / "a").unlink()
    assert place.all_told() == ["deleted a"]


def test_links(place: Place) -> None:
    outside = place.base / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "o").write_text("o")
    os.utime(outside / "deep" / "o", (1_700_000_000, 1_700_000_000))
    (outside / "loop").symlink_to(outside)
    (outside / "back").symlink_to(place.root)
    place.write("a/f")
    (place.root / "a" / "self").symlink_to(place.root / "a")
    (place.root / "up").symlink_to(place.base)
    (place.root / "again").symlink_to(place.root / "a" / "f")
    (place.root / "broken").symlink_to(place.base / "nowhere")
    (place.root / "turning").symlink_to("turning")
    (place.root / "out").symlink_to(outside)
    (place.root / "file").symlink_to(outside / "deep" / "o")
    expected = ["created a/f", "created file", "created out/deep/o"]
    assert place.told(place.folder.full_scan()) == expected
    assert (
        place.told(place.folder.scan_paths(["a", "out", "file", "up", "again", "out/loop/deep", "turning"]))
        == []
    )


def test_a_look_and_a_scan_agree_on_links_behind_a_link(place: Place) -> None:
    outside, far = place.base / "outside", place.base / "far"
    for folder in (outside, far / "deep"):
        folder.mkdir(parents=True)
    for file in (far / "file", far / "deep/file"):
        file.write_text("x")
    place.write("own")
    for name, target in (("file", far / "file"), ("deep", far / "deep"), ("own", place.root / "own")):
        (outside / name).symlink_to(target)
    (place.root / "link").symlink_to(outside)
    whole = scan(place.root, FolderSelection()).found
    assert set(whole) == {"own", "link/file"}
    starts = ["own", "link/file", "link/deep", "link/deep/file", "link/own"]
    assert scan(place.root, FolderSelection(), starts).found == whole


def test_the_kernel_s_names_are_made_ours(place: Place) -> None:
    place.write("real/f")
    (place.root / "link").symlink_to(place.root / "real")
    root = str(place.root)
    assert place.folder.relatives([f"{root}/link/f", f"{root}/real/f", root, "/etc/passwd"]) == {"real/f", ""}


def test_only_regular_files_are_taken(place: Place) -> None:
    os.mkfifo(place.root / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(place.root)
        made.bind("socket")
        os.chdir(here)
        place.write("file")
        assert place.all_told() == ["created file"]


def test_a_name_that_is_no_text_is_told_and_left_out(place: Place) -> None:
    (Path(os.fsdecode(os.fsencode(place.root) + b"/bad\xff"))).write_text("x")
    place.write("good")
    look = place.folder.full_scan()
    assert place.told(look) == ["created good"]
    assert dict(look.unreadable) == {"bad\ufffd": "its name is not UTF-8"}


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may read everything; nobody may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_is_neither_changed_nor_deleted() -> None:
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        place = Place(Path(base))
        for name in ("open/1", "closed/2", "closed/deeper/3"):
            place.write(name)
        place.all_told()
        (place.root / "closed").chmod(0)
        (place.root / "open/1").unlink()
        try:
            with without_rights():
                look = place.folder.full_scan()
                hinted = place.folder.scan_paths(["closed"])
            place.root.chmod(0)
            with without_rights():
                shut = place.folder.full_scan()
        finally:
            place.root.chmod(0o755)
            (place.root / "closed").chmod(0o755)
        assert dict(look.unreadable) == {"closed": "Permission denied"} == dict(hinted.unreadable)
        assert hinted.changes == ()
        assert place.told(look) == ["deleted open/1"]
        assert shut.changes == ()
        assert shut.unavailable_reason is not None
        assert "Permission denied" in shut.unavailable_reason
        assert place.all_told() == []
        place.seen.close()


def test_hard_links_are_no_moves(place: Place) -> None:
    place.write("a")
    place.all_told()
    os.link(place.root / "a", place.root / "b")
    os.link(place.root / "a", place.root / "c")
    (place.root / "a").unlink()
    assert place.all_told() == ["deleted a", "created b", "created c"]


def test_depth_and_patterns_are_kept_on_both_ways(place: Place) -> None:
    place.selection = FolderSelection(patterns=("*.md",), ignore_patterns=("skip",), depth=1)
    place.seen.close()
    place.restart()
    for name in ("a.md", "x/b.md", "x/y/c.md", "skip/d.md", "e.txt"):
        place.write(name)
    hints = ["x/y/c.md", "x/y", "skip/d.md", "e.txt", "skip"]
    assert place.told(place.folder.scan_paths(hints)) == []
    assert place.all_told() == ["created a.md", "created x/b.md"]


def test_a_rescan_looks_into_folders_that_something_points_at(place: Place) -> None:
    for folder in ("quiet", "heard", "came", "went"):
        place.write(f"{folder}/a")
        place.write(f"{folder}/b")
    place.all_told()
    place.settle_folders()
    place.all_told()  # the folders are known as they are now
    place.write("quiet/a", "longer")
    place.write("heard/a", "longer")
    place.write("came/new/c")
    (place.root / "went/b").unlink()
    look = place.folder.rescan({"heard"})
    assert place.told(look) == ["deleted went/b", "created came/new/c", "changed heard/a"]
    assert sorted(look.unchecked) == ["quiet/a", "quiet/b"], "nothing says that something was written there"
    assert place.told(place.folder.scan_paths(look.unchecked)) == ["changed quiet/a"]


def test_another_folder_in_the_place_of_one_is_looked_into_whatever_its_dates(place: Place) -> None:
    for folder in ("v1", "v2"):
        place.write(f"{folder}/deep/a", folder)
        place.write(f"{folder}/deep/only in {folder}")
    place.settle_folders()
    place.all_told()
    (place.root / "v1").rename(place.base / "aside")
    (place.root / "v2").rename(place.root / "v1")
    shutil.rmtree(place.base / "aside")
    place.settle_folders()
    assert place.told(place.folder.rescan(())) == [
        "deleted v1/deep/only in v1",
        "moved v2/deep/only in v2 ▸ v1/deep/only in v2",
        "deleted v2/deep/a",
        "changed v1/deep/a",
    ]
    assert place.all_told() == []


def test_a_folder_that_changed_in_this_moment_is_looked_into_again(place: Place) -> None:
    """A second change within the same tick of the clock leaves the same mtime."""
    place.write("d/a")
    place.all_told()
    status = (place.root / "d").stat()
    place.write("d/b")
    os.utime(place.root / "d", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert place.told(place.folder.rescan(())) == ["created d/b"]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "append", "delete", "move", "move folder", "remove folder", "settle"]),
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
def test_a_rescan_and_what_it_left_find_all_that_a_scan_finds(
    steps: list[tuple[str, str, str, str]], heard: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as base:
        place = Place(Path(base))
        for number, (step, folder, name, other) in enumerate(steps):
            _do(place, step, folder, name, other, number)
            if number % 7 == 6:
                place.all_told()
        look = place.folder.rescan(heard)
        place.told(look)
        place.told(place.folder.scan_paths([*look.unchecked, *look.unstable]))
        known = {path: stamp[:4] for path, stamp in place.seen.known("w").items()}
        place.folder.full_scan()
        found = scan(place.root, place.selection).found
        assert {path: known[path][0] for path in known} == {path: found[path].size for path in found}
        place.seen.close()


def _do(place: Place, step: str, folder: str, name: str, other: str, number: int) -> None:
    file, target = place.root / folder / name, place.root / other
    try:
        match step:
            case "write":
                place.write(f"{folder}/{name}", "w" * number)
            case "append" if file.exists():
                with file.open("a") as opened:
                    opened.write("more")
            case "delete":
                file.unlink(missing_ok=True)
            case "move" if file.exists():
                target.mkdir(parents=True, exist_ok=True)
                file.rename(target / name)
            case "move folder" if (place.root / folder).is_dir() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                (place.root / folder).rename(target)
            case "remove folder":
                shutil.rmtree(place.root / folder, ignore_errors=True)
            case "settle":
                place.settle_folders()
    except (FileExistsError, NotADirectoryError, IsADirectoryError, OSError):
        pass  # that cannot be done to what is there
