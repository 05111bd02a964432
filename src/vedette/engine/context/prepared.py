"""Prepared statements: parsed once for all constants, planned once per types of constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette.errors import AnalysisError, InvalidStatement
from vedette.language.parser import parse_template
from vedette.language.parser.lexer import ParserLimits
from vedette.language.parser.template import extract_literals
from vedette.language.resolve.scope import AnalysisContext
from vedette.language.schema.model import Schema
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import Parameter
from vedette.language.syntax.visit import walk
from vedette.language.value_kinds import type_of_class
from vedette.values import Value, to_canonical

__all__ = ["MISSING", "Missing", "PreparedStatement", "StatementCache"]


class Missing:
    """The value of a parameter that was not given."""


MISSING: Any = Missing()
_CANONICAL_TYPES = frozenset({float, bool, type(None), Missing})
_MAX_PLAIN_INT = 1 << 62


class PreparedStatement:
    """One statement and its plans so far."""

    __slots__ = ("literals", "parameters", "plans", "source", "statement")

    def __init__(self, statement: ast.Statement, literals: int, source: str) -> None:
        self.statement = statement
        self.literals = literals
        """Number of leading constants that are literals."""
        self.source = source
        """The parsed text. Positions in analysis errors refer to it."""
        found = {node.name: node.optional for node in walk(statement) if isinstance(node, Parameter)}
        self.parameters = tuple(found)
        """Parameter names in order of first use. Their values follow the literals."""
        self.plans: dict[tuple[type, ...], Any] = {}

    def constants(self, literals: tuple[Value, ...], values: Mapping[str, Any]) -> tuple[Value, ...]:
        """Literals, then parameters. A missing parameter is `MISSING`; the resolver reports it."""
        if not self.parameters:
            return literals
        constants = list(literals)
        for name in self.parameters:
            value = values.get(name, MISSING)
            kind = type(value)
            if not (
                (kind is int and -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT)
                or (kind is str and value.isascii())
                or kind in _CANONICAL_TYPES
            ):
                value = _canonical(name, value)
            constants.append(value)
        return tuple(constants)

    def analysis_context(self, signature: tuple[type, ...], schema: Schema) -> AnalysisContext:
        """The analysis context of the statement for these constant types."""
        first = self.literals
        given = {n: first + i for i, n in enumerate(self.parameters) if signature[first + i] is not Missing}
        return AnalysisContext(
            schema, self.source, tuple(map(type_of_class, signature)), given, literals_extracted=True
        )


def _canonical(name: str, value: Any) -> Value:
    try:
        return to_canonical(value)
    except (TypeError, ValueError) as error:
        raise AnalysisError("E2003", f"The value of ${name} cannot be used: {error}") from error


class StatementCache:
    """Finds the prepared statement of a text: by the text, or by its template, which has no literals."""

    def __init__(self, size: int, limits: ParserLimits) -> None:
        self._size = size
        self._limits = limits
        self._texts: dict[str, tuple[tuple[PreparedStatement, ...], tuple[Value, ...]]] = {}
        self._skeletons: dict[Any, tuple[tuple[int, ...], dict[Any, tuple[PreparedStatement, ...]]]] = {}

    def prepare_script(self, text: object) -> tuple[tuple[PreparedStatement, ...], tuple[Value, ...]]:
        """Prepare every statement of the text.

        Return them with the text's literals. Parses all before anything runs.
        """
        if not isinstance(text, str):
            raise InvalidStatement("E1101", f"a statement must be a str, not {type(text).__name__}")
        known = self._texts.get(text)
        if known is None:
            known = self._find(text)
            if len(self._texts) >= self._size:
                self._texts.clear()
            self._texts[text] = known
        return known

    def prepare_one(self, text: object) -> tuple[PreparedStatement, tuple[Value, ...]]:
        """Prepare the only statement of the text."""
        prepared, literals = (self._texts.get(text) if type(text) is str else None) or self.prepare_script(
            text
        )
        if len(prepared) != 1:
            what = "the text is empty" if not prepared else "use run() for a script of several statements"
            message = f"expected exactly one statement, found {len(prepared)}; {what}"
            raise InvalidStatement("E1101", message, fields={"count": len(prepared)})
        return prepared[0], literals

    def parse_uncached(self, text: str) -> tuple[PreparedStatement, ...]:
        """Parse the statements of the text without the cache."""
        return self._parse(text)[0]

    def _find(self, text: str) -> tuple[tuple[PreparedStatement, ...], tuple[Value, ...]]:
        lifted = extract_literals(text) if len(text) <= self._limits.max_source_characters else None
        if lifted is None:
            return self._parse(text)[:2]
        entry = self._skeletons.get(lifted.key)
        if entry is not None:
            pinned, variants = entry
            known = variants.get(tuple([lifted.literals[i] for i in pinned]))
            if known is not None:
                return known, lifted.literals
        prepared, literals, pinned = self._parse(text)
        if literals == lifted.literals:
            self._remember(lifted.key, pinned, literals, prepared)
        return prepared, literals

    def _remember(
        self,
        template: Any,
        pinned: tuple[int, ...],
        literals: tuple[Value, ...],
        prepared: tuple[PreparedStatement, ...],
    ) -> None:
        if len(self._skeletons) >= self._size:
            self._skeletons.clear()
        _, variants = self._skeletons.setdefault(template, (pinned, {}))
        if len(variants) >= self._size:
            variants.clear()
        variants[tuple([literals[i] for i in pinned])] = prepared

    def _parse(self, text: str) -> tuple[tuple[PreparedStatement, ...], tuple[Value, ...], tuple[int, ...]]:
        parsed = parse_template(text, limits=self._limits)
        prepared = tuple(PreparedStatement(s, len(parsed.literals), text) for s in parsed.statements)
        return prepared, parsed.literals, tuple(sorted(parsed.inlined_literals))
