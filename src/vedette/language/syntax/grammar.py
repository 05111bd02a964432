"""The words of the language. Keywords are contextual: a word is special only where it is expected."""

from __future__ import annotations

__all__ = ["CLOSED_WORDS", "DECLARATION_WORDS", "RESERVED_WORDS", "STATEMENT_WORDS"]

STATEMENT_WORDS = frozenset(
    "MATCH SPAWN KILL LINK UNLINK SET BEGIN COMMIT ROLLBACK SAVEPOINT END TICK TRIGGER WATCH ACK NACK EXTEND REDRIVE "
    "PAUSE RESUME CANCEL ALTER INSPECT EXPLAIN PROFILE WALK".split()
)
"""Words that start a statement."""

RESERVED_WORDS = STATEMENT_WORDS | frozenset(
    "WHERE RETURN RETURNING OPTIONAL ORDER LIMIT OFFSET ON DO AS AND OR NOT IN IS EXISTS DISTINCT "
    "TRUE FALSE NULL".split()
)
"""Words that may not be bare variables. Attributes, parameters, columns, types and options may have any name."""

CLOSED_WORDS = frozenset("MATCH WATCH WHERE RETURN AND OR NOT EXISTS DISTINCT".split())
"""Reserved words that a parenthesis may follow, so that no edge type and no function can be called so."""

DECLARATION_WORDS = frozenset("ONTOLOGY TYPE NODE ABSTRACT SEALED EDGE CONSTRAINT RULE POLICY".split())
"""Words that start a declaration."""
