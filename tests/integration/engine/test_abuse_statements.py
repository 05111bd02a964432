"""Statements that once broke the engine: hostile or unusual input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vedette
from vedette.errors import VedetteError


@pytest.fixture
def db() -> Iterator[vedette.Vedette]:
    with vedette.open(":memory:") as opened:
        opened.define("node T { n: Int?, other: T? }")
        yield opened


def code_of(action: Any) -> str:
    with pytest.raises(VedetteError) as raised:
        action()
    return raised.value.code


def test_rules_over_pairs_are_limited(db: vedette.Vedette) -> None:
    db.define("node C {} rule pairs: a: C, b: C => SPAWN z: C")
    session = db.session()
    assert code_of(lambda: session.execute("SPAWN c: C")) == "E9022"
    assert session.execute("MATCH c: C RETURN COUNT(*)").rows == [(0,)]


def test_forked_child_is_refused(tmp_path: Path) -> None:
    with vedette.open(tmp_path) as instance:
        instance.define("node T { n: Int }")
        session = instance.session()
        session.execute("SPAWN t: T { n = 1 }")
        jobs = session.watch("WATCH t: T [mode: consume] RETURN t.n")
        child = os.fork()
        if child == 0:
            codes = []
            writing = partial(session.execute, "SPAWN t: T { n = 2 }")
            for action in (writing, instance.session, jobs.poll, jobs.next):
                try:
                    action()
                except VedetteError as error:
                    codes.append(error.code)
            os._exit(0 if codes == ["E6002"] * 4 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(jobs.poll()) == 2
        session.execute("SPAWN t: T { n = 3 }")
    with vedette.open(tmp_path) as instance:
        assert sorted(instance.session().execute("MATCH t: T RETURN t.n").rows) == [(1,), (3,)]


def test_invalid_statement_and_parameter_types(db: vedette.Vedette) -> None:
    session = db.session()
    endless: list[Any] = []
    endless.append(endless)
    text: Any
    for text in (None, b"MATCH () RETURN 1"):
        assert code_of(lambda text=text: session.execute(text)) == "E1101"
    params: Any = [1]
    assert code_of(lambda: session.execute("MATCH () RETURN 1", params)) == "E2003"
    assert code_of(lambda: session.execute("MATCH () RETURN $v", v=endless)) == "E2003"


def test_policy_about_an_unknown_attribute_is_refused(db: vedette.Vedette) -> None:
    assert code_of(lambda: db.define("policy p: ON MATCH(t: T).secret DENY IF true")) == "E2002"
    assert code_of(lambda: db.define('policy p: ON SET(t: T, "secret") DENY IF true')) == "E2002"


def test_returning_covers_affected_elements_only(db: vedette.Vedette) -> None:
    session = db.session()
    session.run("SPAWN a: T { n = 1 }; SPAWN b: T { n = 2, other = #a }")
    assert code_of(lambda: session.execute("SET #b { n = 3 } RETURNING n, other.n")) == "E2004"
    assert session.execute("SPAWN c: T { n = 7 } RETURNING c.n, id").rows[0][0] == 7


def test_pattern_limits(db: vedette.Vedette) -> None:
    many = ", ".join(f"v{i}: T" for i in range(500))
    assert code_of(lambda: db.session().execute(f"MATCH {many} RETURN 1")) == "E3102"
    unknown = ", ".join(f"t.x{i}" for i in range(3000))
    with pytest.raises(VedetteError) as raised:
        db.session().execute(f"MATCH t: T RETURN {unknown}")
    assert raised.value.code == "E2002"
    assert len(raised.value.diagnostics) <= 50


def test_layer_0_cannot_be_written_through_a_subquery(db: vedette.Vedette) -> None:
    assert code_of(lambda: db.session().execute("KILL { MATCH s: _Session RETURN s }")) == "E2012"


def test_damaged_file_raises_a_typed_error(tmp_path: Path) -> None:
    with vedette.open(tmp_path) as instance:
        instance.define("node T { n: Int }")
        session = instance.session()
        session.run("BEGIN; " + "; ".join("SPAWN t: T { n = 1 }" for _ in range(400)) + "; COMMIT")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size > 4096:
            data = bytearray(path.read_bytes())
            for place in range(200, len(data), 997):
                data[place] ^= 0xFF
            path.write_bytes(bytes(data))
    with pytest.raises(VedetteError) as raised, vedette.open(tmp_path) as instance:
        instance.session().execute("MATCH t: T RETURN t")
    assert raised.value.code in {"E6003", "E6004"}
