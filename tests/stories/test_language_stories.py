"""Every rule of spec/language.md §2-§5 as a story, told in memory, and in a directory that is opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.testing.stories import EmbeddedHost, Story, read_stories, run_story

FOLDER = Path(__file__).parent / "language"
STORIES = [
    story
    for file in sorted(FOLDER.glob("*.story"))
    for story in read_stories(file.read_text(encoding="utf-8"), f"{file.name}")
]
RULES = dict(
    line.split(maxsplit=1)
    for line in (FOLDER / "rules.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("--")
)


@pytest.mark.parametrize("story", [s for s in STORIES if not s.needs_restart], ids=str)
def test_in_memory(story: Story):
    run_story(story, EmbeddedHost(":memory:", story.settings), persistent=False)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_in_a_directory(story: Story, tmp_path: Path):
    run_story(story, EmbeddedHost(tmp_path / "data", story.settings), persistent=True)


def test_every_rule_has_a_story():
    told = {rule for story in STORIES for rule in story.rules}
    assert sorted(RULES.keys() - told) == [], "rules without a story"
    assert sorted(told - RULES.keys()) == [], "stories about rules that rules.txt does not know"
