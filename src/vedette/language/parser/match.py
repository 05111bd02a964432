"""MATCH and INSPECT (spec/language.md §1.4)."""

from __future__ import annotations

from abc import abstractmethod
from typing import NoReturn

from vedette.language.parser.patterns import PatternParser
from vedette.language.syntax.expressions import Expression, OrderTerm, Projection
from vedette.language.syntax.grammar import ACTION_KEYWORDS
from vedette.language.syntax.statements import (
    Action,
    AlterWatch,
    Inspect,
    ManageWatch,
    Match,
    MatchBlock,
    MatchManage,
    MatchMutate,
    Return,
)

__all__ = ["WALK_UNSUPPORTED", "MatchParser"]

WALK_UNSUPPORTED = "WALK is not available; use a transitive edge, `edge+(a, b)`"


class MatchParser(PatternParser):
    __slots__ = ()

    @abstractmethod
    def actions(self) -> tuple[Action, ...]: ...

    @abstractmethod
    def watch_management(self, in_match: bool) -> ManageWatch | AlterWatch: ...

    def match(self) -> Match | MatchMutate | MatchManage:
        """`MATCH … [MATCH …] [OPTIONAL MATCH …]`, then what to do with the rows."""
        start = self.token.start
        blocks = [self.match_block()]
        while self.token.symbol == "MATCH":
            blocks.append(self.match_block())
        optional: list[MatchBlock] = []
        while self.accept("OPTIONAL"):
            optional.append(self.match_block())
        head = tuple(blocks), tuple(optional)
        if self.token.symbol == "RETURN":
            returns = self.returns()
            return Match(*head, returns, span=self.span_from(start))
        if self.token.symbol in ACTION_KEYWORDS:
            actions = self.actions()
            return MatchMutate(*head, actions, span=self.span_from(start))
        if self.accept("DO"):
            action = self.watch_management(in_match=True)
            return MatchManage(*head, action, span=self.span_from(start))
        return self.fail_incomplete_match(bool(optional))

    def fail_incomplete_match(self, optional: bool) -> NoReturn:
        """Always raises, with the best advice."""
        if self.token.symbol == "WALK":
            raise self.error_at(WALK_UNSUPPORTED, self.advance().span, "E1102")
        advice = {"[": "only WATCH takes options", "WHERE": "join the conditions by AND"}.get(
            self.token.symbol, ""
        )
        if optional and self.token.symbol == "MATCH":
            advice = "write every MATCH before the first OPTIONAL MATCH"
        self.fail_expected("RETURN, a change (SPAWN, KILL, LINK, UNLINK, SET) or DO", advice)

    def match_block(self) -> MatchBlock:
        start = self.token.start
        self.expect("MATCH")
        pattern, where = self.pattern(), self.where()
        return MatchBlock(pattern, where, span=self.span_from(start))

    # --- RETURN ---------------------------------------------------------------------------------------------------

    def returns(self) -> Return:
        """With ORDER BY, LIMIT and OFFSET."""
        start = self.token.start
        distinct, projections = self.return_clause()
        order: tuple[OrderTerm, ...] = ()
        if self.accept("ORDER"):
            self.expect("BY", "after ORDER")
            order = self.order_terms()
        limit = self.parse_row_count("LIMIT") if self.token.symbol == "LIMIT" else None
        offset = self.parse_row_count("OFFSET") if self.token.symbol == "OFFSET" else None
        return Return(projections, distinct, order, limit, offset, span=self.span_from(start))

    def return_clause(self) -> tuple[bool, tuple[Projection, ...]]:
        self.expect("RETURN")
        return self.accept("DISTINCT"), self.projections()

    def projections(self) -> tuple[Projection, ...]:
        found = [self.projection()]
        while self.accept(","):
            found.append(self.projection())
        return tuple(found)

    def projection(self) -> Projection:
        start = self.token.start
        if self.accept("*"):
            return Projection(None, span=self.span_from(start))
        expression = self.expression()
        alias = self.expect_name("a column name after AS") if self.accept("AS") else None
        return Projection(expression, alias, span=self.span_from(start))

    def order_terms(self) -> tuple[OrderTerm, ...]:
        found = [self.order_term()]
        while self.accept(","):
            found.append(self.order_term())
        return tuple(found)

    def order_term(self) -> OrderTerm:
        start = self.token.start
        expression = self.expression()
        descending = self.accept("DESC")
        if not descending:
            self.accept("ASC")
        return OrderTerm(expression, descending, span=self.span_from(start))

    def parse_row_count(self, word: str) -> Expression:
        """The number of LIMIT or OFFSET."""
        self.advance()
        if self.token.kind == "param":
            return self.parameter()
        if self.token.kind != "int":
            self.fail_expected(f"a whole number or a parameter after {word}")
        return self.literal()

    def inspect(self) -> Inspect:
        start = self.advance().start
        target = self.id_reference()
        projections = self.projections() if self.accept("RETURN") else ()
        return Inspect(target, projections, span=self.span_from(start))
