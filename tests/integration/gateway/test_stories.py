"""The stories of watches and queues over a socket: the same events as in an embedded session.

Three ways to read. Pulled: when the story asks, so that everything is as inside a program, also how full a buffer is
and who claims which job. Pushed: as clients do it, told at once; most stories cannot tell the difference. Shared: like
browsers, so that equal watches of several sessions are one; of those, stories that do not look at watches as nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.stories.catalogue import marked, stories_of
from tests.support.gateway_host import GatewayHost
from vedette.testing.stories import Story, run_story
from vedette.testing.stories.parser import Execute
from vedette.testing.stories.steps import Attach, ExpectEvents, SetLimits, StartReactor, named_watch

FOLDER = Path(__file__).parents[2] / "stories"
STORIES = [*stories_of(FOLDER / "watch"), *stories_of(FOLDER / "queue")]

LATE_READERS = frozenset(
    line
    for line in (Path(__file__).parent / "late_readers.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("--")
)
"""Titles of stories that depend on when a reader takes what waits for it."""


def delivered(story: Story, folder: Path, way: str) -> None:
    location = folder / "data" if story.needs_restart else ":memory:"
    run_story(story, GatewayHost(location, story.settings, way=way), persistent=False)


def some(stories: Iterable[Story], every: int, first: int = 0) -> list[Any]:
    """Select a sample of the stories; `make soak` runs all."""
    return [
        pytest.param(
            *case.values,
            id=case.id,
            marks=case.marks if n % every == first else (*case.marks, pytest.mark.soak),
        )
        for n, case in enumerate(marked(stories))
    ]


def is_plain(story: Story) -> bool:
    """Whether its watches are only listened to: no handle is asked for, nothing is managed, no session is special."""
    if story.needs_restart or story.settings or story.title in LATE_READERS:
        return False
    for step in story.steps:
        if isinstance(step, Attach | SetLimits | StartReactor) or (
            isinstance(step, ExpectEvents) and step.limit is not None
        ):
            return False
        if isinstance(step, Execute) and (
            "_Watch" in step.text or "_Session" in step.text or " WATCH #" in step.text
        ):
            return False
    return any(isinstance(step, Execute) and named_watch(step.text) for step in story.steps)


@pytest.mark.parametrize("story", some(STORIES, every=6))
def test_pulled(story: Story, tmp_path: Path):
    delivered(story, tmp_path, "pulled")


@pytest.mark.parametrize("story", some((s for s in STORIES if s.title not in LATE_READERS), every=6, first=1))
def test_pushed(story: Story, tmp_path: Path):
    delivered(story, tmp_path, "pushed")


@pytest.mark.parametrize("story", some(filter(is_plain, STORIES), every=6, first=2))
def test_shared(story: Story, tmp_path: Path):
    delivered(story, tmp_path, "shared")


def test_the_late_reader_list_names_existing_stories():
    assert {story.title for story in STORIES} >= LATE_READERS
