"""Walking and rewriting syntax trees."""

from __future__ import annotations

from vedette.language.parser import parse_expression
from vedette.language.syntax.expressions import Binary, Literal, Variable
from vedette.language.syntax.visit import field_names, find_node_below, transform, walk


def test_walk_yields_parents_before_children_in_text_order() -> None:
    tree = parse_expression("a + f(b, 1)")
    assert [type(node).__name__ for node in walk(tree)] == [
        "Binary",
        "Variable",
        "Call",
        "Variable",
        "Literal",
    ]


def test_transform_replaces_nodes_and_keeps_unchanged_subtrees() -> None:
    tree = parse_expression("a + f(b, 1)")
    assert isinstance(tree, Binary)

    def rename(node: object) -> object:
        return Variable("c") if node == Variable("b") else None

    changed = transform(tree, rename)
    assert changed == parse_expression("a + f(c, 1)")
    assert changed.left is tree.left
    assert transform(tree, lambda node: None) is tree


def test_a_replacement_is_not_visited() -> None:
    tree = parse_expression("a")
    assert transform(tree, lambda node: Binary("+", Variable("a"), Literal(1))) == parse_expression("a + 1")


def test_find_node_below_returns_the_span_of_a_deep_node() -> None:
    tree = parse_expression("a OR b OR c")
    assert find_node_below(tree, 3) is None
    assert find_node_below(tree, 2) is not None


def test_field_names_leave_out_the_span() -> None:
    assert field_names(Variable) == ("name",)
    assert field_names(str) == ()
