"""The project board of `vedette serve --demo`: ontology, data, and one step of work on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vedette.engine.database import Database
from vedette.engine.session.session import Session

__all__ = ["DATABASE", "SOURCE", "SOURCE_WATCH", "WATCH", "add_source", "advance", "prepare"]

DATABASE: Final = "demo"
SOURCE: Final = "board"
"""The log of the board as an external collection, which shows the pipeline without MongoDB or PostgreSQL."""
WATCH: Final = "WATCH t: Task RETURN t.title, t.status"
SOURCE_WATCH: Final = f"WATCH t: {SOURCE}::Task RETURN t.title, t.status"

ONTOLOGY: Final = """\
ontology Board {
  node Person {
    name: String [required, unique],
    role: String = "developer"
  }

  node Task {
    title: String [required, length: 1..120],
    status: String = "todo" [in: ["todo", "doing", "review", "done"]],
    priority: Int = 2 [1..3],
    moved_at: Timestamp = now(),
    finished_at: Timestamp?
  }

  --- Who works on a task: one person at most.
  edge assigned_to(task: Task, person: Person) [task -> 0..1] {
    since: Timestamp = now()
  }

  --- The first must be done before the second can begin.
  edge blocks(first: Task, second: Task) [acyclic, no_self]

  constraint begun_by_somebody [message: "a task in progress needs somebody who works on it"]:
    t: Task WHERE t.status = "doing" => EXISTS(p: Person, assigned_to(t, p))

  rule note_the_end: t: Task WHERE t.status = "done" AND t.finished_at IS NULL => SET t.finished_at = now()
}
"""

PEOPLE: Final = (("Ada", "developer"), ("Grace", "developer"), ("Edsger", "reviewer"))
TASKS: Final = (
    ("Draw the floor plan", 3),
    ("Order the timber", 2),
    ("Lay the foundation", 3),
    ("Raise the walls", 2),
)
ORDER: Final = ((0, 2), (1, 3), (2, 3))
"""(blocking task, blocked task) as indexes into TASKS."""
BACKLOG: Final = ("Fit the windows", "Lay the pipes", "Plaster the hall", "Hang the doors", "Paint the fence")

MOVES: Final = {"todo": "doing", "doing": "review", "review": "done"}
FEWEST_OPEN = 3
MOST_DONE = 5

_NEXT: Final = """\
MATCH t: Task WHERE t.status != "done" AND NOT EXISTS(b: Task, blocks(b, t) WHERE b.status != "done")
RETURN t.id, t.title, t.status ORDER BY t.moved_at, t.priority DESC LIMIT 1"""
_LEAST_BUSY: Final = """\
MATCH p: Person RETURN p.id, p.name, COUNT(t: Task, assigned_to(t, p) WHERE t.status != "done") AS load
ORDER BY load, p.name LIMIT 1"""
_OLDEST_DONE: Final = (
    'MATCH t: Task WHERE t.status = "done" RETURN t.id, t.title ORDER BY t.finished_at LIMIT 1'
)


def add_source(directory: Path) -> None:
    """Add the log of the board as a source of the pipeline, which then answers SOURCE_WATCH."""
    from vedette.sources.journal.seam import open_journal
    from vedette.sources.records import Source

    journal = open_journal(directory)
    try:
        if all(source.name != SOURCE for source in journal.sources()):
            journal.add_source(
                Source(name=SOURCE, kind="graph", address=str(directory.resolve()), tenant=DATABASE)
            )
    finally:
        journal.close()


def prepare(database: Database) -> bool:
    """Define the ontology and fill an empty board. Return True if the board was filled."""
    database.define(ONTOLOGY)
    with database.session() as session:
        if _count(session, "MATCH p: Person RETURN COUNT(*)"):
            return False
        session.execute("BEGIN")
        _fill(session)
        session.execute("COMMIT")
    return True


def _fill(session: Session) -> None:
    for name, role in PEOPLE:
        session.execute("SPAWN p: Person { name = $name, role = $role }", name=name, role=role)
    tasks = []
    for title, priority in TASKS:
        spawned = session.execute(
            "SPAWN t: Task { title = $title, priority = $priority } RETURNING id",
            title=title,
            priority=priority,
        )
        tasks.append(spawned.rows[0][0])
    for first, second in ORDER:
        session.execute("LINK blocks(#$first, #$second)", first=tasks[first], second=tasks[second])


def advance(session: Session) -> str:
    """Change one task of the board. Return a sentence that says what changed."""
    todo = _count(session, 'MATCH t: Task WHERE t.status != "done" RETURN COUNT(*)')
    if _count(session, 'MATCH t: Task WHERE t.status = "done" RETURN COUNT(*)') > MOST_DONE:
        return _clear_away(session)
    if todo < FEWEST_OPEN:
        return _take_up(session)
    ((id, title, status),) = session.execute(_NEXT).rows
    return _move(session, id, title, status)


def _clear_away(session: Session) -> str:
    ((id, title),) = session.execute(_OLDEST_DONE).rows
    session.execute("KILL #$id", id=id)
    return f'"{title}" is done and cleared away'


def _take_up(session: Session) -> str:
    known = {title for (title,) in session.execute("MATCH t: Task RETURN t.title").rows}
    title = next((each for each in BACKLOG if each not in known), BACKLOG[0])
    session.execute("SPAWN t: Task { title = $title }", title=title)
    return f'"{title}" is new on the board'


def _move(session: Session, id: str, title: str, status: str) -> str:
    after, who = MOVES[status], ""
    session.execute("BEGIN")
    if after == "doing":
        who = f", {_assign(session, id)} takes it"
    session.execute("SET #$id { status = $status, moved_at = now() }", id=id, status=after)
    session.execute("COMMIT")
    return f'"{title}" {status} ▸ {after}{who}'


def _assign(session: Session, task: str) -> str:
    ((person, name, _),) = session.execute(_LEAST_BUSY).rows
    session.execute("LINK assigned_to(#$task, #$person)", task=task, person=person)
    return str(name)


def _count(session: Session, statement: str) -> int:
    rows: Sequence[tuple[int, ...]] = session.execute(statement).rows
    return rows[0][0]
