"""The WATCH family (spec/language.md §1.5; seeds/watch-statement.md, seeds/ack-statement.md; surface.md, Consume).

Options are read generously: any name, a word, a word with arguments or an expression. The engine says E8009.
"""

from __future__ import annotations

from vedette.language.parser.cursor import ParseFailure
from vedette.language.parser.mutations import MutationParser
from vedette.language.syntax.expressions import Attribute, Expression, OrderTerm, Variable
from vedette.language.syntax.grammar import EXPRESSION_VALUED_OPTIONS, RESERVED_KEYWORDS
from vedette.language.syntax.statements import (
    Ack,
    Action,
    AlterWatch,
    Extend,
    ManageWatch,
    Nack,
    OptionValue,
    Redrive,
    Return,
    Watch,
    WatchOption,
)

__all__ = ["WatchParser"]


class WatchParser(MutationParser):
    __slots__ = ()

    def watch(self) -> Watch:
        """`[name =] WATCH pattern [WHERE …] [options] [ON MATCH DO …] [RETURN …]`."""
        start = self.token.start
        name = None
        if self.peek() == "=":
            name = self.expect_identifier("a name for the watch")
            self.advance()
        self.expect("WATCH")
        pattern, where = self.pattern(), self.where()
        self.reject_optional_match()
        options = self.options() if self.token.symbol == "[" else ()
        actions = self.trigger_actions()
        returns = self.watch_returns() if self.token.symbol == "RETURN" else None
        if returns is None and not actions:
            advice = "WHERE stands before the options" if self.token.symbol == "WHERE" else ""
            self.fail_expected("options `[…]`, ON MATCH DO or RETURN", advice)
        name = self.handle_name(name, returns)
        return Watch(pattern, where, options, actions, returns, name, span=self.span_from(start))

    def reject_optional_match(self) -> None:
        """surface.md: E8009 and what to do instead."""
        if self.token.symbol == "OPTIONAL":
            message = "OPTIONAL MATCH is not part of WATCH; use EXISTS(…) or an aggregate over a pattern"
            raise self.error_at(message, self.token.span, "E8009")

    def trigger_actions(self) -> tuple[Action, ...]:
        if not self.accept("ON"):
            return ()
        self.expect("MATCH", "after ON")
        self.expect("DO", "after ON MATCH")
        return self.actions()

    def watch_returns(self) -> Return:
        start = self.token.start
        distinct, projections = self.return_clause()
        if self.token.symbol in ("ORDER", "LIMIT", "OFFSET"):
            advice = "a watch has no end to sort or cut; use the option [ordering: attribute(…)]"
            self.fail_expected("the end of WATCH", advice)
        return Return(projections, distinct, span=self.span_from(start))

    def handle_name(self, name: str | None, returns: Return | None) -> str | None:
        """A trailing AS names the handle, also where it is the alias of the last column (ruling A5)."""
        if name is not None:
            return name
        if self.token.symbol == "AS":
            return self.alias()
        return returns.projections[-1].alias if returns else None

    # --- options --------------------------------------------------------------------------------------------------

    def options(self) -> tuple[WatchOption, ...]:
        """One bracket or several in a row (ruling A2)."""
        found: list[WatchOption] = []
        self.expect("[", "and options")
        while True:
            found.append(self.option())
            while self.accept(","):
                found.append(self.option())
            self.expect("]", "or a comma after the option")
            if not self.accept("["):
                return tuple(found)

    def option(self) -> WatchOption:
        start = self.token.start
        name = self.expect_name("the name of an option").lower()
        value = None
        if self.accept(":"):
            value = self.expression() if name in EXPRESSION_VALUED_OPTIONS else self.option_value()
        return WatchOption(name, value, span=self.span_from(start))

    def option_value(self) -> OptionValue | Expression:
        token, index = self.token, self.index
        if token.kind != "name" or token.symbol in ("TRUE", "FALSE", "NULL"):
            return self.expression()
        if self.peek() in (",", "]") or (token.symbol in RESERVED_KEYWORDS and not self.at_expression_word()):
            self.advance()
            return OptionValue(token.text.lower(), span=token.span)
        if self.peek() == "(" and token.symbol not in ("NOT", "EXISTS"):
            arguments = self.option_arguments()
            if arguments is not None:
                return OptionValue(token.text.lower(), arguments, span=self.span_from(token.start))
            self.seek(index)
        return self.expression()

    def at_expression_word(self) -> bool:
        return self.token.symbol in ("NOT", "EXISTS") or self.peek() == "("

    def option_arguments(self) -> tuple[OrderTerm, ...] | None:
        """`(t.priority DESC, t.id)`; None when it turns out that an expression only starts so."""
        depth = self.depth
        self.advance()
        try:
            self.expect("(")
            arguments = () if self.token.symbol == ")" else self.order_terms()
            self.expect(")", "after the arguments")
        except ParseFailure:
            self.depth = depth
            return None
        return arguments if self.token.symbol in (",", "]") else None

    # --- deliveries -----------------------------------------------------------------------------------------------

    def ack(self) -> Ack:
        start = self.advance().start
        delivery = self.delivery_id()
        return Ack(delivery, span=self.span_from(start))

    def nack(self) -> Nack:
        start = self.advance().start
        delivery = self.delivery_id()
        options = self.options() if self.token.symbol == "[" else ()
        return Nack(delivery, options, span=self.span_from(start))

    def extend(self) -> Extend:
        start = self.advance().start
        delivery = self.delivery_id()
        options = self.options() if self.token.symbol == "[" else ()
        return Extend(delivery, options, span=self.span_from(start))

    def redrive(self) -> Redrive:
        start = self.advance().start
        watch = self.accept("WATCH")
        target = self.id_reference() if watch else self.delivery_id()
        return Redrive(target, watch, span=self.span_from(start))

    def delivery_id(self) -> Expression:
        """Ruling A1: a string, a parameter or an id."""
        if self.token.kind == "string":
            return self.literal()
        if self.token.kind == "param":
            return self.parameter()
        if self.token.kind != "id":
            self.fail_expected('a delivery: "text", $parameter or #id')
        return self.id_reference()

    # --- management -----------------------------------------------------------------------------------------------

    def watch_management(self, in_match: bool = False) -> ManageWatch | AlterWatch:
        start = self.token
        if start.symbol not in ("PAUSE", "RESUME", "CANCEL", "ALTER"):
            self.fail_expected("PAUSE, RESUME, CANCEL or ALTER")
        self.advance()
        self.expect("WATCH", f"after {start.symbol}")
        handle = self.handle(in_match)
        if start.symbol != "ALTER":
            return ManageWatch(start.symbol, handle, span=self.span_from(start.start))
        self.expect("SET", "and the options to change")
        options = self.options()
        return AlterWatch(handle, options, span=self.span_from(start.start))

    def handle(self, in_match: bool) -> Expression:
        """`#w`; in MATCH … DO also `s` and `s.id`."""
        token = self.token
        if token.kind == "id":
            return self.id_reference()
        if not in_match:
            self.fail_expected("the id of a watch, as in #w")
        variable = Variable(self.expect_identifier("a variable or #id"), span=token.span)
        if not self.accept("."):
            return variable
        if self.token.symbol != "ID":
            self.fail_expected("`id`")
        name = self.advance().text
        return Attribute(variable, name, span=self.span_from(token.start))
