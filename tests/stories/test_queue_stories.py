"""What users want of work queues, as stories, told in memory, and in a directory that is opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.catalogue import check_rules, check_titles, marked, stories_of
from vedette.testing.stories import EmbeddedHost, Story, run_story

FOLDER = Path(__file__).parent / "queue"
STORIES = stories_of(FOLDER)


@pytest.mark.parametrize("story", marked(s for s in STORIES if not s.needs_restart))
def test_in_memory(story: Story):
    run_story(story, EmbeddedHost(":memory:", story.settings), persistent=False)


@pytest.mark.parametrize("story", marked(STORIES))
def test_in_a_directory(story: Story, tmp_path: Path):
    run_story(story, EmbeddedHost(tmp_path / "data", story.settings), persistent=True)


# The catalogue


def test_every_rule_has_a_story():
    check_rules(FOLDER, STORIES)


def test_titles_are_unique():
    check_titles(STORIES)
