"""Parse the supported subset of CEL into the shared expression tree (docs/reference/filters.md#cel-expressions).

How the text maps to nodes:

    doc, id, collection, op, before     Variable
    resource.data, event.type           Variable doc, Variable op: these names are aliases
    request.auth, request.time          Attribute of Variable request
    a.b, a['b']                         Attribute
    a[0], a[b]                          Index
    == != < <= > >=                     Binary with the same operator; the statement language has `=` instead of `==`
    && || ! in                          AND OR NOT IN; chains of AND and OR become balanced trees, as in cel-go
    a.contains(b), startsWith, endsWith Binary CONTAINS, STARTS WITH, ENDS WITH
    size(a), a.size(), has(a.b)         Call size, Call has
    timestamp("…"), duration("…")       Literal when the argument is one, else Call
    -5                                  Literal
"""

from __future__ import annotations

from collections.abc import Sequence

from vedette.errors import FilterError
from vedette.filters.cel_lexer import Token, tokenize
from vedette.filters.limits import DEFAULT_FILTER_LIMITS, FilterLimits, check_limits, filter_error, quote_name
from vedette.filters.literals import parse_go_duration, parse_rfc3339
from vedette.language.diagnostics import Span
from vedette.language.syntax.expressions import (
    Attribute,
    Binary,
    Call,
    Conditional,
    Expression,
    Index,
    ListLiteral,
    Literal,
    Unary,
    Variable,
)
from vedette.values import INT_MAX

__all__ = ["VARIABLES", "join_balanced", "parse_cel"]

VARIABLES = ("doc", "id", "collection", "op", "before", "request")
"""The variables of a filter; `resource.data` and `event.type` are aliases of `doc` and `op`."""

_ALIASES = {"resource": ("data", "doc"), "event": ("type", "op")}
_REQUEST = ("auth", "time")
_AUTH = ("userId", "roles", "claims")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_PRECEDENCE = {"||": 1, "&&": 2, "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
_PRECEDENCE |= dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3)
_CHAINS = {"||": "OR", "&&": "AND"}
_METHODS = {"contains": "CONTAINS", "startsWith": "STARTS WITH", "endsWith": "ENDS WITH"}
_NO_REGEX = "regular expressions are not part of the filter language; use contains, startsWith or endsWith"
_NO_MACRO = "{} is a comprehension, which the filter language does not have; use `in` for membership"
_NO_CONVERSION = "{}() is not part of the filter language: values keep the type they have"
_UNSUPPORTED = {
    "matches": _NO_REGEX,
    **dict.fromkeys(("all", "exists", "exists_one", "existsOne", "map", "filter"), _NO_MACRO),
    **dict.fromkeys(("type", "dyn", "int", "uint", "double", "string", "bool", "bytes"), _NO_CONVERSION),
    **dict.fromkeys(_METHODS, "write {0} after the text, as in doc.name.{0}('…')"),
}
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "in", "let", "loop"}
    | {"namespace", "package", "return", "var", "void", "while"}
)
_HINTS = {"and": "and is written &&", "or": "or is written ||", "not": "not is written !"}


def parse_cel(source: str, limits: FilterLimits = DEFAULT_FILTER_LIMITS) -> Expression:
    """Parse one expression; raises FilterError E1201 for syntax that is not supported, E1202 if it is too large."""
    _check_text(source, limits)
    expression = _Parser(source, limits).parse()
    check_limits(expression, limits, source)
    return expression


def join_balanced(op: str, parts: Sequence[Expression]) -> Expression:
    """Join the parts by AND or OR into a balanced tree, so that a long chain is not deep."""
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    left, right = join_balanced(op, parts[:middle]), join_balanced(op, parts[middle:])
    return Binary(op, left, right, span=left.span.to(right.span))


def _check_text(source: object, limits: FilterLimits) -> None:
    if not isinstance(source, str):
        raise FilterError("E1201", f"a CEL filter is a text, and this is a Python {type(source).__name__}")
    if not limits.allows(source):
        fields = {"limit": "source_bytes", "allowed": limits.source_bytes}
        raise FilterError("E1202", f"a filter has at most {limits.source_bytes} bytes", fields=fields)
    if any("\ud800" <= sign <= "\udfff" for sign in source):
        raise FilterError("E1201", "half of a surrogate pair is not a character")


def _is_field(node: Expression) -> bool:
    return isinstance(node, Attribute) and node.base != Variable("request")


class _Parser:
    """Parses by precedence climbing. `depth` counts the open constructs, so that nesting cannot exhaust the stack."""

    def __init__(self, source: str, limits: FilterLimits) -> None:
        self._source = source
        self._tokens = tokenize(source)
        self._next = 0
        self._max_open = 2 * limits.depth + 20
        self._depth_limit = limits.depth

    def parse(self) -> Expression:
        expression = self._expression(0)
        if self._token.kind != "end":
            raise self._unexpected("the expression ends before this")
        return expression

    # --- tokens ---------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _at(self, text: str) -> bool:
        token = self._token
        return token.text == text and token.kind in ("operator", "name")

    def _expect(self, text: str) -> Token:
        if not self._at(text):
            raise self._unexpected(f"{text!r} is expected here")
        return self._advance()

    def _unexpected(self, message: str) -> FilterError:
        token = self._token
        hint = _HINTS.get(token.text.lower()) if token.kind == "name" else None
        return filter_error("E1201", hint or message, self._source or " ", token.span)

    def _enter(self, depth: int) -> int:
        if depth >= self._max_open:
            message = f"a filter has at most {self._depth_limit} levels of nesting"
            raise filter_error(
                "E1202", message, self._source, self._token.span, limit="depth", allowed=self._depth_limit
            )
        return depth + 1

    # --- operators ------------------------------------------------------------------------------------------

    def _expression(self, depth: int) -> Expression:
        test = self._binary(1, depth)
        if not self._at("?"):
            return test
        self._advance()
        then = self._expression(self._enter(depth))
        self._expect(":")
        otherwise = self._expression(self._enter(depth))
        return Conditional(test, then, otherwise, span=test.span.to(otherwise.span))

    def _binary(self, min_precedence: int, depth: int) -> Expression:
        left = self._unary(depth)
        while True:
            sign = self._token.text if self._token.kind in ("operator", "name") else ""
            precedence = _PRECEDENCE.get(sign, 0)
            if precedence < min_precedence:
                return left
            if sign in _CHAINS:
                left = self._chain(sign, left, depth)
                continue
            self._advance()
            right = self._binary(precedence + 1, self._enter(depth))
            left = Binary(sign.upper(), left, right, span=left.span.to(right.span))

    def _chain(self, sign: str, first: Expression, depth: int) -> Expression:
        parts = [first]
        while self._at(sign):
            self._advance()
            parts.append(self._binary(_PRECEDENCE[sign] + 1, self._enter(depth)))
        return join_balanced(_CHAINS[sign], parts)

    def _unary(self, depth: int) -> Expression:
        signs = []
        while self._at("!") or self._at("-"):
            signs.append(self._advance())
        if signs and signs[-1].text == "-" and self._token.kind == "number":
            operand = self._member(depth, minus=signs.pop())
        else:
            operand = self._member(depth)
        for sign in reversed(signs):
            operand = Unary("NOT" if sign.text == "!" else "-", operand, span=sign.span.to(operand.span))
        return operand

    # --- members --------------------------------------------------------------------------------------------

    def _member(self, depth: int, minus: Token | None = None) -> Expression:
        base = self._primary(depth) if minus is None else self._number(minus)
        while True:
            if self._at("."):
                self._advance()
                base = self._selection(base, depth)
            elif self._at("["):
                self._advance()
                key = self._expression(self._enter(depth))
                base = self._index(base, key, base.span.to(self._expect("]").span))
            else:
                return base

    def _selection(self, base: Expression, depth: int) -> Expression:
        name = self._token
        if name.kind != "name" or name.text in _CONSTANTS or name.text == "in":
            raise self._unexpected("the name of a field is expected here; any other name is written ['name']")
        self._advance()
        if self._at("("):
            return self._method(base, name, depth)
        return self._attribute(base, name.text, base.span.to(name.span))

    def _index(self, base: Expression, key: Expression, span: Span) -> Expression:
        if isinstance(key, Literal) and isinstance(key.value, str):
            return self._attribute(base, key.value, span)
        return Index(base, key, span=span)

    def _attribute(self, base: Expression, name: str, span: Span) -> Expression:
        if base == Attribute(Variable("request"), "auth") and name not in _AUTH:
            raise filter_error(
                "E1201",
                f"request.auth has the fields {', '.join(_AUTH)}, not {quote_name(name)}",
                self._source,
                span,
            )
        return Attribute(base, name, span=span)

    def _method(self, receiver: Expression, name: Token, depth: int) -> Expression:
        if name.text in _METHODS:
            (argument,), span = self._arguments(name, depth, 1)
            return Binary(_METHODS[name.text], receiver, argument, span=receiver.span.to(span))
        if name.text == "size":
            _, span = self._arguments(name, depth, 0)
            return Call("size", (receiver,), span=receiver.span.to(span))
        raise self._unknown_function(name, "size, contains, startsWith and endsWith are the methods")

    # --- primaries ------------------------------------------------------------------------------------------

    def _primary(self, depth: int) -> Expression:
        token = self._token
        if token.kind == "number":
            return self._number(None)
        if token.kind == "string":
            return Literal(self._advance().value, span=token.span)
        if token.kind == "name":
            return self._named(self._advance(), depth)
        if self._at("("):
            self._advance()
            inside = self._expression(self._enter(depth))
            self._expect(")")
            return inside
        if self._at("["):
            self._advance()
            items, span = self._items("]", depth)
            return ListLiteral(tuple(items), span=token.span.to(span))
        if self._at("{"):
            raise self._unexpected("map literals are not part of the filter language")
        raise self._unexpected("an expression is expected here")

    def _number(self, minus: Token | None) -> Expression:
        token = self._advance()
        value = token.value
        assert isinstance(value, int | float)
        if minus is not None:
            return Literal(-value, span=minus.span.to(token.span))
        if isinstance(value, int) and value > INT_MAX:
            raise filter_error("E1201", "this integer does not fit into 64 bits", self._source, token.span)
        return Literal(value, span=token.span)

    def _named(self, token: Token, depth: int) -> Expression:
        name = token.text
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name], span=token.span)
        if self._at("("):
            return self._function(token, depth)
        if name in _ALIASES:
            member, root = _ALIASES[name]
            return Variable(root, span=token.span.to(self._fixed_member(token, (member,)).span))
        if name == "request":
            member_token = self._fixed_member(token, _REQUEST)
            return Attribute(
                Variable(name, span=token.span), member_token.text, span=token.span.to(member_token.span)
            )
        if name not in VARIABLES:
            raise self._unknown_name(token)
        return Variable(name, span=token.span)

    def _fixed_member(self, base: Token, allowed: tuple[str, ...]) -> Token:
        if self._at("."):
            self._advance()
            if self._token.kind == "name" and self._token.text in allowed:
                return self._advance()
        choices = " or ".join(f"{base.text}.{name}" for name in allowed)
        raise filter_error(
            "E1201", f"{choices} is expected here", self._source, base.span.to(self._token.span)
        )

    def _unknown_name(self, token: Token) -> FilterError:
        if token.text in _RESERVED:
            return filter_error(
                "E1201", f"{quote_name(token.text)} is a reserved word", self._source, token.span
            )
        name = quote_name(token.text)
        choices = f"the variables are {', '.join(VARIABLES)}; a field is written doc.{name[1:-1]}"
        message = f"{name} is not a variable; {choices}"
        return filter_error("E1201", message, self._source, token.span)

    # --- functions ------------------------------------------------------------------------------------------

    def _function(self, name: Token, depth: int) -> Expression:
        if name.text not in ("size", "has", "timestamp", "duration"):
            raise self._unknown_function(name, "size, has, timestamp and duration are the functions")
        (argument,), span = self._arguments(name, depth, 1)
        span = name.span.to(span)
        if name.text == "has" and not _is_field(argument):
            raise filter_error(
                "E1201", "has() takes a field, as in has(doc.name)", self._source, argument.span
            )
        if name.text in ("timestamp", "duration") and isinstance(argument, Literal):
            return self._temporal_literal(name.text, argument, span)
        return Call(name.text, (argument,), span=span)

    def _temporal_literal(self, name: str, argument: Literal, span: Span) -> Expression:
        if not isinstance(argument.value, str):
            raise filter_error("E1201", f"{name}() takes a text", self._source, argument.span)
        try:
            read = parse_rfc3339 if name == "timestamp" else parse_go_duration
            return Literal(read(argument.value), span=span)
        except ValueError as error:
            raise filter_error("E1201", str(error), self._source, argument.span) from None

    def _arguments(self, name: Token, depth: int, count: int) -> tuple[list[Expression], Span]:
        self._expect("(")
        items, span = self._items(")", depth)
        if len(items) != count:
            message = f"{name.text} takes {count or 'no'} argument{'s' * (count != 1)}, got {len(items)}"
            raise filter_error("E1201", message, self._source, name.span.to(span))
        return items, span

    def _items(self, closing: str, depth: int) -> tuple[list[Expression], Span]:
        items: list[Expression] = []
        while not self._at(closing):
            items.append(self._expression(self._enter(depth)))
            if not self._at(","):
                break
            self._advance()
        return items, self._expect(closing).span

    def _unknown_function(self, name: Token, choices: str) -> FilterError:
        message = _UNSUPPORTED.get(name.text, f"there is no {{}}(); {choices}")
        return filter_error("E1201", message.format(quote_name(name.text)[1:-1]), self._source, name.span)
