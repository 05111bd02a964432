"""What a pattern looks at: changes of other attributes are no news, and cost nothing."""

from __future__ import annotations

import pytest

import vedette
from vedette.language.resolve.tree import ResolvedPath
from vedette.watch.shapes.relevant_attributes import relevant_attributes

ONTOLOGY = """
    node Person { name: String, rank: Int = 0, mood: String = "calm", friend: Person? }
    node Member: Person { since: Int = 0 }
    edge knows(a: Person, b: Person) { strength: Int = 1 }
"""
CASES = [
    ("WATCH p: Person WHERE p.rank > 1 RETURN p.name", {"p": {"name", "rank"}}),
    ("WATCH p: Person RETURN p", {"p": None}),
    ("WATCH p: Person RETURN p.id", {"p": set()}),
    ("WATCH p: Person RETURN p.rank, COUNT(p)", {"p": None}),
    ("WATCH p: Person [ordering: attribute(p.mood DESC)] RETURN p.name", {"p": {"name", "mood"}}),
    ("WATCH p: Person [filter: p.rank = 3] RETURN p.name", {"p": {"name", "rank"}}),
    ("WATCH p: Person RETURN p.friend.name", {"p": {"friend"}}),
    (
        "WATCH p: Person, q: Person, knows(p, q) AS k WHERE p.rank > $n RETURN q.name, k.strength",
        {"p": {"rank"}, "q": {"name"}, "k": {"strength"}},
    ),
    ("WATCH p: Person, q: Person, knows(p, q) WHERE p.rank = q.rank RETURN p.name", {"p": {"name", "rank"}}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_only_what_is_looked_at_counts(text, expected):
    with vedette.open(":memory:") as database:
        database.define(ONTOLOGY)
        shape = database.session().watch(text, n=1).watch.shape
        found = relevant_attributes(shape.shared_pattern, shape.computed(shape.resolved.pattern.where))
        assert found is not None
        names = {
            element.name: element.register
            for element in shape.written_pattern.elements
            if not isinstance(element, ResolvedPath)
        }
        layout = tuple(database.session().database.state.schema.nodes["Person"].layout)
        for variable, attributes in expected.items():
            attended = found[names[variable]]
            if attributes is None or attended is None:
                assert attended is attributes
                continue
            kind = "knows" if variable == "k" else "Person"
            edge = tuple(database.session().database.state.schema.edges["knows"].layout)
            places = layout if kind == "Person" else edge
            assert {places[place] for place in attended.get(kind, ())} == attributes


def test_nested_patterns_are_not_taken_apart():
    with vedette.open(":memory:") as database:
        database.define(ONTOLOGY)
        text = "WATCH p: Person WHERE EXISTS(q: Person, knows(p, q)) RETURN p.name"
        shape = database.session().watch(text).watch.shape
        assert relevant_attributes(shape.shared_pattern, shape.computed(shape.resolved.pattern.where)) is None


def test_a_change_of_anything_else_is_no_event_and_of_what_is_looked_at_is_one():
    with vedette.open(":memory:") as database:
        database.define(ONTOLOGY)
        session = database.session()
        session.run('SPAWN ann: Person { name = "Ann" }; SPAWN bob: Member { name = "Bob", rank = 1 }')
        session.execute("LINK knows(#ann, #bob)")
        text = (
            "WATCH p: Person, q: Person, knows(p, q) WHERE q.rank > 0 [initial: none] RETURN p.name, q.rank"
        )
        watch = session.watch(text)
        session.run('SET #ann.mood = "glad"; SET #bob.since = 5; SET #bob.name = "Rob"; SET #ann.rank = 9')
        assert watch.poll() == []
        session.run('SET #bob.rank = 2; SET #ann.name = "Anna"; SET #bob.rank = 0')
        assert [event.type for event in watch.poll()] == ["changed", "changed", "removed"]
