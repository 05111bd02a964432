"""Keywords, names and operator precedence of the language, for the parser and the printer.

Keywords are contextual: a word is a keyword only where the grammar expects it (docs/reference/grammar.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "ACTION_KEYWORDS",
    "COMPARISON_PRECEDENCE",
    "DECLARATION_KEYWORDS",
    "EXPRESSION_VALUED_OPTIONS",
    "MINUS_PRECEDENCE",
    "NAME_PATTERN",
    "NON_CALLABLE_KEYWORDS",
    "NOT_PRECEDENCE",
    "POSTFIX_PRECEDENCE",
    "PRECEDENCE",
    "RESERVED_KEYWORDS",
    "STATEMENT_KEYWORDS",
]

NAME_PATTERN: Final = r"[A-Za-z_][A-Za-z0-9_]*+"
"""A regular expression. The possessive `*+` keeps it from backtracking."""

STATEMENT_KEYWORDS = frozenset(
    "MATCH SPAWN KILL LINK UNLINK SET BEGIN COMMIT ROLLBACK SAVEPOINT END TICK TRIGGER WATCH ACK NACK EXTEND REDRIVE "
    "PAUSE RESUME CANCEL ALTER INSPECT EXPLAIN PROFILE WALK".split()
)
"""Words that start a statement."""

RESERVED_KEYWORDS = STATEMENT_KEYWORDS | frozenset(
    "WHERE RETURN RETURNING OPTIONAL ORDER LIMIT OFFSET ON DO AS AND OR NOT IN IS EXISTS DISTINCT "
    "TRUE FALSE NULL".split()
)
"""Words that cannot name a variable. Attributes, parameters, columns, types and options may have any name."""

NON_CALLABLE_KEYWORDS = frozenset("MATCH WATCH WHERE RETURN AND OR NOT EXISTS DISTINCT".split())
"""Reserved words that the grammar allows before `(`. No edge type and no function can have such a name."""

DECLARATION_KEYWORDS = frozenset("ONTOLOGY TYPE NODE ABSTRACT SEALED EDGE CONSTRAINT RULE POLICY".split())
"""Words that start a declaration."""

ACTION_KEYWORDS = frozenset({"SPAWN", "KILL", "LINK", "UNLINK", "SET"})
"""Words that start an action: a statement that changes the graph and may follow MATCH."""

EXPRESSION_VALUED_OPTIONS = frozenset({"filter", "serialize_by"})
"""Watch options whose value is always an expression, even if it looks like a word: `filter: subscribed_to(s, c)`."""

NOT_PRECEDENCE, COMPARISON_PRECEDENCE, MINUS_PRECEDENCE, POSTFIX_PRECEDENCE = 4, 5, 8, 9
PRECEDENCE: Mapping[str, int] = {
    "??": 1,
    "OR": 2,
    "AND": 3,
    **dict.fromkeys(
        ("=", "!=", "<", "<=", ">", ">=", "IS", "IN", "STARTS", "ENDS", "CONTAINS"), COMPARISON_PRECEDENCE
    ),
    **dict.fromkeys(("+", "-", "++"), 6),
    **dict.fromkeys(("*", "/", "%"), 7),
    **dict.fromkeys((".", ":"), POSTFIX_PRECEDENCE),
}
"""Precedence of infix and postfix operators; a higher number binds tighter.

The prefix operators NOT and `-` have the precedences 4 and 8.
"""
