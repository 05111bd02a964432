"""The words of the language. Keywords are contextual: a word is special only where it is expected."""

from __future__ import annotations

__all__ = ["DECLARATION_KEYWORDS", "NON_CALLABLE_KEYWORDS", "RESERVED_KEYWORDS", "STATEMENT_KEYWORDS"]

STATEMENT_KEYWORDS = frozenset(
    "MATCH SPAWN KILL LINK UNLINK SET BEGIN COMMIT ROLLBACK SAVEPOINT END TICK TRIGGER WATCH ACK NACK EXTEND REDRIVE "
    "PAUSE RESUME CANCEL ALTER INSPECT EXPLAIN PROFILE WALK".split()
)
"""Words that start a statement."""

RESERVED_KEYWORDS = STATEMENT_KEYWORDS | frozenset(
    "WHERE RETURN RETURNING OPTIONAL ORDER LIMIT OFFSET ON DO AS AND OR NOT IN IS EXISTS DISTINCT "
    "TRUE FALSE NULL".split()
)
"""Words that may not be bare variables. Attributes, parameters, columns, types and options may have any name."""

NON_CALLABLE_KEYWORDS = frozenset("MATCH WATCH WHERE RETURN AND OR NOT EXISTS DISTINCT".split())
"""Reserved words that a parenthesis may follow, so that no edge type and no function can be called so."""

DECLARATION_KEYWORDS = frozenset("ONTOLOGY TYPE NODE ABSTRACT SEALED EDGE CONSTRAINT RULE POLICY".split())
"""Words that start a declaration."""
