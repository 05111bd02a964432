"""Type expressions: `A | B`, `T?`, `edge<T>` (docs/reference/grammar.md#types-and-ontologies)."""

from __future__ import annotations

from vedette.language.parser.cursor import TokenCursor
from vedette.language.syntax.expressions import (
    AnyType,
    EdgeReferenceType,
    NamedType,
    OptionalType,
    TypeExpression,
    UnionType,
)

__all__ = ["TypeParser"]


class TypeParser(TokenCursor):
    __slots__ = ()

    def parse_type_expression(self) -> TypeExpression:
        """`A | B`. Nested unions become one; `?` binds tighter than `|`."""
        start = self.token.start
        first = self.parse_optional_type()
        if self.token.symbol != "|":
            return first
        members = [first]
        while self.accept("|"):
            members.append(self.parse_optional_type())
        flat: list[TypeExpression] = []
        for member in members:
            flat.extend(member.members if isinstance(member, UnionType) else (member,))
        return UnionType(tuple(flat), span=self.span_from(start))

    def parse_optional_type(self) -> TypeExpression:
        """`T?`. Further question marks have no effect."""
        start = self.token.start
        inner = self.parse_single_type()
        optional = isinstance(inner, OptionalType)
        while self.token.symbol in ("?", "??"):
            self.advance()
            if not optional:
                inner, optional = OptionalType(inner, span=self.span_from(start)), True
        return inner

    def parse_single_type(self) -> TypeExpression:
        start = self.token.start
        if self.token.symbol == "(":
            self.enter(2)
            self.advance()
            inner = self.parse_type_expression()
            self.expect(")", "after the type")
            self.leave(2)
            return inner
        if self.token.symbol == "EDGE" and self.peek() == "<":
            return self.parse_edge_reference()
        name = self.expect_qualified_name("a type")
        if name.upper() == "ANY":
            return AnyType(span=self.span_from(start))
        return NamedType(name, span=self.span_from(start))

    def parse_edge_reference(self) -> EdgeReferenceType:
        """`edge<causes>`, `edge<any>`."""
        start = self.advance().start
        self.expect("<")
        name = self.expect_qualified_name("an edge type or `any`")
        self.expect(">", "after the edge type")
        return EdgeReferenceType(None if name.upper() == "ANY" else name, span=self.span_from(start))
