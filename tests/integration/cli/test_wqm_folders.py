"""`wqm` on folders that overlap, names that are odd, and options that make no sense."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Wqm


@pytest.fixture(autouse=True)
def quick_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEDETTE_EMBEDDER", "hashing")


def write(path: Path, text: str = "words") -> Path:
    """A file that was written some time ago: one of just now would be looked at twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def stored(wqm: Wqm, collection: str) -> set[str]:
    """Names of the files that a search for their words finds."""
    hits = json.loads(wqm("search", "words", "-c", collection, "-f", "json").stdout)
    return {Path(hit["path"]).name for hit in hits}


def test_data_directory_is_not_ingested(folder: Path, wqm: Wqm) -> None:
    write(folder / "a.txt")
    wqm("watch", "add", ".", "-c", "c", "--id", "w")
    assert wqm("watch", "sync").stdout == "w: 1 ingested\n"
    assert wqm("watch", "sync").stdout == "w: nothing changed\n", "though its own tables were written"
    assert stored(wqm, "c") == {"a.txt"}
    for inside in ("data", "data/vectors"):
        assert "is the data directory of Vedette" in wqm("watch", "add", inside, "-c", "c", fails=True).stderr


@pytest.mark.parametrize("name", ["x/y", "..", "a\tb", 'a"b', "ü" * 128])
def test_invalid_collection_name_is_refused(folder: Path, wqm: Wqm, name: str) -> None:
    (folder / "n").mkdir()
    assert "E4502" in wqm("watch", "add", "n", "-c", name, fails=True).stderr
    wqm("watch", "add", "n", "-c", "ü" * 127, "--id", "n")
    assert "E4502" in wqm("watch", "update", "n", "-c", name, fails=True).stderr


def test_overlapping_watch_keeps_a_shared_file(folder: Path, wqm: Wqm) -> None:
    for name in ("y.md", "left.md", "gone.md"):
        write(folder / "a" / "b" / name)
    wqm("watch", "add", "a", "-c", "c", "--id", "A")
    wqm("watch", "add", "a/b", "-c", "c", "--id", "B")
    wqm("watch", "exclusions", "B", "--add", "a/b/left.md")
    wqm("watch", "sync")
    (folder / "a" / "b" / "gone.md").unlink()
    wqm("watch", "update", "A", "-i", "b")
    assert wqm("watch", "sync", "A").stdout == "A: 2 removed\n"
    assert stored(wqm, "c") == {"y.md"}


def test_remove_keeps_files_of_an_overlapping_watch(folder: Path, wqm: Wqm) -> None:
    for name in ("x.py", "y.md"):
        write(folder / "a" / "b" / name)
    wqm("watch", "add", "a", "-c", "c", "--id", "A", "-p", "*.py")
    wqm("watch", "add", "a/b", "-c", "c", "--id", "B")
    wqm("watch", "sync")
    assert "with the text of 1 files" in wqm("watch", "remove", "B", "--force").stdout
    assert stored(wqm, "c") == {"x.py"}


def test_stored_text_is_not_moved_to_another_collection(folder: Path, wqm: Wqm) -> None:
    write(folder / "n" / "a.md")
    wqm("watch", "add", "n", "-c", "wrong", "--id", "n")
    wqm("watch", "update", "n", "-c", "old")
    wqm("watch", "sync")
    assert stored(wqm, "old") == {"a.md"}
    wqm("watch", "update", "n", "-c", "old", "--priority", "7")
    refused = wqm("watch", "update", "n", "-c", "new", fails=True).stderr
    assert "wqm watch remove n" in " ".join(refused.split())
    assert json.loads(wqm("watch", "status", "n", "-f", "json").stdout)[0]["collection"] == "old"


def test_exclusion_applies_to_every_spelling_of_a_path(folder: Path, wqm: Wqm) -> None:
    real, outside = folder / "real", folder / "outside"
    for name in ("a", "b", "c", "sub/d", "kept"):
        write(real / name)
    write(outside / "e")
    for link, target in (("lnk", real), ("real/in", real / "sub"), ("real/out", outside)):
        (folder / link).symlink_to(target)
    wqm("watch", "add", "real", "-c", "c", "--id", "w")
    named = ("lnk/a", "real/../real/b", "real/sub/../c", "real/in/d", "lnk/out/e")
    for each in named:
        wqm("watch", "exclusions", "w", "--add", each)
    wqm("watch", "sync")
    assert stored(wqm, "c") == {"kept"}
    assert "is not below" in wqm("watch", "exclusions", "w", "--add", "outside/e", fails=True).stderr
    for each in named:
        wqm("watch", "exclusions", "w", "--remove", each)
    assert "Nothing is excluded" in wqm("watch", "exclusions", "w").stderr


@pytest.mark.parametrize("hours", ["nan", "inf", "1e300", "-5", "0"])
def test_invalid_hours_are_refused(folder: Path, wqm: Wqm, hours: str) -> None:
    (folder / "n").mkdir()
    wqm("watch", "add", "n", "-c", "c", "--id", "n")
    refused = wqm("watch", "exclusions", "n", "--add", "n/x", "--hours", hours, fails=True).stderr
    assert "--hours must be greater than 0" in refused
    assert "Nothing is excluded" in wqm("watch", "exclusions", "n").stderr


@pytest.mark.parametrize(
    "words",
    [
        (b"add", b"bad\xff", b"-c", b"c"),
        (b"add", b"n", b"-c", b"c\xff"),
        (b"add", b"n", b"-c", b"c", b"-p", b"\xff"),
        (b"exclusions", b"n", b"--add", b"n/\xff"),
        (b"exclusions", b"n", b"--remove", b"n/\xff"),
        (b"status", b"bad\xff"),
    ],
)
def test_names_that_are_not_utf8_are_refused(folder: Path, wqm: Wqm, words: tuple[bytes, ...]) -> None:
    for name in (b"bad\xff", b"n"):
        (folder / os.fsdecode(name)).mkdir()
    wqm("watch", "add", "n", "-c", "c", "--id", "n")
    refused = wqm("watch", *map(os.fsdecode, words), fails=True)
    assert (refused.exit_code, "internal error" in refused.stderr) == (1, False)


@pytest.mark.parametrize(
    "words", [("watch", "list"), ("search", "x", "-c", "c"), ("queue", "list"), ("admin", "system-stats")]
)
def test_read_only_commands_create_no_data_directory(folder: Path, wqm: Wqm, words: tuple[str, ...]) -> None:
    said = wqm(*words, "--data", "typo", fails=True).stderr
    assert "The data directory typo does not exist" in " ".join(said.split())
    assert not (folder / "typo").exists()
