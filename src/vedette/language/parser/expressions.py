"""Expressions by precedence climbing (spec/language.md §1.7).

An operator is taken when it binds tighter than the floor it is parsed under. No construct costs more than three Python
frames for each level that `enter` counts, so that the limit on nesting is reached before Python's own.
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

_WORDS = frozenset({"OR", "AND", "IS", "IN", "STARTS", "ENDS", "CONTAINS"})
_CONSTANTS: Mapping[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_ADVICE: Mapping[str, str] = {
    "=": "equality is one `=`, at most is `<=`",
    ">": "unequal is `!=`",
    "|": "write OR",
    "NOT": "put NOT and what it negates into parentheses",
}


class ExpressionParser(TypeParser, ABC):
    __slots__ = ()

    @abstractmethod
    def pattern(self) -> Pattern: ...

    def expression(self, floor: int = 0) -> Expression:
        """Everything whose operators bind tighter than `floor`."""
        self.enter()
        token = self.token
        read = _PREFIX_PARSERS.get(token.kind)
        if read is None:
            self.fail_expected("an expression", _ADVICE.get(token.symbol, ""))
        left = read(self, floor)
        while True:
            operator = self.token.symbol
            power = PRECEDENCE.get(operator, 0)
            if power <= floor or (operator in _WORDS and not self.at_operator(operator)):
                self.depth -= 1
                return left
            if power < POSTFIX_PRECEDENCE and operator != "IS":
                right_floor = power if power > 1 else 0
                self.advance()
                if operator in ("STARTS", "ENDS"):
                    self.advance()
                    operator += " WITH"
                right = self.expression(right_floor)
                left = Binary(operator, left, right, span=Span(token.start, self.end))
            else:
                left = self.parse_postfix(left, token.start)

    def at_operator(self, word: str) -> bool:
        """Not when it is the next attribute of a declaration, `= 5 contains: String`, or half an operator."""
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

    # --- what an expression starts with ---------------------------------------------------------------------------

    def literal(self, _floor: int = 0) -> Literal:
        token = self.check_int(self.advance())
        return Literal(token.value, literal_index=token.literal_index, span=Span(token.start, token.end))

    def parameter(self, _floor: int = 0) -> Parameter:
        token = self.advance()
        return Parameter(str(token.value), token.text[-1] == "?", span=Span(token.start, token.end))

    def id_reference(self, _floor: int = 0) -> IdReference:
        if self.token.kind != "id":
            self.fail_expected("an id such as #name")
        token = self.advance()
        span, mark = Span(token.start, token.end), token.text[1]
        if mark == "$":
            parameter = Parameter(str(token.value), span=Span(token.start + 1, token.end))
            return IdReference(parameter, span=span)
        return IdReference(str(token.value), mark == '"', span=span)

    def group(self, _floor: int) -> Expression:
        self.advance()
        inner = self.expression()
        self.expect(")", "to close the parenthesis")
        return inner

    def list_literal(self, _floor: int = 0) -> ListLiteral:
        start = self.expect("[").start
        items: list[Expression] = []
        while self.token.symbol != "]":
            items.append(self.expression())
            if not self.accept(","):
                break
        self.expect("]", "to close the list")
        return ListLiteral(tuple(items), span=self.span_from(start))

    def minus(self, _floor: int) -> Expression:
        start = self.advance().start
        least = self.parse_min_int(start)
        if least is not None:
            return least
        operand = self.expression(MINUS_PRECEDENCE)
        return Unary("-", operand, span=self.span_from(start))

    def parse_min_int(self, start: int) -> Literal | None:
        """-2**63 is one literal: without its minus the number would not fit."""
        if self.token.kind != "int" or self.token.value != INT_MAX + 1:
            return None
        self.inline(self.advance())
        return Literal(INT_MIN, span=self.span_from(start))

    def parse_name_or_keyword(self, floor: int) -> Expression:
        """A variable, a call, or one of the words that start an expression."""
        token, following = self.token, self.peek()
        if following == "(" or following == "::":
            if token.symbol == "EXISTS":
                return self.exists()
            if self.at_callable():
                return self.call()
        if token.symbol not in RESERVED_KEYWORDS:
            self.advance()
            return Variable(token.text, span=Span(token.start, token.end))
        if token.symbol in _CONSTANTS:
            self.advance()
            return Literal(_CONSTANTS[token.symbol], span=Span(token.start, token.end))
        if token.symbol != "NOT" or floor > NOT_PRECEDENCE:
            keyword = f"`{token.symbol}` is a keyword and no name for a variable"
            self.fail_expected("an expression", _ADVICE.get(token.symbol, keyword))
        self.advance()
        operand = self.expression(NOT_PRECEDENCE)
        return Unary("NOT", operand, span=self.span_from(token.start))

    # --- calls and what looks like calls --------------------------------------------------------------------------

    def call(self) -> Expression:
        """A function, an edge test or an aggregate."""
        self.enter()
        start = self.token
        name = self.expect_qualified_name("a function")
        self.expect("(", f"after `{name}`")
        if name.upper() in AGGREGATE_FUNCTIONS:
            result = self.aggregate(name, start)
        else:
            result = self.parse_call_arguments(name, start, [])
        self.depth -= 1
        return result

    def parse_call_arguments(self, name: str, start: Token, arguments: list[Expression]) -> Call:
        """The arguments up to the parenthesis."""
        if self.token.symbol != ")" or arguments:
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
        self.expect(")", f"after the arguments of `{name}`")
        return Call(name, tuple(arguments), span=self.span_from(start.start))

    def aggregate(self, name: str, start: Token) -> Expression:
        """`COUNT(*)`, `COUNT(DISTINCT x WHERE c)`, `COUNT(p: Person, …)`; with two arguments a plain call."""
        if self.token.kind == "name" and self.peek() == ":":
            pattern, where = self.pattern(), self.where()
            self.expect(")", f"after the pattern of `{name}`")
            limit = self.collect_limit(name)
            return PatternAggregate(name, pattern, where, limit, span=self.span_from(start.start))
        if self.token.symbol == ")":
            return self.parse_call_arguments(name, start, [])
        distinct = self.accept("DISTINCT")
        operand = None
        if distinct or not self.accept("*"):
            operand = self.expression()
        where = self.where() if operand is not None else None
        if self.token.symbol == "," and operand is not None and not distinct and where is None:
            self.advance()
            return self.parse_call_arguments(name, start, [operand])
        self.expect(")", f"after the argument of `{name}`")
        limit = self.collect_limit(name)
        return Aggregate(name, operand, distinct, where, limit, span=self.span_from(start.start))

    def collect_limit(self, name: str) -> int | None:
        """`[limit: 5]` or `[limit: none]` behind COLLECT; any other bracket belongs to somebody else."""
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

    def exists(self) -> Exists:
        self.enter()
        start = self.advance().start
        self.expect("(")
        pattern, where = self.pattern(), self.where()
        self.expect(")", "after the pattern of EXISTS")
        self.depth -= 1
        return Exists(pattern, where, span=self.span_from(start))

    def where(self) -> Expression | None:
        return self.expression() if self.accept("WHERE") else None


_PREFIX_PARSERS: Mapping[str, Callable[[ExpressionParser, int], Expression]] = {
    **dict.fromkeys(("string", "int", "float", "timestamp", "duration"), ExpressionParser.literal),
    "name": ExpressionParser.parse_name_or_keyword,
    "param": ExpressionParser.parameter,
    "id": ExpressionParser.id_reference,
    "(": ExpressionParser.group,
    "[": ExpressionParser.list_literal,
    "-": ExpressionParser.minus,
}
