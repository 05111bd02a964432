"""What users want of watches, as stories, told in memory, and in a directory that is opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import vedette
from tests.stories.catalogue import check_rules, check_titles, marked, stories_of
from vedette.language.syntax.expressions import Attribute, Exists, NodePattern, PatternAggregate
from vedette.language.syntax.statements import Watch
from vedette.language.syntax.visit import walk
from vedette.testing.stories import EmbeddedHost, Story, run_story
from vedette.testing.stories.parser import Execute, Step
from vedette.testing.stories.steps import StartReactor

FOLDER = Path(__file__).parent / "watch"
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


def test_each_story_says_how_much_its_watches_look_at():
    """Hosts that look at one element at a time tell the stories that say so: it had better be true."""
    unmarked = [story for story in STORIES if story.scope is None]
    assert unmarked == [], "write `.scope node` or `.scope pattern`"
    single = [story for story in STORIES if story.scope == "node"]
    several = {str(s) for s in single for step in s.steps for w in watches_of(step) if not is_single(w)}
    assert several == set(), "these watches look at several elements"


def watches_of(step: Step) -> Iterator[Watch]:
    """The WATCH statements that a step says; what is no statement at all is not meant to be one."""
    if isinstance(step, Execute | StartReactor):
        try:
            yield from (s for s in vedette.parse(step.text) if isinstance(s, Watch))
        except vedette.VedetteError:
            return


def is_single(watch: Watch) -> bool:
    """One node, and nothing in conditions or results that would look at others."""
    elements = watch.pattern.elements
    looked_at = walk((watch.where, watch.options, watch.returns))
    return len(elements) == 1 and isinstance(elements[0], NodePattern) and not any(map(_leads_on, looked_at))


def _leads_on(part: object) -> bool:
    """A nested pattern, or an attribute of what an attribute refers to."""
    return isinstance(part, Exists | PatternAggregate) or (
        isinstance(part, Attribute) and isinstance(part.base, Attribute)
    )
