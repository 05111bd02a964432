"""Templates agree with the lexer; a parsed template with other literals equals parsing the other text."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.properties.strategies.language_trees import floats, integers, statements, texts
from tests.unit.language.parser.corpus import accepted_scripts
from vedette.errors import VedetteError
from vedette.language.parser import parse_script, parse_template
from vedette.language.parser.lexer import tokenize
from vedette.language.parser.template import StatementTemplate, extract_literals
from vedette.language.printer import print_statement
from vedette.language.printer.expressions import print_value
from vedette.language.syntax.expressions import Literal
from vedette.values import Value, duration_from_ms, timestamp_from_ms

OTHERS = {
    "s": texts,
    "i": integers,
    "f": floats,
    "t": st.integers(0, 10**13).map(timestamp_from_ms),
    "d": st.integers(0, 10**12).map(duration_from_ms),
}
SCRIPTS = st.sampled_from([case.text for case in accepted_scripts()])
TEXTS = SCRIPTS | statements.map(print_statement)


def slots(tree: Any) -> dict[int, Value]:
    """Return every literal of a tree that has a literal index."""
    found: dict[int, Value] = {}
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, Literal):
            if node.literal_index is not None:
                assert node.literal_index not in found
                found[node.literal_index] = node.value
        elif dataclasses.is_dataclass(node):
            stack.extend(getattr(node, field.name) for field in dataclasses.fields(node))
    return found


def rebuild(lifted: StatementTemplate, literals: list[Value]) -> str:
    pieces = list(lifted.key)
    pieces[1::2] = map(print_value, literals)
    return "".join(pieces)


@given(TEXTS)
def test_every_literal_has_an_index_or_is_inlined(text: str) -> None:
    parsed = parse_template(text)
    found = slots(parsed.statements)
    assert not found.keys() & parsed.inlined_literals
    assert found.keys() | parsed.inlined_literals == set(range(len(parsed.literals)))
    assert all(repr(parsed.literals[slot]) == repr(value) for slot, value in found.items())


@given(TEXTS)
def test_templates_find_the_literals_of_the_lexer(text: str) -> None:
    lifted = extract_literals(text)
    if lifted is not None:
        assert repr(lifted.literals) == repr(tokenize(text).literals)


@given(TEXTS, st.data())
def test_literals_can_be_replaced_without_parsing(text: str, data: st.DataObject) -> None:
    lifted = extract_literals(text)
    assume(lifted is not None)
    assert lifted is not None
    others: list[Any] = [data.draw(OTHERS[tag]) for tag in lifted.key[1::2]]
    changed = rebuild(lifted, others)
    again = extract_literals(changed)
    assert again is not None
    assert again.key == lifted.key
    assert repr(again.literals) == repr(tuple(others))
    before, after = parse_template(text), parse_template(changed)
    assert before.inlined_literals == after.inlined_literals
    expected = {slot: value for slot, value in enumerate(others) if slot not in after.inlined_literals}
    assert repr(sorted(slots(after.statements).items())) == repr(sorted(expected.items()))


@given(SCRIPTS, st.data())
def test_equal_template_keys_give_equal_trees(text: str, data: st.DataObject) -> None:
    """A damaged text with the template key of an accepted text is accepted too."""
    lifted = extract_literals(text)
    assume(lifted is not None and text)
    place = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 2))
    middle = data.draw(st.text("\"\\@#$.-/*+0123456789abdehmnstwTZ: _\0\n'", max_size=3))
    changed = text[:place] + middle + text[place + length :]
    again = extract_literals(changed)
    if again is None or lifted is None or again.key != lifted.key:
        return
    try:
        parse_script(changed)
    except VedetteError as error:
        raise AssertionError(f"{changed!r} has the skeleton of {text!r}, and is refused") from error
