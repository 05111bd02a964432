"""Parsing story files, and the messages of stories that fail."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.testing.stories import EmbeddedHost, StoryFailed, StoryFormatError, read_stories, run_story
from vedette.testing.stories.parser import Advance, Define, Execute

HEAD = """
.ontology people
    node Person { name: String, n: Int? }

=== 9.1, 9.2 | a title
.use people
"""


def run(text: str) -> None:
    """Run HEAD plus the given steps as one story."""
    (story,) = read_stories(HEAD + text, "a.story")
    run_story(story, EmbeddedHost(":memory:", story.settings), persistent=False)


def test_story_has_rules_title_and_steps():
    text = (
        HEAD
        + '> SPAWN p:\n  Person { name = "x" }\ncreated 1\n\n.advance 300ms\nbob>> KILL #p\n! E3601 not\n'
    )
    (story,) = read_stories(text, "a.story")
    assert (story.rules, story.title, story.file) == (("9.1", "9.2"), "a title", "a.story")
    define, spawn, advance, kill = story.steps
    assert isinstance(define, Define)
    assert isinstance(spawn, Execute)
    assert spawn.text == 'SPAWN p:\nPerson { name = "x" }'
    assert spawn.expected.counts == {"created": 1, "modified": 0, "deleted": 0, "linked": 0, "unlinked": 0}
    assert isinstance(advance, Advance)
    assert advance.seconds == 0.3
    assert isinstance(kill, Execute)
    assert (kill.session, kill.script, kill.expected.code, kill.expected.words) == (
        "bob",
        True,
        "E3601",
        ["not"],
    )


@pytest.mark.parametrize(
    "text",
    [
        "=== no bar",
        "=== 1 | x\n.nothing",
        "=== 1 | x\n.use missing",
        "=== 1 | x\n.advance soon",
        "=== 1 | x\n.session bob like ann",
        "=== 1 | x\n> MATCH () RETURN 1\n>",
    ],
)
def test_invalid_story_is_rejected_with_file_and_line(text: str):
    with pytest.raises(StoryFormatError, match=r"a\.story:\d"):
        read_stories(text, "a.story")


def test_story_with_correct_results_passes():
    run(
        '> SPAWN a: Person { name = "A", n = 2 }\ncreated 1\nno warnings\n'
        '> SPAWN b: Person { name = "B" }\n'
        '> MATCH p: Person RETURN p.name, p.n\ncolumns: p.name | p.n\n"B" | null\n"A" | 2\n'
        "> MATCH p: Person RETURN p.id ORDER BY p.name\n#a\n#b\n"
        "> MATCH p: Person WHERE p.n > 5 RETURN p\n(nothing)\n"
        '.params {"id": "#a", "at": "@2024-01-01"}\n'
        "other> MATCH p: Person WHERE p = #$id AND $at < now() + 1s RETURN p\n"
        'Person #a {name: "A", n: 2}\n'
        "> KILL #x\n! E3601 not found\n! mutation error\n!not Person\n"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("> MATCH () RETURN 1\n2\n", "got\n  1"),
        ("> MATCH () RETURN 1\n1\n1\n", "expected"),
        ("> MATCH () RETURN 1\n(nothing)\n", "got\n  1"),
        ("> MATCH () RETURN 1\nrows: 2\n", "expected 2 rows, got 1"),
        ("> MATCH () RETURN 1 AS x\ncolumns: y\n", "expected columns y, got x"),
        ('> SPAWN p: Person { name = "x" }\ncreated 2\n', "'created': 1"),
        ('> SPAWN p: Person { name = "x" }\nlinked 0\n', "'created': 1"),
        ("> SPAWN p: Person\nno warnings\n", "'name'"),
        ("> MATCH () RETURN 1\nwarning: beware\n", "beware"),
        ("> MATCH () RETURN 1\n! E2001\n", "expected E2001, but it succeeded"),
        ("> KILL #x\n", "expected success, got"),
        ("> KILL #x\n! E2001\n", "expected E2001, got"),
        ("> KILL #x\n! E3601 banana\n", "banana"),
        ("> KILL #x\n! E3601\n!not found\n", "must not contain"),
    ],
)
def test_story_with_wrong_results_fails_with_its_place(text: str, complaint: str):
    with pytest.raises(StoryFailed) as failure:
        run(text)
    message = str(failure.value)
    assert "a.story:" in message
    assert "9.1,9.2 a title" in message
    assert complaint in message


def test_data_lost_at_restart_fails_the_story(tmp_path: Any):
    """A host that forgets everything when it is opened again."""
    (story,) = read_stories(HEAD + '> SPAWN p: Person { name = "x" }\n', "a.story")
    with pytest.raises(StoryFailed, match="after"):
        run_story(story, EmbeddedHost(":memory:", story.settings), persistent=True)
