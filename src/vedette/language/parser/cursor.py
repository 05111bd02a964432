"""A place in the tokens of a text: look, take, expect, complain.

The parser is a chain of classes, one file each, every one knowing those below it:

    Cursor ◂ TypeParser ◂ ExpressionParser ◂ PatternParser ◂ MatchParser ◂ MutationParser ◂ WatchParser
                                                             StatementParser (script.py) ▸ ─┤
                     DeclarationParser (declarations.py) ▸ TypeDeclarationParser (attributes.py) ▸ ─┘

The few calls that go up the chain (an expression holds a pattern, a MATCH holds actions) are abstract methods.
A mistake is raised as `ParseFailure` and collected where the text can be taken up again (`script.py`).
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
    """One diagnostic on its way to the place that collects them."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class TokenCursor:
    """The tokens of one text and a position among them. Tokens are compared by `word`, see `lexer.Token`."""

    __slots__ = (
        "depth",
        "docs",
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
        self.tokens, self.docs, self.literals = tokenize(source, limits)
        self.index = 0
        self.token = self.tokens[0]
        self.end = 0
        """Where the last token that was taken ends."""
        self.depth = 0
        self.inlined_literals: set[int] = set()
        """Ordinals of the literals whose values are baked into the tree, not left as a Literal with a slot."""

    # --- moving ---------------------------------------------------------------------------------------------------

    def advance(self) -> Token:
        """The current token; moves on. The token `end` is never taken."""
        token = self.token
        self.end = token.end
        self.index += 1
        self.token = self.tokens[self.index]
        return token

    def seek(self, index: int) -> None:
        self.index = index
        self.token = self.tokens[index]

    def peek(self, ahead: int = 1) -> str:
        """The word of a token further on; `ahead` at most 3 is safe everywhere."""
        return self.tokens[self.index + ahead].symbol

    def accept(self, word: str) -> bool:
        """Takes the token if it is this keyword or punctuation."""
        if self.token.symbol != word:
            return False
        self.advance()
        return True

    def expect(self, word: str, purpose: str = "") -> Token:
        if self.token.symbol != word:
            self.fail_expected(f"`{word}`{purpose and ' ' + purpose}")
        return self.advance()

    def enter(self, levels: int = 1) -> None:
        """Count nesting; whoever enters leaves by `self.depth -= levels`."""
        self.depth += levels
        if self.depth > self.limits.max_depth:
            most = self.limits.max_depth
            message = f"the text is nested more than {most} levels deep here; write it in several steps"
            raise self.error_at(message, self.token.span, "E1004")

    # --- words and numbers ----------------------------------------------------------------------------------------

    def expect_name(self, what: str) -> str:
        """Any word: attributes, columns, parameters, types, options."""
        if self.token.kind != "name":
            self.fail_expected(what)
        return self.advance().text

    def expect_identifier(self, what: str) -> str:
        """A word that does not start a statement or clause: variables, handles, savepoints."""
        token = self.token
        if token.kind != "name":
            self.fail_expected(what)
        if token.symbol in RESERVED_KEYWORDS:
            self.fail_expected(what, f"`{token.symbol}` is a keyword and no name for this; choose another")
        return self.advance().text

    def at_callable(self) -> bool:
        """At a word that may name an edge type or a function in front of a parenthesis."""
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
        """An Int whose value is needed at parse time."""
        if self.token.kind != "int":
            self.fail_expected(what)
        value = self.inline(self.check_int(self.advance()))
        assert isinstance(value, int)
        return value

    def expect_number(self, what: str) -> int | float:
        """`-`? (Int | Float), a plain number."""
        negative = self.accept("-")
        if self.token.kind not in ("int", "float"):
            self.fail_expected(what)
        value = self.inline(self.advance() if negative else self.check_int(self.advance()))
        assert isinstance(value, int | float)
        return -value if negative else value

    def check_int(self, token: Token) -> Token:
        """2**63 is a number only behind a minus."""
        if token.kind == "int" and token.value > INT_MAX:  # type: ignore[operator]
            raise self.error_at(
                f"this number does not fit into 64 bits; the largest Int is {INT_MAX}", token.span, "E1002"
            )
        return token

    def inline(self, token: Token) -> object:
        self.inlined_literals.add(token.literal_index)
        return token.value

    # --- spans and mistakes ---------------------------------------------------------------------------------------

    def span_from(self, start: int) -> Span:
        return Span(start, self.end)

    def fail_expected(self, expected: str, advice: str = "", token: Token | None = None) -> NoReturn:
        """Found this, expected that, do so."""
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
