"""Random ontologies: type inheritance, attributes of every kind, edges of every form, rules and policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = [
    "VALUES",
    "Choices",
    "EdgeKind",
    "NodeKind",
    "Ontology",
    "draw_node_policy",
    "draw_ontology",
    "literal",
]

T = TypeVar("T")


class Choices:
    """Source of choices for a generator. The first option is the simplest: examples shrink towards it."""

    def __init__(self, number: Callable[[int, int], int]) -> None:
        self._number = number

    def number(self, low: int, high: int) -> int:
        """Return a number between the bounds, both included."""
        return low if low >= high else self._number(low, high)

    def one(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def weighed(self, **weights: int) -> str:
        """Return one of the names with a probability proportional to its weight."""
        left = self.number(0, sum(weights.values()) - 1)
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        raise AssertionError

    def rng(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Return up to `most` different options, in their order."""
        left = list(options)
        found = [left.pop(self.number(0, len(left) - 1)) for _ in range(self.number(0, min(most, len(left))))]
        return [option for option in options if option in found]


VALUES: dict[str, tuple[Any, ...]] = {
    "String": ("a", "b", "c", None),
    "Int": (1, 2, 3, 0, -1, None),
    "Float": (0.1, 0.2, 0.3, 1e16, -1e16, 2.0, None),
    "Bool": (True, False, None),
}
"""Few values, so that elements share them; floats whose sum depends on the order of addition."""


def literal(value: Any) -> str:
    """Format a scalar as a literal of a statement."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{value}"' if isinstance(value, str) else repr(value).replace("e+", "e")


@dataclass(frozen=True)
class NodeKind:
    name: str
    parents: tuple[str, ...] = ()
    abstract: bool = False
    attributes: tuple[tuple[str, str, str], ...] = ()
    """Name, type, modifiers."""

    def text(self) -> str:
        head = f"{'abstract ' if self.abstract else ''}node {self.name}"
        above = f" : {', '.join(self.parents)}" if self.parents else ""
        inside = ", ".join(f"{name}: {kind}?{modifiers}" for name, kind, modifiers in self.attributes)
        return f"{head}{above} {{ {inside} }}"


@dataclass(frozen=True)
class EdgeKind:
    name: str
    parameters: tuple[str, ...]
    """A node type, `any`, or `edge<name>`."""
    modifiers: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str, str], ...] = ()

    @property
    def symmetric(self) -> bool:
        return "symmetric" in self.modifiers

    def text(self) -> str:
        targets = ", ".join(f"t{place}: {kind}" for place, kind in enumerate(self.parameters))
        modifiers = f" [{', '.join(self.modifiers)}]" if self.modifiers else ""
        inside = ", ".join(f"{name}: {kind}?" for name, kind, _ in self.attributes)
        return f"edge {self.name}({targets}){modifiers}" + (f" {{ {inside} }}" if inside else "")


@dataclass(frozen=True)
class Ontology:
    nodes: tuple[NodeKind, ...]
    edges: tuple[EdgeKind, ...]
    rules: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    cache: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Declared type ▸ its concrete subtypes."""

    def text(self) -> str:
        nodes, edges = (kind.text() for kind in self.nodes), (kind.text() for kind in self.edges)
        return "\n".join((*nodes, *edges, *self.rules, *self.policies))

    def node(self, name: str) -> NodeKind:
        return next(kind for kind in self.nodes if kind.name == name)

    def edge(self, name: str) -> EdgeKind:
        return next(kind for kind in self.edges if kind.name == name)

    def above(self, name: str) -> list[str]:
        """Return the type and all its supertypes."""
        found = [name]
        for parent in self.node(name).parents:
            found += [each for each in self.above(parent) if each not in found]
        return found

    def concrete(self, name: str) -> tuple[str, ...]:
        """Return the types that an element of this declared type can have, including `any` and `edge<…>`."""
        if name not in self.cache:
            self.cache[name] = self._concrete(name)
        return self.cache[name]

    def _concrete(self, name: str) -> tuple[str, ...]:
        if name == "any":
            return tuple(kind.name for kind in self.nodes if not kind.abstract)
        if name.startswith("edge<"):
            inner = name[5:-1]
            return tuple(kind.name for kind in self.edges) if inner == "any" else (inner,)
        if any(kind.name == name for kind in self.edges):
            return (name,)
        return tuple(kind.name for kind in self.nodes if not kind.abstract and name in self.above(kind.name))

    def attributes(self, name: str) -> dict[str, str]:
        """Return the attributes of an element of a concrete type, with their types."""
        for edge in self.edges:
            if edge.name == name:
                return {attribute: kind for attribute, kind, _ in edge.attributes}
        owners = (self.node(each) for each in self.above(name))
        return {attribute: kind for owner in owners for attribute, kind, _ in owner.attributes}

    def readable(self, names: Sequence[str]) -> dict[str, str]:
        """Return the attributes that can be read from a variable of these declared types.

        All types of a union must have them.
        """
        found: dict[str, str] | None = None
        for name in names:
            below = (self.attributes(each) for each in self.concrete(name))
            own = {attribute: kind for each in below for attribute, kind in each.items()}
            found = own if found is None else {a: kind for a, kind in found.items() if a in own}
        return found or {}


# Generating


def draw_ontology(choices: Choices, *, rules: bool, policies: bool) -> Ontology:
    nodes = _nodes(choices)
    plain = Ontology(nodes, _edges(choices, nodes))
    return Ontology(
        nodes,
        plain.edges,
        tuple(_rules(choices, plain)) if rules else (),
        tuple(_policies(choices, plain)) if policies else (),
    )


def _nodes(choices: Choices) -> tuple[NodeKind, ...]:
    found: list[NodeKind] = []
    for name in ("A", "B", "C")[: choices.one((1, 1, 2, 2, 3))]:
        parents = tuple(choices.some([kind.name for kind in found], 2)) if choices.rng(60) else ()
        found.append(NodeKind(name, parents))
    inherited = any("A" in kind.parents for kind in found)
    if inherited and choices.rng(30):
        found[0] = NodeKind("A", abstract=True)
    return tuple(_with_attributes(choices, found))


def _with_attributes(choices: Choices, kinds: list[NodeKind]) -> list[NodeKind]:
    """Distribute attributes over the types.

    Every type has or inherits `s` and `n`; otherwise comparisons would be rare.
    """
    bare = Ontology(tuple(kinds), ())
    owned: dict[str, list[tuple[str, str, str]]] = {kind.name: [] for kind in kinds}
    for kind in kinds:
        known = {name for above in bare.above(kind.name) for name, _, _ in owned[above]}
        if "s" not in known:
            owned[kind.name].append(("s", "String", choices.one(("", " [indexed]"))))
        if "n" not in known:
            owned[kind.name].append(("n", "Int", choices.one(("", " [indexed]"))))
        more = {
            "r": (choices.one(kinds).name, ""),
            "f": ("Float", ""),
            "b": ("Bool", ""),
            "k": ("String", " [unique]"),
        }
        for name in choices.some([name for name in more if not _declared(owned, name)], 2):
            owned[kind.name].append((name, *more[name]))
    return [NodeKind(k.name, k.parents, k.abstract, tuple(owned[k.name])) for k in kinds]


def _declared(owned: dict[str, list[tuple[str, str, str]]], name: str) -> bool:
    return any(attribute[0] == name for attributes in owned.values() for attribute in attributes)


def _edges(choices: Choices, nodes: tuple[NodeKind, ...]) -> tuple[EdgeKind, ...]:
    types = [kind.name for kind in nodes] + ["any"]
    found = [EdgeKind("to", (choices.one(types), choices.one(types)), _modifiers(choices))]
    if choices.rng(45):
        weighted = (("w", "Int", ""), ("f", "Float", ""))
        found.append(EdgeKind("has", (choices.one(types), choices.one(types)), (), weighted))
    if choices.rng(45):
        same = choices.one(types)
        found.append(EdgeKind("near", (same, same), ("symmetric",), (("w", "Int", ""),)))
    if choices.rng(25):
        found.append(EdgeKind("flag", (choices.one(types),)))
    if choices.rng(20):
        found.append(EdgeKind("tri", (choices.one(types), choices.one(types), choices.one(types))))
    if choices.rng(35):
        target = choices.one([f"edge<{kind.name}>" for kind in found])
        found.append(EdgeKind("on", (target, choices.one(types))))
    return tuple(found)


def _modifiers(choices: Choices) -> tuple[str, ...]:
    return choices.one(
        (
            (),
            ("on_kill_source: cascade",),
            ("on_kill_target: cascade",),
            ("unique",),
            ("no_self",),
            ("acyclic",),
        )
    )


def _rules(choices: Choices, ontology: Ontology) -> list[str]:
    kinds = [kind.name for kind in ontology.nodes]
    edge = choices.one([kind for kind in ontology.edges if kind.name != "on"])
    targets = ", ".join(f"x{place}" for place in range(len(edge.parameters)))
    every = [
        f'rule r0: x: {choices.one(kinds)} WHERE x.n = 3 => SET x.s = "c"',
        f"rule r1: {edge.name}({targets}) AS e WHERE x0.n = -1 => UNLINK e",
        f'rule r2: x: {choices.one(kinds)} WHERE x.s = "c" AND x.n = 0 => KILL x',
        f'rule r3: x: {choices.one(kinds)} WHERE x.n = 2 AND x.s = null => SET x.s = "a", SET x.n = 1',
    ]
    return choices.some(every, 2)


_MAY_WATCH = "policy watching: ON META SPAWN(_Watch) ALLOW IF true"


def _policies(choices: Choices, ontology: Ontology) -> list[str]:
    found = [_MAY_WATCH]
    for kind in ontology.nodes:
        if choices.rng(80):
            found += draw_node_policy(choices, ontology, kind.name, len(found))
    for edge in ontology.edges:
        if choices.rng(25):
            verdict = choices.one(("ALLOW", "DENY"))
            about = ("e.w > 1",) if edge.attributes else ()
            condition = choices.one((*about, _about_actor(choices, ontology)))
            found.append(f"policy p{len(found)}: ON MATCH(e: {edge.name}) {verdict} IF {condition}")
    return found


def draw_node_policy(choices: Choices, ontology: Ontology, kind: str, number: int) -> list[str]:
    form = choices.weighed(all=3, value=2, linked=3, deny=2, hide=3, gate=1)
    allow = f"policy q{number}: ON MATCH(x: {kind}) ALLOW IF true"
    about = _linked(choices, ontology, kind)
    match form:
        case "all":
            return [allow]
        case "value":
            return [f"policy p{number}: ON MATCH(x: {kind}) ALLOW IF {choices.one(_ABOUT)}"]
        case "linked":
            return [f"policy p{number}: ON MATCH(x: {kind}) ALLOW IF {about} OR x = current_actor()"]
        case "deny":
            return [allow, f"policy p{number}: ON MATCH(x: {kind}) DENY IF {choices.one((*_ABOUT, about))}"]
        case "gate":
            return [f"policy p{number}: ON MATCH(x: {kind}) ALLOW IF {_about_actor(choices, ontology)}"]
    attribute = choices.one(("s", "n"))
    verdict = choices.one(("DENY", "ALLOW"))
    hidden = choices.one((*_ABOUT, about))
    return [allow, f"policy p{number}: ON MATCH(x: {kind}).{attribute} {verdict} IF {hidden}"]


_ABOUT = ('x.s = "a"', "x.n > 1", "x.n != 2")


def _linked(choices: Choices, ontology: Ontology, kind: str) -> str:
    """Return a condition on an edge between the actor and the element, if the ontology has a suitable edge type."""
    edges = [
        edge.name
        for edge in ontology.edges
        if len(edge.parameters) == 2 and edge.name != "on"
        if set(ontology.concrete(edge.parameters[1])) & set(ontology.concrete(kind))
    ]
    if not edges:
        return 'x.s = "b"'
    edge = choices.one(edges)
    return choices.one(
        (
            f"{edge}(current_actor(), x)",
            f"EXISTS({edge}(current_actor(), x))",
            f"EXISTS({edge}(y, x) WHERE y.n > 1)",
            f"NOT EXISTS({edge}(_, x))",
        )
    )


def _about_actor(choices: Choices, ontology: Ontology) -> str:
    """Return a condition that does not read the element: it shows or hides a whole type."""
    kind = choices.one(ontology.nodes).name
    return choices.one(
        (
            f"EXISTS(g: {kind} WHERE g.n = 3)",
            f'EXISTS(g: {kind} WHERE g = current_actor() AND g.s = "a")',
            "EXISTS(to(current_actor(), _))",
        )
    )
