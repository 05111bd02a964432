"""The parser on its corpus, and trees in detail: literal indexes, spans, names, spellings."""

from __future__ import annotations

import pytest

from tests.unit.language.parser.corpus import (
    Case,
    accepted_ontologies,
    accepted_options,
    accepted_scripts,
    expressions,
)
from tests.unit.language.parser.tree_text import shape
from vedette.language.parser import (
    parse_declarations,
    parse_expression,
    parse_script,
    parse_statement,
    parse_watch_options,
)
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    EdgePattern,
    Exists,
    IdReference,
    Literal,
    NamedType,
    OptionalType,
    Parameter,
    TypeExpression,
    Unary,
    UnionType,
    Variable,
    Wildcard,
)
from vedette.language.syntax.statements import (
    Assignment,
    Kill,
    Link,
    Match,
    MatchMutate,
    OptionValue,
    Set,
    Spawn,
    SpawnItem,
    Watch,
    WatchOption,
)


@pytest.mark.parametrize("case", accepted_scripts(), ids=str)
def test_accepted_scripts(case: Case) -> None:
    parse_script(case.text)


@pytest.mark.parametrize("case", accepted_ontologies(), ids=str)
def test_accepted_ontologies(case: Case) -> None:
    parse_declarations(case.text)


@pytest.mark.parametrize("case", accepted_options(), ids=str)
def test_accepted_options(case: Case) -> None:
    assert parse_watch_options(case.text)


@pytest.mark.parametrize(("text", "tree"), expressions())
def test_expressions(text: str, tree: str) -> None:
    assert shape(parse_expression(text)) == tree


# Trees


def where(text: str) -> object:
    statement = parse_statement(f"MATCH t: T WHERE {text} RETURN t")
    assert isinstance(statement, Match)
    return statement.blocks[0].where


def watch(text: str) -> Watch:
    statement = parse_statement(text)
    assert isinstance(statement, Watch)
    return statement


def test_spans_cover_the_source_of_each_node() -> None:
    text = "MATCH t: Task WHERE t.a = (1 + 2) RETURN t"
    statement = parse_statement(text)
    assert isinstance(statement, Match)
    condition = statement.blocks[0].where
    assert isinstance(condition, Binary)
    assert text[slice(*statement.span)] == text
    assert text[slice(*condition.span)] == "t.a = (1 + 2)"
    assert text[slice(*condition.left.span)] == "t.a"
    assert text[slice(*condition.right.span)] == "1 + 2"
    assert text[slice(*statement.blocks[0].pattern.elements[0].span)] == "t: Task"
    assert text[slice(*statement.returns.span)] == "RETURN t"


def test_literals_have_indexes() -> None:
    condition = where('t.a = 5 AND t.b IN ["x", 1.5] AND t.c')
    assert isinstance(condition, Binary)
    found = []
    stack: list[object] = [condition]
    while stack:
        node = stack.pop(0)
        if isinstance(node, Literal):
            found.append((node.value, node.literal_index))
        elif isinstance(node, Binary):
            stack += [node.left, node.right]
        else:
            stack += getattr(node, "items", ())
    assert sorted(found, key=lambda pair: pair[1] or 0) == [(5, 0), ("x", 1), (1.5, 2)]
    constant = parse_expression("true")
    assert isinstance(constant, Literal)
    assert constant.literal_index is None


def test_the_smallest_int() -> None:
    assert parse_expression("-9223372036854775808") == Literal(-(2**63))
    assert parse_expression("-5") == Unary("-", Literal(5))


def test_ids() -> None:
    assert parse_expression("#a") == IdReference("a")
    assert parse_expression('#"a"') == IdReference("a", quoted=True)
    assert parse_expression("#7") == IdReference("7")
    assert parse_expression("#$p") == IdReference(Parameter("p"))
    assert parse_expression("$p?") == Parameter("p", optional=True)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("A", NamedType("A")),
        ("A???", OptionalType(NamedType("A"))),
        ("(A | B) | C", UnionType((NamedType("A"), NamedType("B"), NamedType("C")))),
        ("A? | B", UnionType((OptionalType(NamedType("A")), NamedType("B")))),
        ("(A | B)?", OptionalType(UnionType((NamedType("A"), NamedType("B"))))),
        ("(A?)?", OptionalType(NamedType("A"))),
    ],
)
def test_types(text: str, type_: TypeExpression) -> None:
    statement = parse_statement(f"SPAWN t: {text}")
    assert statement == Spawn((SpawnItem("t", type_),))


def test_edges_in_patterns() -> None:
    statement = parse_statement(
        "MATCH e+(a, _) [depth: 2..5], f(#x) AS y, g: edge<any>(a), h*(a, b)[depth: 3] RETURN 1"
    )
    assert isinstance(statement, Match)
    assert statement.blocks[0].pattern.elements == (
        EdgePattern("e", (Variable("a"), Wildcard()), None, "+", 2, 5),
        EdgePattern("f", (IdReference("x"),), "y"),
        EdgePattern(None, (Variable("a"),), "g", written_as_reference=True),
        EdgePattern("h", (Variable("a"), Variable("b")), None, "*", None, 3),
    )


def test_changes_after_match_end_at_a_semicolon() -> None:
    together = parse_script("MATCH t: T SET t.a = 1 KILL t")
    apart = parse_script("MATCH t: T SET t.a = 1; KILL t")
    assert len(together) == 1
    assert isinstance(apart[0], MatchMutate)
    assert apart[1] == Kill(Variable("t"))


def test_the_ways_to_name_a_new_edge() -> None:
    named = Link("e", (Variable("a"),), "x", (Assignment("n", Literal(1)),))
    for text in ("LINK x: e(a) { n = 1 }", "LINK e(a) AS x { n = 1 }", "LINK e(a) { n = 1 } AS x"):
        assert parse_statement(text) == named


def test_set_keeps_its_written_form() -> None:
    assert parse_statement("SET t.a = 1") == Set(Variable("t"), (Assignment("a", Literal(1)),))
    assert parse_statement("SET t { a = 1 }") == Set(
        Variable("t"), (Assignment("a", Literal(1)),), block=True
    )


def test_options() -> None:
    priority = Attribute(Variable("t"), "priority")
    options = parse_watch_options(
        "[Mode: CONSUME] [a: f(t.priority DESC, 2), filter: done, filter: f(t), b: f(t) + 1, c]"
    )
    assert [option.name for option in options] == ["mode", "a", "filter", "filter", "b", "c"]
    assert options[0].value == OptionValue("consume")
    assert isinstance(options[1].value, OptionValue)
    assert [(term.expression, term.descending) for term in options[1].value.arguments] == [
        (priority, True),
        (Literal(2), False),
    ]
    assert options[2].value == Variable("done")
    assert options[3].value == Call("f", (Variable("t"),))
    assert options[4].value == Binary("+", Call("f", (Variable("t"),)), Literal(1))
    assert options[5] == WatchOption("c", None)


def test_words_and_literals_as_values_of_options() -> None:
    values = [
        option.value
        for option in parse_watch_options("[a: none, b: true, c: #x, d: watch, e: NOT x, f: (x)]")
    ]
    assert values == [
        OptionValue("none"),
        Literal(value=True),
        IdReference("x"),
        OptionValue("watch"),
        Unary("NOT", Variable("x")),
        Variable("x"),
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("WATCH t: T RETURN t", None),
        ("w = WATCH t: T RETURN t", "w"),
        ("WATCH t: T RETURN t AS live", "live"),
        ("w = WATCH t: T RETURN t AS live", "w"),
        ("WATCH t: T RETURN * AS live", "live"),
        ("WATCH t: T RETURN t AS a AS live", "live"),
        ("WATCH t: T ON MATCH DO KILL t AS live", "live"),
        ("WATCH t: T ON MATCH DO LINK e(t) AS x", None),
    ],
)
def test_names_of_watches(text: str, name: str | None) -> None:
    assert watch(text).name == name


def test_a_bracket_after_where_starts_the_options() -> None:
    found = watch("WATCH t: T WHERE t.a = b [mode: watch] RETURN t")
    assert found.where == Binary("=", Attribute(Variable("t"), "a"), Variable("b"))
    assert found.options == (WatchOption("mode", OptionValue("watch")),)


def test_exists_is_an_expression() -> None:
    condition = where("NOT EXISTS(e(t, _))")
    assert isinstance(condition, Unary)
    assert isinstance(condition.operand, Exists)
