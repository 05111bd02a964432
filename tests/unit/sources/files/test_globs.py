"""All globs are matched at once, in time linear in the path."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.sources.files import globs
from vedette.sources.files.globs import Glob, Globs
from vedette.sources.files.selection import FolderSelection

PIECES = {
    **{each: re.escape(each) for each in "ab./-"},
    "**/": "(?:.*/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
    "[ab]": "[ab]",
    "[!a]": "[^a/]",
    "[!-a]": "[^\\-a/]",
    "[.-0]": "[.0]",
}
"""Return a piece of a glob as a regular expression."""


@given(
    st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=6).filter(lambda pieces: pieces[0] != "/"),
    st.lists(st.text(st.sampled_from("ab.-0"), min_size=1, max_size=3), min_size=1, max_size=4),
    st.booleans(),
)
def test_glob_matches_like_its_regular_expression(pieces: list[str], names: list[str], below: bool) -> None:
    glob = "".join(pieces)
    expected = [each for each in re.split(r"(\*\*/|\*\*|\[[^]]*\]|.)", glob.strip("/")) if each]
    expression = "(?:.*/)?" + "".join(PIECES[each] for each in expected) + ("(?:/.*)?" if below else "")
    path = "/".join(names)
    assert Globs([Glob(glob, below)]).match(path) == bool(re.fullmatch(expression, path))


@given(
    st.text(st.sampled_from("[]!^-+/\\&~|*?az"), max_size=8), st.text(st.sampled_from("-a[z/"), max_size=5)
)
def test_any_text_is_a_valid_glob(glob: str, path: str) -> None:
    selection = FolderSelection(patterns=(glob,), ignore_patterns=(glob,))
    assert selection.includes(path) in (True, False)


@pytest.mark.parametrize(
    ("glob", "taken", "left"),
    [
        ("[!-!]*", ["a", "x/a"], ["-", "!a"]),
        ("[!-a]x", ["Bx"], ["-x", "ax"]),
        ("[.-0]x", [".x", "0x"], ["x"]),
        ("a[.-0]b", ["a.b"], ["a/b"]),
    ],
)
def test_sets_with_a_dash(glob: str, taken: list[str], left: list[str]) -> None:
    selection = FolderSelection(patterns=(glob,))
    assert [path for path in taken + left if selection.includes(path)] == taken


@pytest.mark.parametrize("glob", ["*a" * 8 + "*b", "**a" * 8 + "**b", "**/a" * 8 + "/b", "*a" + "?" * 8])
def test_many_stars_take_linear_time(glob: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one transition per character is computed, no matter how often the cache is cleared."""
    monkeypatch.setattr(globs, "MOST_REMEMBERED", 10)
    made = Globs([Glob(glob, below=True)])
    steps = 0
    worked_out = made._step

    def counted(number: int, token: int, character: str) -> object:
        nonlocal steps
        steps += 1
        return worked_out(number, token, character)

    monkeypatch.setattr(made, "_step", counted)
    path = "ab/a" * 500
    made.match(path)
    assert steps <= len(path) * (len(glob) + 4)


def test_cleared_cache_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(globs, "MOST_REMEMBERED", 3)
    made = Globs([Glob("src/*.c", below=False)])
    paths = ["src/a.c", "src/b.h", "lib/src/a.c", "a.c"] * 3
    assert [made.match(path) for path in paths] == [True, False, True, False] * 3
