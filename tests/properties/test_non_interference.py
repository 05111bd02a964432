"""Elements hidden from an actor do not affect it: two graphs that differ only in them give the same answers.

Every scenario runs twice, with and without the statements about hidden elements. All queries, writes and watches of the
actor have the same outcome, errors included. `docs/reference/language/policy.md` lists the exceptions: unique values
that are taken, the cascade of a KILL, the tick, the choice of a plan. `test_policy_disclosure.py` checks single
statements over random ontologies; this test checks watches and time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import vedette
from tests.conftest import SOAK
from vedette.change import Event
from vedette.engine.context.result import Result
from vedette.engine.session.watch_handle import WatchHandle
from vedette.errors import VedetteError
from vedette.testing import ManualClock

EXAMPLES = 10_000 if SOAK else 60
ONTOLOGY = """
node User { name: String? }
abstract node Paper { title: String?, n: Int? }
node Doc : Paper { level: Int = 0, pages: Int = 1 }
node Note : Paper { by: User? }
edge about(note: Note, doc: Doc) { weight: Int? }
edge next(one: Doc, other: Doc)
edge likes(who: User, what: Paper)

policy watching: ON META SPAWN(_Watch) ALLOW IF true
policy users: ON MATCH(u: User) ALLOW IF true
policy docs: ON MATCH(d: Doc) ALLOW IF d.level = 0
policy pages: ON MATCH(d: Doc).pages DENY IF d.n = 3
policy notes: ON MATCH(n: Note) ALLOW IF true
policy writing: ON SPAWN(n: Note) | SET(n: Note) | KILL(n: Note) | SPAWN(d: Doc) ALLOW IF true
policy editing: ON SET(d: Doc) | KILL(d: Doc) ALLOW IF d.level = 0
policy linking: ON LINK(a: about) | UNLINK(a: about) | LINK(l: likes) | UNLINK(l: likes) | LINK(x: next) ALLOW IF true
"""
PATTERNS = (
    "d: Doc",
    "p: Paper",
    "n: Note WHERE EXISTS(about(n, _))",
    "n: Note WHERE NOT EXISTS(d: Doc, about(n, d))",
    "n: Note, d: Doc, about(n, d) AS a",
    "d: Doc WHERE d.n > 1 OR d.pages = 1",
    "d: Doc, e: Doc, next+(d, e)",
    "u: User, p: Paper, likes(u, p)",
    "u: User WHERE COUNT(p: Paper, likes(u, p)) > 0",
    "x: any",
    "d: Doc, e: Doc WHERE d.n = e.n AND d != e",
)
RETURNS = {
    "d": (
        "d",
        "d.title, d.n, d.pages",
        "COUNT(*) AS c, SUM(d.n) AS s",
        "d.n, COUNT(*) AS c",
        "DISTINCT d.title",
    ),
    "p": ("p", "p.title", "MAX(p.n) AS m, COUNT(DISTINCT p.title) AS c", "COLLECT(p.n) AS all"),
    "n": ("n", "n.title", "n, COUNT(d: Doc, about(n, d)) AS docs", "COUNT(*) AS c"),
    "u": ("u.name", "u.name, COUNT(*) AS c"),
    "x": ("x.id", "COUNT(*) AS c"),
}
OPTIONS = (
    "",
    "[initial: none]",
    "[visibility: immediate]",
    "[window: tumbling(5s)]",
    "[window: sliding(5s, 2s)]",
    "[filter: true]",
)
_ID = re.compile(r"\b[nelwsv]\d+_[0-9a-f]+\b")


class DatabaseVariant:
    """One of the two databases, and the common names of its ids."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.db = vedette.open(":memory:", environment={}, clock=self.clock)
        self.db.define(ONTOLOGY)
        self.system = self.db.session()
        self.system.execute('SPAWN ann: User { name = "ann" }')
        self.ann = self.db.session(actor=self.system.bindings["ann"])
        self.watches: list[WatchHandle] = []

    def named(self, text: str) -> str:
        """Replace names by ids."""
        known = {**self.system.bindings, **self.ann.bindings}
        return re.sub(r"#(\w+)", lambda found: f"#{known.get(found[1], found[1])}", text)

    def plain(self, value: Any) -> str:
        """Return the outcome with ids replaced by names, because the other database has other ids."""
        names = {id: name for name, id in (*self.system.bindings.items(), *self.ann.bindings.items())}
        return _ID.sub(lambda found: names.get(found[0], "?"), repr(value))

    def do(self, text: str) -> None:
        try:
            self.system.execute(self.named(text))
        except VedetteError:
            if self.system.transaction is not None:
                self.system.execute("ROLLBACK")

    def ask(self, text: str) -> Any:
        """Run the statement as the actor and return its outcome."""
        try:
            if text.startswith("WATCH"):
                self.watches.append(self.ann.watch(self.named(text)))
                return "a watch"
            return self._answer(text, self.ann.execute(self.named(text)))
        except VedetteError as error:
            return str(error)

    def _answer(self, text: str, result: Result) -> Any:
        """Sort rows. The counts of a KILL are omitted: they may depend on hidden elements."""
        counts = (result.created, result.modified, result.linked)
        killed = () if text.startswith("KILL") else (result.deleted, result.unlinked)
        rows = sorted(str([self._bag(value) for value in row]) for row in result.rows)
        return counts, killed, result.columns, result.warnings, rows

    def received(self) -> list[Any]:
        """Return the number of events per commit and the events of each watch. Events of one commit have no order."""
        received = [watch.poll() for watch in self.watches]
        return [
            ([event.position for event in events], sorted(map(self._event, events))) for events in received
        ]

    def _event(self, event: Event) -> str:
        """Omit the tick, which also counts hidden commits."""
        matches = sorted(map(self._bag, event.matches)) if event.matches is not None else None
        inner = sorted(map(self._event, event.events)) if event.events is not None else None
        rows = self._bag(event.match), self._bag(event.prev)
        return str((event.type, *rows, matches, event.window_end, inner))

    def _bag(self, value: Any) -> str:
        """Format a value with names instead of ids. Collections are sorted."""
        if isinstance(value, list):
            return str(sorted(map(self._bag, value)))
        if isinstance(value, Mapping):
            return str({name: self._bag(part) for name, part in value.items()})
        return self.plain(value)


class Scenario:
    """The scenario with this number, run on both databases."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        self.with_hidden, self.without = DatabaseVariant(), DatabaseVariant()
        self.databases = (self.with_hidden, self.without)
        self.names: dict[str, str] = {"ann": "User"}
        """Visible elements by name."""
        self.hidden: list[str] = []
        self.log: list[str] = []

    # Statements

    def _name(self, kind: str) -> str:
        return f"{kind[0].lower()}{len(self.names) + len(self.hidden)}"

    def _some(self, *kinds: str) -> str:
        fitting = [name for name, kind in self.names.items() if kind in kinds]
        return f"#{self.random.choice(fitting)}" if fitting else "#none"

    def _block(self) -> str:
        return f'title = "{self.random.choice("abc")}", n = {self.random.randint(0, 3)}'

    def _visible(self, form: str | None = None) -> str:
        """Write something that the actor may see."""
        forms = ("doc", "note", "about", "about", "next", "next", "likes", "set", "kill", "unlink", "user")
        form = form or self.random.choice(forms)
        if form in ("doc", "note", "user"):
            kind = form.title()
            name = self._name(kind)
            self.names[name] = kind
            block = 'name = "b"' if kind == "User" else self._block()
            return f"SPAWN {name}: {kind} {{ {block} }}"
        return {
            "about": f"LINK about({self._some('Note')}, {self._some('Doc')}) {{ weight = 1 }}",
            "next": f"LINK next({self._some('Doc')}, {self._some('Doc')})",
            "likes": f"LINK IF NOT EXISTS likes({self._some('User')}, {self._some('Doc', 'Note')})",
            "set": f"SET {self._some('Doc', 'Note')}.n = {self.random.randint(0, 3)}",
            "kill": f"KILL {self._some('Doc', 'Note')}",
            "unlink": f"UNLINK about({self._some('Note')}, {self._some('Doc')})",
        }[form]

    def _secret(self) -> str:
        """Write something that is hidden from the actor."""
        form = self.random.choice(("doc", "about", "about", "next", "next", "before", "likes", "set", "kill"))
        if form == "doc" or not self.hidden:
            name = self._name("Hidden")
            self.hidden.append(name)
            return f"SPAWN {name}: Doc {{ level = 1, {self._block()} }}"
        one = f"#{self.random.choice(self.hidden)}"
        return {
            "about": f"LINK about({self._some('Note')}, {one})",
            "next": f"LINK next({self._some('Doc')}, {one})",
            "before": f"LINK next({one}, {self._some('Doc')})",
            "likes": f"LINK likes({self._some('User')}, {one})",
            "set": f"SET {one}.n = {self.random.randint(0, 3)}",
            "kill": f"KILL {one}",
        }[form]

    def _question(self) -> str:
        """A query, a write or a watch of the actor."""
        pattern = self.random.choice(PATTERNS)
        returns = self.random.choice(RETURNS[pattern[0]])
        if "SUM" in returns or "COUNT" in returns:
            ordered = ""
        else:
            ordered = self.random.choice(("", "", "", f" ORDER BY {pattern[0]}.id LIMIT 100"))
        strange = self.random.choice(self.hidden) if self.hidden and self.random.random() < 0.5 else "nobody"
        kill = self.random.choice(("KILL", "KILL", "SET"))
        known = self._some("Doc", "Note")
        return self.random.choice(
            (
                *(f"MATCH {pattern} RETURN {returns}{ordered}",) * 4,
                *(f"WATCH {pattern} {self.random.choice(OPTIONS)} RETURN {returns}",) * 2,
                f"EXPLAIN WATCH {pattern} RETURN {returns}",
                f"MATCH d: Doc SET d.pages = {self.random.randint(1, 3)}",
                f"{kill} #{strange}" if kill == "KILL" else f"SET #{strange}.n = 1",
                f"MATCH d: Doc WHERE d = #{strange} RETURN d",
                f"LINK about({self._some('Note')}, #{strange})",
                f"UNLINK about({self._some('Note')}, _)",
                f"KILL {known}",
                f"KILL {known} NO CASCADE",
                f"LINK about({self._some('Note')}, {self._some('Doc')})",
            )
        )

    # Running

    def run(self) -> None:
        for _ in range(6):
            self._write_to_both(self._visible(self.random.choice(("doc", "note", "about"))))
        for _ in range(4):
            self._write_hidden(self._secret())
        for _ in range(self.random.randint(5, 25)):
            form = self.random.choice((*("secret", "question") * 3, "visible", "visible", "together", "time"))
            if form == "time":
                seconds = self.random.choice((1, 2, 5))
                self.log.append(f"… {seconds} s")
                for database in self.databases:
                    database.clock.advance(seconds)
            elif form == "together":
                self._together()
            elif form == "secret":
                self._write_hidden(self._secret())
            elif form == "visible":
                self._write_to_both(self._visible())
            else:
                self._compare_answers(self._question())
            received = [database.received() for database in self.databases]
            assert received[0] == received[1], (
                f"received: {received[0]}\nwithout hidden elements: {received[1]}"
            )

    def _together(self) -> None:
        """Write visible and hidden elements in one transaction."""
        self._write_to_both("BEGIN")
        for _ in range(self.random.randint(1, 3)):
            if self.random.random() < 0.5:
                self._write_hidden(self._secret())
            else:
                self._write_to_both(self._visible())
            if any(database.system.transaction is None for database in self.databases):
                break
        writing = [database for database in self.databases if database.system.transaction is not None]
        for database in writing:
            database.do("COMMIT" if len(writing) == len(self.databases) else "ROLLBACK")

    def _write_to_both(self, text: str) -> None:
        self.log.append(f"both: {text}")
        for database in self.databases:
            database.do(text)

    def _write_hidden(self, text: str) -> None:
        self.log.append(f"hidden: {text}")
        self.with_hidden.do(text)

    def _compare_answers(self, text: str) -> None:
        self.log.append(f"ann: {text}")
        with_hidden, without = (database.ask(text) for database in self.databases)
        assert self.with_hidden.plain(with_hidden) == self.without.plain(without), f"{with_hidden}\n{without}"


@settings(max_examples=EXAMPLES, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 2**64 - 1))
def test_hidden_elements_do_not_affect_an_actor(number: int) -> None:
    story = Scenario(number)
    try:
        story.run()
    except AssertionError as error:
        raise AssertionError("\n".join((f"Story({number})", *story.log, str(error)))) from error
    finally:
        for database in story.databases:
            database.db.close()
