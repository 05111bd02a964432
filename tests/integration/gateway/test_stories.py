"""The stories of watches and queues over a socket: the same events as in an embedded session.

There are three ways to read. Pulled: the client polls when the story does, so that buffers and claims are the same as
in an embedded session. Pushed: events are sent at once, as to ordinary clients, without stories that have
`.reader pull`. Shared: equal watches of several sessions are one stream, as for browsers, without stories that read
watches as nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.stories.catalogue import STORIES as BY_FOLDER
from tests.stories.catalogue import marked
from tests.support.gateway_host import GatewayHost
from vedette.testing.stories import Story, run_story
from vedette.testing.stories.parser import Execute
from vedette.testing.stories.steps import Attach, ExpectEvents, SetLimits, StartReactor, named_watch

STORIES = [*BY_FOLDER["watch"], *BY_FOLDER["queue"]]


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
    """True if the story only polls its watches: no handles, no management statements, no special sessions."""
    if story.needs_restart or story.settings or story.reader == "pull":
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


@pytest.mark.parametrize("story", some((s for s in STORIES if s.reader != "pull"), every=6, first=1))
def test_pushed(story: Story, tmp_path: Path):
    delivered(story, tmp_path, "pushed")


@pytest.mark.parametrize("story", some(filter(is_plain, STORIES), every=6, first=2))
def test_shared(story: Story, tmp_path: Path):
    delivered(story, tmp_path, "shared")
