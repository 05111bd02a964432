"""A case of the oracle test: an ontology and steps by several sessions, generated, printed and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.properties.strategies.watch_ontologies import (
    VALUES,
    Choices,
    NodeKind,
    Ontology,
    draw_node_policy,
    draw_ontology,
    literal,
)
from tests.properties.strategies.watch_patterns import Named
from tests.properties.strategies.watch_queries import Query, draw_query

__all__ = ["WRITERS", "Case", "Define", "Do", "Manage", "Restart", "StartWatch", "Step", "case_of", "cases"]

WRITERS = 2
"""Number of writing sessions, each with its own transaction."""


@dataclass(frozen=True)
class Do:
    """A statement. `#n1` is the element with that name in the case."""

    session: int
    text: str

    def __str__(self) -> str:
        return f"s{self.session}: {self.text}"


@dataclass(frozen=True)
class StartWatch:
    """Create a watch, in the system context or for an actor."""

    number: int
    query: Query
    values: tuple[Any, ...]
    actor: str | None = None
    initial: str = "full"
    """`full`, `none`, or `since`: the tick that `other` had reached `back` commits ago."""
    other: int = 0
    back: int = 0
    immediate: bool = False
    reliable: bool = False
    lazy: bool = False
    """True if the reader polls rarely and the buffer holds two events only.

    The other events are replayed from the log.
    """

    def text(self, tick: int = 0) -> str:
        """Nothing is dropped in these cases. Overflow has its own tests."""
        options = {
            f"buffer: {2 if self.lazy else 1000000}": True,
            "initial: none": self.initial == "none",
            f"initial: since({tick})": self.initial == "since",
            "visibility: immediate": self.immediate,
            "delivery: reliable": self.reliable,
        }
        return self.query.watch_text(self.values, *(option for option, given in options.items() if given))

    def __str__(self) -> str:
        given = self.query.parameters(self.values)
        since = f"  where watch {self.other} was {self.back} commits ago" if self.initial == "since" else ""
        lazy = ", lazily" if self.lazy else ""
        return f"{self.actor or 'system'}{lazy}, watch {self.number}: {self.text()}  {given or ''}{since}".rstrip()


@dataclass(frozen=True)
class Manage:
    """PAUSE, RESUME, CANCEL or ALTER (another filter) of an existing watch."""

    operation: str
    watch: int

    def __str__(self) -> str:
        return f"{self.operation} watch {self.watch}"


@dataclass(frozen=True)
class Restart:
    """Restart the process on the same directory, or on a copy of the files as after a crash."""

    death: bool = False

    def __str__(self) -> str:
        return "death" if self.death else "restart"


@dataclass(frozen=True)
class Define:
    """Extend the ontology."""

    text: str

    def __str__(self) -> str:
        return f"define {self.text}"


Step = Do | StartWatch | Manage | Restart | Define


@dataclass(frozen=True)
class Case:
    ontology: Ontology
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        return "\n".join(("", self.ontology.text(), "", *map(str, self.steps), ""))


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any], *, policies: bool) -> Case:
    """Strategy for cases that start small and shrink well."""
    return _Author(Choices(lambda low, high: draw(st.integers(low, high))), policies=policies).case()


def case_of(number: int, *, policies: bool, durable: bool = False) -> Case:
    """Return the case with this number.

    It is larger than drawn cases and faster to make. `durable` adds reliable watches and restarts.
    """
    return _Author(Choices(Random(number).randint), policies=policies, durable=durable).case()


class _Author:
    """Generates a case: a small graph, a few shapes, watches of these shapes, and random steps."""

    def __init__(self, choices: Choices, *, policies: bool, durable: bool = False) -> None:
        self.choices = choices
        self.durable = durable
        self.immediate = not durable and choices.rng(20)
        """True if some watches see uncommitted statements."""
        self.ontology = draw_ontology(choices, rules=choices.rng(25), policies=policies)
        self.policies = policies
        self.first_ontology = self.ontology
        self.alive: Named = {}
        """Names of elements that probably exist. Rules and cascades may have deleted some."""
        self.steps: list[Step] = []
        self.queries: list[Query] = []
        self.follows: list[StartWatch] = []
        self._names: Counter[str] = Counter()
        self._open: set[int] = set()

    def case(self) -> Case:
        choices = self.choices
        for _ in range(choices.number(1, 5)):
            self.steps.append(Do(0, self.spawn()))
        for _ in range(choices.number(0, 12)):
            self.steps.append(Do(0, self.link()))
        self.actors = [name for name, kind in self.alive.items() if self._is_node(kind)][:2]
        for _ in range(choices.number(1, 3)):
            self.queries.append(draw_query(choices, self.ontology, dict(self.alive)))
            for _ in range(choices.number(1, 3)):
                self.start_watch(self.queries[-1])
        for _ in range(choices.number(1, 14)):
            self.step()
        for session in sorted(self._open):
            self.steps.append(Do(session, "COMMIT"))
        return Case(self.first_ontology, tuple(self.steps))

    def _is_node(self, kind: str) -> bool:
        return any(node.name == kind for node in self.ontology.nodes)

    # Steps

    def start_watch(self, query: Query) -> None:
        values = tuple(self.choices.one(placeholder.options) for placeholder in query.placeholders)
        actor = self.choices.one((None, *self.actors)) if self.policies or self.choices.rng(10) else None
        initial = "none" if self.choices.rng(10) else "full"
        immediate = self.immediate and self.choices.rng(60)
        number = len(self.follows)
        made = StartWatch(number, query, values, actor, initial, immediate=immediate, reliable=self.durable)
        if self.durable and self.choices.rng(40):
            made = replace(made, lazy=True)
        self.follows.append(made)
        self.steps.append(made)

    def follow_since(self) -> None:
        """Return a watch like an earlier one that starts where the earlier watch was some commits ago."""
        other = self.choices.one(self.follows)
        number, back = len(self.follows), self.choices.number(0, 4)
        made = replace(other, number=number, initial="since", other=other.number, back=back, immediate=False)
        self.follows.append(made)
        self.steps.append(made)

    def step(self) -> None:
        form = self.choices.weighed(
            change=10,
            several=4,
            interleaved=1,
            watch=1,
            manage=2,
            since=1,
            define=1 if self.choices.rng(50) else 0,
            restart=2 if self.durable else 0,
        )
        match form:
            case "define":
                self.define()
            case "since":
                self.follow_since()
            case "restart":
                self.steps += [Do(session, "ROLLBACK") for session in sorted(self._open)]
                self._open.clear()
                self.steps.append(Restart(self.choices.rng(50)))
            case "several":
                self.transaction(self.choices.number(0, WRITERS - 1))
            case "interleaved":
                self.interleave(self.choices.number(0, WRITERS - 1))
            case "watch":
                self.start_watch(self.choices.one(self.queries))
            case "manage":
                self.manage(self.choices.one(self.follows))
            case _:
                self.steps.append(Do(self.choices.number(0, WRITERS - 1), self.change()))

    def manage(self, start_watch: StartWatch) -> None:
        altering = ("ALTER", "ALTER", "ALTER") if start_watch.query.other_filter is not None else ()
        operation = self.choices.one(("PAUSE", "RESUME", "RESUME", "CANCEL", *altering))
        self.steps.append(Manage(operation, start_watch.number))

    def define(self) -> None:
        """Add a subtype, an attribute or a policy."""
        number, kinds = len(self.steps), self.ontology.nodes
        kind = self.choices.one(kinds)
        match self.choices.weighed(subtype=2, attribute=2, default=1, policy=2 if self.policies else 0):
            case "subtype":
                fresh = NodeKind(f"X{number}", (kind.name,))
                self.steps.append(Define(fresh.text()))
                self.ontology = replace(self.ontology, nodes=(*kinds, fresh), cache={})
            case "policy":
                for text in draw_node_policy(self.choices, self.ontology, kind.name, number):
                    self.steps.append(Define(text))
            case form:
                modifiers = " = 7" if form == "default" else ""
                wider = (*kind.attributes, (f"x{number}", "Int", modifiers))
                grown = replace(kind, attributes=wider)
                self.steps.append(Define(grown.text()))
                nodes = tuple(grown if each is kind else each for each in kinds)
                self.ontology = replace(self.ontology, nodes=nodes, cache={})

    def transaction(self, session: int) -> None:
        """BEGIN … COMMIT or ROLLBACK, sometimes with a savepoint."""
        if session in self._open:
            self.interleave(session)
            return
        self.steps.append(Do(session, "BEGIN"))
        for _ in range(self.choices.number(1, 4)):
            self.steps.append(Do(session, self.change()))
        if self.choices.rng(20):
            self.steps.append(Do(session, "SAVEPOINT here"))
            self.steps += [Do(session, self.change()), Do(session, "ROLLBACK TO here")]
            self.steps.append(Do(session, self.change()))
        self.steps.append(Do(session, "ROLLBACK" if self.choices.rng(15) else "COMMIT"))

    def interleave(self, session: int) -> None:
        """A transaction that stays open while other sessions continue."""
        if session in self._open:
            self._open.discard(session)
            self.steps.append(Do(session, "COMMIT"))
            return
        self._open.add(session)
        isolation = self.choices.one(("", " SERIALIZABLE"))
        self.steps += [Do(session, f"BEGIN{isolation}"), Do(session, self.change())]

    # Statements

    def change(self) -> str:
        form = self.choices.weighed(set=6, link=5, spawn=3, unlink=3, kill=3, all=3)
        match form:
            case "spawn":
                return self.spawn()
            case "link":
                return self.link()
            case "unlink" if edges := self._edges():
                name = self.choices.one(edges)
                if self.choices.rng(15):
                    kind = self.ontology.edge(self.alive[name])
                    return f"UNLINK {kind.name}({', '.join('_' for _ in kind.parameters)})"
                self.alive.pop(name)
                return f"UNLINK #{name}"
            case "kill" if nodes := self._nodes():
                name = self.choices.one(nodes)
                self.alive.pop(name)
                return f"KILL #{name}{self.choices.one(('', '', ' CASCADE', ' NO CASCADE'))}"
            case "all":
                return self.change_all()
        return self.set()

    def _nodes(self) -> list[str]:
        return [name for name, kind in self.alive.items() if self._is_node(kind) and name not in self.actors]

    def _edges(self) -> list[str]:
        return [name for name, kind in self.alive.items() if not self._is_node(kind)]

    def _name(self, letter: str, kind: str) -> str:
        self._names[letter] += 1
        name = f"{letter}{self._names[letter]}"
        self.alive[name] = kind
        return name

    def _value(self, kind: str) -> str:
        if kind in VALUES:
            return literal(self.choices.one(VALUES[kind]))
        fitting = [name for name, its in self.alive.items() if its in self.ontology.concrete(kind)]
        return f"#{self.choices.one(fitting)}" if fitting and self.choices.rng(80) else "null"

    def _block(self, kind: str, percent: int) -> str:
        attributes = self.ontology.attributes(kind)
        chosen = [name for name in attributes if self.choices.rng(percent)]
        inside = ", ".join(f"{name} = {self._value(attributes[name])}" for name in chosen)
        return f" {{ {inside} }}" if inside else ""

    def spawn(self) -> str:
        kind = self.choices.one([kind.name for kind in self.ontology.nodes if not kind.abstract])
        block = self._block(kind, 75)
        text = f"SPAWN {self._name('n', kind)}: {kind}{block}"
        if self.choices.rng(10):
            text += f", SPAWN {self._name('n', kind)}: {kind}{block}"
        return text

    def link(self) -> str:
        kind = self.choices.one(self.ontology.edges)
        targets = []
        for parameter in kind.parameters:
            fitting = [n for n, its in self.alive.items() if its in self.ontology.concrete(parameter)]
            if not fitting:
                return self.spawn()
            targets.append(f"#{self.choices.one(fitting)}")
        unless = "IF NOT EXISTS " if self.choices.rng(10) else ""
        block = self._block(kind.name, 75)
        return f"LINK {unless}{kind.name}({', '.join(targets)}) AS {self._name('e', kind.name)}{block}"

    def set(self) -> str:
        having = [name for name, kind in self.alive.items() if self.ontology.attributes(kind)]
        if not having:
            return self.spawn()
        name = self.choices.one(having)
        attributes = self.ontology.attributes(self.alive[name])
        chosen = self.choices.one(list(attributes))
        return f"SET #{name}.{chosen} = {self._value(attributes[chosen])}"

    def change_all(self) -> str:
        """Return one statement that writes many elements."""
        kind = self.choices.one(self.ontology.nodes).name
        some = f"MATCH x: {kind} WHERE x.n = {self._value('Int')}"
        match self.choices.weighed(set=3, kill=1, link=2, move=2):
            case "kill":
                return f"{some} AND x.s != null KILL x"
            case "link":
                binary = [e for e in self.ontology.edges if len(e.parameters) == 2 and e.name != "on"]
                edge = self.choices.one(binary)
                first, second = edge.parameters
                where = f"x.n = {self._value('Int')} AND y.s = {self._value('String')}"
                return f"MATCH x: {first}, y: {second} WHERE {where} LINK {edge.name}(x, y)"
            case "move":
                return f"MATCH x: {kind} SET x.n = x.n + 1"
        return f"{some} SET x.s = {self._value('String')}"
