"""Patterns (spec/language.md §1.6)."""

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

    def pattern(self) -> Pattern:
        """`()`, or elements with commas between them; one comma more may follow."""
        self.enter(2)
        start = self.token.start
        elements: list[PatternPart] = []
        if self.accept("("):
            self.expect(")", "to close the empty pattern")
        else:
            elements.append(self.element())
            while self.accept(",") and self.at_element():
                elements.append(self.element())
        self.depth -= 2
        return Pattern(tuple(elements), span=self.span_from(start))

    def at_element(self) -> bool:
        """After a comma: another element, or was that the comma at the end?"""
        if self.token.kind != "name":
            return False
        return self.token.symbol not in RESERVED_KEYWORDS or self.at_callable()

    def element(self) -> PatternPart:
        if self.peek() == ":":
            return self.node_element()
        if not self.at_callable():
            self.fail_expected("a pattern such as `t: Task` or `assigned_to(t, p)`", self.keyword_advice())
        return self.edge_element()

    def keyword_advice(self) -> str:
        word = self.token.symbol
        return (
            f"`{word}` is a keyword and no name for a variable or an edge type"
            if word in RESERVED_KEYWORDS
            else ""
        )

    def node_element(self) -> PatternPart:
        """`v: Type`, or `v: edge<any>(a, b)`."""
        start = self.token.start
        variable = self.expect_identifier("a variable")
        self.expect(":")
        type_ = self.type_expression()
        if isinstance(type_, EdgeReferenceType) and self.token.symbol == "(":
            targets = self.targets()
            return EdgePattern(
                type_.edge, targets, variable, written_as_reference=True, span=self.span_from(start)
            )
        return NodePattern(variable, type_, span=self.span_from(start))

    def edge_element(self) -> EdgePattern:
        """`edge(a, b) AS e`, `edge+(a, b) [depth: 1..5]`."""
        start = self.token.start
        edge = self.expect_qualified_name("an edge type")
        repeat = self.advance().symbol if self.token.symbol in ("+", "*") else None
        targets = self.targets(edge)
        alias = self.alias()
        low, high = self.depth_range()
        if self.token.symbol == "AS" and alias is not None:
            self.fail_expected("one AS", "the edge has a name already")
        alias = alias or self.alias()
        return EdgePattern(edge, targets, alias, repeat, low, high, span=self.span_from(start))

    def alias(self) -> str | None:
        return self.expect_identifier("a variable after AS") if self.accept("AS") else None

    def depth_range(self) -> tuple[int | None, int | None]:
        """`[depth: 5]` is up to five, `[depth: 1..5]` from one to five."""
        if self.token.symbol != "[" or self.peek() != "DEPTH" or self.peek(2) != ":":
            return None, None
        self.advance()
        self.advance()
        self.advance()
        low: int | None = self.expect_integer("the greatest depth, a number")
        if self.accept(".."):
            high = self.expect_integer("the greatest depth, a number")
        else:
            low, high = None, low  # type: ignore[assignment]
        self.expect("]", "after the depth")
        return low, high

    def targets(self, edge: str = "the edge", star: bool = False) -> tuple[EdgeTarget, ...]:
        self.expect("(", f"and the targets of `{edge}`")
        found = [self.target(star)]
        while self.accept(","):
            found.append(self.target(star))
        self.expect(")", f"after the targets of `{edge}`")
        return tuple(found)

    def target(self, star: bool = False) -> EdgeTarget:
        """`_`, a variable, an id, a parameter or a call; `*` only where edges are removed."""
        token = self.token
        if token.kind == "id":
            return self.id_reference()
        if token.kind == "param":
            return self.parameter()
        if token.text == "_" or (star and token.symbol == "*"):
            self.advance()
            return Wildcard(span=token.span)
        if token.kind == "name" and self.peek() in ("(", "::") and self.at_callable():
            called = self.call()
            if isinstance(called, Call):
                return called
            raise self.error_at(
                "an aggregate cannot be a target; bind what it counts to a variable", called.span
            )
        name = self.expect_identifier("a target: a variable, `#id`, `$parameter`, `_` or a call")
        return Variable(name, span=token.span)
