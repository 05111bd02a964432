"""Watches that share something must not share their constants."""

from __future__ import annotations

import vedette


def test_equal_filters_in_texts_with_other_constants_keep_their_own() -> None:
    """The filters are the same text, but not the same constants of their statements: found by the oracle."""
    with vedette.open(":memory:") as db:
        db.define("node T { n: Int, s: String }")
        session = db.session()
        session.run('SPAWN a: T { n = 1, s = "a" }; SPAWN b: T { n = 5, s = "z" }')
        long = session.watch('WATCH t: T WHERE NOT (t.n IN [8, 9]) [filter: t.s < "b"] RETURN t.n')
        short = session.watch('WATCH t: T WHERE NOT (t.n IN []) [filter: t.s < "b"] RETURN t.n')
        for watch in (long, short):
            (initial,) = watch.poll()
            assert initial.matches == ({"t.n": 1},)
