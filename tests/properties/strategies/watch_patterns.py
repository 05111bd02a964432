"""Random patterns and conditions as texts with placeholders: one text with different constants is one shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.properties.strategies.watch_ontologies import VALUES, Choices, EdgeKind, Ontology, literal

__all__ = ["Named", "PatternWriter", "Placeholder", "Reference", "Variable", "filled"]


@dataclass(frozen=True)
class Reference:
    """An element by its name in the test. The runner knows its id."""

    name: str


Named = dict[str, str]
"""Names of elements ▸ their concrete types."""


@dataclass(frozen=True)
class Placeholder:
    """A placeholder for a constant, written as a literal or as a parameter."""

    options: tuple[Any, ...]
    form: str
    """`literal`, `parameter`, or `#$` for a reference by parameter."""
    number: int

    @property
    def mark(self) -> str:
        return f"«{self.number}»"

    def text(self, value: Any) -> str:
        if self.form != "literal":
            return f"{'#' if self.form == '#$' else ''}$p{self.number}"
        if isinstance(value, Reference):
            return f"#{value.name}"
        if isinstance(value, tuple):
            return f"[{', '.join(map(literal, value))}]"
        return literal(value)


def filled(text: str, placeholders: Iterable[Placeholder], values: tuple[Any, ...]) -> str:
    for placeholder in placeholders:
        text = text.replace(placeholder.mark, placeholder.text(values[placeholder.number]))
    return text


@dataclass(frozen=True)
class Variable:
    name: str
    types: tuple[str, ...]
    """Declared types. A union has more than one."""
    concrete: frozenset[str]
    is_edge: bool = False


class PatternWriter:
    """Writes one pattern and conditions over its variables. Nested patterns have their own writer."""

    def __init__(
        self, choices: Choices, ontology: Ontology, named: Named, *, outer: PatternWriter | None = None
    ) -> None:
        self.choices, self.ontology, self.named = choices, ontology, named
        self.outer = outer
        self.own: list[Variable] = []
        self.placeholders: list[Placeholder] = outer.placeholders if outer is not None else []
        self._count: list[int] = outer._count if outer is not None else [0]
        self.depth: int = outer.depth + 1 if outer is not None else 0

    @property
    def variables(self) -> list[Variable]:
        return self.own + (self.outer.variables if self.outer is not None else [])

    def fresh(self) -> str:
        self._count[0] += 1
        return f"v{self._count[0]}"

    def placeholder(self, options: tuple[Any, ...]) -> str:
        by_id = ("#$",) if isinstance(options[0], Reference) else ()
        made = Placeholder(
            options, self.choices.one(("literal", "parameter", *by_id)), len(self.placeholders)
        )
        self.placeholders.append(made)
        return made.mark

    # Elements

    def pattern(self, most: int) -> str:
        """Write a pattern of up to `most` elements. A nested pattern usually uses a variable of the outer pattern."""
        elements = [self.element(first=True)]
        elements += [self.element(first=False) for _ in range(self.choices.number(0, most - 1))]
        return ", ".join(elements)

    def element(self, *, first: bool) -> str:
        related = not first or self.outer is not None
        form = self.choices.weighed(
            node=5 if first else 2, edge=9 if related else 5, path=2, edge_node=1, any_edge=1
        )
        match form:
            case "node":
                return self.node()
            case "path":
                return self.path()
            case "edge_node":
                kind = self.choices.one(self.ontology.edges)
                return self.declare((kind.name,), is_edge=True)
            case "any_edge":
                return self.any_edge()
        return self.edge()

    def node(self) -> str:
        names = [kind.name for kind in self.ontology.nodes]
        types: tuple[str, ...] = (self.choices.one(names),)
        if self.choices.rng(15):
            types = ("any",)
        elif len(names) > 1 and self.choices.rng(20):
            types = tuple(dict.fromkeys((*types, self.choices.one(names))))
        return self.declare(types)

    def declare(self, types: tuple[str, ...], *, is_edge: bool = False) -> str:
        name = self.fresh()
        concrete = frozenset(each for kind in types for each in self.ontology.concrete(kind))
        self.own.append(Variable(name, types, concrete, is_edge))
        return f"{name}: {' | '.join(types)}"

    def edge(self) -> str:
        kind = self.choices.one(self.ontology.edges)
        text = f"{kind.name}({', '.join(self.targets(kind))})"
        if self.choices.rng(30):
            name = self.fresh()
            self.own.append(Variable(name, (kind.name,), frozenset({kind.name}), is_edge=True))
            text += f" AS {name}"
        return text

    def any_edge(self) -> str:
        arity = self.choices.one((2, 2, 1, 3))
        kinds = [kind for kind in self.ontology.edges if len(kind.parameters) == arity]
        if not kinds or any(p.startswith("edge<") for kind in kinds for p in kind.parameters):
            return self.edge()
        name = self.fresh()
        targets = [self.target("any") for _ in range(arity)]
        concrete = frozenset(kind.name for kind in kinds)
        self.own.append(Variable(name, ("edge<any>",), concrete, is_edge=True))
        return f"{name}: edge<any>({', '.join(targets)})"

    def path(self) -> str:
        kinds = [k for k in self.ontology.edges if len(k.parameters) == 2 and k.name != "on"]
        kind = self.choices.one(kinds)
        depth = self.choices.one(("", " [depth: 1]", " [depth: 2]", " [depth: 3]", " [depth: 2..3]"))
        sign = self.choices.one("+*") if ".." not in depth else "+"
        return f"{kind.name}{sign}({', '.join(self.targets(kind))}){depth}"

    def targets(self, kind: EdgeKind) -> list[str]:
        return [self.target(parameter) for parameter in kind.parameters]

    def target(self, parameter: str) -> str:
        fitting = frozenset(self.ontology.concrete(parameter))
        known = [variable for variable in self.variables if variable.concrete & fitting]
        named = tuple(Reference(name) for name, kind in self.named.items() if kind in fitting)
        form = self.choices.weighed(
            known=9 if known else 0, fresh=9, wild=3, constant=2 if named else 0, actor=1
        )
        match form:
            case "known":
                near = [v for v in known if v not in self.own] if self.choices.rng(50) else known
                return self.choices.one(near or known).name
            case "wild":
                return "_"
            case "constant":
                return self.placeholder(named)
            case "actor" if not parameter.startswith("edge<"):
                return "current_actor()"
        name = self.fresh()
        self.own.append(Variable(name, (parameter,), fitting, parameter.startswith("edge<")))
        return name

    # Conditions

    def condition(self, depth: int = 2) -> str:
        form = self.choices.weighed(
            compare=8,
            both=4 if depth else 0,
            either=2 if depth else 0,
            negated=2 if depth else 0,
            exists=4 if self.depth < 2 and depth else 0,
            count=1 if self.depth < 2 and depth else 0,
            other=4,
        )
        match form:
            case "both":
                return f"{self.condition(depth - 1)} AND {self.condition(depth - 1)}"
            case "either":
                return f"({self.condition(depth - 1)} OR {self.condition(depth - 1)})"
            case "negated":
                return f"NOT ({self.condition(depth - 1)})"
            case "exists":
                return self.exists()
            case "count":
                return f"{self.count()} {self.choices.one(('=', '>', '<='))} {self.placeholder((1, 0, 2))}"
            case "other":
                return self.other()
        return self.comparison()

    def exists(self) -> str:
        inner = PatternWriter(self.choices, self.ontology, self.named, outer=self)
        pattern = inner.pattern(2)
        where = f" WHERE {inner.condition(1)}" if self.choices.rng(50) else ""
        return f"{self.choices.one(('', 'NOT '))}EXISTS({pattern}{where})"

    def fold(self, name: str) -> str:
        inner = PatternWriter(self.choices, self.ontology, self.named, outer=self)
        pattern = inner.node()
        if self.choices.rng(80):
            pattern += f", {inner.edge()}"
        where = f" WHERE {inner.condition(1)}" if self.choices.rng(40) else ""
        return f"{name}({pattern}{where})"

    def count(self) -> str:
        return self.fold("COUNT")

    def readable(self, *kinds: str) -> list[tuple[str, str]]:
        """Return the attributes that can be read here, as texts, with their types."""
        return [
            (f"{variable.name}.{attribute}", kind)
            for variable in self.variables
            for attribute, kind in self.ontology.readable(variable.types).items()
            if not kinds or kind in kinds
        ]

    def followed(self) -> list[tuple[str, str]]:
        """`x.r.s`: attributes of referenced elements."""
        return [
            (f"{text}.{attribute}", kind)
            for text, target in self.readable()
            if target not in VALUES
            for attribute, kind in self.ontology.readable((target,)).items()
            if kind in VALUES
        ]

    def comparison(self) -> str:
        readable = self.readable(*VALUES)
        if not readable:
            return self.other()
        followed = self.followed()
        text, kind = self.choices.one(followed if followed and self.choices.rng(20) else readable)
        if kind == "Bool":
            return f"{text} {self.choices.one(('=', '!='))} {self.choices.one(('true', 'false'))}"
        alike = [other for other, its in readable if its == kind and other != text]
        if alike and self.choices.rng(20):
            return f"{text} {self.choices.one(('=', '!=', '<', '>='))} {self.choices.one(alike)}"
        op = self.choices.one(("=", "=", "=", ">", "<", ">=", "<=", "!="))
        constant = self.placeholder(VALUES[kind][:-1])
        return f"{constant} {op} {text}" if self.choices.rng(15) else f"{text} {op} {constant}"

    def other(self) -> str:
        nodes = [variable for variable in self.variables if not variable.is_edge]
        form = self.choices.weighed(null=2, among=3, typed=2, edge=3, same=2, refers=2, is_one=2)
        readable = self.readable("String", "Int")
        match form:
            case "null" if self.readable():
                text, _ = self.choices.one(self.readable() + self.followed())
                return f"{text} {self.choices.one(('= null', 'IS NULL', 'IS NOT NULL'))}"
            case "among" if readable:
                text, kind = self.choices.one(readable)
                values = VALUES[kind]
                if self.choices.rng(50):
                    items = ", ".join(self.placeholder(values[:-1]) for _ in range(2))
                    return f"{text} IN [{items}]"
                return f"{text} IN {self.placeholder((values[:2], values[1:3], values[:1], ()))}"
            case "typed" if nodes:
                variable = self.choices.one(nodes)
                return f"{variable.name}:{self.choices.one(self.ontology.nodes).name}"
            case "same" if len(nodes) > 1:
                first, second = self.choices.one(nodes), self.choices.one(nodes)
                return f"{first.name} {self.choices.one(('!=', '='))} {second.name}"
            case "refers" if references := self.references():
                return self.choices.one(references)
            case "is_one" if nodes and self.named:
                named = tuple(Reference(name) for name in self.named)
                return f"{self.choices.one(nodes).name} {self.choices.one(('=', '!='))} {self.placeholder(named)}"
        return self.edge_test()

    def references(self) -> list[str]:
        """Conditions on attributes that refer to elements."""
        found = []
        for text, kind in self.readable():
            if kind in VALUES:
                continue
            fitting = frozenset(self.ontology.concrete(kind))
            found += [f"{text} = {v.name}" for v in self.variables if v.concrete & fitting]
            found += [f"{text} = {self.placeholder(tuple(map(Reference, self.named)))}"] if self.named else []
            found += [f"{text}:{kind}", f"NOT ({text}:{kind})"]
        return found

    def edge_test(self) -> str:
        """Return an edge as a Boolean call. Its arguments are bound variables, `_`, constants and the actor."""
        kind = self.choices.one(self.ontology.edges)
        arguments = []
        for parameter in kind.parameters:
            fitting = frozenset(self.ontology.concrete(parameter))
            known = [variable.name for variable in self.variables if variable.concrete & fitting]
            options = [*known, "_"] if parameter.startswith("edge<") else [*known, "_", "current_actor()"]
            arguments.append(self.choices.one(options))
        return f"{self.choices.one(('', 'NOT '))}{kind.name}({', '.join(arguments)})"
