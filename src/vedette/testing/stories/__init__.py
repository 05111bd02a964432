"""Stories: what a user does and what the user should see, as text, run on every host.

A story reads like a transcript. `read_stories` parses a file of them, `tell` runs one.

    .ontology people                          shared by the stories of the file
        node Person { name: String }

    === 2.5.1 | a variable ranges over its type
    .given people
    > SPAWN ann: Person { name = "Ann" }
    created 1
    > MATCH p: Person
      RETURN p.name
    columns: p.name
    "Ann"
    > KILL #nobody
    ! E3601 not found

Lines that begin with `--` are comments. Between `===` and `|` stand the rules that the story shows.

    > text                one statement; `>>` a script. Indented lines go on with it. `bob> text` is session bob's
    .define               the indented lines below are given to `define`
    .given name           the same, with an ontology of the file
    .settings a = 1       how the database is opened, as TOML; before everything else
    .session bob as #ann  opens a session for an actor, named by a binding of any session; others open themselves
    .close bob            closes it
    .with {"x": 1}        parameters of the next statement, as JSON; `@…` texts are timestamps, `#ann` ids
    .advance 5s           lets time pass
    .reopen               closes the database and opens it again; such a story needs a host that keeps

A watch that is named, `> board = WATCH …`, is held, and can be asked about:

    .told board           what it was told since it was last asked; the lines below are events (see `events.py`)
    .told a, b            the same for several; `first 2` asks for two only, `in order` minds the order within a commit,
                          `again` allows what was told before. When the story ends, nothing may be left untold
    .errors board         its records for the owner, `E8005 words` each, `WITHDRAWN words`, or (nothing)
    .confirm board        its owner has everything so far for certain
    .attach board by ann  a session takes it up again by its name; `#board` by its handle
    .reactor log = WATCH  a program that is called for every event, asked about like a watch; `.reactor log failing = …`
    .limits bob 2 5       session bob may have two watches, of five in all

Deliveries of consume watches get names, and so does what a statement found:

    consumed "a" (delivery d1, attempt 2)     what `.told` expects; `#d1` and `{d1}` stand for its id in later texts
    .called letter, other                     names for the ids in the first column of the rows above
    .lose bob                                 whoever held session bob is gone without a word; `.close` is good order

    .watches one element  how much its watches look at; the other is `several elements`
    .pending windows      the story waits for this feature and is expected to fail

What a statement must answer, below it; what is not said is not looked at, but an error is never ignored:

    "Ann" | 2             a row, its values as literals; the order counts when the statement says ORDER BY
    (nothing)             no rows
    columns: a | b        the names of the columns
    rows: 3               how many rows there are
    created 1, linked 2   counts; those not named must be 0
    warning: words        a warning with these words; `no warnings`
    ! E3601 words         the error's code (or `E1102/E8004`) and words of it; further lines `! words`, `!not words`
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
