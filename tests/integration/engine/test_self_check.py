"""The self-check finds differences and costs a small part of the work."""

from __future__ import annotations

import logging

import pytest

import vedette
from vedette.engine.watch_service.self_check import SelfCheck
from vedette.watch.evaluation.effects import CommitEffects

ONTOLOGY = "node Task { title: String, done: Bool = false }"


def checked(database: vedette.Vedette, *, tasks: int, commits: int) -> SelfCheck:
    """One task changes back and forth; each change affects the watch."""
    database.define(ONTOLOGY)
    session = database.session()
    watch = session.watch("WATCH t: Task WHERE t.done = $done [initial: none] RETURN t.title", done=False)
    session.execute("BEGIN")
    for _ in range(tasks):
        session.execute('SPAWN t: Task { title = "waiting" }')
    session.execute("COMMIT")
    session.execute('SPAWN one: Task { title = "one" }')
    for number in range(commits):
        session.execute("SET #one.done = $done", done=number % 2 == 0)
        watch.poll()
    check = session.database.watching.self_check
    assert isinstance(check, SelfCheck)
    return check


def opened(every: int) -> vedette.Vedette:
    return vedette.open(":memory:", settings=vedette.Settings(self_check_commits=every))


def test_watches_are_checked_periodically():
    with opened(5) as database:
        check = checked(database, tasks=0, commits=20)
        assert check.checked > 0
        assert check.failed == check.skipped == 0


def test_checks_can_be_disabled():
    with opened(0) as database:
        assert checked(database, tasks=0, commits=20).checked == 0


def test_expensive_check_delays_the_next():
    with opened(5) as few, opened(5) as many:
        often = checked(few, tasks=0, commits=600).checked
        rarely = checked(many, tasks=20, commits=600).checked
        assert 0 < rarely < often


@pytest.mark.plain_core
def test_wrong_event_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    push = CommitEffects.add_delta

    def lose_removed(self, watch, delta, row):
        if delta.type != "removed":
            push(self, watch, delta, row)

    monkeypatch.setattr(CommitEffects, "add_delta", lose_removed)
    with opened(1) as database, caplog.at_level(logging.ERROR):
        assert checked(database, tasks=0, commits=200).failed > 0
    assert any(getattr(record, "action", "") == "watch.self_check_failed" for record in caplog.records)
