"""Random ontologies: fixed node types, edge types with random ends and modifiers.

Everything random in this package comes from a `Random` whose seed and sizes Hypothesis draws. Drawing every single
choice would take longer than the test itself and give small examples only.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = [
    "CONCRETE",
    "NODES",
    "EdgeModel",
    "OntologyModel",
    "attributes_of",
    "has_attribute",
    "random_ontology",
]

NODES = """
abstract node Base { k: Int, n: Int?, u: Int? [unique], i: Int? [indexed] }
node A: Base
node B: Base { m: Int? }
node C: A { m: Int? }
node D { k: Int, n: Int? }
"""

CONCRETE: dict[str, tuple[str, ...]] = {
    "Base": ("A", "B", "C"),
    "A": ("A", "C"),
    "B": ("B",),
    "C": ("C",),
    "D": ("D",),
    "A | D": ("A", "C", "D"),
    "any": ("A", "B", "C", "D"),
}
_ATTRIBUTES = {"A": "knui", "B": "knuim", "C": "knuim", "D": "kn"}


def attributes_of(type_name: str) -> str:
    """Attributes that can be read from a variable of this type; each name is one letter."""
    if "|" in type_name:
        return "kn"
    return "".join(a for a in "knuim" if any(a in _ATTRIBUTES[c] for c in CONCRETE[type_name]))


def has_attribute(concrete: str, attribute: str) -> bool:
    return attribute in _ATTRIBUTES[concrete]


@dataclass(frozen=True, kw_only=True)
class EdgeModel:
    name: str
    ends: tuple[str, ...]
    """Types of the targets. `edge<e0>` is an edge about an edge."""
    symmetric: bool = False
    no_self: bool = False
    acyclic: bool = False
    unique: bool = False
    most: tuple[int | None, ...] = ()
    on_kill_source: str = "unlink"
    on_kill_target: str = "unlink"

    def text(self) -> str:
        ends = ", ".join(f"p{i}: {end}" for i, end in enumerate(self.ends))
        words = [w for w in ("symmetric", "no_self", "acyclic", "unique") if getattr(self, w)]
        words += [f"p{i} -> 0..{most}" for i, most in enumerate(self.most) if most is not None]
        for word in ("on_kill_source", "on_kill_target"):
            action = getattr(self, word)
            words += [f"{word}: {action}"] if action != "unlink" else []
        brackets = f" [{', '.join(words)}]" if words else ""
        return f"edge {self.name}({ends}){brackets} {{ k: Int, w: Int? }}"


@dataclass(frozen=True)
class OntologyModel:
    edges: dict[str, EdgeModel]

    def text(self) -> str:
        return "\n".join([NODES, *(edge.text() for edge in self.edges.values())])

    @property
    def prevents(self) -> bool:
        return any("prevent" in (e.on_kill_source, e.on_kill_target) for e in self.edges.values())


ENDS = ("A", "B", "Base", "C", "D", "any", "A | D")
ACTIONS = ("unlink", "unlink", "cascade", "prevent")


def random_edge(random: Random, name: str) -> EdgeModel:
    first = random.choice(ENDS)
    second = random.choice((first, first, first, *ENDS))
    symmetric = first == second and random.random() < 0.4
    limit = random.randint(1, 2)
    some = ((limit, None), (None, limit), (limit, limit))
    most = (limit, limit) if symmetric else random.choice(some)
    return EdgeModel(
        name=name,
        ends=(first, second),
        symmetric=symmetric,
        no_self=random.random() < 0.2,
        acyclic=not symmetric and random.random() < 0.2,
        unique=random.random() < 0.2,
        most=most if random.random() < 0.25 else (),
        on_kill_source=random.choice(ACTIONS),
        on_kill_target=random.choice(ACTIONS),
    )


def random_ontology(random: Random, *, plain: bool = False) -> OntologyModel:
    """With `plain`, edges have no limits and no referential actions, so that graphs grow freely."""
    edges = [random_edge(random, "e0"), random_edge(random, "e1")]
    if plain:
        edges = [EdgeModel(name=e.name, ends=e.ends, symmetric=e.symmetric) for e in edges]
    edges.append(EdgeModel(name="flag", ends=(random.choice(ENDS),)))
    edges.append(EdgeModel(name="tri", ends=tuple(random.choice(ENDS) for _ in range(3))))
    edges.append(EdgeModel(name="about", ends=("edge<e0>", "Base")))
    return OntologyModel({edge.name: edge for edge in edges})
