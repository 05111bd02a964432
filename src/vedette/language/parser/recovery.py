"""Continue after a syntax error, so that all errors of a text are reported together; check the depth of trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vedette.language.diagnostics import Diagnostic, DiagnosticCollector, Span
from vedette.language.parser.cursor import ParseFailure, TokenCursor
from vedette.language.parser.lexer import Token, parse_error
from vedette.language.syntax.visit import find_node_below

__all__ = ["ErrorRecovery"]

Tree = TypeVar("Tree")

_NESTING = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_NEVER_AFTER = frozenset({".", ":", "::", "ON", "OPTIONAL", "AS", "|"})
_NEVER_BEFORE = frozenset({".", ":", "::", "=", ",", ")", "]", "[", "->", "<"})
_FOLLOWED_BY = {"END": "SESSION", **dict.fromkeys(("PAUSE", "RESUME", "CANCEL", "ALTER"), "WATCH")}
_STATEMENT_LEVELS = 10
"""Levels of a statement above its expressions. `TokenCursor.enter` does not count them."""


class ErrorRecovery:
    """Parses the items of a text. After an error it continues at the next `;` or keyword that starts an item."""

    def __init__(
        self,
        cursor: TokenCursor,
        start_keywords: frozenset[str],
        collector: DiagnosticCollector | None = None,
    ) -> None:
        """`collector` is given where two parsers read one text."""
        self.cursor = cursor
        self.start_keywords = start_keywords
        self.collector = collector or DiagnosticCollector(cursor.source, cursor.limits.max_diagnostics)

    def parse_or_skip(self, parse: Callable[[], Tree]) -> Tree | None:
        """Return the tree, or None if an error was reported. Raises if there are too many errors."""
        start = self.cursor.index
        try:
            tree = parse()
            self.check_tree_depth(tree, start)
        except ParseFailure as failure:
            self.report(failure.diagnostic)
        except RecursionError:
            self.report(self.too_deep(self.cursor.token.span).diagnostic)
        else:
            return tree
        self.skip_to_next_start(start)
        return None

    def report(self, diagnostic: Diagnostic) -> None:
        self.collector.add(diagnostic)
        if self.collector.is_full:
            self.finish()

    def finish(self) -> None:
        """Raise one error that carries every diagnostic, if there are any."""
        self.collector.raise_first(parse_error)

    def skip_to_next_start(self, start: int) -> None:
        """Move from the error to the next token that probably starts a statement or declaration."""
        cursor, tokens = self.cursor, self.cursor.tokens
        cursor.depth = 0
        nesting = sum(_NESTING.get(token.symbol, 0) for token in tokens[start : cursor.index])
        index = cursor.index
        if index == start:
            nesting, index = _NESTING.get(tokens[start].symbol, 0), start + 1
        while tokens[index].kind != "end" and tokens[index].symbol != ";":
            if tokens[index].symbol in self.start_keywords and self.is_start(index, nesting):
                break
            nesting = max(0, nesting + _NESTING.get(tokens[index].symbol, 0))
            index += 1
        cursor.seek(index)

    def is_start(self, index: int, nesting: int) -> bool:
        """True if the keyword at `index` starts an item: outside of brackets, or at the start of a line."""
        before, token, after = self.cursor.tokens[index - 1 : index + 2]
        if before.symbol in _NEVER_AFTER or after.symbol in _NEVER_BEFORE:
            return False
        if _FOLLOWED_BY.get(token.symbol, after.symbol) != after.symbol:
            return False
        return nesting == 0 or _at_line_start(self.cursor.source, token)

    def check_tree_depth(self, tree: object, start: int) -> None:
        """Reject a tree deeper than `max_depth` (E1004).

        `a OR b OR c` costs the parser no recursion but makes a deep tree, and later stages recurse over it. A tree
        cannot be deeper than its number of tokens, so short texts need no check.
        """
        cursor = self.cursor
        if cursor.index - start <= cursor.limits.max_depth:
            return
        span = find_node_below(tree, cursor.limits.max_depth + _STATEMENT_LEVELS)
        if span is not None:
            raise self.too_deep(span)

    def too_deep(self, span: Span) -> ParseFailure:
        most = self.cursor.limits.max_depth
        advice = "use IN [ … ], or group a long chain of operators with parentheses"
        return self.cursor.error_at(f"this is nested more than {most} levels deep; {advice}", span, "E1004")


def _at_line_start(source: str, token: Token) -> bool:
    return token.start == 0 or source[token.start - 1] == "\n"
