"""Runs every story in memory and in a directory that is closed and reopened, and checks the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import vedette
from tests.stories.catalogue import FOLDERS, STORIES, check_rules, check_titles, marked
from vedette.language.syntax.expressions import Attribute, Exists, NodePattern, PatternAggregate
from vedette.language.syntax.statements import Watch
from vedette.language.syntax.visit import walk
from vedette.testing.stories import EmbeddedHost, Story, run_story
from vedette.testing.stories.parser import Execute, Step
from vedette.testing.stories.steps import StartReactor

ALL = [story for folder in FOLDERS for story in STORIES[folder]]


@pytest.mark.parametrize("story", marked(story for story in ALL if not story.needs_restart))
def test_story_in_memory(story: Story):
    run_story(story, EmbeddedHost(":memory:", story.settings), persistent=False)


@pytest.mark.parametrize("story", marked(ALL))
def test_story_in_directory(story: Story, tmp_path: Path):
    run_story(story, EmbeddedHost(tmp_path / "data", story.settings), persistent=True)


# The catalogue


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_rule_has_a_story(folder: str):
    check_rules(folder)


@pytest.mark.parametrize("folder", ["watch", "queue"])
def test_titles_are_unique(folder: str):
    check_titles(STORIES[folder])


def test_scope_of_watch_stories_is_correct():
    """Hosts that support single-node watches only select stories by `.scope node`."""
    unmarked = [story for story in STORIES["watch"] if story.scope is None]
    assert unmarked == [], "write `.scope node` or `.scope pattern`"
    single = [story for story in STORIES["watch"] if story.scope == "node"]
    several = {str(s) for s in single for step in s.steps for w in watches_of(step) if not is_single(w)}
    assert several == set(), "these watches read several elements"


def watches_of(step: Step) -> Iterator[Watch]:
    """Yield the WATCH statements of a step. Texts that do not parse have none."""
    if isinstance(step, Execute | StartReactor):
        try:
            yield from (s for s in vedette.parse(step.text) if isinstance(s, Watch))
        except vedette.VedetteError:
            return


def is_single(watch: Watch) -> bool:
    """True if the watch reads one node and no other element in conditions, options or results."""
    elements = watch.pattern.elements
    parts = walk((watch.where, watch.options, watch.returns))
    return (
        len(elements) == 1
        and isinstance(elements[0], NodePattern)
        and not any(map(_reads_other_elements, parts))
    )


def _reads_other_elements(part: object) -> bool:
    """True for a nested pattern, and for an attribute of a referenced element."""
    return isinstance(part, Exists | PatternAggregate) or (
        isinstance(part, Attribute) and isinstance(part.base, Attribute)
    )
