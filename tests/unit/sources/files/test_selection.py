"""Which files of a folder are included."""

from __future__ import annotations

import pytest

from vedette.sources.files.selection import FolderSelection


@pytest.mark.parametrize(
    ("glob", "taken", "left"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b", "a.PY"]),
        ("src/*.c", ["src/a.c", "lib/src/a.c"], ["a.c", "src/x/a.c", "mysrc/a.c"]),
        ("/src/*.c", ["src/a.c"], ["lib/src/a.c"]),
        ("src/**/*.c", ["src/a.c", "src/x/y/a.c", "lib/src/x/a.c"], ["src/a.h"]),
        ("docs/*", ["docs/a", "docs/x/y"], ["docs", "mydocs/a"]),
        ("a?[0-9].txt", ["ab1.txt", "x/ab9.txt"], ["a1.txt", "abc.txt", "a/1.txt"]),
        ("[!a-c]*", ["d", "x/dog"], ["a", "cat"]),
        ("[", ["["], ["x"]),
        ("[z-a]", ["[z-a]"], ["b"]),
        ("a.b(c)+$^|", ["a.b(c)+$^|"], ["aXb(c)+$^|"]),
    ],
)
def test_globs(glob: str, taken: list[str], left: list[str]) -> None:
    selection = FolderSelection(patterns=(glob,))
    assert [path for path in taken + left if selection.includes(path)] == taken


@pytest.mark.parametrize(
    ("glob", "ignored", "kept", "closed", "open_"),
    [
        (
            ".git/*",
            [".git/config", "sub/.git/objects/ab/cd"],
            [".gitignore", "a.git/x"],
            [".git"],
            ["src", "a.git"],
        ),
        (
            "node_modules",
            ["node_modules/a/b.js", "x/node_modules/c"],
            ["node_modules2/a"],
            ["x/node_modules"],
            ["x"],
        ),
        ("*.pyc", ["a.pyc", "x/b.pyc"], ["a.py"], [], ["x"]),
        ("build/*.o", ["build/a.o"], ["build/a.c"], [], ["build"]),
        ("?", ["a", "x/b"], ["ab"], ["z"], ["ab"]),
        ("*", ["a", "x/y"], [], ["x"], []),
    ],
)
def test_ignored(glob: str, ignored: list[str], kept: list[str], closed: list[str], open_: list[str]) -> None:
    selection = FolderSelection(ignore_patterns=(glob,))
    assert [path for path in ignored + kept if not selection.includes(path)] == ignored
    assert [folder for folder in closed + open_ if not selection.descends_into(folder)] == closed


def test_ignore_takes_precedence_over_include() -> None:
    selection = FolderSelection(patterns=("*.py",), ignore_patterns=("test_*",))
    assert selection.includes("a.py")
    assert not selection.includes("test_a.py")


@pytest.mark.parametrize(("depth", "deepest"), [(0, 0), (1, 1), (2, 2), (-1, 3)])
def test_depth(depth: int, deepest: int) -> None:
    paths = ["f", "a/f", "a/b/f", "a/b/c/f"]
    selection = FolderSelection(depth=depth)
    assert [path for path in paths if selection.includes(path)] == paths[: deepest + 1]
    folders = ["a", "a/b", "a/b/c"]
    assert [folder for folder in folders if selection.descends_into(folder)] == folders[:deepest]
