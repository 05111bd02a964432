"""Expressions, by precedence climbing (docs/reference/grammar.md#expressions).

`parse_expression(p)` consumes operators that bind tighter than precedence `p`. No construct needs more than three
Python frames per level that `enter` counts, so the parser's nesting limit is reached before Python's recursion limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from vedette.language.diagnostics import Span
from vedette.language.parser.lexer import Token
from vedette.language.parser.type_expressions import TypeParser
from vedette.language.syntax.expressions import (
    AGGREGATE_FUNCTIONS,
    Aggregate,
    Attribute,
    Binary,
    Call,
    Exists,
    Expression,
    IdReference,
    ListLiteral,
    Literal,
    Parameter,
    Pattern,
    PatternAggregate,
    TypeTest,
    Unary,
    Variable,
)
from vedette.language.syntax.grammar import (
    MINUS_PRECEDENCE,
    NOT_PRECEDENCE,
    POSTFIX_PRECEDENCE,
    PRECEDENCE,
    RESERVED_KEYWORDS,
)
from vedette.values import INT_MAX, INT_MIN

__all__ = ["ExpressionParser"]

_WORD_OPERATORS = frozenset({"OR", "AND", "IS", "IN", "STARTS", "ENDS", "CONTAINS"})
_CONSTANTS: Mapping[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_ADVICE: Mapping[str, str] = {
    "=": "equality is one `=`, at most is `<=`",
    ">": "unequal is `!=`",
    "|": "write OR",
    "NOT": "put NOT and its operand into parentheses",
}


class ExpressionParser(TypeParser, ABC):
    __slots__ = ()

    @abstractmethod
    def parse_pattern(self) -> Pattern: ...

    def parse_expression(self, min_precedence: int = 0) -> Expression:
        """Parse an expression whose operators bind tighter than `min_precedence`."""
        self.enter()
        token = self.token
        parse = _PREFIX_PARSERS.get(token.kind)
        if parse is None:
            self.fail_expected("an expression", _ADVICE.get(token.symbol, ""))
        left = parse(self, min_precedence)
        while True:
            operator = self.token.symbol
            precedence = PRECEDENCE.get(operator, 0)
            if precedence <= min_precedence or (
                operator in _WORD_OPERATORS and not self.at_operator(operator)
            ):
                self.depth -= 1  # `leave` without the call: this runs for every operand
                return left
            if precedence < POSTFIX_PRECEDENCE and operator != "IS":
                right_precedence = precedence if precedence > 1 else 0
                self.advance()
                if operator in ("STARTS", "ENDS"):
                    self.advance()
                    operator += " WITH"
                right = self.parse_expression(right_precedence)
                left = Binary(operator, left, right, span=Span(token.start, self.end))
            else:
                left = self.parse_postfix(left, token.start)

    def at_operator(self, word: str) -> bool:
        """True if the word is an operator here.

        `contains` in `= 5 contains: String` is the next attribute of a declaration. STARTS and ENDS need WITH.
        """
        following = self.peek()
        return following == "WITH" if word in ("STARTS", "ENDS") else following != ":"

    def parse_postfix(self, left: Expression, start: int) -> Expression:
        word = self.advance().symbol
        if word == ".":
            name = self.expect_name("the name of an attribute")
            return Attribute(left, name, span=self.span_from(start))
        if word == ":":
            type_name = self.expect_qualified_name("the name of a type")
            return TypeTest(left, type_name, span=self.span_from(start))
        negated = self.accept("NOT")
        self.expect("NULL", "after IS")
        return Unary("IS NOT NULL" if negated else "IS NULL", left, span=self.span_from(start))

    # --- prefixes and primary expressions ---------------------------------------------------------------------------

    def parse_literal(self, _min_precedence: int = 0) -> Literal:
        token = self.check_int(self.advance())
        return Literal(token.value, literal_index=token.literal_index, span=Span(token.start, token.end))

    def parse_parameter(self, _min_precedence: int = 0) -> Parameter:
        token = self.advance()
        return Parameter(str(token.value), token.text[-1] == "?", span=Span(token.start, token.end))

    def parse_id_reference(self, _min_precedence: int = 0) -> IdReference:
        if self.token.kind != "id":
            self.fail_expected("an id such as #name")
        token = self.advance()
        span, mark = Span(token.start, token.end), token.text[1]
        if mark == "$":
            parameter = Parameter(str(token.value), span=Span(token.start + 1, token.end))
            return IdReference(parameter, span=span)
        return IdReference(str(token.value), mark == '"', span=span)

    def parse_parenthesized(self, _min_precedence: int) -> Expression:
        self.advance()
        inner = self.parse_expression()
        self.expect(")", "to close the parenthesis")
        return inner

    def parse_list_literal(self, _min_precedence: int = 0) -> ListLiteral:
        start = self.expect("[").start
        items: list[Expression] = []
        while self.token.symbol != "]":
            items.append(self.parse_expression())
            if not self.accept(","):
                break
        self.expect("]", "to close the list")
        return ListLiteral(tuple(items), span=self.span_from(start))

    def parse_minus(self, _min_precedence: int) -> Expression:
        start = self.advance().start
        minimum = self.parse_min_int(start)
        if minimum is not None:
            return minimum
        operand = self.parse_expression(MINUS_PRECEDENCE)
        return Unary("-", operand, span=self.span_from(start))

    def parse_min_int(self, start: int) -> Literal | None:
        """Parse -2**63 as one literal, because 2**63 alone is not an Int; None for other numbers."""
        if self.token.kind != "int" or self.token.value != INT_MAX + 1:
            return None
        self.inline(self.advance())
        return Literal(INT_MIN, span=self.span_from(start))

    def parse_name_or_keyword(self, min_precedence: int) -> Expression:
        """A variable, a call, EXISTS, NOT, TRUE, FALSE or NULL."""
        token, following = self.token, self.peek()
        if following == "(" or following == "::":
            if token.symbol == "EXISTS":
                return self.parse_exists()
            if self.at_callable():
                return self.parse_call()
        if token.symbol not in RESERVED_KEYWORDS:
            self.advance()
            return Variable(token.text, span=Span(token.start, token.end))
        if token.symbol in _CONSTANTS:
            self.advance()
            return Literal(_CONSTANTS[token.symbol], span=Span(token.start, token.end))
        if token.symbol != "NOT" or min_precedence > NOT_PRECEDENCE:
            keyword = f"`{token.symbol}` is a keyword and cannot be a variable"
            self.fail_expected("an expression", _ADVICE.get(token.symbol, keyword))
        self.advance()
        operand = self.parse_expression(NOT_PRECEDENCE)
        return Unary("NOT", operand, span=self.span_from(token.start))

    # --- calls --------------------------------------------------------------------------

    def parse_call(self) -> Expression:
        """A function call, an edge test or an aggregate."""
        self.enter()
        start = self.token
        name = self.expect_qualified_name("a function")
        self.expect("(", f"after `{name}`")
        if name.upper() in AGGREGATE_FUNCTIONS:
            result = self.parse_aggregate(name, start)
        else:
            result = self.parse_call_arguments(name, start, [])
        self.leave()
        return result

    def parse_call_arguments(self, name: str, start: Token, arguments: list[Expression]) -> Call:
        """Parse the arguments up to the closing parenthesis; `arguments` are those already parsed."""
        if self.token.symbol != ")" or arguments:
            arguments.append(self.parse_expression())
            while self.accept(","):
                arguments.append(self.parse_expression())
        self.expect(")", f"after the arguments of `{name}`")
        return Call(name, tuple(arguments), span=self.span_from(start.start))

    def parse_aggregate(self, name: str, start: Token) -> Expression:
        """`COUNT(*)`, `COUNT(DISTINCT x WHERE c)` or `COUNT(p: Person, …)`. `MIN(a, b)` is a function call."""
        if self.token.kind == "name" and self.peek() == ":":
            pattern, where = self.parse_pattern(), self.parse_where()
            self.expect(")", f"after the pattern of `{name}`")
            limit = self.parse_collect_limit(name)
            return PatternAggregate(name, pattern, where, limit, span=self.span_from(start.start))
        if self.token.symbol == ")":
            return self.parse_call_arguments(name, start, [])
        distinct = self.accept("DISTINCT")
        operand = None
        if distinct or not self.accept("*"):
            operand = self.parse_expression()
        where = self.parse_where() if operand is not None else None
        if self.token.symbol == "," and operand is not None and not distinct and where is None:
            self.advance()
            return self.parse_call_arguments(name, start, [operand])
        self.expect(")", f"after the argument of `{name}`")
        limit = self.parse_collect_limit(name)
        return Aggregate(name, operand, distinct, where, limit, span=self.span_from(start.start))

    def parse_collect_limit(self, name: str) -> int | None:
        """`[limit: 5]` or `[limit: none]` after COLLECT. Any other bracket, such as watch options, is left alone."""
        if name.upper() != "COLLECT" or self.token.symbol != "[":
            return None
        if self.peek() != "LIMIT" or self.peek(2) != ":":
            return None
        self.advance()
        self.advance()
        self.advance()
        limit = -1 if self.accept("NONE") else self.expect_integer("a number or `none`")
        self.expect("]", "after the limit")
        return limit

    def parse_exists(self) -> Exists:
        self.enter()
        start = self.advance().start
        self.expect("(")
        pattern, where = self.parse_pattern(), self.parse_where()
        self.expect(")", "after the pattern of EXISTS")
        self.leave()
        return Exists(pattern, where, span=self.span_from(start))

    def parse_where(self) -> Expression | None:
        return self.parse_expression() if self.accept("WHERE") else None


_PREFIX_PARSERS: Mapping[str, Callable[[ExpressionParser, int], Expression]] = {
    **dict.fromkeys(("string", "int", "float", "timestamp", "duration"), ExpressionParser.parse_literal),
    "name": ExpressionParser.parse_name_or_keyword,
    "param": ExpressionParser.parse_parameter,
    "id": ExpressionParser.parse_id_reference,
    "(": ExpressionParser.parse_parenthesized,
    "[": ExpressionParser.parse_list_literal,
    "-": ExpressionParser.parse_minus,
}
