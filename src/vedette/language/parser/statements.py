"""Whole texts: statements one after the other, with all their mistakes (spec/language.md §1.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from vedette.language.parser.match import WALK_UNSUPPORTED
from vedette.language.parser.recovery import ErrorRecovery
from vedette.language.parser.watches import WatchParser
from vedette.language.syntax.expressions import Expression, Unary, Variable
from vedette.language.syntax.grammar import DECLARATION_KEYWORDS, STATEMENT_KEYWORDS
from vedette.language.syntax.statements import (
    Begin,
    BeginSession,
    Commit,
    EndSession,
    Explain,
    Profile,
    Rollback,
    Savepoint,
    Statement,
    Tick,
    Trigger,
)

__all__ = ["StatementParser"]


class StatementParser(WatchParser):
    __slots__ = ()

    def script(self) -> tuple[Statement, ...]:
        """Every statement to the end of the text; raises when there was a mistake."""
        recovery = ErrorRecovery(self, STATEMENT_KEYWORDS)
        statements: list[Statement] = []
        while self.token.kind != "end":
            if self.accept(";"):
                continue
            statement = recovery.parse_or_skip(self.statement)
            if statement is not None:
                statements.append(statement)
        recovery.finish()
        return tuple(statements)

    def statement(self) -> Statement:
        token = self.token
        if token.kind == "name" and self.peek() == "=" and self.peek(2) == "WATCH":
            return self.watch()
        read = _STATEMENTS.get(token.symbol)
        return read(self) if read is not None else self.fail_no_statement()

    def fail_no_statement(self) -> NoReturn:
        advice = ""
        if self.token.symbol in DECLARATION_KEYWORDS:
            advice = "declarations belong into define(), not among statements"
        elif self.peek() == "=":
            advice = "only a WATCH can be given a name this way"
        if self.index and self.tokens[self.index - 1].symbol != ";":
            self.fail_expected("the end of the text, `;` or another statement", advice)
        self.fail_expected("a statement such as MATCH, SPAWN or WATCH", advice)

    def explain(self) -> Explain:
        self.enter()
        start = self.advance().start
        statement = self.statement()
        self.depth -= 1
        return Explain(statement, span=self.span_from(start))

    def profile(self) -> Profile:
        self.enter()
        start = self.advance().start
        statement = self.statement()
        self.depth -= 1
        return Profile(statement, span=self.span_from(start))

    def walk(self) -> Statement:
        raise self.error_at(WALK_UNSUPPORTED, self.token.span, "E1102")

    # --- transactions, sessions, time -----------------------------------------------------------------------------

    def begin(self) -> Begin | BeginSession:
        start = self.advance().start
        if self.token.symbol == "SESSION":
            return self.begin_session(start)
        isolation = None
        if self.token.symbol == "READ":
            self.advance()
            self.expect("COMMITTED", "after READ")
            isolation = "READ COMMITTED"
        elif self.accept("SERIALIZABLE"):
            isolation = "SERIALIZABLE"
        return Begin(isolation, span=self.span_from(start))

    def begin_session(self, start: int) -> BeginSession:
        self.advance()
        self.expect("AS", "and the actor")
        token = self.token
        if token.kind == "id":
            return BeginSession(self.id_reference(), span=self.span_from(start))
        actor = Variable(self.expect_identifier("the actor: #id or a bound name"), span=token.span)
        return BeginSession(actor, span=self.span_from(start))

    def end_session(self) -> EndSession:
        start = self.advance().start
        self.expect("SESSION", "after END")
        return EndSession(span=self.span_from(start))

    def commit(self) -> Commit:
        return Commit(span=self.advance().span)

    def rollback(self) -> Rollback:
        start = self.advance().start
        savepoint = self.expect_identifier("the name of a savepoint") if self.accept("TO") else None
        return Rollback(savepoint, span=self.span_from(start))

    def savepoint(self) -> Savepoint:
        start = self.advance().start
        name = self.expect_identifier("a name for the savepoint")
        return Savepoint(name, span=self.span_from(start))

    def tick(self) -> Tick:
        start = self.advance().start
        amount: Expression | None = None
        if self.token.kind == "param":
            amount = self.parameter()
        elif self.token.kind == "int":
            amount = self.literal()
        elif self.token.symbol == "-":
            amount = self.negative_amount()
        return Tick(amount, span=self.span_from(start))

    def negative_amount(self) -> Expression:
        """Read so that the engine can say E9001."""
        start = self.advance().start
        if self.token.kind != "int":
            self.fail_expected("a whole number")
        return self.parse_min_int(start) or Unary("-", self.literal(), span=self.span_from(start))

    def trigger(self) -> Trigger:
        start = self.advance().start
        rule = self.expect_name("the name of a rule")
        where = self.where()
        return Trigger(rule, where, span=self.span_from(start))


_STATEMENTS: Mapping[str, Callable[[StatementParser], Statement]] = {
    "MATCH": StatementParser.match,
    "SPAWN": StatementParser.spawn,
    "KILL": StatementParser.kill,
    "LINK": StatementParser.link,
    "UNLINK": StatementParser.unlink,
    "SET": StatementParser.set,
    "BEGIN": StatementParser.begin,
    "COMMIT": StatementParser.commit,
    "ROLLBACK": StatementParser.rollback,
    "SAVEPOINT": StatementParser.savepoint,
    "END": StatementParser.end_session,
    "TICK": StatementParser.tick,
    "TRIGGER": StatementParser.trigger,
    "WATCH": StatementParser.watch,
    "ACK": StatementParser.ack,
    "NACK": StatementParser.nack,
    "EXTEND": StatementParser.extend,
    "REDRIVE": StatementParser.redrive,
    **dict.fromkeys(("PAUSE", "RESUME", "CANCEL", "ALTER"), StatementParser.watch_management),
    "INSPECT": StatementParser.inspect,
    "EXPLAIN": StatementParser.explain,
    "PROFILE": StatementParser.profile,
    "WALK": StatementParser.walk,
}
