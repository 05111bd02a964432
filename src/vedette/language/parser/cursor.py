"""The position in the tokens of a text: look ahead, accept, expect, fail, count nesting.

The parser is a chain of classes, one module each. A class extends the one to its left and uses its methods:

    TokenCursor ◂ TypeParser ◂ ExpressionParser ◂ PatternParser ◂ MatchParser ◂ MutationParser ◂ WatchParser
    WatchParser ◂ StatementParser (statements.py)
    WatchParser ◂ TypeDeclarationParser (type_declarations.py) ◂ DeclarationParser (declarations.py)

Where a class needs a later one (an expression contains a pattern, MATCH contains actions), the method is abstract. An
error is raised as `ParseFailure`; `ErrorRecovery` catches it and continues at the next statement or declaration.
"""

from __future__ import annotations

from typing import NoReturn

from vedette.language.diagnostics import Diagnostic, Span
from vedette.language.parser.lexer import DEFAULT_PARSER_LIMITS, ParserLimits, Token, tokenize
from vedette.language.syntax.grammar import NON_CALLABLE_KEYWORDS, RESERVED_KEYWORDS
from vedette.values import INT_MAX

__all__ = ["ParseFailure", "TokenCursor"]

_SHOWN = 40


class ParseFailure(Exception):
    """A syntax error, on its way to `ErrorRecovery`."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class TokenCursor:
    """The tokens of one text and the current position. Methods compare the `symbol` of a token."""

    __slots__ = (
        "depth",
        "doc_comments",
        "end",
        "index",
        "inlined_literals",
        "limits",
        "literals",
        "source",
        "token",
        "tokens",
    )

    def __init__(self, source: str, limits: ParserLimits = DEFAULT_PARSER_LIMITS) -> None:
        self.source = source
        self.limits = limits
        self.tokens, self.doc_comments, self.literals = tokenize(source, limits)
        self.index = 0
        self.token = self.tokens[0]
        self.end = 0
        """End of the last token that `advance` returned, as an offset in the text."""
        self.depth = 0
        self.inlined_literals: set[int] = set()
        """Indexes of the literals whose values are part of the tree (`ParsedTemplate`)."""

    # --- moving ---------------------------------------------------------------------------------------------------

    def advance(self) -> Token:
        """Return the current token and move to the next. Must not be called at the end of the text."""
        token = self.token
        self.end = token.end
        self.index += 1
        self.token = self.tokens[self.index]
        return token

    def seek(self, index: int) -> None:
        self.index = index
        self.token = self.tokens[index]

    def peek(self, ahead: int = 1) -> str:
        """Return the symbol of a later token. `ahead` may be at most 3: the token list ends with four `end` tokens."""
        return self.tokens[self.index + ahead].symbol

    def accept(self, word: str) -> bool:
        """Skip the current token if it is this keyword or punctuation; return whether it was."""
        if self.token.symbol != word:
            return False
        self.advance()
        return True

    def expect(self, word: str, purpose: str = "") -> Token:
        if self.token.symbol != word:
            self.fail_expected(f"`{word}`{purpose and ' ' + purpose}")
        return self.advance()

    def enter(self, levels: int = 1) -> None:
        """Count levels of nesting; fails past the limit (E1004). Call `leave` with the same number afterwards."""
        self.depth += levels
        if self.depth > self.limits.max_depth:
            most = self.limits.max_depth
            message = f"the text is nested more than {most} levels deep here; write it in several steps"
            raise self.error_at(message, self.token.span, "E1004")

    def leave(self, levels: int = 1) -> None:
        self.depth -= levels

    # --- words and numbers ----------------------------------------------------------------------------------------

    def expect_name(self, what: str) -> str:
        """Accept any word: the name of an attribute, column, parameter, type or option."""
        if self.token.kind != "name":
            self.fail_expected(what)
        return self.advance().text

    def expect_identifier(self, what: str) -> str:
        """Accept a word that is not a reserved keyword: the name of a variable, handle or savepoint."""
        token = self.token
        if token.kind != "name":
            self.fail_expected(what)
        if token.symbol in RESERVED_KEYWORDS:
            self.fail_expected(
                what, f"`{token.symbol}` is a keyword and cannot be a name here; choose another"
            )
        return self.advance().text

    def at_callable(self) -> bool:
        """True at a word that may be the name of an edge type or function."""
        token = self.token
        if token.kind != "name":
            return False
        return token.symbol not in RESERVED_KEYWORDS or (
            token.symbol not in NON_CALLABLE_KEYWORDS and self.peek() == "("
        )

    def expect_qualified_name(self, what: str) -> str:
        """`name` or `name::name`."""
        name = self.expect_name(what)
        while self.token.symbol == "::":
            self.advance()
            name = f"{name}::{self.expect_name('a name after `::`')}"
        return name

    def expect_string(self, what: str) -> str:
        if self.token.kind != "string":
            self.fail_expected(what)
        return str(self.inline(self.advance()))

    def expect_integer(self, what: str) -> int:
        """Accept an Int and return its value, which becomes part of the tree."""
        if self.token.kind != "int":
            self.fail_expected(what)
        value = self.inline(self.check_int(self.advance()))
        assert isinstance(value, int)
        return value

    def expect_number(self, what: str) -> int | float:
        """Accept an Int or Float, with or without a minus sign, and return its value."""
        negative = self.accept("-")
        if self.token.kind not in ("int", "float"):
            self.fail_expected(what)
        value = self.inline(self.advance() if negative else self.check_int(self.advance()))
        assert isinstance(value, int | float)
        return -value if negative else value

    def check_int(self, token: Token) -> Token:
        """Fail for 2**63, which the lexer accepts because it is valid after a minus sign."""
        if token.kind == "int" and token.value > INT_MAX:  # type: ignore[operator]
            raise self.error_at(
                f"this number does not fit into 64 bits; the largest Int is {INT_MAX}", token.span, "E1002"
            )
        return token

    def inline(self, token: Token) -> object:
        """Return the value of a literal and mark the literal as inlined."""
        self.inlined_literals.add(token.literal_index)
        return token.value

    # --- spans and errors ---------------------------------------------------------------------------------------

    def span_from(self, start: int) -> Span:
        return Span(start, self.end)

    def fail_expected(self, expected: str, advice: str = "", token: Token | None = None) -> NoReturn:
        """Raise `found …, expected …; advice` at the current token or at `token`."""
        found = token or self.token
        message = f"found {_describe(found)}, expected {expected}"
        raise self.error_at(f"{message}; {advice}" if advice else message, found.span)

    def error_at(self, message: str, span: Span, code: str = "E1001") -> ParseFailure:
        return ParseFailure(Diagnostic(code=code, message=message, span=span, source=self.source))


def _describe(token: Token) -> str:
    if token.kind == "end":
        return "the end of the text"
    text = token.text if len(token.text) <= _SHOWN else token.text[: _SHOWN - 1] + "…"
    return f"the string {text}" if token.kind == "string" else f"`{text}`"
