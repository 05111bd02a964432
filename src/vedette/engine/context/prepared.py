"""Texts ▸ prepared statements: parsed once however the constants vary, planned once per types of constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette.errors import AnalysisError, InvalidStatement
from vedette.language.parser import parse_template
from vedette.language.parser.limits import ParserLimits
from vedette.language.parser.template import extract_literals
from vedette.language.resolve.expressions import type_of_class
from vedette.language.resolve.scope import AnalysisContext
from vedette.language.schema.model import Schema
from vedette.language.syntax import statements as ast
from vedette.language.syntax.expressions import Parameter
from vedette.language.syntax.visit import walk
from vedette.values import Value, to_canonical

__all__ = ["MISSING", "Missing", "PreparedStatement", "StatementCache"]


class Missing:
    """Stands for a parameter that was not given."""


MISSING: Any = Missing()
_CANONICAL_TYPES = frozenset({float, bool, type(None), Missing})
_MAX_PLAIN_INT = 1 << 62


class PreparedStatement:
    """One statement, and the plans made for it so far."""

    __slots__ = ("literals", "parameters", "plans", "source", "statement")

    def __init__(self, statement: ast.Statement, literals: int, source: str) -> None:
        self.statement = statement
        self.literals = literals
        """How many literals its constants begin with."""
        self.source = source
        """The text that was parsed: places in errors of analysis point into it."""
        found = {node.name: node.optional for node in walk(statement) if isinstance(node, Parameter)}
        self.parameters = tuple(found)
        """Names, in order of first use; their values follow the literals."""
        self.plans: dict[tuple[type, ...], Any] = {}

    def constants(self, literals: tuple[Value, ...], values: Mapping[str, Any]) -> tuple[Value, ...]:
        """Literals, then parameters; a missing one is `MISSING`, and the resolver's business."""
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

    def frame(self, signature: tuple[type, ...], schema: Schema) -> AnalysisContext:
        """What a resolver needs to know about the statement's constants."""
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
    """Finds the prepared statement of a text by the text itself, else by what is left when literals are lifted out."""

    def __init__(self, size: int, limits: ParserLimits) -> None:
        self._size = size
        self._limits = limits
        self._texts: dict[str, tuple[tuple[PreparedStatement, ...], tuple[Value, ...]]] = {}
        self._skeletons: dict[Any, tuple[tuple[int, ...], dict[Any, tuple[PreparedStatement, ...]]]] = {}

    def prepare_script(self, text: object) -> tuple[tuple[PreparedStatement, ...], tuple[Value, ...]]:
        """Every statement of the text, and the text's literals. Parses the whole before anything is run."""
        if not isinstance(text, str):
            raise InvalidStatement("E1101", f"a statement is a text (str), this is {type(text).__name__}")
        known = self._texts.get(text)
        if known is None:
            known = self._find(text)
            if len(self._texts) >= self._size:
                self._texts.clear()
            self._texts[text] = known
        return known

    def prepare_one(self, text: object) -> tuple[PreparedStatement, tuple[Value, ...]]:
        """The one statement of the text."""
        prepared, literals = (self._texts.get(text) if type(text) is str else None) or self.prepare_script(
            text
        )
        if len(prepared) != 1:
            what = "the text is empty" if not prepared else "run() takes a script of several"
            message = f"expected exactly one statement, found {len(prepared)}; {what}"
            raise InvalidStatement("E1101", message, fields={"count": len(prepared)})
        return prepared[0], literals

    def parse_uncached(self, text: str) -> tuple[PreparedStatement, ...]:
        """The statements of the text, parsed afresh."""
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
        skeleton: Any,
        pinned: tuple[int, ...],
        literals: tuple[Value, ...],
        prepared: tuple[PreparedStatement, ...],
    ) -> None:
        if len(self._skeletons) >= self._size:
            self._skeletons.clear()
        _, variants = self._skeletons.setdefault(skeleton, (pinned, {}))
        if len(variants) >= self._size:
            variants.clear()
        variants[tuple([literals[i] for i in pinned])] = prepared

    def _parse(self, text: str) -> tuple[tuple[PreparedStatement, ...], tuple[Value, ...], tuple[int, ...]]:
        parsed = parse_template(text, limits=self._limits)
        prepared = tuple(PreparedStatement(s, len(parsed.literals), text) for s in parsed.statements)
        return prepared, parsed.literals, tuple(sorted(parsed.inlined_literals))
