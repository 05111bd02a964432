"""The story files by folder, and the checks that every folder must pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from vedette.testing.stories import Story, read_stories

__all__ = ["FOLDERS", "STORIES", "check_rules", "check_titles", "marked"]

FOLDERS = ("language", "watch", "queue")


def _read(folder: str) -> list[Story]:
    return [
        story
        for file in sorted((Path(__file__).parent / folder).glob("*.story"))
        for story in read_stories(file.read_text(encoding="utf-8"), file.name)
    ]


STORIES = {folder: _read(folder) for folder in FOLDERS}


def marked(stories: Iterable[Story]) -> list[Any]:
    """Return pytest parameters. A story with `.xfail` is expected to fail, and fails the run if it passes."""
    return [
        pytest.param(story, id=str(story), marks=_expected_failure(story.xfail) if story.xfail else ())
        for story in stories
    ]


def _expected_failure(feature: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=f"pending: {feature}", strict=True)


def check_rules(folder: str) -> None:
    """Check that every rule of `rules.txt` has a story, and that stories name listed rules only."""
    lines = (Path(__file__).parent / folder / "rules.txt").read_text(encoding="utf-8").splitlines()
    rules = {line.split(maxsplit=1)[0] for line in lines if line and not line.startswith("--")}
    covered = {rule for story in STORIES[folder] for rule in story.rules}
    assert sorted(rules - covered) == [], "rules without a story"
    assert sorted(covered - rules) == [], "rules of stories that rules.txt does not list"


def check_titles(stories: Sequence[Story]) -> None:
    titles = [story.title for story in stories]
    assert sorted(titles) == sorted(set(titles))
