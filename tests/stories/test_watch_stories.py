"""What users want of watches, as stories, told in memory, and in a directory that is opened again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from vedette.testing.stories import EmbeddedHost, Story, read_stories, tell

FOLDER = Path(__file__).parent / "watch"
STORIES = [
    story
    for file in sorted(FOLDER.glob("*.story"))
    for story in read_stories(file.read_text(encoding="utf-8"), f"{file.name}")
]


def marked(stories: Iterable[Story]) -> list[Any]:
    """Stories that wait for a feature are expected to fail: the run lists them, and complains when they do not."""
    return [
        pytest.param(story, id=str(story), marks=_waiting(story.pending) if story.pending else ())
        for story in stories
    ]


def _waiting(feature: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=f"pending: {feature}", strict=True)


@pytest.mark.parametrize("story", marked(s for s in STORIES if not s.needs_keeping))
def test_in_memory(story: Story):
    tell(story, EmbeddedHost(":memory:", story.settings), keeps=False)


@pytest.mark.parametrize("story", marked(STORIES))
def test_in_a_directory(story: Story, tmp_path: Path):
    tell(story, EmbeddedHost(tmp_path / "data", story.settings), keeps=True)
