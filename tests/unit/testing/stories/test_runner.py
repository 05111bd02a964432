"""The story runner reports a statement whose result differs from the story."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.engine.session.session import Session
from vedette.testing.stories import EmbeddedHost, StoryFailed, read_stories, run_story

STORY = """\
=== x | a story
.define node Task { n: Int }
> SPAWN a: Task { n = 1 }
"""


def run(text: str) -> None:
    (story,) = read_stories(STORY + text)
    run_story(story, EmbeddedHost(":memory:", story.settings), persistent=False)


def test_a_statement_with_the_expected_rows_passes():
    run("> MATCH t: Task RETURN t.n\ncolumns: t.n\n1\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("> MATCH t: Task RETURN t.n\n2\n", "1"),
        ("> MATCH t: Task RETURN t.n\ncolumns: m\n1\n", "expected columns m"),
        ("> MATCH t: Nothing RETURN t\n", "E2001"),
        ("> MATCH t: Task RETURN t.n\n! E2001\n", "but it succeeded"),
    ],
)
def test_a_difference_fails_the_story(text: str, words: str):
    with pytest.raises(StoryFailed, match=words):
        run(text)


def test_a_host_that_returns_no_result_fails_the_story(monkeypatch: pytest.MonkeyPatch):
    def lose_result(*_: Any) -> None:
        return None

    monkeypatch.setattr(Session, "execute", lose_result)
    with pytest.raises(StoryFailed, match="the host returned no result"):
        run("> MATCH t: Task RETURN t.n\n1\n")
