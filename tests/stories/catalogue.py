"""A folder of stories and its `rules.txt`: what every catalogue of stories must hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from vedette.testing.stories import Story, read_stories

__all__ = ["check_rules", "check_titles", "marked", "stories_of"]


def stories_of(folder: Path) -> list[Story]:
    return [
        story
        for file in sorted(folder.glob("*.story"))
        for story in read_stories(file.read_text(encoding="utf-8"), f"{file.name}")
    ]


def marked(stories: Iterable[Story]) -> list[Any]:
    """Stories that wait for a feature are expected to fail: the run lists them, and complains when they do not."""
    return [
        pytest.param(story, id=str(story), marks=_waiting(story.xfail) if story.xfail else ())
        for story in stories
    ]


def _waiting(feature: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=f"pending: {feature}", strict=True)


def check_rules(folder: Path, stories: Sequence[Story]) -> None:
    """Every rule has a story, and every story is about a rule that there is."""
    lines = (folder / "rules.txt").read_text(encoding="utf-8").splitlines()
    rules = {line.split(maxsplit=1)[0] for line in lines if line and not line.startswith("--")}
    told = {rule for story in stories for rule in story.rules}
    assert sorted(rules - told) == [], "rules without a story"
    assert sorted(told - rules) == [], "stories about rules that rules.txt does not know"


def check_titles(stories: Sequence[Story]) -> None:
    titles = [story.title for story in stories]
    assert sorted(titles) == sorted(set(titles))
