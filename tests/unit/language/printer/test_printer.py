"""The printer on the corpus, and the layout of its text. tests/properties has generated trees."""

from __future__ import annotations

import pytest

from tests.unit.language.parser.corpus import (
    Case,
    accepted_ontologies,
    accepted_options,
    accepted_scripts,
    expressions,
)
from vedette.language.parser import (
    parse_declarations,
    parse_expression,
    parse_script,
    parse_statement,
    parse_watch_options,
)
from vedette.language.printer import (
    print_declarations,
    print_expression,
    print_pattern,
    print_script,
    print_statement,
    print_type,
    print_watch_options,
)
from vedette.language.syntax.expressions import (
    Conditional,
    Expression,
    Index,
    ListLiteral,
    Literal,
    NamedType,
    OptionalType,
    Variable,
)
from vedette.language.syntax.statements import Watch


@pytest.mark.parametrize("case", accepted_scripts(), ids=str)
def test_scripts(case: Case) -> None:
    tree = parse_script(case.text)
    again = parse_script(print_script(tree))
    assert (again, repr(again)) == (tree, repr(tree))


@pytest.mark.parametrize("case", accepted_ontologies(), ids=str)
def test_ontologies(case: Case) -> None:
    tree = parse_declarations(case.text)
    again = parse_declarations(print_declarations(tree))
    assert again == tree
    assert [declaration.doc for declaration in again] == [declaration.doc for declaration in tree]


@pytest.mark.parametrize("case", accepted_options(), ids=str)
def test_options(case: Case) -> None:
    tree = parse_watch_options(case.text)
    assert parse_watch_options(print_watch_options(tree)) == tree


@pytest.mark.parametrize("text", [text for text, _ in expressions()])
def test_expressions(text: str) -> None:
    tree = parse_expression(text)
    assert parse_expression(print_expression(tree)) == tree


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("((a) + (b * c))", "a + b * c"),
        ("(a + b) * c", "(a + b) * c"),
        ("a - (b - c)", "a - (b - c)"),
        ("not (not a)", "NOT NOT a"),
        ("not (a and b)", "NOT (a AND b)"),
        ("(not a) = b", "(NOT a) = b"),
        ("-(-a)", "-(-a)"),
        ("a - -b", "a - -b"),
        ("(a ?? b) ?? c", "(a ?? b) ?? c"),
        ("a ?? (b ?? c)", "a ?? b ?? c"),
        ("(a = b) = c", "a = b = c"),
        ("a = (b = c)", "a = (b = c)"),
        ("(5).seconds", "(5).seconds"),
        ("(a + b).c:T", "(a + b).c:T"),
        ("COUNT((x:T))", "COUNT((x:T))"),
        ("min((x:T), y)", "min((x:T), y)"),
        ("collect( x )[limit : none]", "collect(x)[limit: none]"),
        ('"a\\u007f\\n\\"é"', '"a\\u007f\\n\\"é"'),
        ("1500ms", "1500ms"),
        ("60.seconds", "1m"),
        ("1e20", "1e+20"),
    ],
)
def test_as_few_parentheses_as_possible(text: str, printed: str) -> None:
    assert print_expression(parse_expression(text)) == printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("match t:Task,knows+(t,_)[depth:2..3] where t.a return t limit 5", None),
        ("w = WATCH t: T RETURN t AS live", "w = WATCH t: T RETURN t AS live"),
        ("WATCH t: T RETURN t AS live", "WATCH t: T RETURN t AS live"),
        ("WATCH t: T RETURN * AS live", "live = WATCH t: T RETURN *"),
        ("WATCH t: T [a: (f(t))] RETURN t", "WATCH t: T [a: (f(t))] RETURN t"),
        ("WATCH e(t), [depth: 5] RETURN t", "WATCH e(t), [depth: 5] RETURN t"),
        (
            "WATCH t: T WHERE (COLLECT(a))[limit: 5] RETURN t",
            "WATCH t: T WHERE (COLLECT(a)) [limit: 5] RETURN t",
        ),
        ("LINK x: e(a) { n = 1 }", "LINK e(a) AS x { n = 1 }"),
        ("UNLINK e(*, #a)", "UNLINK e(_, #a)"),
        ("SET t {}", "SET t {}"),
    ],
)
def test_statements_are_one_line(text: str, printed: str | None) -> None:
    expected = printed or "MATCH t: Task, knows+(t, _) [depth: 2..3] WHERE t.a RETURN t LIMIT 5"
    assert print_statement(parse_statement(text)) == expected


def test_layout_of_printed_declarations() -> None:
    text = """--- A piece of work.
node Task: Base [abstract, sealed] {
  --- What to do.
  title: String [required, length: 1..80],
  priority: Int [0..10, indexed: desc] = 5,
  owner: (Person | Team)?,
}

edge owns(owner: Person, task: Task) [task -> 0..1, on_kill_source: cascade]

policy p [priority: 2]: ON SET(t: Task, "title") | MATCH(t: Task).score DENY IF TRUE MESSAGE "no"
"""
    assert print_declarations(parse_declarations(text)) == text


def test_patterns_and_types() -> None:
    watch = parse_statement("WATCH t: Task | Note, e(t, #a) RETURN t")
    assert isinstance(watch, Watch)
    assert print_pattern(watch.pattern) == "t: Task | Note, e(t, #a)"
    assert print_type(OptionalType(NamedType("A"))) == "A?"


@pytest.mark.parametrize(
    "tree",
    [
        Index(Variable("a"), Literal(1)),
        Conditional(Variable("a"), Literal(1), ListLiteral(())),
        Literal({"a": 1}),
    ],
)
def test_nodes_of_cel_only_cannot_be_printed(tree: Expression) -> None:
    with pytest.raises(TypeError):
        print_expression(tree)


def test_negative_literals_of_other_front_ends_can_be_printed() -> None:
    assert print_expression(Literal(-5)) == "-5"
    assert print_expression(Literal([1, "a"])) == '[1, "a"]'
