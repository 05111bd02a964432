"""Trees of declarations: spellings that mean the same, modifiers, rules, policies, doc comments."""

from __future__ import annotations

import pytest

from vedette.language.parser import parse_declarations
from vedette.language.syntax.declarations import (
    AttributeDeclaration,
    ConstraintDeclaration,
    Declaration,
    EdgeDeclaration,
    Modifier,
    NodeDeclaration,
    OntologyDeclaration,
    OperationPattern,
    PolicyDeclaration,
    RuleDeclaration,
)
from vedette.language.syntax.expressions import Literal, NamedType
from vedette.language.syntax.statements import Kill, Link, Set, Spawn, Unlink


def one(text: str) -> Declaration:
    (declaration,) = parse_declarations(text)
    return declaration


def attribute(text: str) -> AttributeDeclaration:
    node = one(f"node A {{ {text} }}")
    assert isinstance(node, NodeDeclaration)
    return node.attributes[0]


@pytest.mark.parametrize(
    "text",
    [
        "abstract sealed node A: B",
        "[abstract, sealed] node A: B {}",
        "node A [abstract, sealed]: B",
        "node A: B [sealed] abstract {}",
        "abstract node A: B [sealed]",
    ],
)
def test_spellings_of_node_modifiers(text: str) -> None:
    assert one(text) == NodeDeclaration("A", ("B",), (), frozenset({"abstract", "sealed"}))


@pytest.mark.parametrize(
    ("text", "modifiers"),
    [
        ("node A abstract node B", [set(), {"abstract"}]),
        ("node A sealed: C abstract node B", [{"sealed"}, {"abstract"}]),
        ("node A [abstract] node B", [{"abstract"}, set()]),
        ("node A [abstract]\nnode B", [{"abstract"}, set()]),
        ("node A\n[abstract] node B", [set(), {"abstract"}]),
        ("node A: C\n  [abstract]\nnode B", [set(), {"abstract"}]),
        ("node A\n  [abstract] { x: Int }\nnode B", [{"abstract"}, set()]),
        ("type C = Int [sealed] node B", [{"sealed"}]),
        ("type C = Int [required] node B", [set()]),
        ("edge e(abstract: A) [abstract -> 1] node B", [set()]),
        ("edge e(abstract: A) [abstract] node B", [{"abstract"}]),
    ],
)
def test_modifiers_between_two_declarations(text: str, modifiers: list[set[str]]) -> None:
    found = [set(node.modifiers) for node in parse_declarations(text) if isinstance(node, NodeDeclaration)]
    assert found == modifiers


@pytest.mark.parametrize(
    ("text", "modifier"),
    [
        ("required", Modifier("required")),
        ("INDEXED", Modifier("indexed")),
        ("indexed: desc", Modifier("indexed", "desc")),
        (">= -5", Modifier(">=", -5)),
        ("< 1.5", Modifier("<", 1.5)),
        ("0..10", Modifier("range", (0, 10))),
        ("-9223372036854775808..9223372036854775807", Modifier("range", (-(2**63), 2**63 - 1))),
        ("in: [1, 2]", Modifier("in", (Literal(1), Literal(2)))),
        ("length: 1..5", Modifier("length", (1, 5))),
        ('match: "a+"', Modifier("match", "a+")),
        ("format: email", Modifier("format", "email")),
    ],
)
def test_modifiers_of_attributes(text: str, modifier: Modifier) -> None:
    assert attribute(f"a: Int [{text}]").modifiers == (modifier,)


@pytest.mark.parametrize(
    "text",
    [
        "a: Int [unique] = 5",
        "a: Int = 5 [unique]",
        "a: Int [unique, default: 5]",
        "a: Int [default = 5] [unique]",
    ],
)
def test_spellings_of_defaults(text: str) -> None:
    assert attribute(text) == AttributeDeclaration("a", NamedType("Int"), (Modifier("unique"),), Literal(5))


@pytest.mark.parametrize(
    ("text", "cardinality"),
    [
        ("a -> 1", ("a", 1, 1)),
        ("a -> 0..5", ("a", 0, 5)),
        ("a -> 1..*", ("a", 1, None)),
        ("a -> *", ("a", 0, None)),
    ],
)
def test_cardinalities(text: str, cardinality: tuple[str, int, int | None]) -> None:
    edge = one(f"edge e(a: A) [{text}]")
    assert isinstance(edge, EdgeDeclaration)
    assert edge.modifiers == (Modifier("cardinality", cardinality),)


def test_a_rule() -> None:
    text = """rule r [priority: -2, manual, inherit_authority]: t: T WHERE t.a =>
              SPAWN n: N { a = 1 }, LINK e(n, t) AS x, SET t.b = 2, UNLINK x, KILL t"""
    rule = one(text)
    assert isinstance(rule, RuleDeclaration)
    assert (rule.priority, rule.manual, rule.inherit_authority) == (-2, True, True)
    assert [type(action) for action in rule.actions] == [Spawn, Link, Set, Unlink, Kill]


def test_a_constraint() -> None:
    constraint = one('constraint c [soft, message: "no"]: a: A WHERE a.x => a.y')
    assert isinstance(constraint, ConstraintDeclaration)
    assert (constraint.soft, constraint.message, constraint.where is None) == (True, "no", False)


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("*", OperationPattern("*")),
        ("SPAWN", OperationPattern("SPAWN")),
        ("SPAWN(_)", OperationPattern("SPAWN")),
        ("META SPAWN(_Watch)", OperationPattern("META SPAWN", "_Watch")),
        ("kill(t: Task)", OperationPattern("KILL", "t", NamedType("Task"))),
        ('SET(t: Task, "status")', OperationPattern("SET", "t", NamedType("Task"), "status")),
        ("SET(t: Task, _)", OperationPattern("SET", "t", NamedType("Task"))),
        ("LINK(_, t: Task)", OperationPattern("LINK", second=("t", NamedType("Task")))),
        ("MATCH(t: Task).score", OperationPattern("MATCH", "t", NamedType("Task"), "score")),
    ],
)
def test_operations_of_policies(text: str, operation: OperationPattern) -> None:
    policy = one(f"policy p: ON {text} ALLOW IF true")
    assert isinstance(policy, PolicyDeclaration)
    assert policy.operations == (operation,)


def test_a_policy() -> None:
    policy = one('policy p [priority: 5]: ON SPAWN | KILL DENY IF false MESSAGE "no"')
    assert isinstance(policy, PolicyDeclaration)
    assert (policy.allow, policy.priority, policy.message, len(policy.operations)) == (False, 5, "no", 2)


def test_doc_comments() -> None:
    text = """
    --- a node
    --- of two lines
    abstract node A {
      --- its name
      name: String -- plain
    }
    --- an edge
    edge e(a: A)
    """
    node, edge = parse_declarations(text)
    assert isinstance(node, NodeDeclaration)
    assert (node.doc, node.attributes[0].doc, edge.doc) == ("a node\nof two lines", "its name", "an edge")


def test_an_ontology() -> None:
    ontology = one("--- doc\nontology A: B, c::D { node E; node F }")
    assert isinstance(ontology, OntologyDeclaration)
    assert (ontology.name, ontology.parents, len(ontology.declarations), ontology.doc) == (
        "A",
        ("B", "c::D"),
        2,
        "doc",
    )
