"""Scripts, and the statements for transactions, sessions and time (docs/reference/grammar.md#statements)."""

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

    def parse_script(self) -> tuple[Statement, ...]:
        """Return all statements of the text; raise one error that carries every syntax error."""
        recovery = ErrorRecovery(self, STATEMENT_KEYWORDS)
        statements: list[Statement] = []
        while self.token.kind != "end":
            if self.accept(";"):
                continue
            statement = recovery.parse_or_skip(self.parse_statement)
            if statement is not None:
                statements.append(statement)
        recovery.finish()
        return tuple(statements)

    def parse_statement(self) -> Statement:
        token = self.token
        if token.kind == "name" and self.peek() == "=" and self.peek(2) == "WATCH":
            return self.parse_watch()
        parse = _STATEMENTS.get(token.symbol)
        return parse(self) if parse is not None else self.fail_no_statement()

    def fail_no_statement(self) -> NoReturn:
        advice = ""
        if self.token.symbol in DECLARATION_KEYWORDS:
            advice = "declarations are not statements; pass them to define()"
        elif self.peek() == "=":
            advice = "only a WATCH can be named this way"
        if self.index and self.tokens[self.index - 1].symbol != ";":
            self.fail_expected("the end of the text, `;` or another statement", advice)
        self.fail_expected("a statement such as MATCH, SPAWN or WATCH", advice)

    def parse_explain(self) -> Explain:
        self.enter()
        start = self.advance().start
        statement = self.parse_statement()
        self.leave()
        return Explain(statement, span=self.span_from(start))

    def parse_profile(self) -> Profile:
        self.enter()
        start = self.advance().start
        statement = self.parse_statement()
        self.leave()
        return Profile(statement, span=self.span_from(start))

    def parse_walk(self) -> Statement:
        raise self.error_at(WALK_UNSUPPORTED, self.token.span, "E1102")

    # --- transactions, sessions, time -----------------------------------------------------------------------------

    def parse_begin(self) -> Begin | BeginSession:
        start = self.advance().start
        if self.token.symbol == "SESSION":
            return self.parse_begin_session(start)
        isolation = None
        if self.token.symbol == "READ":
            self.advance()
            self.expect("COMMITTED", "after READ")
            isolation = "READ COMMITTED"
        elif self.accept("SERIALIZABLE"):
            isolation = "SERIALIZABLE"
        return Begin(isolation, span=self.span_from(start))

    def parse_begin_session(self, start: int) -> BeginSession:
        self.advance()
        self.expect("AS", "and the actor")
        token = self.token
        if token.kind == "id":
            return BeginSession(self.parse_id_reference(), span=self.span_from(start))
        actor = Variable(self.expect_identifier("the actor: #id or a bound name"), span=token.span)
        return BeginSession(actor, span=self.span_from(start))

    def parse_end_session(self) -> EndSession:
        start = self.advance().start
        self.expect("SESSION", "after END")
        return EndSession(span=self.span_from(start))

    def parse_commit(self) -> Commit:
        return Commit(span=self.advance().span)

    def parse_rollback(self) -> Rollback:
        start = self.advance().start
        savepoint = self.expect_identifier("the name of a savepoint") if self.accept("TO") else None
        return Rollback(savepoint, span=self.span_from(start))

    def parse_savepoint(self) -> Savepoint:
        start = self.advance().start
        name = self.expect_identifier("a name for the savepoint")
        return Savepoint(name, span=self.span_from(start))

    def parse_tick(self) -> Tick:
        start = self.advance().start
        amount: Expression | None = None
        if self.token.kind == "param":
            amount = self.parse_parameter()
        elif self.token.kind == "int":
            amount = self.parse_literal()
        elif self.token.symbol == "-":
            amount = self.parse_negative_amount()
        return Tick(amount, span=self.span_from(start))

    def parse_negative_amount(self) -> Expression:
        """Accept a negative number, so that the engine can report E9001."""
        start = self.advance().start
        if self.token.kind != "int":
            self.fail_expected("a whole number")
        return self.parse_min_int(start) or Unary("-", self.parse_literal(), span=self.span_from(start))

    def parse_trigger(self) -> Trigger:
        start = self.advance().start
        rule = self.expect_name("the name of a rule")
        where = self.parse_where()
        return Trigger(rule, where, span=self.span_from(start))


_STATEMENTS: Mapping[str, Callable[[StatementParser], Statement]] = {
    "MATCH": StatementParser.parse_match,
    "SPAWN": StatementParser.parse_spawn,
    "KILL": StatementParser.parse_kill,
    "LINK": StatementParser.parse_link,
    "UNLINK": StatementParser.parse_unlink,
    "SET": StatementParser.parse_set,
    "BEGIN": StatementParser.parse_begin,
    "COMMIT": StatementParser.parse_commit,
    "ROLLBACK": StatementParser.parse_rollback,
    "SAVEPOINT": StatementParser.parse_savepoint,
    "END": StatementParser.parse_end_session,
    "TICK": StatementParser.parse_tick,
    "TRIGGER": StatementParser.parse_trigger,
    "WATCH": StatementParser.parse_watch,
    "ACK": StatementParser.parse_ack,
    "NACK": StatementParser.parse_nack,
    "EXTEND": StatementParser.parse_extend,
    "REDRIVE": StatementParser.parse_redrive,
    **dict.fromkeys(("PAUSE", "RESUME", "CANCEL", "ALTER"), StatementParser.parse_watch_management),
    "INSPECT": StatementParser.parse_inspect,
    "EXPLAIN": StatementParser.parse_explain,
    "PROFILE": StatementParser.parse_profile,
    "WALK": StatementParser.parse_walk,
}
