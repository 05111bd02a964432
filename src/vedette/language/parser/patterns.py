"""Patterns (spec/language.md §1.6)."""

from __future__ import annotations

from vedette.language.parser.expressions import ExpressionParser
from vedette.language.syntax.expressions import (
    Call,
    EdgePattern,
    EdgeReferenceType,
    Element,
    NodePattern,
    Pattern,
    Target,
    Variable,
    Wildcard,
)
from vedette.language.syntax.grammar import RESERVED_WORDS

__all__ = ["PatternParser"]


class PatternParser(ExpressionParser):
    __slots__ = ()

    def pattern(self) -> Pattern:
        """`()`, or elements with commas between them; one comma more may follow."""
        self.enter(2)
        start = self.token.start
        elements: list[Element] = []
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
        return self.token.word not in RESERVED_WORDS or self.at_callable()

    def element(self) -> Element:
        if self.peek() == ":":
            return self.node_element()
        if not self.at_callable():
            self.fail("a pattern such as `t: Task` or `assigned_to(t, p)`", self.keyword_advice())
        return self.edge_element()

    def keyword_advice(self) -> str:
        word = self.token.word
        return (
            f"`{word}` is a keyword and no name for a variable or an edge type"
            if word in RESERVED_WORDS
            else ""
        )

    def node_element(self) -> Element:
        """`v: Type`, or `v: edge<any>(a, b)`."""
        start = self.token.start
        variable = self.identifier("a variable")
        self.expect(":")
        type_ = self.type_expression()
        if isinstance(type_, EdgeReferenceType) and self.token.word == "(":
            targets = self.targets()
            return EdgePattern(type_.edge, targets, variable, reference=True, span=self.span_from(start))
        return NodePattern(variable, type_, span=self.span_from(start))

    def edge_element(self) -> EdgePattern:
        """`edge(a, b) AS e`, `edge+(a, b) [depth: 1..5]`."""
        start = self.token.start
        edge = self.qualified("an edge type")
        repeat = self.take().word if self.token.word in ("+", "*") else None
        targets = self.targets(edge)
        alias = self.alias()
        low, high = self.depth_range()
        if self.token.word == "AS" and alias is not None:
            self.fail("one AS", "the edge has a name already")
        alias = alias or self.alias()
        return EdgePattern(edge, targets, alias, repeat, low, high, span=self.span_from(start))

    def alias(self) -> str | None:
        return self.identifier("a variable after AS") if self.accept("AS") else None

    def depth_range(self) -> tuple[int | None, int | None]:
        """`[depth: 5]` is up to five, `[depth: 1..5]` from one to five."""
        if self.token.word != "[" or self.peek() != "DEPTH" or self.peek(2) != ":":
            return None, None
        self.take()
        self.take()
        self.take()
        low: int | None = self.integer("the greatest depth, a number")
        if self.accept(".."):
            high = self.integer("the greatest depth, a number")
        else:
            low, high = None, low  # type: ignore[assignment]
        self.expect("]", "after the depth")
        return low, high

    def targets(self, edge: str = "the edge", star: bool = False) -> tuple[Target, ...]:
        self.expect("(", f"and the targets of `{edge}`")
        found = [self.target(star)]
        while self.accept(","):
            found.append(self.target(star))
        self.expect(")", f"after the targets of `{edge}`")
        return tuple(found)

    def target(self, star: bool = False) -> Target:
        """`_`, a variable, an id, a parameter or a call; `*` only where edges are removed."""
        token = self.token
        if token.kind == "id":
            return self.id_reference()
        if token.kind == "param":
            return self.parameter()
        if token.text == "_" or (star and token.word == "*"):
            self.take()
            return Wildcard(span=token.span)
        if token.kind == "name" and self.peek() in ("(", "::") and self.at_callable():
            called = self.call()
            if isinstance(called, Call):
                return called
            raise self.mistake(
                "an aggregate cannot be a target; bind what it counts to a variable", called.span
            )
        name = self.identifier("a target: a variable, `#id`, `$parameter`, `_` or a call")
        return Variable(name, span=token.span)
