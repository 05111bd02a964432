"""What users want of work queues, as stories, told in memory, and in a directory that is opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.test_watch_stories import marked
from vedette.testing.stories import EmbeddedHost, Story, read_stories, tell

FOLDER = Path(__file__).parent / "consume"
STORIES = [
    story
    for file in sorted(FOLDER.glob("*.story"))
    for story in read_stories(file.read_text(encoding="utf-8"), f"{file.name}")
]


@pytest.mark.parametrize("story", marked(s for s in STORIES if not s.needs_keeping))
def test_in_memory(story: Story):
    tell(story, EmbeddedHost(":memory:", story.settings), keeps=False)


@pytest.mark.parametrize("story", marked(STORIES))
def test_in_a_directory(story: Story, tmp_path: Path):
    tell(story, EmbeddedHost(tmp_path / "data", story.settings), keeps=True)


# --- the catalogue ------------------------------------------------------------------------------------------------

RULES = dict(
    line.split(maxsplit=1)
    for line in (FOLDER / "rules.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("--")
)


def test_every_rule_has_a_story():
    told = {rule for story in STORIES for rule in story.rules}
    assert sorted(RULES.keys() - told) == [], "rules without a story"
    assert sorted(told - RULES.keys()) == [], "stories about rules that rules.txt does not know"


def test_titles_are_unique():
    titles = [story.title for story in STORIES]
    assert sorted(titles) == sorted(set(titles))
