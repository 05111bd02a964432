"""The schema after declarations were added: layouts, inheritance, aliases, Layer 0."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.language.schema.schema_cases import define, define_all
from vedette.errors import AnalysisError
from vedette.language.parser import parse_declarations
from vedette.language.schema.extend import extend_schema
from vedette.language.schema.layer0 import LAYER0, layer0_schema
from vedette.language.schema.model import AttributeType, Cardinality, NodeType, Schema
from vedette.language.syntax.declarations import (
    AttributeDeclaration,
    ConstraintDeclaration,
    EdgeDeclaration,
    Modifier,
    NodeDeclaration,
)
from vedette.language.syntax.expressions import NamedType
from vedette.language.types import INT, STRING, edge_type, node_type, union_of

# Types and aliases


def attribute(text: str, name: str = "a") -> AttributeType:
    """Return the attribute `a: …` of a node T, declared beside other types."""
    return define_all(f"node P {{}} node Q: P {{}} edge e(p: P) {{}} {text}").nodes["T"].attributes[name]


@pytest.mark.parametrize(
    ("written", "type_", "optional"),
    [
        ("Int", INT, False),
        ("Int?", INT, True),
        ("Int??", INT, True),
        ("Int | String", union_of((INT, STRING)), False),
        ("String | Int | String", union_of((INT, STRING)), False),
        ("Int | String?", union_of((INT, STRING)), True),
        ("(Int | String)?", union_of((INT, STRING)), True),
        ("P", node_type("P"), False),
        ("P | Q", node_type("P", "Q"), False),
        ("P | any", node_type(), False),
        ("any?", node_type(), True),
        ("edge<e>", edge_type("e"), False),
        ("edge<any>", edge_type(), False),
        ("edge<e> | P", union_of((edge_type("e"), node_type("P"))), False),
    ],
)
def test_types(written, type_, optional):
    found = attribute(f"node T {{ a: {written} }}")
    assert (found.type, found.optional) == (type_, optional)


def test_modifiers_of_aliases_combine_and_the_attribute_overrides():
    found = attribute(
        "type Number = Int [0..10] [indexed]; type Rank = Number [>= 1, default = 4]; node T { a: Rank [<= 5] }"
    )
    assert found.value_modifiers == (Modifier(">=", 1), Modifier("<=", 5))
    assert found.indexed
    assert found.default is not None


def test_an_optional_alias_stays_optional_in_later_texts():
    schema = define_all(
        "type Maybe = String? [length: 1..3];", "node T { a: Maybe, b: Maybe [length: 2..2] }"
    )
    node = schema.nodes["T"]
    assert node.attributes["a"].optional
    assert node.attributes["b"].value_modifiers == (Modifier("length", (2, 2)),)


def test_unique_implies_indexed():
    assert attribute("node T { a: Int [unique] }").indexed


def test_a_default_of_the_attribute_replaces_that_of_the_alias():
    found = attribute("type Rank = Int [default: 1]; node T { a: Rank = 2 }")
    assert found.default == attribute("node T { a: Int = 2 }").default


# Inheritance

DIAMOND = """
node Thing { name: String, n: Int [>= 0] }
node Left: Thing { l: Int }
node Right: Thing { r: Int, n: Int [<= 9] = 1 }
node Both: Left, Right { own: Int, name: String [required] }
"""


def test_diamond_inheritance_has_each_attribute_once_with_all_modifiers():
    both = define_all(DIAMOND).nodes["Both"]
    assert list(both.layout) == ["name", "n", "l", "r", "own"]
    assert list(both.layout.values()) == [0, 1, 2, 3, 4]
    assert both.attributes["n"].value_modifiers == (Modifier(">=", 0), Modifier("<=", 9))
    assert both.attributes["n"].default is not None
    assert both.attributes["name"].required
    assert both.attributes["name"].declared_in == "Thing"
    assert both.ancestors == {"Both", "Left", "Right", "Thing"}


def test_new_subtypes_extend_the_descendants_of_existing_types():
    schema = define_all(DIAMOND, "node Below: Both {}")
    assert schema.nodes["Thing"].descendants == {"Thing", "Left", "Right", "Both", "Below"}
    assert schema.concrete_subtypes(frozenset({"Right"})) == ("Right", "Both", "Below")


def test_an_inherited_attribute_is_the_same_object():
    schema = define_all(DIAMOND)
    assert schema.nodes["Left"].attributes["name"] is schema.nodes["Thing"].attributes["name"]


def test_new_attributes_are_last_in_every_layout():
    schema = define_all(DIAMOND, "node Thing { name: String, n: Int [>= 0], extra: Int = 7 }")
    assert list(schema.nodes["Thing"].layout) == ["name", "n", "extra"]
    assert list(schema.nodes["Left"].layout) == ["name", "n", "l", "extra"]
    assert list(schema.nodes["Both"].layout) == ["name", "n", "l", "r", "own", "extra"]


def test_a_looser_parent_attribute_applies_to_subtypes_that_do_not_redeclare_it():
    schema = define_all(DIAMOND, "node Thing { name: String?, n: Int [>= -5] }")
    assert schema.nodes["Left"].attributes["name"].optional
    assert schema.nodes["Left"].attributes["n"].value_modifiers == (Modifier(">=", -5),)
    assert not schema.nodes["Both"].attributes["name"].optional
    assert Modifier(">=", 0) in schema.nodes["Right"].attributes["n"].value_modifiers


def test_an_attribute_added_to_a_parent_later_is_declared_in_the_parent():
    schema = define_all("node A {} node B: A { x: Int }", "node A { x: Int? }")
    assert schema.nodes["B"].attributes["x"].declared_in == "A"


def test_a_definition_without_a_doc_comment_keeps_the_old_one():
    schema = define_all("--- A task.\nnode T {\n--- Its rank.\na: Int }", "node T { a: Int? }")
    assert schema.nodes["T"].doc == "A task."
    assert schema.nodes["T"].attributes["a"].doc == "Its rank."


# Edges


def test_edges():
    schema = define_all(
        "node A {} edge e(a: A, b: any) [acyclic, a -> 1..*, on_kill_target: prevent]"
        "edge f(a: A, b: A) [symmetric, b -> 0..2] edge g(a: A) {}"
    )
    first, second, third = (schema.edges[name] for name in "efg")
    assert first.no_self
    assert first.acyclic
    assert first.cardinalities == (Cardinality(low=1, high=None), None)
    assert (first.on_kill_source, first.on_kill_target) == ("unlink", "prevent")
    assert second.cardinalities == (Cardinality(low=0, high=2),) * 2
    assert (third.arity, third.cardinalities) == (1, (None,))


# Singletons, versions, errors


def test_a_singleton_is_a_constraint():
    schema = define_all("node Config [singleton] { n: Int = 0 }")
    written = parse_declarations(
        'constraint c [message: "there can be only one Config"]:'
        " one: Config => NOT EXISTS(other: Config WHERE other != one)"
    )[0]
    assert isinstance(written, ConstraintDeclaration)
    assert schema.constraints["Config::singleton"] == replace(written, name="Config::singleton")


def test_the_version_increases_only_with_changes():
    schema = define_all("node A {}")
    assert define(schema, "node A {}") is schema
    assert define(schema, "node B {}").version == schema.version + 1


def test_unchanged_types_are_the_same_objects():
    schema = define_all("node A {} node B {}")
    grown = define(schema, "node A { x: Int? }")
    assert grown.nodes["B"] is schema.nodes["B"]


def test_an_error_leaves_the_schema_unchanged_and_underlines_each_position():
    text = "node A { x: Nope }\nedge e(a: Nope)"
    with pytest.raises(AnalysisError) as caught:
        define_all(text)
    assert caught.value.text == "Unknown type 'Nope' (and 1 more)"
    assert "   1 | node A { x: Nope }" in str(caught.value)
    assert "^^^^ Unknown type 'Nope' (line 2, column 11)" in str(caught.value)


def test_deep_aliases_are_rejected_and_deep_inheritance_works():
    deep = "".join(f"type A{n} = A{n + 1} " for n in range(2_000)) + "type A2000 = Int"
    with pytest.raises(AnalysisError, match="100 levels deep"):
        define_all(deep)
    chain = "node N0 {} " + " ".join(f"node N{n}: N{n - 1} {{}}" for n in range(1, 400))
    assert len(define_all(chain).nodes["N399"].ancestors) == 400


def test_at_most_a_hundred_errors_are_listed():
    with pytest.raises(AnalysisError) as caught:
        define_all(" ".join(f"node N{n} {{ a: Nope }}" for n in range(150)))
    assert len(caught.value.fields["problems"]) == 100


# Layer 0


def test_defining_layer0_again_changes_nothing():
    schema = layer0_schema()
    assert extend_schema(schema, parse_declarations(LAYER0), LAYER0, layer0=True) is schema


def test_layer0_has_the_documented_types():
    schema = layer0_schema()
    assert list(schema.nodes["_Watch"].attributes)[:14] == [
        "pattern",
        "mode",
        "group",
        "status",
        "ordering",
        "delivery",
        "visibility",
        "buffer_size",
        "on_full",
        "created_at",
        "events_delivered",
        "events_pending",
        "last_event_at",
        "doc",
    ]
    assert schema.nodes["_Watch"].attributes["session"].type == node_type("_Session")
    assert list(schema.edges) == [
        "_session_has_watch",
        "_watch_event",
        "_watch_dead_letter",
        "_ontology_declares_watch",
        "_dead_letter_in",
    ]
    assert list(schema.constraints) == [
        "_watch_has_pattern",
        "_watch_valid_mode",
        "_watch_valid_status",
        "_watch_valid_on_full",
    ]
    assert all(node.sealed and node.is_layer0 for node in schema.nodes.values())


# Properties

NAMES = ["A", "B", "C", "D", "E"]
TYPES = st.sampled_from(["Int", "String", "Float"]).map(NamedType)


@st.composite
def ontologies(draw: st.DrawFn) -> tuple[NodeDeclaration | EdgeDeclaration, ...]:
    """Generate nodes whose parents come before them, with attributes that may be added later."""
    found: list[NodeDeclaration | EdgeDeclaration] = []
    for place, name in enumerate(NAMES[: draw(st.integers(1, 5))]):
        parents = draw(st.lists(st.sampled_from(NAMES[:place]), unique=True, max_size=2)) if place else []
        attributes = [
            AttributeDeclaration(f"{name.lower()}{number}", draw(TYPES))
            for number in range(draw(st.integers(0, 3)))
        ]
        found.append(NodeDeclaration(name, tuple(parents), tuple(attributes)))
    return tuple(draw(st.permutations(found)))


def layouts(schema: Schema) -> dict[str, list[str]]:
    return {name: list(node.layout) for name, node in schema.nodes.items()}


@given(ontologies())
def test_defining_a_text_twice_changes_nothing(declarations):
    once = extend_schema(Schema(), declarations, "")
    assert extend_schema(once, declarations, "") is once


@given(ontologies())
def test_declaring_types_together_or_one_by_one_gives_the_same_schema(declarations):
    together = extend_schema(Schema(), declarations, "")
    schema = Schema()
    for declaration in sorted(declarations, key=lambda each: each.name):
        schema = extend_schema(schema, (declaration,), "")
    assert layouts(schema) == layouts(together)
    assert {name: node.descendants for name, node in schema.nodes.items()} == {
        name: node.descendants for name, node in together.nodes.items()
    }


@given(ontologies(), st.lists(st.tuples(st.sampled_from(NAMES), TYPES), max_size=4))
def test_layouts_only_grow(declarations, additions):
    schema = extend_schema(Schema(), declarations, "")
    declared = {each.name: each for each in declarations if isinstance(each, NodeDeclaration)}
    for number, (name, type_) in enumerate(additions):
        if name not in declared:
            continue
        old = declared[name]
        new = (*old.attributes, AttributeDeclaration(f"{name.lower()}_new{number}", type_))
        declared[name] = NodeDeclaration(name, old.parents, new)
        grown = extend_schema(schema, (declared[name],), "")
        for each, before in layouts(schema).items():
            assert layouts(grown)[each][: len(before)] == before
            assert_consistent(grown.nodes[each], grown)
        schema = grown


def assert_consistent(node: NodeType, schema: Schema) -> None:
    assert list(node.layout) == list(node.attributes)
    assert list(node.layout.values()) == list(range(len(node.layout)))
    for parent in node.parents:
        assert set(schema.nodes[parent].attributes) <= set(node.attributes)
