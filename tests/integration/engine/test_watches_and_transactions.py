"""Watches are not part of a transaction; a WATCH that fails inside one is a failed statement."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import vedette
from vedette.engine.session.session import Session
from vedette.errors import TransactionError, VedetteError

WAYS: dict[str, Callable[[Session, str], object]] = {
    "execute": lambda session, text: session.execute(text),
    "run": lambda session, text: session.run(text),
    "watch": lambda session, text: session.watch(text),
}
MISTAKES = {
    "parse": "WATCH t: Task [ RETURN t",
    "analysis": "WATCH t: Nothing RETURN t",
    "option": "WATCH t: Task [buffer: 0] RETURN t",
    "parameter": "WATCH t: Task WHERE t.n = $missing RETURN t",
    "reference": "WATCH t: Task, after(t, #nobody) RETURN t",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_failing_watch_aborts_the_transaction(way: str, mistake: str) -> None:
    with vedette.open(":memory:") as db:
        db.define("node Task { n: Int? } edge after(a: Task, b: Task)")
        session = db.session()
        session.run("BEGIN; SPAWN t: Task { n = 1 }")
        with pytest.raises(VedetteError):
            WAYS[way](session, MISTAKES[mistake])
        with pytest.raises(TransactionError, match="E5005"):
            WAYS[way](session, "WATCH t: Task RETURN t")
        with pytest.raises(TransactionError, match="E5005"):
            session.execute("COMMIT")
        assert session.execute("MATCH t: Task RETURN COUNT(*)").rows == [(0,)]
        assert session.execute("MATCH w: _Watch RETURN COUNT(*)").rows == [(0,)]


def test_session_watch_rejects_other_statements() -> None:
    with vedette.open(":memory:") as db:
        db.define("node Task { n: Int? }")
        session = db.session()
        session.run("BEGIN; SPAWN t: Task { n = 1 }")
        with pytest.raises(VedetteError, match="E1101"):
            session.watch("MATCH t: Task RETURN t")
        with pytest.raises(TransactionError, match="E5005"):
            session.execute("COMMIT")


@pytest.mark.parametrize("way", WAYS)
def test_watch_survives_a_rollback(way: str) -> None:
    with vedette.open(":memory:") as db:
        db.define("node Task { n: Int? }")
        session = db.session()
        session.run("BEGIN; SPAWN t: Task { n = 1 }")
        WAYS[way](session, "w = WATCH t: Task RETURN t")
        session.execute("ROLLBACK")
        assert session.execute("MATCH w: _Watch RETURN w.status, w.events_pending").rows == [("active", 1)]
