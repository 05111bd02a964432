"""MATCH and INSPECT (docs/reference/grammar.md#statements)."""

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
    def parse_actions(self) -> tuple[Action, ...]: ...

    @abstractmethod
    def parse_watch_management(self, in_match: bool) -> ManageWatch | AlterWatch: ...

    def parse_match(self) -> Match | MatchMutate | MatchManage:
        """`MATCH … [MATCH …] [OPTIONAL MATCH …]`, then RETURN, actions or DO."""
        start = self.token.start
        blocks = [self.parse_match_block()]
        while self.token.symbol == "MATCH":
            blocks.append(self.parse_match_block())
        optional: list[MatchBlock] = []
        while self.accept("OPTIONAL"):
            optional.append(self.parse_match_block())
        head = tuple(blocks), tuple(optional)
        if self.token.symbol == "RETURN":
            returns = self.parse_return()
            return Match(*head, returns, span=self.span_from(start))
        if self.token.symbol in ACTION_KEYWORDS:
            actions = self.parse_actions()
            return MatchMutate(*head, actions, span=self.span_from(start))
        if self.accept("DO"):
            action = self.parse_watch_management(in_match=True)
            return MatchManage(*head, action, span=self.span_from(start))
        return self.fail_incomplete_match(bool(optional))

    def fail_incomplete_match(self, optional: bool) -> NoReturn:
        """Raise the error for a MATCH without RETURN, actions or DO."""
        if self.token.symbol == "WALK":
            raise self.error_at(WALK_UNSUPPORTED, self.advance().span, "E1102")
        advice = {"[": "only WATCH takes options", "WHERE": "join the conditions by AND"}.get(
            self.token.symbol, ""
        )
        if optional and self.token.symbol == "MATCH":
            advice = "write every MATCH before the first OPTIONAL MATCH"
        self.fail_expected("RETURN, a change (SPAWN, KILL, LINK, UNLINK, SET) or DO", advice)

    def parse_match_block(self) -> MatchBlock:
        start = self.token.start
        self.expect("MATCH")
        pattern, where = self.parse_pattern(), self.parse_where()
        return MatchBlock(pattern, where, span=self.span_from(start))

    # --- RETURN ---------------------------------------------------------------------------------------------------

    def parse_return(self) -> Return:
        """RETURN with ORDER BY, LIMIT and OFFSET."""
        start = self.token.start
        distinct, projections = self.parse_return_clause()
        order: tuple[OrderTerm, ...] = ()
        if self.accept("ORDER"):
            self.expect("BY", "after ORDER")
            order = self.parse_order_terms()
        limit = self.parse_row_count("LIMIT") if self.token.symbol == "LIMIT" else None
        offset = self.parse_row_count("OFFSET") if self.token.symbol == "OFFSET" else None
        return Return(projections, distinct, order, limit, offset, span=self.span_from(start))

    def parse_return_clause(self) -> tuple[bool, tuple[Projection, ...]]:
        self.expect("RETURN")
        return self.accept("DISTINCT"), self.parse_projections()

    def parse_projections(self) -> tuple[Projection, ...]:
        found = [self.parse_projection()]
        while self.accept(","):
            found.append(self.parse_projection())
        return tuple(found)

    def parse_projection(self) -> Projection:
        start = self.token.start
        if self.accept("*"):
            return Projection(None, span=self.span_from(start))
        expression = self.parse_expression()
        alias = self.expect_name("a column name after AS") if self.accept("AS") else None
        return Projection(expression, alias, span=self.span_from(start))

    def parse_order_terms(self) -> tuple[OrderTerm, ...]:
        found = [self.parse_order_term()]
        while self.accept(","):
            found.append(self.parse_order_term())
        return tuple(found)

    def parse_order_term(self) -> OrderTerm:
        start = self.token.start
        expression = self.parse_expression()
        descending = self.accept("DESC")
        if not descending:
            self.accept("ASC")
        return OrderTerm(expression, descending, span=self.span_from(start))

    def parse_row_count(self, word: str) -> Expression:
        """Parse the number of LIMIT or OFFSET, an Int or a parameter."""
        self.advance()
        if self.token.kind == "param":
            return self.parse_parameter()
        if self.token.kind != "int":
            self.fail_expected(f"a whole number or a parameter after {word}")
        return self.parse_literal()

    def parse_inspect(self) -> Inspect:
        start = self.advance().start
        target = self.parse_id_reference()
        projections = self.parse_projections() if self.accept("RETURN") else ()
        return Inspect(target, projections, span=self.span_from(start))
