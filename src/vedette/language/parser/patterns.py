"""Patterns (docs/reference/grammar.md#patterns)."""

from __future__ import annotations

from vedette.language.parser.expressions import ExpressionParser
from vedette.language.syntax.expressions import (
    Call,
    EdgePattern,
    EdgeReferenceType,
    EdgeTarget,
    NodePattern,
    Pattern,
    PatternPart,
    Variable,
    Wildcard,
)
from vedette.language.syntax.grammar import RESERVED_KEYWORDS

__all__ = ["PatternParser"]


class PatternParser(ExpressionParser):
    __slots__ = ()

    def parse_pattern(self) -> Pattern:
        """`()`, or parts separated by commas. A trailing comma is allowed."""
        self.enter(2)
        start = self.token.start
        elements: list[PatternPart] = []
        if self.accept("("):
            self.expect(")", "to close the empty pattern")
        else:
            elements.append(self.parse_part())
            while self.accept(",") and self.at_part():
                elements.append(self.parse_part())
        self.leave(2)
        return Pattern(tuple(elements), span=self.span_from(start))

    def at_part(self) -> bool:
        """True if another part follows a comma; False if it was the trailing comma."""
        if self.token.kind != "name":
            return False
        return self.token.symbol not in RESERVED_KEYWORDS or self.at_callable()

    def parse_part(self) -> PatternPart:
        if self.peek() == ":":
            return self.parse_node_pattern()
        if not self.at_callable():
            self.fail_expected("a pattern such as `t: Task` or `assigned_to(t, p)`", self.keyword_advice())
        return self.parse_edge_pattern()

    def keyword_advice(self) -> str:
        word = self.token.symbol
        return (
            f"`{word}` is a keyword and cannot name a variable or an edge type"
            if word in RESERVED_KEYWORDS
            else ""
        )

    def parse_node_pattern(self) -> PatternPart:
        """`v: Type`, or `v: edge<any>(a, b)`."""
        start = self.token.start
        variable = self.expect_identifier("a variable")
        self.expect(":")
        type_ = self.parse_type_expression()
        if isinstance(type_, EdgeReferenceType) and self.token.symbol == "(":
            targets = self.parse_edge_targets()
            return EdgePattern(
                type_.edge, targets, variable, written_as_reference=True, span=self.span_from(start)
            )
        return NodePattern(variable, type_, span=self.span_from(start))

    def parse_edge_pattern(self) -> EdgePattern:
        """`edge(a, b) AS e`, `edge+(a, b) [depth: 1..5]`."""
        start = self.token.start
        edge = self.expect_qualified_name("an edge type")
        repeat = self.advance().symbol if self.token.symbol in ("+", "*") else None
        targets = self.parse_edge_targets(edge)
        alias = self.parse_alias()
        low, high = self.parse_depth_range()
        if self.token.symbol == "AS" and alias is not None:
            self.fail_expected("one AS", "the edge has a name already")
        alias = alias or self.parse_alias()
        return EdgePattern(edge, targets, alias, repeat, low, high, span=self.span_from(start))

    def parse_alias(self) -> str | None:
        return self.expect_identifier("a variable after AS") if self.accept("AS") else None

    def parse_depth_range(self) -> tuple[int | None, int | None]:
        """`[depth: 5]` means at most 5, `[depth: 1..5]` from 1 to 5."""
        if self.token.symbol != "[" or self.peek() != "DEPTH" or self.peek(2) != ":":
            return None, None
        self.advance()
        self.advance()
        self.advance()
        low: int | None = self.expect_integer("the maximum depth, a number")
        if self.accept(".."):
            high = self.expect_integer("the maximum depth, a number")
        else:
            low, high = None, low  # type: ignore[assignment]
        self.expect("]", "after the depth")
        return low, high

    def parse_edge_targets(self, edge: str = "the edge", star: bool = False) -> tuple[EdgeTarget, ...]:
        self.expect("(", f"and the targets of `{edge}`")
        found = [self.parse_edge_target(star)]
        while self.accept(","):
            found.append(self.parse_edge_target(star))
        self.expect(")", f"after the targets of `{edge}`")
        return tuple(found)

    def parse_edge_target(self, star: bool = False) -> EdgeTarget:
        """`_`, a variable, an id, a parameter or a call; with `star` also `*`, which UNLINK allows."""
        token = self.token
        if token.kind == "id":
            return self.parse_id_reference()
        if token.kind == "param":
            return self.parse_parameter()
        if token.text == "_" or (star and token.symbol == "*"):
            self.advance()
            return Wildcard(span=token.span)
        if token.kind == "name" and self.peek() in ("(", "::") and self.at_callable():
            called = self.parse_call()
            if isinstance(called, Call):
                return called
            raise self.error_at(
                "an aggregate cannot be a target; bind the element to a variable", called.span
            )
        name = self.expect_identifier("a target: a variable, `#id`, `$parameter`, `_` or a call")
        return Variable(name, span=token.span)
