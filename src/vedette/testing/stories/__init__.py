"""Stories: statements and the results a user should see, as text, run on every host.

A story reads like a transcript. `read_stories` parses a file of stories, `run_story` runs one.

    .ontology people                          shared by the stories of the file
        node Person { name: String }

    === 2.5.1 | a variable ranges over its type
    .use people
    > SPAWN ann: Person { name = "Ann" }
    created 1
    > MATCH p: Person
      RETURN p.name
    columns: p.name
    "Ann"
    > KILL #nobody
    ! E3601 not found

Lines that begin with `--` are comments. The rules that a story shows are listed between `===` and `|`.

    > text                one statement; `>>` a script. Indented lines continue it. `bob> text` runs in session bob
    .define               pass the indented lines below to `define`
    .use name             the same with an ontology of the file
    .settings a = 1       settings of the database, as TOML; before all other steps
    .session bob as #ann  open a session for an actor, named by a binding; other sessions open on first use
    .close bob            close a session
    .params {"x": 1}      parameters of the next statement, as JSON; `@…` texts are timestamps, `#ann` ids
    .advance 5s           advance the clock
    .restart              close the database and open it again; needs a host with a durable store

A named watch, `> board = WATCH …`, can be used in later steps:

    .events board         the events since the last `.events`; one line each below (see `events.py`)
    .events a, b          the same for several watches; `limit 2` polls two events, `ordered` checks the order within a
                          commit, `redelivered` allows repeated events. At the end of a story no event may be left
    .errors board         its error records, one line `E8005 words` or `WITHDRAWN words` each, or (nothing)
    .confirm board        the owner confirms all events so far
    .attach board by ann  a session attaches to the watch by its name; `#board` by its handle
    .reactor log = WATCH  a callback for every event, queried like a watch; `.reactor log failing = …` fails each call
    .limits bob 2 5       at most two watches in session bob, five in total

Deliveries of consume watches and rows of a result can be named:

    consumed "a" (delivery d1, attempt 2)     expected by `.events`; `#d1` and `{d1}` are its id in later texts
    .name letter, other                       names for the ids in the first column of the rows above
    .disconnect bob                           the owner of session bob disappears; `.close` ends it gracefully

    .scope node           each watch reads one node; otherwise `.scope pattern`
    .reader pull          the result depends on when the reader polls: hosts that push events skip the story
    .xfail windows        the story needs this feature and is expected to fail

The expected answer of a statement follows it. Parts that are not listed are not checked, but an error always fails:

    "Ann" | 2             a row, its values as literals; the order counts if the statement has ORDER BY
    (nothing)             no rows
    columns: a | b        the names of the columns
    rows: 3               the number of rows
    created 1, linked 2   counts; counts that are not listed must be 0
    warning: words        a warning with these words; `no warnings`
    ! E3601 words         error code (or `E1102/E8004`) and words of its text; then lines `! words`, `!not words`
"""

from vedette.testing.stories.embedded_host import EmbeddedHost
from vedette.testing.stories.host import StoryHost
from vedette.testing.stories.parser import Story, StoryFormatError, read_stories
from vedette.testing.stories.runner import StoryFailed, run_story

__all__ = [
    "EmbeddedHost",
    "Story",
    "StoryFailed",
    "StoryFormatError",
    "StoryHost",
    "read_stories",
    "run_story",
]
