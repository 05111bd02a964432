"""Compiled shapes of WATCH statements, for tests of `vedette.watch`."""

from __future__ import annotations

import vedette
from vedette.watch.shapes.shape import WatchShape
from vedette.watch.watch import Watch

__all__ = ["ONTOLOGY", "shape_of", "watches_of"]

ONTOLOGY = """
node Person { name: String, age: Int = 0, boss: Person? }
node Task { title: String, due: Timestamp? }
edge assigned(task: Task, person: Person)
edge friend(a: Person, b: Person) [symmetric]
"""


def watches_of(*statements: str, ontology: str = ONTOLOGY) -> list[Watch]:
    """Create the watches in one database in memory and return them."""
    with vedette.open(":memory:") as db, db.session() as session:
        db.define(ontology)
        return [session.watch(statement)._watch for statement in statements]


def shape_of(statement: str, *, ontology: str = ONTOLOGY) -> WatchShape:
    return watches_of(statement, ontology=ontology)[0].shape
