"""The story runner reports every difference between the events of a watch and the story."""

from __future__ import annotations

import pytest

from vedette.change import Event
from vedette.testing.clock import START
from vedette.testing.stories import EmbeddedHost, StoryFailed, StoryFormatError, read_stories, run_story
from vedette.testing.stories.events import compare_events, event_text, parse_event
from vedette.testing.stories.steps import ExpectEvents
from vedette.testing.stories.watches import WatchExpectations

BEGIN = """\
=== x | a story
.define node Task { title: String, n: Int = 0 }
> w = WATCH t: Task RETURN t.title, t.n
"""
ONE = '> SPAWN a: Task { title = "a" }\n'


def run(text: str) -> None:
    (story,) = read_stories(BEGIN + text)
    run_story(story, EmbeddedHost(":memory:", story.settings), persistent=False)


@pytest.mark.parametrize(
    "text",
    [
        ".events w\ninitial (nothing)\n",
        f'.events w\ninitial (nothing)\n{ONE}.events w\nadded "a" | 0\n',
        f'{ONE}.events w\ninitial (nothing)\nadded "a" | 0 (tick 0, position 2)\n',
        (
            f'{ONE}.events w limit 1\ninitial (nothing)\n.events w\nadded "a" | 0\n'
            ".events w\n(nothing)\n.errors w\n(nothing)\n"
        ),
        f'{ONE}> SET #a.n = 2\n.events w ordered\ninitial (nothing)\nadded "a" | 0\nchanged "a" | 0 -> "a" | 2\n',
        f"{ONE}> CANCEL WATCH #w\n",
    ],
)
def test_story_with_correct_events_passes(text: str):
    run(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{ONE}.events w\ninitial (nothing)\n", 'added "a" | 0'),
        (".events w\n(nothing)\n", "initial (nothing)"),
        (f'{ONE}.events w\ninitial (nothing)\nadded "b" | 0\n', 'added "a" | 0'),
        (f'{ONE}.events w\ninitial (nothing)\nadded "a" | 0 (tick 7)\n', "tick 7"),
        (f'{ONE}.events w\ninitial (nothing)\nadded "a" | 0 (dropped 1)\n', "dropped 1"),
        (f".events w\ninitial (nothing)\n{ONE}", "events that the story does not list"),
        (".events v\n(nothing)\n", "no session has a watch 'v'"),
        (".events w\ninitial (nothing)\n.errors w\nE8005 full\n", "expected the errors"),
        ("> v = WATCH t: Nothing RETURN t\n", "E2001"),
        ("> v = WATCH t: Task RETURN t\n! E8009\n", "but it succeeded"),
        (
            "> ALTER WATCH #w SET [buffer: 1, on_full: error]\n> MATCH w: _Watch DO CANCEL WATCH w.id\n> SPAWN\n",
            "",
        ),
        (
            f"> ALTER WATCH #w SET [buffer: 1, on_full: error]\n{ONE}{ONE}",
            "errors that the story does not mention",
        ),
    ],
)
def test_story_with_wrong_events_fails(text: str, words: str):
    with pytest.raises(StoryFailed) as caught:
        run(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".events w\n", "or (nothing)"),
        (".events\n(nothing)\n", "write `.events watch, watch`"),
        (".events w\nappeared 1\n", "unknown event 'appeared'"),
        (".events w\ninitial\n", "initial (nothing)"),
        (".errors w\n", "E8005 words"),
        (".scope everything\n", "`.scope node`"),
        (".limits bob many\n", "two watches in the session"),
        (".reactor WATCH t\n", ".reactor name = WATCH"),
    ],
)
def test_invalid_story_text_is_rejected(text: str, words: str):
    with pytest.raises(StoryFormatError, match=words.replace("(", r"\(").replace(")", r"\)")):
        run(text)


# Events


def event_texts(*events: Event):
    return [event_text(event, {}, START) for event in events]


def added(n: int, tick: int, dropped: int = 0) -> Event:
    return Event(type="added", tick=tick, position=n, match={"n": n}, dropped=dropped)


def test_order_within_one_commit_is_compared_only_in_order():
    expected = [parse_event(f"added {n}", []) for n in (2, 1, 3)]
    found = event_texts(added(1, 5), added(2, 5), added(3, 6))
    assert compare_events(expected, found, in_order=False) == []
    assert len(compare_events(expected, found, in_order=True)) == 2
    assert compare_events(expected, event_texts(added(1, 5), added(2, 6), added(3, 6)), in_order=False) != []


def test_missing_and_surplus_events_are_differences():
    expected = [parse_event("added 1", [])]
    assert len(compare_events(expected, [], in_order=False)) == 1
    assert len(compare_events([], event_texts(added(1, 5)), in_order=True)) == 1


class ScriptedWatch:
    """A watch whose `poll` returns the given events."""

    id, status = "w", "active"

    def __init__(self, *events: Event) -> None:
        self.events = events

    def poll(self, limit: int | None = None) -> tuple[Event, ...]:
        return self.events[:limit]

    def errors(self) -> list[Exception]:
        return []

    def ack(self, event: Event) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([added(1, 5), added(3, 5)], "have a gap"),
        ([added(1, 5), added(1, 5)], "delivered twice"),
        ([Event(type="added", tick=1, position=1)], "has the fields []"),
        ([Event(type="removed", tick=1, position=1, match={}, prev={})], "has the fields ['match', 'prev']"),
    ],
)
def test_invalid_events_are_reported(events: list[Event], words: str):
    expectations = WatchExpectations({})
    expectations.add("w", ScriptedWatch(*events))
    expected = tuple(event_text(event, {}, START) for event in events)
    step = ExpectEvents(line=1, watches=("w",), events=tuple(parse_event(e.head, []) for e in expected))
    assert words in str(expectations.events(step))


def test_position_gap_equal_to_dropped_is_accepted():
    expectations = WatchExpectations({})
    expectations.add("w", ScriptedWatch(added(1, 5), added(4, 5, dropped=2)))
    step = ExpectEvents(
        line=1, watches=("w",), events=(parse_event("added 1", []), parse_event("added 4 (dropped 2)", []))
    )
    assert expectations.events(step) is None


# Deliveries

QUEUE = """\
=== x | a story
.define node Task { title: String }
> SPAWN a: Task { title = "a" }
> w = WATCH t: Task [mode: consume, max_redeliveries: 1] RETURN t.title
.events w
initial (nothing)
consumed "a" (delivery d1, attempt 1)
"""
REDELIVERY = '> NACK #d1\n.events w\nconsumed "a" (delivery d2, attempt 2)\n'


def run_with_queue(text: str) -> None:
    (story,) = read_stories(QUEUE + text)
    run_story(story, EmbeddedHost(":memory:", story.settings), persistent=False)


@pytest.mark.parametrize(
    "text",
    [
        "> ACK #d1\ndeleted 1\n",
        '> ACK "{d1}"\n',
        '.params {"id": "#d1"}\n> ACK $id\n> ACK #d1\n! E8004 delivery ID: \'{d1}\'\n',
        f"{REDELIVERY}> ACK #d2\n",
        f'{REDELIVERY}> NACK #d2\n> MATCH l: _DeadLetter RETURN l.id\n.name l\n> REDRIVE #l\n.events w\nconsumed "a"\n',
        "> KILL #a\n.errors w\nWITHDRAWN {d1}\n",
        ".disconnect other\n> ACK #d1\n",
    ],
)
def test_story_with_correct_deliveries_passes(text: str):
    run_with_queue(f"other> MATCH t: Task RETURN t\n{text}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('> NACK #d1\n.events w\nconsumed "a" (delivery d1)\n', "delivery d1"),
        ('> NACK #d1\n.events w\nconsumed "a" (attempt 1)\n', "attempt 1"),
        ('> NACK #d1\n.events w\nconsumed "b" (delivery d2)\n', 'consumed "b"'),
        ("> NACK #d1\n", "events that the story does not list"),
        ("> ACK #d2\n", "E8004"),
        ("> MATCH t: Task RETURN t.id\n.name one, two\n", "2 names for 1 rows"),
        ("> KILL #a\n.errors w\nE8003 {d1}\n", "expected the errors [('E8003', 'd1_1')]"),
    ],
)
def test_story_with_wrong_deliveries_fails(text: str, words: str):
    with pytest.raises(StoryFailed) as caught:
        run_with_queue(text)
    assert words in str(caught.value)


def test_order_of_deliveries_is_always_compared():
    def event(n: int) -> Event:
        return Event(
            type="consumed",
            tick=1,
            position=n,
            match={"n": n},
            delivery_id=f"d{n}",
            attributes={"attempt": 1},
        )

    expected = [parse_event(f"consumed {n}", []) for n in (2, 1)]
    assert compare_events(expected, event_texts(event(2), event(1)), in_order=False) == []
    assert len(compare_events(expected, event_texts(event(1), event(2)), in_order=False)) == 2
