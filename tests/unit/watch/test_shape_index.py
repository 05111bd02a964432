"""The index that finds the shapes of a change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import vedette
from tests.support.shapes import ONTOLOGY
from vedette.element import Element
from vedette.engine.session.session import Session
from vedette.watch.shape_index import ShapeIndex
from vedette.watch.watch import Watch


def element(type: str) -> Element:
    return Element("x", type, (), ())


class Watches:
    """Watches of one session, outside the engine's own index. `restore` puts them back, so that the session can end."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._engine_index = session.database.watching.index_of(
            session.watch("WATCH p: Person RETURN p")._watch
        )
        self._created: list[Watch] = []

    def create(self, statement: str) -> Watch:
        watch = self._session.watch(statement)._watch
        self._engine_index.remove(watch)
        self._created.append(watch)
        return watch

    def new_index(self) -> ShapeIndex:
        return ShapeIndex(self._engine_index)

    def restore(self) -> None:
        for watch in self._created:
            if watch not in watch.shape.key_index.all_watches():
                self._engine_index.add(watch)


@pytest.fixture
def watches() -> Iterator[Watches]:
    with vedette.open(":memory:") as db, db.session() as session:
        db.define(ONTOLOGY)
        created = Watches(session)
        yield created
        created.restore()


def test_shapes_are_found_by_the_types_that_they_read(watches: Watches) -> None:
    people = watches.create("WATCH p: Person RETURN p.name")
    tasks = watches.create("WATCH t: Task RETURN t.title")
    index = watches.new_index()
    index.add(people)
    index.add(tasks)
    assert index.affected_shapes([(None, element("Person"))]) == [people.shape]
    assert index.affected_shapes([(element("Task"), None)]) == [tasks.shape]
    assert index.affected_shapes([(None, element("assigned"))]) == []
    both = index.affected_shapes([(None, element("Person")), (None, element("Task"))])
    assert set(map(id, both)) == {id(people.shape), id(tasks.shape)}


def test_a_shape_leaves_with_its_last_watch(watches: Watches) -> None:
    first = watches.create('WATCH p: Person WHERE p.name = "Ann" RETURN p.age')
    second = watches.create('WATCH p: Person WHERE p.name = "Bob" RETURN p.age')
    assert first.shape is second.shape
    index = watches.new_index()
    index.add(first)
    index.add(second)
    index.remove(first)
    assert index.affected_shapes([(None, element("Person"))]) == [first.shape]
    index.remove(second)
    assert index.affected_shapes([(None, element("Person"))]) == []
    assert not index.shapes


def test_time_dependent_shapes_are_affected_by_every_commit(watches: Watches) -> None:
    late = watches.create("WATCH t: Task WHERE t.due < now() RETURN t.title")
    index = watches.new_index()
    index.add(late)
    assert index.has_time_dependent_shapes
    assert index.affected_shapes([(None, element("Person"))]) == [late.shape]
